"""Types of graph values: a tensor's dtype and shape, or a tuple of types."""

from __future__ import annotations

from typing import TypeAlias

from .dim import Size, is_static, product
from .dtypes import DType
from .record import record

Shape: TypeAlias = tuple[Size, ...]


@record
class TensorType:
    """A dense tensor value. Layout inside a Graph is free: a type has no strides."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Size:
        return product(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints. Raises ValueError where a size is symbolic."""
        if not is_static(self.shape):
            raise ValueError(f"{self} has a symbolic size; this step needs concrete sizes")
        return tuple(int(size) for size in self.shape)  # type: ignore[arg-type]

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(str(size) for size in self.shape)}]"


@record
class TupleType:
    """The type of a node with several results; `get` nodes take them apart."""

    elements: tuple[TensorType, ...]

    def __str__(self) -> str:
        return "(" + ", ".join(str(e) for e in self.elements) + ")"


Type: TypeAlias = TensorType | TupleType
