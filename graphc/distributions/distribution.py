"""torch.distributions.Distribution: the base of all."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.numbers import Size
from ..frontend.placement import place_at, selected
from ..frontend.tensor import Tensor
from ..frontend.values import Eager
from . import constraints
from .utils import lazy_property


def _beside_parameters(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A method that draws where the distribution's parameters lie."""

    @functools.wraps(draw)
    def drawn(self: Distribution, *args: Any, **kwargs: Any) -> Any:
        if Eager.elsewhere is None:
            return draw(self, *args, **kwargs)
        near = next((value for value in vars(self).values() if isinstance(value, Tensor)), None)
        with nullcontext() if near is None else selected(place_at(near)):
            return draw(self, *args, **kwargs)

    return drawn


class Distribution:
    """A family of random tensors: batch_shape independent ones, each of event_shape."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: Any = None
    support: Any = None

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked unless a call says otherwise."""
        if value not in [True, False]:
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(tuple(batch_shape)), Size(tuple(event_shape))
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args and self.arg_constraints is not None:
            self._graphc_check_parameters()
        super().__init__()

    def _graphc_check_parameters(self) -> None:
        for name, constraint in self.arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            kind = getattr(type(self), name, None)
            if name not in self.__dict__ and (
                not isinstance(kind, property) or isinstance(kind, lazy_property)
            ):
                continue  # computed when asked for
            value = getattr(self, name)
            if not constraint.holds(value):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    def _get_checked_instance(self, cls: Any, instance: Any = None) -> Any:
        if instance is None and type(self).__init__ is not cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                "__init__ method must also define a custom .expand() method."
            )
        return object.__new__(type(self)) if instance is None else instance

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("sample", "rsample"):
            if name in vars(cls) and cls.__module__.startswith("graphc."):
                setattr(cls, name, _beside_parameters(vars(cls)[name]))

    # names of the parameters that expand() expands; a subclass of another form overrides it
    _graphc_expanded: tuple[str, ...] = ()
    # and of what broadcasts as it is
    _graphc_shared: tuple[str, ...] = ()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its batch expanded to batch_shape."""
        new = self._get_checked_instance(type(self), _instance)
        batch = Size(tuple(batch_shape))
        event = tuple(self._event_shape)
        for name in self._graphc_expanded:
            if name in self.__dict__:
                value = self.__dict__[name]
                inner = value.dim() - len(tuple(self._batch_shape))
                trailing = tuple(value.shape)[value.dim() - inner :] if inner else ()
                new.__dict__[name] = value.expand((*batch, *trailing))
        for name in self._graphc_shared:
            new.__dict__[name] = self.__dict__[name]
        Distribution.__init__(new, batch, event, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape + event_shape, without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that are differentiable in the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """n draws (deprecated)."""
        warnings.warn(
            "sample_n(n) will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density (or probability) at value."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most value."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of cdf."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return T.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*tuple(sample_shape), *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, event = tuple(value.shape), tuple(self._event_shape)
        if shape[len(shape) - len(event) :] != event:
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{value.shape} vs {self._event_shape}."
            )
        expected = (*self._batch_shape, *event)
        for i, j in () if shape == expected else zip(
            reversed(shape), reversed(expected), strict=False
        ):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs "
                    f"{Size(expected)}."
                )
        support = self.support
        if support is None or constraints.is_dependent(support):
            return
        if not support.holds(value):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape "
                f"{tuple(value.shape)}) to be within the support ({support!r}) of the "
                f"distribution {self!r}, but found invalid values:\n{value}"
            )

    def _graphc_checked(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return value

    def __repr__(self) -> str:
        names = [n for n in (self.arg_constraints or {}) if n in self.__dict__]
        shown = ", ".join(
            f"{n}: {v if v.numel() == 1 else v.size()}"
            for n in names if isinstance(v := self.__dict__[n], Tensor)
        )
        return f"{type(self).__name__}({shown})"


def numel(shape: Any) -> int:
    """The number of elements of a shape."""
    return math.prod(tuple(shape))
