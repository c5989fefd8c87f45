"""torch.FloatTensor and the like: types of old, which make tensors and tell their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.dtypes import DType

from .. import promote
from ..dispatch import constant
from ..errors import located
from ..layouts import NotDense
from ..numbers import Size
from ..placement import makes, makes_like, place_at
from ..placement import of as place_of_buffer
from ..promote import get_default_dtype
from ..tensor import Tensor, from_array
from .arguments import shape_of
from .creation import tensor, zeros
from .dtype_names import TYPE_STRINGS
from .subclasses import as_subclass, of_kind


@makes
def construct(
    dtype: DType, args: tuple[Any, ...], device: Any = None, size: Any = None
) -> Tensor:
    """A tensor of sizes, or a copy of data: FloatTensor(2, 3), FloatTensor([1, 2])."""
    if size is not None:
        return zeros(shape_of((size,)), dtype=dtype)  # type: ignore[no-any-return]
    if not args:
        return constant(np.zeros(0, dtype.numpy))
    data = args[0]
    if len(args) > 1 or isinstance(data, int):
        return zeros(shape_of(args), dtype=dtype)  # type: ignore[no-any-return]
    if isinstance(data, Tensor):
        return promote.cast(data.detach(), dtype)
    if isinstance(data, Size):
        return zeros(data, dtype=dtype)  # type: ignore[no-any-return]
    if isinstance(data, np.ndarray):
        return from_array(np.ascontiguousarray(data, dtype.numpy))
    if isinstance(data, (float, complex)):
        raise TypeError(located(
            f"new(): data must be a sequence (got {type(data).__name__}). Cure: "
            f"torch.tensor({data})"
        ))
    return tensor(data, dtype=dtype)


class TensorType(type):
    """The type of torch.FloatTensor: `isinstance(x, torch.FloatTensor)` asks for the dtype, and
    for the CPU."""

    dtype: DType

    def __call__(cls, *args: Any, device: Any = None, size: Any = None) -> Any:
        return construct(cls.dtype, args, device=device, size=size)

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, Tensor) or instance.dtype is not cls.dtype:
            return False
        if instance._graphc_trace is not None:
            return place_at(instance) is None
        try:
            return place_of_buffer(instance._graphc_array) is None
        except NotDense:
            return False

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


TYPES: dict[str, Any] = {
    name: TensorType(name, (), {"dtype": dtype, "__module__": "torch"})
    for name, dtype in TYPE_STRINGS.items()
}


def legacy_constructor(
    cls: type[Tensor], *args: Any, device: Any = None, size: Any = None
) -> Any:
    """torch.Tensor(2, 3), torch.Tensor([1, 2]): tensors of the default dtype; of a subclass, its
    own."""
    if cls is Tensor:
        return construct(get_default_dtype(), args, device=device, size=size)
    if len(args) == 1 and isinstance(args[0], Tensor):
        return as_subclass(args[0], cls)
    return of_kind(construct(get_default_dtype(), args, device=device, size=size), cls)


def new(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """A tensor of this one's dtype, by sizes or from data."""
    return _new(self, args, device=device)


@makes_like
def _new(self: Tensor, args: tuple[Any, ...], device: Any = None) -> Tensor:
    return construct(self.dtype, args)
