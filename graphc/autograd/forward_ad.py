"""torch.autograd.forward_ad: dual tensors.

A dual tensor is a fresh place on the tape with a tangent noted for it; the tangent of a result is
computed when it is asked for, as the derivative of its history (func/gradients.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..frontend.grad_mode import enable_grad
from ..frontend.history import requires_grad
from ..frontend.tensor import Tensor, alias, current
from ..func.gradients import Pushforward
from ..func.tape import fresh, has_outside, released


class UnpackedDualTensor(NamedTuple):
    """A dual tensor's value, and its tangent (None where it has none)."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    def __init__(self) -> None:
        self.duals: list[Tensor] = []
        self.tangents: list[Tensor] = []


_levels: list[_Level] = []


def enter_dual_level() -> int:
    """Start a level of forward differentiation; its number. There can be one at a time."""
    if _levels:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment. Cure: nest func.jvp instead"
        )
    _levels.append(_Level())
    return len(_levels) - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level; tangents of its tensors are gone."""
    if not _levels or (level is not None and level != len(_levels) - 1):
        raise RuntimeError(
            f"Trying to exit a forward AD level that was not the last one that was created: {level}"
        )
    _levels.pop()


class dual_level:
    """A level for the length of a block."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """`tensor` with a tangent of its shape."""
    if not _levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    if not tensor.dtype.is_floating_point:
        raise ValueError(
            f"Expected primal to be floating point or complex, but got: {tensor.dtype}"
        )
    if not tangent.dtype.is_floating_point:
        raise ValueError(
            f"Expected tangent to be floating point or complex, but got: {tangent.dtype}"
        )
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise RuntimeError(
            f"Expected tangent to have the shape of the primal, {list(tensor.shape)}, but got "
            f"{list(tangent.shape)}"
        )
    with enable_grad():
        dual = fresh(tensor)
    _levels[-1].duals.append(dual)
    _levels[-1].tangents.append(tangent)
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A result's value, and its derivative in the direction of the level's tangents."""
    if not _levels or not _levels[-1].duals or not requires_grad(current(tensor)):
        return UnpackedDualTensor(tensor, None)
    duals, tangents = _levels[-1].duals, _levels[-1].tangents
    for dual, tangent in zip(duals, tangents, strict=True):
        if dual is tensor:
            return UnpackedDualTensor(alias(tensor), tangent)
    with enable_grad():
        push = Pushforward([tensor], duals)
        (found,) = push(tangents, True)
        outside: Any = has_outside([tensor], duals)
    return UnpackedDualTensor(
        released(tensor, outside, True), None if found is None else released(found, outside, True)
    )
