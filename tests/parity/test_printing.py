"""repr(tensor) character for character as PyTorch's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

_rng = np.random.default_rng(0)
ARRAYS: dict[str, np.ndarray] = {
    "0-d float": np.array(1.5, np.float32),
    "0-d whole": np.array(3.0, np.float32),
    "0-d int": np.array(7),
    "0-d bool": np.array(True),
    "0-d large": np.array(1e10, np.float32),
    "0-d small": np.array(1e-6, np.float32),
    "0-d nan": np.array(np.nan, np.float32),
    "vector": np.array([1.0, 2.5, -3.25], np.float32),
    "whole numbers": np.array([1.0, 2.0, -30.0], np.float32),
    "whole and nan": np.array([1.0, np.nan, np.inf, -np.inf], np.float32),
    "large whole": np.array([1.0, 123456.0], np.float32),
    "huge whole": np.array([1e9, 1.0], np.float32),
    "scientific ratio": np.array([0.001, 5.5], np.float32),
    "scientific small": np.array([0.00001, 0.5], np.float32),
    "scientific negative": np.array([-1e-9, 0.5, np.nan], np.float32),
    "zeros": np.zeros((2, 2), np.float32),
    "nan only": np.array([np.nan, np.nan], np.float32),
    "infinities": np.array([np.inf, -np.inf], np.float32),
    "negative zero": np.array([-0.0, 1.5], np.float32),
    "double": np.array([1.1, 2.0]),
    "ints": np.array([[1, -20], [300, 4]]),
    "int32": np.array([1, 2], np.int32),
    "uint8": np.array([1, 200], np.uint8),
    "bools": np.array([[True, False], [False, True]]),
    "matrix": _rng.standard_normal((3, 4)).astype(np.float32),
    "3-d": _rng.standard_normal((2, 3, 4)).astype(np.float32),
    "4-d": _rng.standard_normal((2, 2, 2, 3)).astype(np.float32),
    "long vector": np.arange(30),
    "long floats": _rng.standard_normal(30).astype(np.float32),
    "summary vector": np.arange(2000),
    "summary matrix": _rng.standard_normal((100, 20)).astype(np.float32),
    "summary 3-d": np.arange(5 * 50 * 7).reshape(5, 50, 7),
    "summary wide": np.arange(3 * 1000).reshape(3, 1000).astype(np.float32),
    "exactly 1000": np.arange(1000),
    "1001": np.arange(1001),
    "empty": np.zeros(0, np.float32),
    "empty matrix": np.zeros((2, 0), np.float32),
    "empty int": np.zeros((0,), np.int64),
    "empty int matrix": np.zeros((0, 3), np.int64),
    "column": _rng.standard_normal((5, 1)).astype(np.float32),
    "wide ints": np.array([[10**12, -1], [5, 123]]),
    "overflowing ratio": np.array([1e-300, 1e300]),
    "half": np.array([1.5, 0.1], np.float16),
}


@pytest.mark.parametrize("name", list(ARRAYS))
def test_array(name: str) -> None:
    array = ARRAYS[name]
    assert repr(graphc.tensor(array)) == repr(torch.tensor(array))
    assert str(graphc.tensor(array)) == str(torch.tensor(array))


CALLS: dict[str, Callable[[Any], Any]] = {
    "requires_grad": lambda t: t.ones(2, requires_grad=True),
    "grad_fn": lambda t: t.ones(2, requires_grad=True) * 2,
    "grad_fn sum": lambda t: t.ones(2, requires_grad=True).sum(),
    "grad_fn view": lambda t: t.ones(2, 2, requires_grad=True).view(4),
    "grad_fn matmul": lambda t: t.ones(2, 2, requires_grad=True) @ t.ones(2, 2),
    "grad_fn mean": lambda t: t.ones(3, requires_grad=True).mean(),
    "dtype and grad": lambda t: t.ones(2, dtype=t.float64, requires_grad=True),
    "bfloat16": lambda t: t.ones(2, dtype=t.bfloat16) * 1.5,
    "wrapped suffix": lambda t: t.arange(14, dtype=t.float64).requires_grad_(),
    "permuted": lambda t: t.arange(6).view(2, 3).t(),
    "expanded": lambda t: t.arange(3).expand(2, 3),
    "size": lambda t: t.zeros(2, 3).shape,
    "dtypes": lambda t: [t.float32, t.int64, t.bool, t.bfloat16],
    "device": lambda t: [t.zeros(1).device, t.device("cuda", 1), t.device("cpu")],
    "named tuple": lambda t: t.tensor([[1.0, 3.0, 2.0]]).max(1),
    "named tuple sort": lambda t: t.tensor([3, 1]).sort(),
    "tuple of tensors": lambda t: t.arange(4).chunk(2),
    "format": lambda t: f"{t.tensor(1.5)} {t.tensor([1, 2])} {t.tensor(2.5):.3f}",
    "finfo": lambda t: t.finfo(t.float16),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_call(name: str) -> None:
    assert repr(CALLS[name](graphc)) == repr(CALLS[name](torch))


@pytest.fixture
def default_options() -> Iterator[None]:
    yield
    for t in (torch, graphc):
        t.set_printoptions(profile="default")


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2}, {"sci_mode": True}, {"sci_mode": False}, {"threshold": 5},
        {"linewidth": 40}, {"threshold": 4, "edgeitems": 1}, {"profile": "short"},
        {"profile": "full"}, {"precision": 7, "sci_mode": True},
    ],
    ids=str,
)
def test_options(options: dict[str, Any], default_options: None) -> None:
    for t in (torch, graphc):
        t.set_printoptions(**options)
    for name in ("vector", "matrix", "3-d", "long floats", "scientific ratio", "whole and nan"):
        assert repr(graphc.tensor(ARRAYS[name])) == repr(torch.tensor(ARRAYS[name])), name


def test_parameter() -> None:
    want = repr(torch.nn.Parameter(torch.tensor([1.0, 2.0])))
    assert repr(graphc.frontend.tensor.Parameter(graphc.tensor([1.0, 2.0]))) == want


def test_names_of_classes() -> None:
    for find in (
        lambda t: t.float32, lambda t: t.strided, lambda t: t.device("cpu"),
        lambda t: t.zeros(2).shape, lambda t: t.finfo(t.float32),
        lambda t: t.nn.Linear(1, 1).load_state_dict({}, strict=False),
    ):
        mine, theirs = type(find(graphc)), type(find(torch))
        assert mine.__name__ == theirs.__name__
        assert mine.__qualname__ == theirs.__qualname__
    assert pickle.loads(pickle.dumps(graphc.dtype)) is graphc.dtype
