"""Instances of a user's subclasses of Tensor: how they are made, and what their classes are given.

The state of a tensor lies in its `__dict__`, which in torch holds the user's attributes alone.
A subclass therefore shows these (`Attributes`): `x.__dict__ = y.__dict__.copy()` takes attributes
over, and no memory. And it asks its handler for what Tensor's properties say, so that plain tensors
need not: a property of Tensor that nothing hides is put into the subclass, asking.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NoReturn

from graphc.ir import ops

from ..context import local
from ..dispatch import apply
from ..errors import kind_name, located
from ..layouts import strided
from ..overriding import (
    DisableTorchFunction,
    Installed,
    answers,
    ask,
    disabled,
    outside_of_segments,
    usual_handler,
)
from ..tensor import INTERNAL, Parameter, ParameterKind, Tensor, alias, fields
from .arguments import named, shape


class Attributes(MutableMapping[str, Any]):
    """What a user has set on a tensor; writes to it are seen there."""

    __slots__ = ("_fields",)

    def __init__(self, tensor: Tensor) -> None:
        self._fields = fields(tensor)

    def __getitem__(self, name: str) -> Any:
        if name in INTERNAL:
            raise KeyError(name)
        return self._fields[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in INTERNAL:
            raise KeyError(located(
                f"{name}: graphc's own field of a tensor. Cure: another name for the attribute"
            ))
        self._fields[name] = value

    def __delitem__(self, name: str) -> None:
        if name in INTERNAL:
            raise KeyError(name)
        del self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._fields if name not in INTERNAL])

    def __len__(self) -> int:
        return sum(name not in INTERNAL for name in self._fields)

    def copy(self) -> dict[str, Any]:
        """As a dict."""
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return dict(self) | dict(other)

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return dict(other) | dict(self)


def _set_attributes(tensor: Tensor, given: Mapping[str, Any]) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"__dict__ must be set to a dictionary, not a '{kind_name(given)}'")
    mine = fields(tensor)
    new = {name: value for name, value in given.items() if name not in INTERNAL}
    for name in [name for name in mine if name not in INTERNAL]:
        del mine[name]
    mine.update(new)


_ATTRIBUTES = property(Attributes, _set_attributes)
# of Tensor itself, once there are subclasses: all as it was, but what is assigned takes no memory
_FIELDS = property(fields, _set_attributes)

# --- what a class is given -----------------------------------------------------------------------


def _asking(own: property) -> property:
    """A property that asks the class's handler."""

    def get(self: Tensor) -> Any:
        return ask(own.__get__, own.fget, (self,), {})  # type: ignore[arg-type]

    def put(self: Tensor, value: Any) -> None:
        ask(own.__set__, own.fset, (self, value), {})  # type: ignore[arg-type]

    def delete(self: Tensor) -> None:
        ask(own.__delete__, own.fdel, (self,), {})  # type: ignore[arg-type]

    return property(get, put if own.fset else None, delete if own.fdel else None, own.__doc__)


class _Asking:
    """The properties of Tensor and those that ask in their place, by name; known once all are
    attached."""

    found: dict[str, tuple[property, property]] = {}

    @classmethod
    def all(cls) -> dict[str, tuple[property, property]]:
        if not cls.found:
            cls.found = {
                name: (own, _asking(own)) for name, own in vars(Tensor).items()
                if isinstance(own, property) and (name[0] != "_" or name in PRIVATE)
            }
        return cls.found


PRIVATE = ("_version", "__cuda_array_interface__")
_READY = "_graphc_ready"


def prepare(cls: type[Tensor]) -> None:
    """Give a subclass what its instances need."""
    if _READY in vars(cls):
        return
    type.__setattr__(cls, _READY, True)
    if cls.__torch_function__ is disabled:
        return
    for name, (own, asking) in _Asking.all().items():
        found = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
        first = next((value for value in found if value is not asking), None)
        if first is own:
            if asking not in found:
                type.__setattr__(cls, name, asking)
        elif found[0] is asking:  # which a base has, and hides what another one defines
            type.__setattr__(cls, name, first)
    _show_attributes(cls, _ATTRIBUTES)


def _show_attributes(cls: type[Tensor], shown: property) -> None:
    """Let `x.__dict__` be what the user has set. A class cannot be given that name as others are:
    it is put into the class's own dict, before anybody has asked the class for it."""
    (namespace,) = (each for each in gc.get_referents(vars(cls)) if isinstance(each, dict))
    namespace["__dict__"] = shown
    type.__setattr__(cls, _READY, True)  # CPython forgets what it knew of the class's attributes


def _init_subclass(cls: Any, /, **kwargs: Any) -> None:
    super(Tensor, cls).__init_subclass__(**kwargs)
    prepare(cls)


