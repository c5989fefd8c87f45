"""torch.nn.parameter: parameters, buffers, and both before their shape is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend import functions as T
from ..frontend.overriding import disabled
from ..frontend.tensor import Parameter as Parameter
from ..frontend.tensor import Tensor, alias, from_array


class Buffer(Tensor):
    """A Tensor that a Module lists among its buffers when it is assigned to an attribute."""

    persistent: bool
    __torch_function__ = disabled

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = from_array(np.zeros(0, np.float32))
        result: Any = alias(data, cls)
        result.persistent = persistent
        return result.requires_grad_(data.requires_grad)


class UninitializedTensorMixin:
    """What tensors without a shape share: most uses raise until materialize()."""

    cls_to_become: type[Tensor] = Tensor
    __torch_function__ = disabled

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Give it a shape, and memory whose values do not matter."""
        given: Any = self
        kind = given.data.dtype if dtype is None else dtype
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        where = given.data.device if device is None else device
        given.data = T.empty(tuple(shape), dtype=kind, device=where)

    @property
    def shape(self) -> Any:
        """Raises: there is none yet."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            "Attempted to use an uninitialized parameter or buffer. This error happens when you "
            "are using a `LazyModule` or explicitly manipulating `torch.nn.parameter."
            f"{type(self).__name__}` objects. When using LazyModules Call `forward` with a dummy "
            "batch to initialize the parameters before calling torch functions"
        )

    __add__ = __sub__ = __mul__ = __truediv__ = __matmul__ = __getitem__ = __len__ = _refuse
    size = numel = dim = view = reshape = clone = sum = mean = fill_ = zero_ = normal_ = _refuse
    uniform_ = copy_ = _refuse

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter whose shape the first forward finds."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        result = alias(T.empty(0, dtype=dtype, device=device), cls)
        result._graphc_requires_grad = requires_grad
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, dtype=self.dtype)
        return memo[id(self)]


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape the first forward finds."""

    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        result: Any = alias(T.empty(0, dtype=dtype, device=device), cls)
        result.persistent = persistent
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(dtype=self.dtype)
        return memo[id(self)]


def is_lazy(param: Any) -> bool:
    """Whether it waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)
