"""How functions are called under autocast: what `autocast_lists.py` says of their name.

`listed` makes the functions that users call read that list: those of torch where its namespace is
put together, those of torch.nn.functional and torch.linalg where they are defined. Inside a
listed function autocast is off, as below torch's dispatch key; so it is with `out=`. What
graphc's own functions call of each other by their files' names (`pointwise.exp`) is not listed;
methods (`x.exp()`) are.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from graphc.ir import dtypes
from graphc.ir.dtypes import DType

from . import promote
from .autocast_lists import NAMES, Policy, policy_of
from .context import local
from .errors import located
from .overriding import first_met
from .placement import is_loose, place_at
from .refused import not_a_tensor
from .tensor import Tensor
from .tree import flatten
from .values import Eager
from .wrapped import wraps

F = TypeVar("F", bound=Callable[..., Any])

public_calls: set[Any] = set()  # code objects of what calls listed functions: tensors_only.py

_NARROW = (dtypes.f32, dtypes.bf16, dtypes.f16)  # float64 is left alone


def listed(function: F, name: str = "") -> F:
    """A function that does under autocast what the list says of its name.

    Raises KeyError for one that no list has.
    """
    name = name or function.__name__
    if name not in NAMES:
        raise KeyError(f"autocast_lists.py does not list {name}")

    # of a function of one tensor: the call on a tensor alone; None: the function has to see to it
    quick = function.__dict__.get("quick")

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if local.autocast is None:
            if quick is not None and len(args) == 1 and not kwargs and (
                isinstance(args[0], Tensor) and (found := quick(args[0])) is not None
            ):
                return found
            try:
                return function(*args, **kwargs)
            except (AttributeError, TypeError):
                # where the function is what a public one calls, that one is made again
                if sys._getframe(1).f_code in public_calls:
                    raise
                if not first_met(args, kwargs):
                    wrong = not_a_tensor(function, args, kwargs, True)
                    if wrong is None:
                        raise
                    raise TypeError(located(f"{function.__name__}(): {wrong}")) from None
            return wrapper(*args, **kwargs)
        kind, dtype = _mode(local.autocast, args, kwargs)
        policy = None if dtype is None else policy_of(name, kind)
        if policy is None or dtype is None:
            return function(*args, **kwargs)
        return _Call(function, name, kind, dtype).by(policy, args, kwargs)

    wrapper.__dict__["autocast"] = name
    return wrapper  # type: ignore[return-value]


def all_listed(functions: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A namespace with those of its functions listed whose name, with the prefix, a list has. Of
    a module: its name is where pickles look for them."""
    found = dict(functions)
    for name, function in functions.items():
        if prefix + name in NAMES:
            found[name] = listed(function, prefix + name)
            found[name].__module__ = functions.get("__name__", function.__module__)
    return found


def _mode(
    modes: tuple[tuple[str, DType], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, DType | None]:
    """The type of device that a call is on, and autocast's dtype there (None: it is off). Tensors
    without dimensions may lie on the CPU, beside those of a device."""
    kind = "cpu"
    if Eager.elsewhere is not None:
        kind = next((found for x in _tensors(args, kwargs) if (found := _kind(x)) != kind), kind)
    return kind, dict(modes).get(kind)


def _tensors(*trees: Any) -> Iterator[Tensor]:
    return (x for x in flatten(trees)[0] if isinstance(x, Tensor))


def _kind(tensor: Tensor) -> str:
    place = place_at(tensor)
    return "cpu" if place is None else place.device.type


class _Call:
    """A call of a function under autocast, on a type of device, with autocast's dtype there."""

    def __init__(self, function: Callable[..., Any], name: str, kind: str, dtype: DType) -> None:
        self.function, self.name, self.kind, self.dtype = function, name, kind, dtype

    def by(self, policy: Policy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        saved = local.autocast
        local.autocast = None
        try:
            if policy is Policy.INSIDE or kwargs.get("out") is not None:
                return self.function(*args, **kwargs)
            if policy is Policy.REFUSED:
                raise RuntimeError(located(_UNSAFE))
            if policy is Policy.RESULT:
                return self._with_dtype(args, kwargs)
            to = {Policy.LOWER: self.dtype, Policy.FULL: dtypes.f32}.get(policy)
            if to is None:
                to = self._widest(args, kwargs)
            return self.function(
                *self._cast(args, to), **{k: self._cast(v, to) for k, v in kwargs.items()}
            )
        finally:
            local.autocast = saved

    def _cast(self, value: Any, dtype: DType) -> Any:
        return cast(value, dtype, self._takes)

    def _takes(self, tensor: Tensor) -> bool:
        """Whether autocast is about a tensor: not, where it is on another device to stay."""
        if not is_narrow(tensor):
            return False
        return Eager.elsewhere is None or _kind(tensor) == self.kind or is_loose(tensor)

    def _with_dtype(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = _parameters(self.function)
        first = args[0] if args else kwargs.get(names[0])
        at = names.index("dtype")
        given = args[at] if len(args) > at else kwargs.get("dtype")
        if given is not None or not isinstance(first, Tensor) or not self._takes(first):
            return self.function(*args, **kwargs)
        if len(args) > at:
            return self.function(*args[:at], dtypes.f32, *args[at + 1 :], **kwargs)
        return self.function(*args, **{**kwargs, "dtype": dtypes.f32})

    def _widest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> DType:
        kinds = {x.dtype for x in _tensors(args, kwargs) if self._takes(x)}
        if dtypes.f32 in kinds:
            return dtypes.f32
        if not kinds <= {self.dtype}:
            (other,) = kinds - {self.dtype}
            raise RuntimeError(located(
                f"{self.name}: a {promote._name(other)} tensor where autocast's dtype is "
                f"{promote._name(self.dtype)}: Unexpected floating ScalarType in "
                "at::autocast::prioritize. Cure: convert it with .to(dtype)"
            ))
        return self.dtype


@functools.lru_cache(128)
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


_UNSAFE = """\
torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.
Many models use a sigmoid layer right before the binary cross entropy layer.
In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits
or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are
safe to autocast."""


def is_narrow(tensor: Tensor) -> bool:
    """Whether autocast casts tensors of its dtype at all."""
    return tensor.dtype in _NARROW


def cast(value: Any, dtype: DType, takes: Callable[[Tensor], bool] = is_narrow) -> Any:
    """The tensors that it `takes` as `dtype`, also within lists, tuples and dicts."""
    if isinstance(value, Tensor):
        if value.dtype is dtype or not takes(value):
            return value
        return promote.cast(value, dtype)
    if isinstance(value, (list, tuple)):
        items = [cast(item, dtype, takes) for item in value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    if isinstance(value, dict):
        return {cast(key, dtype, takes): cast(item, dtype, takes) for key, item in value.items()}
    return value
