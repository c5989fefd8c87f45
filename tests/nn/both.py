"""Running the same code on PyTorch and graphc, and comparing what comes out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import graphc

torch.set_num_threads(1)  # small tensors, and machines shared with other test runs

TOLERANCE = {"float64": 1e-10, "float32": 2e-5}


def space(package: str) -> SimpleNamespace:
    """torch, nn, F of one package."""
    return SimpleNamespace(
        torch=importlib.import_module(package),
        nn=importlib.import_module(f"{package}.nn"),
        F=importlib.import_module(f"{package}.nn.functional"),
    )


SPACES = (space("torch"), space("graphc"))


def array(value: Any) -> np.ndarray:
    """A tensor of either package as an array."""
    return value.detach().numpy()


def close(have: Any, want: Any, tolerance: float, what: str = "") -> None:
    """Assert that containers of tensors agree: structure, shape, dtype and values."""
    if isinstance(want, torch.Tensor):
        assert isinstance(have, graphc.Tensor), what
        assert tuple(have.shape) == tuple(want.shape), what
        assert str(have.dtype) == str(want.dtype), what
        np.testing.assert_allclose(
            array(have), array(want), rtol=tolerance, atol=tolerance, err_msg=what
        )
    elif isinstance(want, (tuple, list)):
        assert len(have) == len(want), what
        for i, (h, w) in enumerate(zip(have, want, strict=True)):
            close(h, w, tolerance, f"{what}[{i}]")
    elif isinstance(want, float):
        assert have == want or abs(have - want) <= tolerance * max(1.0, abs(want)), what
    else:
        assert have == want, what


def tensors(values: Sequence[Any], dtype: str, torch_: Any, grad: bool = True) -> list[Any]:
    """Arrays as tensors of a package: floating ones in `dtype`, requiring gradients."""
    made: list[Any] = []
    for value in values:
        if isinstance(value, tuple):
            made.append(tuple(tensors(value, dtype, torch_, grad)))
            continue
        if not isinstance(value, np.ndarray):
            made.append(value)
            continue
        floating = value.dtype.kind == "f"
        copied = value.astype(dtype) if floating else value.copy()
        tensor = torch_.from_numpy(copied)
        made.append(tensor.requires_grad_() if floating and grad else tensor)
    return made


def leaves(value: Any, torch_: Any) -> list[Any]:
    """The floating tensors in nested containers."""
    if isinstance(value, torch_.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item, torch_)]
    return []


def backward(outputs: Any, torch_: Any) -> None:
    """Backward of a fixed random weighting of every floating output."""
    rng = np.random.default_rng(7)
    total = None
    for leaf in leaves(outputs, torch_):
        weight = rng.standard_normal(tuple(leaf.shape)).astype(str(leaf.dtype).split(".")[1])
        if leaf.requires_grad:
            term = (leaf * torch_.from_numpy(np.asarray(weight))).sum()
            total = term if total is None else total + term
    if total is not None:
        total.backward()


def compare_gradients(given: Sequence[Any], tolerance: float) -> None:
    """The inputs' gradients, of both packages."""
    theirs, ours = (leaves(g, s.torch) for g, s in zip(given, SPACES, strict=True))
    for i, (want, have) in enumerate(zip(theirs, ours, strict=True)):
        close(have.grad, want.grad, tolerance, f"gradient of input {i}")


def copy_state(source: Any, target: Any) -> None:
    """Give a graphc module the state of a torch module."""
    state = {k: graphc.from_numpy(array(v).copy()) for k, v in source.state_dict().items()}
    target.load_state_dict(state)


def compare_modules(
    make: Callable[[Any], Any], inputs: Sequence[Any], dtype: str, train: bool = True,
    calls: int = 1, tolerance: float | None = None,
) -> None:
    """Same state, same inputs: the same text, outputs, gradients and buffers."""
    theirs, ours = (make(s.nn) for s in SPACES)
    assert repr(ours) == repr(theirs)
    for module, s in zip((theirs, ours), SPACES, strict=True):
        module.to(getattr(s.torch, dtype)).train(train)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    copy_state(theirs, ours)
    tolerance = TOLERANCE[dtype] if tolerance is None else tolerance
    for _ in range(calls):
        given = [tensors(inputs, dtype, s.torch) for s in SPACES]
        found = [m(*x) for m, x in zip((theirs, ours), given, strict=True)]
        close(found[1], found[0], tolerance, "output")
        for s, outputs in zip(SPACES, found, strict=True):
            backward(outputs, s.torch)
        compare_gradients(given, tolerance)
    for (name, want), (_, have) in zip(
        theirs.named_parameters(), ours.named_parameters(), strict=True
    ):
        close(have.grad, want.grad, tolerance * 5, f"gradient of {name}")
    for name, want in theirs.state_dict().items():
        close(ours.state_dict()[name], want, tolerance, name)


def compare_functions(
    function: Callable[..., Any], inputs: Sequence[Any], dtype: str
) -> None:
    """function(space, *tensors) on both: the same outputs and gradients."""
    given = [tensors(inputs, dtype, s.torch) for s in SPACES]
    found = [function(s, *x) for s, x in zip(SPACES, given, strict=True)]
    close(found[1], found[0], TOLERANCE[dtype], "output")
    for s, outputs in zip(SPACES, found, strict=True):
        backward(outputs, s.torch)
    compare_gradients(given, TOLERANCE[dtype])
