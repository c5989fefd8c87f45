"""torch.distributions.transforms: invertible maps with the logarithm of their Jacobian."""

from __future__ import annotations

import copy
import weakref
from typing import Any

from ..frontend import functions as T
from ..frontend.numbers import Size
from ..frontend.tensor import Tensor
from . import constraints
from .utils import _sum_rightmost


class Transform:
    """y = f(x). Subclasses give _call, _inverse and log_abs_det_jacobian."""

    bijective = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: weakref.ReferenceType[Transform] | None = None
        self._cached: tuple[Any, Any] = (None, None)

    @property
    def event_dim(self) -> int:
        """The number of dimensions of an event, where domain and codomain agree on it."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """1 where increasing, -1 where decreasing."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The transform with a cache of the last value."""
        if self._cache_size == cache_size:
            return self
        other = copy.copy(self)
        Transform.__init__(other, cache_size=cache_size)
        return other

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._call(x)
        old_x, old_y = self._cached
        if x is old_x:
            return old_y
        y = self._call(x)
        self._cached = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        old_x, old_y = self._cached
        if y is old_y:
            return old_x
        x = self._inverse(y)
        self._cached = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__ + "()"

    def forward_shape(self, shape: Any) -> Any:
        """The shape of f(x) for x of a shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for f(x) of a shape."""
        return shape


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self.base = transform

    @property
    def domain(self) -> Any:
        return self.base.codomain

    @property
    def codomain(self) -> Any:
        return self.base.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base.bijective

    @property
    def sign(self) -> Any:
        return self.base.sign

    @property
    def inv(self) -> Transform:
        return self.base

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self.base.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self.base == other.base

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        return self.base._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self.base(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.base.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self.base.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"


class ComposeTransform(Transform):
    """Transforms one after another."""

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    @property
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        first = self.parts[0].domain
        event_dim = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            event_dim += part.domain.event_dim - part.codomain.event_dim
            event_dim = max(event_dim, part.domain.event_dim)
        more = event_dim - first.event_dim
        return constraints.independent(first, more) if more > 0 else first

    @property
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        last = self.parts[-1].codomain
        event_dim = self.parts[0].domain.event_dim
        for part in self.parts:
            event_dim += part.codomain.event_dim - part.domain.event_dim
            event_dim = max(event_dim, part.codomain.event_dim)
        more = event_dim - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return T.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0
        event_dim = self.domain.event_dim
        for part, a, b in zip(self.parts, values[:-1], values[1:], strict=True):
            jacobian = part.log_abs_det_jacobian(a, b)
            total = total + _sum_rightmost(jacobian, event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inner = ",\n    ".join(repr(part) for part in self.parts)
        return f"ComposeTransform(\n    {inner}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch dimensions count as event dimensions."""

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def domain(self) -> Any:
        return constraints.independent(
            self.base_transform.domain, self.reinterpreted_batch_ndims
        )

    @property
    def codomain(self) -> Any:
        return constraints.independent(
            self.base_transform.codomain, self.reinterpreted_batch_ndims
        )

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        if x.dim() < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        if y.dim() < self.codomain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        jacobian = self.base_transform.log_abs_det_jacobian(x, y)
        return _sum_rightmost(jacobian, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"
        )


class ReshapeTransform(Transform):
    """The events in another shape."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(tuple(in_shape)), Size(tuple(out_shape))
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(tuple(self.in_shape)))

    @property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(tuple(self.out_shape)))

    def _call(self, x: Tensor) -> Tensor:
        batch = tuple(x.shape)[: x.dim() - len(tuple(self.in_shape))]
        return x.reshape(batch + tuple(self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        batch = tuple(y.shape)[: y.dim() - len(tuple(self.out_shape))]
        return y.reshape(batch + tuple(self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(tuple(x.shape)[: x.dim() - len(tuple(self.in_shape))])

    def _graphc_swap(self, shape: Any, a: Size, b: Size) -> Size:
        cut = len(shape) - len(tuple(a))
        if cut < 0 or tuple(shape)[cut:] != tuple(a):
            raise ValueError(f"Shape mismatch: expected {tuple(shape)[max(cut, 0):]} but got {a}")
        return Size(tuple(shape)[:cut] + tuple(b))

    def forward_shape(self, shape: Any) -> Any:
        return self._graphc_swap(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._graphc_swap(shape, self.out_shape, self.in_shape)
