"""copy.copy(), copy.deepcopy() and their kin: their Python is recorded, as the user's is.

A copy is made by the call itself, and closed until it escapes; what it is made from are guarded
reads. What the recording does not see of it, C code does: id(), and `object.__reduce_ex__`.
"""

from __future__ import annotations

import copy
import copyreg
import sys
import types
from pathlib import Path
from typing import Any

from ...nn.modules import traversal
from ...optim import optimizer
from . import attributes, items
from .kinds import Kind, content_of, kind_of
from .observer import Observer
from .places import MISSING


class Identity(int):
    """The id() of an object that the call makes: a key of copy's memo, say. No table of kinds has
    it, so that a memo which outlives the call, where another call has other ids, is open."""


def is_key() -> bool:
    """Whether id() is called by code that uses what it gives as a key, for nothing else."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename in _KEYS_ALONE


def reduce(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """`object.__reduce_ex__(obj, protocol)`: the class and the state from which a copy is made."""
    obj, protocol = args
    kind, found = kind_of(type(obj)), content_of(type(obj))
    if kind in _IMMUTABLE:
        return None
    maker = observer.lookup(type(obj), "__reduce__")
    if isinstance(maker, types.FunctionType):
        return (observer.run(maker, obj),)
    if protocol < 2 or (kind is not Kind.INSTANCE and found is None) or issubclass(
        type(obj), BaseException
    ):
        observer.open(f"{type(obj).__name__}.__reduce_ex__({protocol})")
        return None
    if maker is not object.__reduce__:  # a set's, a deque's, ...
        return (_by_c_code(observer, obj, found, protocol),)
    made = _arguments(observer, obj)
    state = observer.invoke(attributes.attribute(observer, obj, "__getstate__"))
    pairs = observer.invoke(attributes.attribute(observer, obj, "items")) if (
        found is Kind.DICT
    ) else None
    return ((
        *made, state, items.iterate(observer, obj) if found is Kind.LIST else None,
        items.iterate(observer, pairs) if pairs is not None else None,
    ),)


def _by_c_code(observer: Observer, obj: Any, found: Kind | None, protocol: int) -> Any:
    """A container that C code takes apart: its items, and its own attributes."""
    if found is not None:
        observer.whole(obj, deep=False)
    elif type(obj) is not types.SimpleNamespace:
        observer.open(f"{type(obj).__name__}.__reduce_ex__()")
    _state(observer, obj)
    return observer.plainly(obj.__reduce_ex__, (protocol,), {})


def _arguments(observer: Observer, obj: Any) -> tuple[Any, tuple[Any, ...]]:
    """What makes an object of the same class, without its state."""
    kind = type(obj)
    for name in ("__getnewargs_ex__", "__getnewargs__"):
        method = observer.lookup(kind, name)
        if method is MISSING:
            continue
        if not isinstance(method, types.FunctionType):  # of a class derived from int, str, ...
            observer.whole(obj)
            return copyreg.__newobj__, (kind, *method(obj))  # type: ignore[attr-defined]
        given = observer.run(method, obj)
        if name == "__getnewargs__":
            return copyreg.__newobj__, (kind, *given)  # type: ignore[attr-defined]
        return copyreg.__newobj_ex__, (kind, *given)  # type: ignore[attr-defined]
    return copyreg.__newobj__, (kind,)  # type: ignore[attr-defined]


def state_of(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """`object.__getstate__(obj)`: its attributes, and those in slots."""
    (obj,) = args
    if kind_of(type(obj)) is not Kind.INSTANCE and content_of(type(obj)) is None:
        observer.open(f"{type(obj).__name__}.__getstate__()")
        return None
    return (_state(observer, obj),)


def _state(observer: Observer, obj: Any) -> Any:
    fields = attributes.fields_of(obj)
    if fields is not None and observer.is_known(obj):
        observer.emptiness(observer.know(fields, f"{observer.path(obj)}.__dict__"))
    slots: dict[str, Any] = {}
    for name in copyreg._slotnames(type(obj)):  # type: ignore[attr-defined]
        try:
            slots[name] = attributes.attribute(observer, obj, name)
        except AttributeError:
            continue
    return (fields or None, slots) if slots else fields or None


def tensor(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """A tensor's own copy: its gradient is read, and the memo is written to."""
    observer.looked_at_grad = True
    if any(map(observer.is_known, (*args[1:], *kwargs.values()))):
        observer.open("copy.deepcopy() with a memo from before the call")
    return None


_HERE = str(Path(__file__).parent)
_KEYS_ALONE = frozenset(
    str(module.__file__) for module in (copy, traversal, optimizer)
)
_IMMUTABLE = frozenset((Kind.VALUE, Kind.FIXED, Kind.NUMBER, Kind.CLASS))
METHODS = {"__reduce_ex__": reduce, "__getstate__": state_of}  # of object, bound or not
PYTHON = {"graphc.frontend.functions.deep_copies.deepcopied": tensor}
RULES = {f"object.{name}": rule for name, rule in METHODS.items()}
