"""Random index expressions: reads, gradients and writes as PyTorch's, errors of the same type."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")
COUNT = 400


def _entry(rng: np.random.Generator, size: int) -> Any:
    """One subscript for a dim, spelled so that both libraries can be given it."""
    kind = rng.integers(0, 9)
    if kind == 0:
        return int(rng.integers(-size - 1, size + 1)) if size else 0
    if kind in (1, 2, 3):
        bounds = [int(v) if rng.random() > 0.3 else None for v in rng.integers(-7, 8, 2)]
        return slice(*bounds, int(rng.integers(1, 4)) if rng.random() > 0.5 else None)
    if kind == 4:
        return None
    if kind == 5:
        return Ellipsis
    if kind == 6:
        shape = ((), (2,), (3, 1), (1, 2), (0,))[rng.integers(0, 5)]
        return rng.integers(-size, size, shape) if size else np.zeros(0, np.int64)
    if kind == 7:
        return rng.random(size) > 0.5
    return [int(v) for v in rng.integers(0, max(size, 1), 2)]


def _index(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    entries: list[Any] = []
    dim = 0
    for _ in range(rng.integers(1, len(shape) + 2)):
        entry = _entry(rng, shape[min(dim, len(shape) - 1)])
        if entry is Ellipsis and any(e is Ellipsis for e in entries):
            continue
        dim += entry is not None and entry is not Ellipsis
        entries.append(entry)
    return tuple(entries) if len(entries) != 1 or rng.random() > 0.5 else entries[0]


def _for(t: Any, index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_for(t, e) for e in index)
    return t.tensor(index) if isinstance(index, np.ndarray) else index


def _read(t: Any, array: np.ndarray, index: Any) -> tuple[Any, Any]:
    x = t.tensor(array, requires_grad=True)
    y = x[_for(t, index)]
    (y * t.arange(y.numel()).reshape(y.shape)).sum().backward()
    return y, x.grad


def _write(t: Any, array: np.ndarray, index: Any, value: Any) -> Any:
    x = t.tensor(array)
    x[_for(t, index)] = t.tensor(value) if isinstance(value, np.ndarray) else value
    return x


def _outcome(run: Any, *args: Any) -> tuple[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "", run(*args)
    except (IndexError, ValueError, TypeError, RuntimeError) as error:
        return type(error).__name__, str(error)


def _case(seed: int) -> tuple[np.random.Generator, np.ndarray, Any]:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 5)))
    if rng.random() < 0.05:
        shape = (*shape[:-1], 0)
    return rng, rng.standard_normal(shape), _index(rng, shape)


@pytest.mark.parametrize("seed", range(COUNT))
def test_read(seed: int) -> None:
    _, array, index = _case(seed)
    want, found = _outcome(_read, torch, array, index), _outcome(_read, graphc, array, index)
    assert found[0] == want[0], f"{array.shape} {index!r}: {found}, not {want}"
    if want[0]:
        return
    for w, h in zip(want[1], found[1], strict=True):
        assert tuple(h.shape) == tuple(w.shape), f"{array.shape} {index!r}"
        np.testing.assert_array_equal(h.detach().numpy(), w.detach().numpy(), err_msg=f"{index!r}")


@pytest.mark.parametrize("seed", range(COUNT))
def test_write(seed: int) -> None:
    rng, array, index = _case(seed)
    value: Any = 7.5
    reading = _outcome(lambda: torch.tensor(array)[_for(torch, index)])
    if not reading[0] and rng.random() > 0.4:
        # distinct values only where no place is written twice: torch leaves the order open
        places = torch.arange(array.size).reshape(array.shape)[_for(torch, index)].reshape(-1)
        shape = tuple(reading[1].shape)
        if len(set(places.tolist())) == places.numel():
            value = rng.standard_normal(shape)
        if rng.random() < 0.2:
            value = np.asarray(rng.standard_normal((3, *shape)))
    want = _outcome(_write, torch, array, index, value)
    found = _outcome(_write, graphc, array, index, value)
    assert found[0] == want[0], f"{array.shape} {index!r}: {found}, not {want}"
    if not want[0]:
        np.testing.assert_array_equal(found[1].numpy(), want[1].numpy(), err_msg=f"{index!r}")
