"""torch.distributions.constraints: which values a parameter or a sample may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import linalg
from ..frontend import functions as T
from ..frontend.plain import is_unwatched
from ..frontend.required import require
from ..frontend.tensor import Tensor

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval",
    "independent", "integer_interval", "interval", "is_dependent", "less_than",
    "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer",
    "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]


class Constraint:
    """A region; check(value) says by element (or event) whether it lies inside."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """True where the value satisfies the constraint."""
        raise NotImplementedError

    def of_arrays(self) -> bool:
        """Whether check() says the same of a NumPy array."""
        return False

    def holds(self, value: Tensor) -> bool:
        """Whether all of a tensor satisfies the constraint."""
        array = None
        if isinstance(value, Tensor) and self.of_arrays() and is_unwatched():
            array = value._graphc_array
        if type(array) is not np.ndarray or array.dtype.char not in "fdl":
            found = self.check(value).all()
            return require(found) or bool(found)
        with np.errstate(all="ignore"):
            return bool(self.check(array).all())

    def __repr__(self) -> str:
        return type(self).__name__[1:] + "()"


class _Dependent(Constraint):
    """Depends on other parameters."""

    def __init__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return bool(self._is_discrete)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return int(self._event_dim)

    def __call__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on other parameters."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that is a constraint of an instance."""

    def __init__(
        self, fn: Callable[..., Any] | None = None, *, is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Any = None, **kwargs: Any) -> Any:
        return _DependentProperty(
            fn, is_discrete=self._is_discrete, event_dim=self._event_dim
        )


class _Independent(Constraint):
    """All of the last dimensions together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        result = self.base_constraint.check(value)
        count = self.reinterpreted_batch_ndims
        if result.dim() < count:
            raise ValueError(
                f"Expected value.dim() >= {self.event_dim} but got {value.dim()}"
            )
        return result.reshape(*tuple(result.shape)[: result.dim() - count], -1).all(-1)

    def __repr__(self) -> str:
        return f"Independent({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """Of every component."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Any) -> Any:
        return self.base_constraint.check(value)


class _Test(Constraint):
    """Satisfied where a function is true."""

    def __init__(
        self, name: str, test: Callable[[Any], Any], discrete: bool = False, event_dim: int = 0,
        of_arrays: bool = False,
    ) -> None:
        self.name, self.test = name, test
        self.is_discrete, self.event_dim = discrete, event_dim
        self._of_arrays = of_arrays

    def of_arrays(self) -> bool:
        return self._of_arrays

    def check(self, value: Any) -> Any:
        result: Tensor = self.test(value)
        return result

    def __repr__(self) -> str:
        return f"{self.name}()"


class _Bounded(Constraint):
    bounds: tuple[str, ...] = ()

    def __init__(self, *values: Any, **named: Any) -> None:
        for name, value in zip(self.bounds, values, strict=False):
            setattr(self, name, value)
        for name, value in named.items():
            setattr(self, name, value)

    def of_arrays(self) -> bool:
        return all(type(getattr(self, name)) in (int, float) for name in self.bounds)

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={getattr(self, name)}" for name in self.bounds)
        return f"{type(self).__name__.lstrip('_')}({text})"


class _IntegerInterval(_Bounded):
    is_discrete = True
    bounds = ("lower_bound", "upper_bound")
    lower_bound: Any
    upper_bound: Any

    def check(self, value: Any) -> Any:
        inside = (self.lower_bound <= value) & (value <= self.upper_bound)
        is_integer = type(value) is np.ndarray and value.dtype.kind in "iu"
        return inside if is_integer else (value % 1 == 0) & inside


class _IntegerGreaterThan(_Bounded):
    is_discrete = True
    bounds = ("lower_bound",)
    lower_bound: Any

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _GreaterThan(_Bounded):
    bounds = ("lower_bound",)
    lower_bound: Any

    def check(self, value: Any) -> Any:
        return self.lower_bound < value


