"""One function of a torch namespace, run with PyTorch and with graphc: values, types, gradients.

A function takes the namespace first: `lambda t, x: t.linalg.inv(x)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch: Any = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]


def sample(*shape: int, kind: str = "real", seed: int = 0) -> Array:
    """Normal numbers in float64 or complex128, the same at every run."""
    generator = np.random.default_rng([seed, *shape])
    found = generator.standard_normal(shape)
    return found + 1j * generator.standard_normal(shape) if kind == "complex" else found


def regular(*shape: int, kind: str = "real", seed: int = 0) -> Array:
    """Square matrices that are far from singular."""
    return sample(*shape, kind=kind, seed=seed) + 3 * np.eye(shape[-1])


def _tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _loss(namespace: Any, results: tuple[Any, ...], seed: int = 1) -> Any:
    """Every result that can carry a gradient, weighed; real."""
    generator = np.random.default_rng(seed)
    total: Any = None
    for y in results:
        shape = tuple(y.shape)
        weights, others = generator.standard_normal(shape), generator.standard_normal(shape)
        if not (y.is_floating_point() or y.is_complex()) or not y.requires_grad:
            continue
        if y.is_complex():
            weights = weights + 1j * others
        part = (y * namespace.tensor(weights).to(y.dtype)).sum()
        part = part.real if y.is_complex() else part
        total = part if total is None else total + part
    return total


def _array(tensor: Any) -> Array:
    value = tensor.detach()
    found: Array = (value.resolve_conj() if hasattr(value, "resolve_conj") else value).numpy()
    return found


def _same(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    assert str(ours.dtype) == str(theirs.dtype), what
    assert tuple(ours.shape) == tuple(theirs.shape), what
    np.testing.assert_allclose(
        _array(ours), _array(theirs), rtol=tolerance, atol=tolerance, err_msg=what
    )


def _gradients(
    namespace: Any, function: Callable[..., Any], arrays: tuple[Array, ...], twice: bool,
    run: Callable[..., Any] | None = None,
) -> tuple[tuple[Any, ...], list[Any], list[Any]]:
    inputs = [namespace.tensor(a, requires_grad=True) for a in arrays]
    results = _tuple((run or (lambda *x: function(namespace, *x)))(*inputs))
    loss = _loss(namespace, results)
    grad = namespace.autograd.grad
    first = list(grad(loss, inputs, allow_unused=True, create_graph=twice))
    second: list[Any] = []
    if twice:
        total = sum((g.abs() ** 2).sum() for g in first if g is not None)
        if total.requires_grad:
            second = list(grad(total, inputs, allow_unused=True))
    return results, first, second


def compare(
    function: Callable[..., Any], *arrays: Array, grad: bool = True, twice: bool = False,
    compiled: bool = False, tolerance: float = 1e-8,
) -> None:
    """Assert that results and gradients (`twice`: the gradients' gradients) agree."""
    run = graphc.compile(lambda *x: function(graphc, *x)) if compiled else None
    if not grad:
        theirs = _tuple(function(torch, *map(torch.tensor, arrays)))
        inputs = [graphc.tensor(a) for a in arrays]
        ours = _tuple(run(*inputs) if run else function(graphc, *inputs))
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            _same(a, b, tolerance, f"result {i}")
        return
    twice = twice and not compiled
    want = _gradients(torch, function, arrays, twice)
    have = _gradients(graphc, function, arrays, twice, run)
    names = ("result", "gradient", "second gradient")
    for name, mine, other in zip(names, have, want, strict=True):
        for i, (a, b) in enumerate(zip(mine, other, strict=True)):
            if b is not None:
                _same(a, b, tolerance * (100 if twice else 1), f"{name} {i}")
