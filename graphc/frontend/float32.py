"""Whether sums of float32 products may round what is multiplied to TF32, as an operator is
recorded: torch's settings, which count on GPUs alone."""

from __future__ import annotations

from collections.abc import Callable

from graphc.ir import dtypes

from .placement import place_at, places
from .tensor import Tensor
from .values import Eager


class Settings:
    """What is set: torch.backends tells (`graphc/__init__` says whom to ask)."""

    products: Callable[[], bool] = staticmethod(lambda: False)
    convolutions: Callable[[], bool] = staticmethod(lambda: False)


def has_gpu() -> bool:
    """Whether a GPU has been asked for."""
    return Eager.elsewhere is not None and any(
        place.device.type == "cuda" for place in places()
    )


def of_product(*operands: Tensor) -> dict[str, bool]:
    """The attributes that a matrix product of such tensors gets besides its own."""
    return _TF32 if _on_gpu(operands) and Settings.products() else _NONE


def of_convolution(*operands: Tensor) -> dict[str, bool]:
    """The same of a convolution."""
    return _TF32 if _on_gpu(operands) and Settings.convolutions() else _NONE


def in_force() -> tuple[bool, bool] | None:
    """What a recording hangs on; None: on nothing, where no GPU is used."""
    return (Settings.products(), Settings.convolutions()) if has_gpu() else None


_TF32, _NONE = {"tf32": True}, dict[str, bool]()


def _on_gpu(operands: tuple[Tensor, ...]) -> bool:
    if Eager.elsewhere is None:
        return False
    return all(x.dtype is dtypes.f32 for x in operands) and any(
        (place := place_at(x)) is not None and place.device.type == "cuda" for x in operands
    )
