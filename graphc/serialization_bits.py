"""Tensors that a file says to be the conjugate or the negative of what lies in their storage:
torch's conj() and imag make such views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .frontend.tensor import Tensor
from .unpickle import UnpicklingError


def resolved(stored: Tensor, bits: Any) -> Tensor:
    """What is meant, with memory of its own. Raises UnpicklingError for other metadata."""
    if not isinstance(bits, Mapping) or not set(bits) <= {"conj", "neg"}:
        raise UnpicklingError(f"a tensor with the metadata {bits!r}")
    value = stored.detach()
    if bits.get("conj"):
        value = value.conj().resolve_conj()
    if bits.get("neg"):
        value = -value
    return value.requires_grad_(stored.requires_grad)


def refusing_bits(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """For files whose storages come after all tensors, so that there is nothing to compute with."""

    def rebuilt(*args: Any) -> Tensor:
        if len(args) > 6 and args[6]:
            raise UnpicklingError(
                "a conjugate or negative view. Cure: save resolve_conj() or resolve_neg() of it, "
                "or use the format that is PyTorch's default"
            )
        return make(*args)

    return rebuilt
