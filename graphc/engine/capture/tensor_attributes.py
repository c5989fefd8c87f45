"""Attributes of tensors: graphc's own, of a subclass, and those that the user gave to one."""

from __future__ import annotations

import types
from typing import Any

from ...frontend.tensor import Tensor
from .kinds import is_own_name, is_plain
from .observer import Observer
from .places import MISSING


def read(observer: Observer, tensor: Any, name: str) -> Any:
    """`tensor.name`."""
    if name == "__dict__" and tensor._graphc_trace is None:
        if observer.trace.argument_index(tensor) >= 0:
            observer.open("reading the __dict__ of a tensor among the arguments")
        return observer.know(tensor.__dict__, f"{observer.path(tensor)}.__dict__")
    found = _static(type(tensor), name)
    if found is not MISSING:
        if type(found) is types.FunctionType and not is_own_name(found.__module__):
            return types.MethodType(observer.lookup(type(tensor), name), tensor)
        if isinstance(found, property) and not is_own_name(
            getattr(found.fget, "__module__", None)
        ):
            return observer.run(observer.lookup(type(tensor), name).fget, tensor)
        if hasattr(type(found), "__set__") or name not in tensor.__dict__:
            return getattr(tensor, name)
    if tensor._graphc_trace is None and name not in _TENSOR_FIELDS:
        index = observer.trace.argument_index(tensor)
        if index >= 0:  # another tensor at each call
            _of_argument(observer, tensor, index, name)
            return getattr(tensor, name)
        value = observer.read(tensor.__dict__, name, f"{observer.path(tensor)}.{name}")
        if value is not MISSING:
            return value
    return getattr(tensor, name)


def _of_argument(observer: Observer, tensor: Tensor, index: int, name: str) -> None:
    """An attribute that the user gave to a tensor among the arguments is read."""
    value = vars(tensor).get(name, MISSING)
    if value is MISSING or is_plain(value):
        observer.guards.of_argument(index, name, value)
    else:
        observer.open(f"reading {name} of a tensor among the arguments")


_TENSOR_FIELDS = frozenset("""
    _graphc_array _graphc_storage _graphc_node _graphc_output _grad _graphc_requires_grad _base
    _graphc_chain _graphc_seen _graphc_hooks _graphc_post_hooks _graphc_trace _graphc_traced
    _graphc_concrete _graphc_type
""".split())


def _static(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        found = vars(base).get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def store(observer: Observer, tensor: Tensor, name: str, value: Any) -> None:
    """`tensor.name = value`."""
    found = _static(type(tensor), name)
    if isinstance(found, property) and not is_own_name(getattr(found.fset, "__module__", None)):
        if found.fset is not None:
            observer.run(found.fset, tensor, value)
            return
    elif found is MISSING and tensor._graphc_trace is None:
        if observer.trace.argument_index(tensor) >= 0:  # another tensor at each call
            observer.open(f"setting {name} of a tensor among the arguments")
        observer.save_field(tensor.__dict__, name, f"{observer.path(tensor)}.{name}")
    setattr(tensor, name, value)
