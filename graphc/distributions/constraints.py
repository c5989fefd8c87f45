"""torch.distributions.constraints: which values a parameter or a sample may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
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


_FEW = 16  # numbers that Python compares before NumPy has begun


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
        if array.ndim and array.shape[-1] == array.size <= _FEW and (
            self.surely(array.ravel().tolist())
        ):
            return True
        with np.errstate(all="ignore"):
            return bool(self.check(array).all())

    def surely(self, row: list[float]) -> bool:
        """Whether few numbers, the only row of a tensor, are known to satisfy it, in whatever
        precision they are compared: Python is done before NumPy has begun."""
        return False

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


class _IndependentConstraint(Constraint):
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
        count = self.reinterpreted_batch_ndims
        return f"{type(self).__name__[1:]}({self.base_constraint!r}, {count})"


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
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        kept = value.dim() - self.event_dim
        if kept < 0:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return result.reshape(*tuple(result.shape)[:kept], -1).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def of_arrays(self) -> bool:
        return True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Real(Constraint):
    def of_arrays(self) -> bool:
        return True

    def check(self, value: Any) -> Any:
        return value == value

    def surely(self, row: list[float]) -> bool:
        return all(v == v for v in row)


class _Simplex(Constraint):
    event_dim = 1

    def of_arrays(self) -> bool:
        return True

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & (abs(value.sum(-1) - 1) < 1e-6)

    def surely(self, row: list[float]) -> bool:
        rounding = len(row) * 2.0**-24  # at most, of a sum about 1 in float32
        return min(row, default=-1.0) >= 0 and abs(sum(row) - 1) < 1e-6 - rounding


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

    def holds(self, value: Tensor) -> bool:
        low, high = self.lower_bound, self.upper_bound
        if type(low) is int and type(high) is int and isinstance(value, Tensor) and is_unwatched():
            array = value._graphc_array
            if type(array) is np.ndarray and array.dtype.char == "l" and array.size <= _FEW:
                return all(low <= v <= high for v in array.ravel().tolist())
        return super().holds(value)

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
    """Several constraints along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(each, Constraint) for each in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(each.is_discrete for each in self.cseq)

    def _check_dim(self, value: Any) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(
                f"dim {self.dim} out of range for value with {value.dim()} dimensions"
            )


class _Cat(_Pieces):
    """Side by side; `lengths`: of each along `dim` (1, where none are given)."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})"
            )

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(each.event_dim for each in self.cseq)

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        begins = accumulate(self.lengths, initial=0)
        pieces = zip(self.cseq, begins, self.lengths, strict=False)
        checks = [c.check(value.narrow(self.dim, begin, length)) for c, begin, length in pieces]
        return T.cat(checks, self.dim)


class _Stack(_Pieces):
    """One an index along `dim`."""

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        event_dim = max(each.event_dim for each in self.cseq)
        return event_dim + (self.dim + event_dim < 0)

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        pieces = zip(value.unbind(self.dim), self.cseq, strict=False)
        return T.stack([c.check(piece) for piece, c in pieces], self.dim)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return (value.tril() == value).reshape(*tuple(value.shape)[:-2], -1).min(-1)[0]


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Any) -> Any:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).min(-1)[0]


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Any) -> Any:
        room = T.finfo(value.dtype).eps * value.shape[-1] * 10
        of_rows = (value.detach() * value.detach()).sum(-1).sqrt()
        return super().check(value) & (of_rows - 1).abs().le(room).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        *batch, rows, columns = tuple(value.shape)
        return T.full(tuple(batch), rows == columns, dtype=T.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return T.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return symmetric
        return symmetric & linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return symmetric
        return symmetric & linalg.cholesky_ex(value).info.eq(0)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
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
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