def made(cls: type[Tensor]) -> None:
    """An instance of a subclass is about to be made."""
    prepare(cls)
    if cls.__torch_function__ is disabled:
        return
    if cls.__torch_dispatch__ is not dispatch_disabled:
        raise NotImplementedError(located(
            f"{cls.__name__}.__torch_dispatch__: graphc has no operators below autograd to hand "
            "on. Cure: __torch_function__, which gets the calls of torch's functions and methods"
        ))
    _parameters_say_so()
    if _READY not in vars(Tensor):
        _show_attributes(Tensor, _FIELDS)  # y.__dict__ = x.__dict__, where only x is of a subclass
    Installed.stay()


def _parameters_say_so() -> None:
    """Tensors of other classes may be parameters from here on."""
    if "__instancecheck__" not in vars(ParameterKind):
        type.__setattr__(ParameterKind, "__instancecheck__", _is_parameter)


def dispatch_disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
    """torch._C._disabled_torch_dispatch_impl."""
    raise NotImplementedError(located("graphc has no __torch_dispatch__. Cure: __torch_function__"))


# --- making instances ----------------------------------------------------------------------------


def _checked(cls: Any, who: str) -> None:
    if not isinstance(cls, type):
        raise TypeError(located(f"{who}: cls must be a type (got {kind_name(cls)})"))
    if not issubclass(cls, Tensor):
        raise TypeError(located(f"{who}: cls must be a subclass of torch.Tensor (got {cls})"))


def make_subclass(
    cls: Any, data: Tensor, require_grad: bool = False, dispatch_strides: bool = False,
    dispatch_device: bool = False, device_for_backend_keys: Any = None,
) -> Any:
    """An instance of `cls` on the memory of `data`, without its history."""
    _checked(cls, "_make_subclass()")
    if not isinstance(data, Tensor):
        raise TypeError(located(
            f"_make_subclass(): argument 'data' (position 2) must be Tensor, not {kind_name(data)}"
        ))
    with outside_of_segments(f"{cls.__name__}._make_subclass()"), DisableTorchFunction():
        found = alias(data, cls)
        return found.requires_grad_(True) if require_grad else found


def make_wrapper_subclass(cls: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError."""
    raise NotImplementedError(located(
        f"{getattr(cls, '__name__', cls)}: a tensor subclass without memory of its own needs "
        "__torch_dispatch__, which graphc does not have. Cure: Tensor._make_subclass(cls, data) "
        "on the tensor that it wraps, and __torch_function__"
    ))


def as_subclass(self: Tensor, cls: Any) -> Any:
    """An instance of `cls` on the same memory, whose gradient goes on to this tensor."""
    _checked(cls, "as_subclass()")
    with outside_of_segments(f"as_subclass({cls.__name__})"), DisableTorchFunction():
        same = apply(ops.reshape, self, shape=shape(self))
        return of_kind(named(same, "AliasBackward0"), cls)


def of_kind(fresh: Tensor, cls: type[Tensor]) -> Any:
    """A tensor that nobody else has as an instance of a subclass."""
    if cls is Tensor:
        return fresh
    if cls is not Parameter:
        made(cls)
    result: Tensor = object.__new__(cls)
    fields(result).update(fields(fresh))
    trace = local.trace
    if trace is not None and fresh._graphc_trace is trace:
        trace.adopt(result)
    return result


def parameter_of(data: Tensor, requires_grad: bool) -> Any:
    """A Parameter of a tensor whose class has a handler, or that is sparse: of that class, marked.
    None for others."""
    if not answers(data):
        if data.layout is strided:
            return None
        _parameters_say_so()
    found: Any = data.detach().requires_grad_(requires_grad)
    if type(found) is not type(data):
        raise RuntimeError(located(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that "
            f"detach() returns an instance of the same type, but return type "
            f"{type(found).__name__} was found instead. Cure: let __torch_function__ keep the "
            "class in detach()"
        ))
    found._is_param = True  # type: ignore[attr-defined]
    return found


def _is_parameter(cls: Any, value: Any) -> bool:
    if cls is Parameter and isinstance(value, Tensor) and getattr(value, "_is_param", False):
        return True
    return type.__instancecheck__(cls, value)


METHODS = {
    "__torch_function__": classmethod(usual_handler),
    "__torch_dispatch__": dispatch_disabled,
    "__init_subclass__": classmethod(_init_subclass),
    "_graphc_made": classmethod(made),
    "_graphc_parameter_of": staticmethod(parameter_of),
    "_graphc_of_kind": staticmethod(of_kind),
    "_make_subclass": staticmethod(make_subclass),
    "_make_wrapper_subclass": staticmethod(make_wrapper_subclass),
    "as_subclass": as_subclass,
}
