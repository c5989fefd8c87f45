"""One function of a package, run by torch and by graphc, eager and compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

import graphc
import graphc.func
from graphc.frontend.tree import flatten

torch.set_num_threads(1)

rng = np.random.default_rng(0)
X = rng.standard_normal((5, 3))
W = rng.standard_normal((3, 4))
V = rng.standard_normal(3)
IMAGES = rng.standard_normal((3, 2, 6, 6))

Builder = Callable[[Any], Callable[..., Any]]


def leaves(value: Any) -> list[np.ndarray]:
    """The tensors of a result of either package as arrays."""
    found = flatten(value)[0]
    if any(isinstance(x, torch.Tensor) for x in tree_leaves(value)):
        found = tree_leaves(value)
    return [x.detach().numpy() for x in found]


def agree(have: Any, want: Any, tolerance: float = 1e-9) -> None:
    """Assert that two results have the same tensors."""
    first, second = leaves(have), leaves(want)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def check(build: Builder, *arrays: np.ndarray, tolerance: float = 1e-9, mode: str = "") -> None:
    """build(package)(*tensors) is the same in torch and here; `mode` "compiled" compiles it."""
    with warnings.catch_warnings():  # torch's own forward mode warns of its TorchScript
        warnings.simplefilter("ignore")
        want = build(torch)(*[torch.tensor(a) for a in arrays])
    function = build(graphc)
    if mode == "compiled":
        function = graphc.compile(function)
    agree(function(*[graphc.tensor(a) for a in arrays]), want, tolerance)
