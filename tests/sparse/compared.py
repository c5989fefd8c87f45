"""One function run on PyTorch and on graphc, and what the two say compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

Function = Callable[[Any], Any]


def plain(value: Any) -> Any:
    """A value of either, as what can be compared."""
    if isinstance(value, (torch.Tensor, graphc.Tensor)):
        facts = [str(value.dtype), tuple(value.shape), str(value.layout), value.requires_grad]
        if str(value.layout) != "torch.strided":
            facts.append(value._nnz() if str(value.layout) != "torch.sparse_coo" else (
                value.is_coalesced(), value.coalesce()._nnz(), value.sparse_dim()
            ))
            value = value.detach().to_dense()
        value = value.detach()
        if "bfloat16" in str(value.dtype):
            value = value.float()
        return facts, np.asarray(value.numpy())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return str(value) if type(value).__module__.startswith(("torch", "graphc")) else value


def same(ours: Any, theirs: Any, where: str = "") -> None:
    """Assert that two plain values are alike."""
    if isinstance(theirs, np.ndarray):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6, err_msg=where)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), (where, ours, theirs)
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            same(a, b, f"{where}[{i}]")
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key], f"{where}[{key!r}]")
    else:
        assert ours == theirs, where


def outcome(function: Function, package: Any) -> Any:
    """What it gives, or the kind of error and the beginning of its text."""
    try:
        return plain(function(package))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return type(error).__name__, str(error).partition("\n")[0]


def compare(function: Function) -> None:
    """Both give the same."""
    theirs = plain(function(torch))
    same(plain(function(graphc)), theirs)


def compare_errors(function: Function, length: int = 40) -> None:
    """Both raise the same kind of error, whose texts begin alike."""
    theirs, ours = outcome(function, torch), outcome(function, graphc)
    assert isinstance(theirs, tuple), theirs
    assert isinstance(ours, tuple), ours
    assert ours[0] == theirs[0], (ours, theirs)
    assert ours[1][:length] == theirs[1][:length], (ours, theirs)


INDICES = [[0, 1, 1, 3, 0], [2, 0, 0, 4, 1]]  # one place twice, not in order
VALUES = [3.0, 4.0, 5.0, -2.0, 0.5]


def coo(t: Any, **options: Any) -> Any:
    """A matrix [4, 5] with five entries at four places."""
    return t.sparse_coo_tensor(t.tensor(INDICES), t.tensor(VALUES, **options), (4, 5))


def hybrid(t: Any) -> Any:
    """[4, 5, 2], with entries of two numbers."""
    values = t.arange(10, dtype=t.float32).reshape(5, 2) - 3
    return t.sparse_coo_tensor(t.tensor(INDICES), values, (4, 5, 2))


def dense(t: Any, *shape: int) -> Any:
    """Numbers of some shape, the same in both."""
    count = int(np.prod(shape))
    return (t.arange(count, dtype=t.float32).reshape(*shape) * 0.37).sin()


def csr(t: Any) -> Any:
    """A matrix [3, 4] in compressed rows."""
    return t.sparse_csr_tensor(
        t.tensor([0, 2, 2, 4]), t.tensor([0, 3, 1, 2]), t.tensor([1.0, -2.0, 3.0, 0.5]), (3, 4)
    )
