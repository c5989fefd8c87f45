"""torch.tensor of sequences that hold NumPy's numbers and arrays, or tensors; absent methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc

DATA: dict[str, Callable[[Any], Any]] = {
    "float64 number": lambda t: [np.float64(2)],
    "float32 number and a float": lambda t: [np.float32(2), 1.0],
    "float64 arrays": lambda t: [np.ones(2), np.ones(2)],
    "float64 number, nested": lambda t: [[np.float64(1)], [2.0]],
    "int64 number and a float": lambda t: [np.int64(1), 2.0],
    "float16 number": lambda t: [np.float16(1)],
    "float16 number and a float": lambda t: [np.float16(1), 2.0],
    "int32 number and an int": lambda t: [np.int32(1), 2],
    "float32 array and a list": lambda t: (np.ones(2, np.float32), [1.0, 2.0]),
    "float32 and float64 arrays": lambda t: [np.ones(2, np.float32), np.ones(2)],
    "complex number": lambda t: [1j, np.float64(2)],
    "empty float64 array": lambda t: [np.empty(0)],
    "int32 and float32 numbers": lambda t: [np.int32(1), np.float32(2)],
    "plain floats": lambda t: [[1.5, 2.0], [3.0, 4.0]],
    "a tensor of one element": lambda t: [t.tensor([1.5])],
    "tensors of one element, nested": lambda t: [[t.tensor([[1]]), 2], [3, t.tensor(4)]],
    "tensors of two dtypes": lambda t: (t.tensor([1.5]), t.tensor([2])),
    "a float64 tensor": lambda t: [t.ones(1, dtype=t.float64)],
    "a tensor with a gradient": lambda t: [t.tensor([[1.5]], requires_grad=True)],
    "a longer tensor": lambda t: [t.tensor([1.0, 2.0])],
    "longer integer tensors": lambda t: [t.tensor([1, 2]), t.tensor([3, 4])],
    "an empty tensor": lambda t: [t.tensor([])],
}


def _outcome(t: Any, name: str) -> tuple[Any, ...]:
    try:
        made = t.tensor(DATA[name](t))
    except (TypeError, ValueError) as error:
        return type(error), str(error).partition("\n")[0]
    return tuple(made.shape), str(made.dtype), made.tolist(), made.requires_grad


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list:UserWarning")
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning")
@pytest.mark.parametrize("name", DATA)
def test_data_is_read_as_torch_reads_it(name: str) -> None:
    assert _outcome(graphc, name) == _outcome(torch, name)