class _GreaterThanEq(_Bounded):
    bounds = ("lower_bound",)
    lower_bound: Any

    def check(self, value: Any) -> Any:
        return self.lower_bound <= value


class _LessThan(_Bounded):
    bounds = ("upper_bound",)
    upper_bound: Any

    def check(self, value: Any) -> Any:
        return value < self.upper_bound


class _Interval(_Bounded):
    bounds = ("lower_bound", "upper_bound")
    lower_bound: Any
    upper_bound: Any

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Bounded):
    bounds = ("lower_bound", "upper_bound")
    lower_bound: Any
    upper_bound: Any

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Pieces(Constraint):
    """Several constraints along a dimension: side by side (cat) or one an index (stack)."""

    def __init__(self, parts: Sequence[Constraint], dim: int, lengths: list[int] | None) -> None:
        self.parts, self.dim, self.lengths = list(parts), dim, lengths

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(part.is_discrete for part in self.parts)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        event_dim = max(part.event_dim for part in self.parts)
        return event_dim + (self.lengths is None and self.dim + event_dim < 0)

    def check(self, value: Any) -> Any:
        if self.lengths is None:
            pieces = value.unbind(self.dim)
            return T.stack(
                [c.check(v) for c, v in zip(self.parts, pieces, strict=True)], self.dim
            )
        pieces = value.split(self.lengths, self.dim)
        return T.cat([c.check(v) for c, v in zip(self.parts, pieces, strict=True)], self.dim)


def cat(tseq: Sequence[Constraint], dim: int = 0, lengths: list[int] | None = None) -> _Pieces:
    """Constraints of pieces that lie side by side along `dim`."""
    return _Pieces(tseq, dim, [1] * len(tseq) if lengths is None else list(lengths))


def stack(tseq: Sequence[Constraint], dim: int = 0) -> _Pieces:
    """Constraints of the slices along `dim`."""
    return _Pieces(tseq, dim, None)


def _lower(x: Tensor) -> Tensor:
    return (x.tril() == x).reshape(*tuple(x.shape)[:-2], -1).min(-1)[0]


def _lower_cholesky(x: Tensor) -> Tensor:
    return _lower(x) & (x.diagonal(dim1=-2, dim2=-1) > 0).min(-1)[0]


def _corr_cholesky(x: Tensor) -> Tensor:
    room = T.finfo(x.dtype).eps * x.shape[-1] * 10
    unit = ((x * x).sum(-1).sqrt() - 1).abs().le(room).all(-1)
    return _lower_cholesky(x) & unit


def _symmetric(x: Tensor) -> Tensor:
    return T.isclose(x, x.mT, atol=1e-6).all(-2).all(-1)


def _definite(x: Tensor) -> Tensor:
    return _symmetric(x) & linalg.cholesky_ex(x).info.eq(0)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _Independent
boolean = _Test("Boolean", lambda x: (x == 0) | (x == 1), True, of_arrays=True)
one_hot = _Test(
    "OneHot", lambda x: ((x == 0) | (x == 1)).all(-1) & x.sum(-1).eq(1), True, 1
)
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Test("Real", lambda x: x == x, of_arrays=True)
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Test(
    "Simplex", lambda x: (x >= 0).all(-1) & (abs(x.sum(-1) - 1) < 1e-6), False, 1, True
)
lower_triangular = _Test("LowerTriangular", _lower, False, 2)
lower_cholesky = _Test("LowerCholesky", _lower_cholesky, False, 2)
corr_cholesky = _Test("CorrCholesky", _corr_cholesky, False, 2)
square = _Test(
    "Square",
    lambda x: T.full(tuple(x.shape)[:-2], x.shape[-2] == x.shape[-1], dtype=T.bool),
    False, 2,
)
symmetric = _Test("Symmetric", _symmetric, False, 2)
positive_semidefinite = _Test(
    "PositiveSemidefinite",
    lambda x: _symmetric(x) & (linalg.eigvalsh(x) >= 0).all(-1), False, 2,
)
positive_definite = _Test("PositiveDefinite", _definite, False, 2)
