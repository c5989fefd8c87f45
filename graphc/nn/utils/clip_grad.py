"""Clipping of gradients in place."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ...frontend import functions as T
from ...frontend.grad_mode import no_grad
from ...frontend.placement import place_at
from ...frontend.plain import euclidean_norm
from ...frontend.plain import scale as scale_all
from ...frontend.tensor import Tensor
from ...frontend.transfer import moved


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [grad for grad in [parameter.grad for parameter in given] if grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors together, as if they were one vector."""
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not given:
        return T.tensor(0.0)
    if norm_type == 2.0 and (quick := euclidean_norm(given)) is not None:
        return _finite(quick, norm_type, error_if_nonfinite)
    # tensors may lie on several devices, as in torch: the norm is where the first one is
    norms = [moved(tensor.norm(norm_type), place_at(given[0])) for tensor in given]
    return _finite(T.stack(norms).norm(norm_type), norm_type, error_if_nonfinite)


def _finite(total: Tensor, norm_type: float, error_if_nonfinite: bool) -> Tensor:
    if error_if_nonfinite and not bool(T.isfinite(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale gradients, whose norm is total_norm, so that it is at most max_norm."""
    scale: Any = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    grads = _grads(parameters)
    if scale_all(grads, scale):
        return
    for grad in grads:
        grad.mul_(moved(scale, place_at(grad)))


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: bool | None = None,
) -> Tensor:
    """Scale gradients together so that their norm is at most max_norm; the norm before."""
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_grads(given), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(given, max_norm, total)
    return total


@no_grad()
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clip every element of the gradients to [-clip_value, clip_value]."""
    bound = float(clip_value)
    for grad in _grads(parameters):
        grad.clamp_(min=-bound, max=bound)


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: bool | None = None,
) -> Tensor:
    """clip_grad_norm_, by its old name."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
