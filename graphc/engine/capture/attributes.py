"""Attributes under a recording: what Python's attribute rules read, kind by kind."""

from __future__ import annotations

import functools
import types
from enum import EnumMeta
from typing import Any

from ...frontend import state_version
from ...nn.modules.module import Module
from ...on_demand import names_so_far
from ...optim.optimizer import Optimizer
from . import c_attributes, numpy_tables, own_objects, schedules, tensor_attributes
from .kinds import Kind, full_name, has_field, is_plain, kind_of
from .module_fields import OWN_FIELDS
from .observer import Observer
from .outside import unbound
from .places import MISSING
from .streams import is_draw

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_SLOT = types.MemberDescriptorType


def attribute(observer: Observer, obj: Any, name: str) -> Any:
    """`obj.name`."""
    kind = kind_of(type(obj))
    if kind is Kind.INSTANCE:
        return _instance(observer, obj, name)
    if kind is Kind.MODULE:
        return _module(observer, obj, name)
    if kind is Kind.TENSOR:
        return tensor_attributes.read(observer, obj, name)
    if kind is Kind.CLASS:
        return _class(observer, obj, name)
    if kind is Kind.FUNCTION:
        return _function(observer, obj, name)
    if kind is Kind.METHOD:
        return _method(observer, obj, name)
    if kind is Kind.FIELDS and has_field(type(obj), name):
        value = observer.read(obj, name, f"{observer.path(obj)}.{name}")
        return getattr(obj, name) if value is MISSING else value
    if kind is Kind.OPEN and is_draw(obj, name):
        return getattr(obj, name)
    if kind in (Kind.OPEN, Kind.FIELDS):
        observer.open(f"reading {name} of a {full_name(type(obj))}")
    if kind is Kind.OWN:
        return own_objects.attribute(observer, obj, name)
    bound: Any = obj
    if type(obj) is super and bound.__self__ is not None:
        return super_attribute(observer, bound.__thisclass__, bound.__self__, name)
    if isinstance(type(obj), EnumMeta):
        return _member(observer, obj, name)
    if kind not in _IMMUTABLE:
        return c_attributes.ask(observer, obj, name)
    value = getattr(obj, name)
    if type(obj) is slice and not is_plain(value) and name in ("start", "stop", "step"):
        observer.open(f"reading a slice that holds a {type(value).__name__}")
    return value


_IMMUTABLE = frozenset((Kind.VALUE, Kind.NUMBER, Kind.BUILTIN))


def _method(observer: Observer, method: Any, name: str) -> Any:
    """A bound method has the attributes of its function."""
    if observer.is_known(method):
        for part in ("__self__", "__func__"):
            observer.know(getattr(method, part), f"{observer.path(method)}.{part}")
    if name in _OF_METHODS:
        return getattr(method, name)
    return attribute(observer, method.__func__, name)


_OF_METHODS = frozenset(dir(types.MethodType)) - {"__doc__"}


def _member(observer: Observer, member: Any, name: str) -> Any:
    """An attribute of a member of an enumeration."""
    found = observer.lookup(type(member), name)
    if isinstance(found, property) and found.fget is not None:
        return observer.run(found.fget, member)
    if type(found) in (types.FunctionType, classmethod, staticmethod):
        return _bind(observer, member, found, name)
    return c_attributes.ask(observer, member, name)


def super_attribute(observer: Observer, kind: Any, obj: Any, name: str) -> Any:
    """`super(kind, obj).name`: what the classes after `kind` have."""
    of_class = issubclass(type(obj), type) and kind in obj.__mro__
    order = (obj if of_class else type(obj)).__mro__
    found = observer.look(order[order.index(kind) + 1 :], name)
    if name == "__class__" or found is MISSING:
        return getattr(super(kind, obj), name)
    path = f"super().{name}"
    if of_class:
        return _of_class(observer, obj, found, name, super(kind, obj))
    if isinstance(found, property) and found.fget is not None:
        return observer.run(found.fget, obj)
    if type(found) is _SLOT:
        return _slot(observer, obj, found, path, observer.is_known(obj))
    if type(found) in _C_DESCRIPTORS:
        return getattr(super(kind, obj), name)
    if _overrides(found):
        return _by_descriptor(observer, obj, found, name)
    return _bind(observer, obj, found, name)


def is_counted(obj: Any) -> bool:
    """Whether writes to an object's attributes are counted, but for those to its __dict__."""
    return issubclass(type(obj), (Module, Optimizer))


def _instance(observer: Observer, obj: Any, name: str) -> Any:
    kind = type(obj)
    getter = observer.lookup(kind, "__getattribute__")
    try:
        if isinstance(getter, types.FunctionType):
            return observer.run(getter, obj, name)
        value = generic(observer, obj, name)
    except AttributeError:
        fallback = observer.lookup(kind, "__getattr__")
        if fallback is MISSING:
            raise
    else:
        if value is not MISSING:
            return value
        fallback = observer.lookup(kind, "__getattr__")
        if fallback is MISSING:
            return object.__getattribute__(obj, name)  # raises what Python raises
    if fallback is Module.__getattr__:
        return _registered(observer, obj, name, f"{observer.path(obj)}.{name}")
    return observer.run(fallback, obj, name)


def generic(observer: Observer, obj: Any, name: str) -> Any:
    """What object.__getattribute__ finds in an instance and its class; MISSING if nothing."""
    kind = type(obj)
    known = observer.is_known(obj)
    path = f"{observer.path(obj)}.{name}"
    if known:
        observer.kind(obj)
    found = observer.lookup(kind, name)
    if found is not MISSING:
        if isinstance(found, property):
            if found.fget is None:
                return object.__getattribute__(obj, name)
            return observer.run(found.fget, obj)
        if type(found) is _SLOT:
            return _slot(observer, obj, found, path, known)
        if _overrides(found):
            return _by_descriptor(observer, obj, found, name)
    fields = fields_of(obj)
    if fields is not None:
        value = fields.get(name, MISSING)
        late = observer.trace.late
        if known and late.changes(fields, name, value):
            return late.value(fields, name)
        if known and name == "_last_lr" and schedules.is_schedule(kind):
            rates = schedules.rates(observer, fields, name, path)
            if rates is not None:
                return rates
        if known:
            value = observer.read(fields, name, path, _is_counted(obj, name, value), obj)
        if value is not MISSING:
            return value
    if found is not MISSING:
        return _bind(observer, obj, found, name)
    return MISSING


def fields_of(obj: Any) -> dict[str, Any] | None:
    """An instance's own attributes; None where its class has slots alone."""
    try:
        fields = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return fields if isinstance(fields, dict) else None


def _is_counted(obj: Any, name: str, value: Any) -> bool:
    return issubclass(type(obj), Optimizer) or (
        issubclass(type(obj), Module) and (value is MISSING or name in OWN_FIELDS)
    )


def _slot(
    observer: Observer, obj: Any, slot: Any, path: str, known: bool
) -> Any:
    if known:
        observer.read(obj, slot, path)
    return slot.__get__(obj)


def _overrides(member: Any) -> bool:
    """Whether a class member goes before an instance's own attributes."""
    return hasattr(type(member), "__set__") or hasattr(type(member), "__delete__")


def _by_descriptor(observer: Observer, obj: Any, member: Any, name: str) -> Any:
    getter = observer.lookup(type(member), "__get__")
    if isinstance(getter, types.FunctionType):
        return observer.run(getter, member, obj, type(obj))
    if name == "__dict__" and type(member) is types.GetSetDescriptorType:
        fields = object.__getattribute__(obj, "__dict__")
        if observer.is_known(obj):
            observer.know(fields, f"{observer.path(obj)}.__dict__")
        return fields
    if type(member).__name__ == "_tuplegetter":
        found = object.__getattribute__(obj, name)
        return observer.know(found, f"{observer.path(obj)}.{name}") if (
            observer.is_known(obj) and not is_plain(found)
        ) else found
    if name in ("__class__", "__weakref__", "__doc__", "__cause__", "__context__", "args",
                "__traceback__", "__suppress_context__", "__notes__"):
        return c_attributes.ask(observer, obj, name, object.__getattribute__)
    observer.open(f"reading {name} of {observer.path(obj)}")
    return object.__getattribute__(obj, name)


def _bind(observer: Observer, obj: Any, member: Any, name: str) -> Any:
    """A class member that is no data descriptor, seen from an instance."""
    kind = type(member)
    if kind is types.FunctionType:
        return types.MethodType(member, obj)
    if kind is classmethod:
        return types.MethodType(member.__func__, type(obj))
    if kind is staticmethod:
        return member.__func__
    if kind is functools.cached_property:
        return _cached(observer, obj, member, name)
    getter = None if kind is functools.partial else getattr(kind, "__get__", None)
    if getter is None:
        return unbound(observer, member)  # lookup() knows it, or it is new
    if isinstance(getter, types.FunctionType):
        return observer.run(getter, member, obj, type(obj))
    if kind in _C_DESCRIPTORS:
        return object.__getattribute__(obj, name)
    if not _understood(kind):
        observer.open(f"reading {name} of {observer.path(obj)}, by a {full_name(type(member))}")
    return object.__getattribute__(obj, name)


_C_DESCRIPTORS = frozenset((
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, type,
))


def _understood(kind: type) -> bool:
    return f"{kind.__module__}.{kind.__qualname__}" in (
        "collections._tuplegetter", "_collections._tuplegetter", "functools.partialmethod",
        "builtins.type", "functools._lru_cache_wrapper",
    ) or issubclass(kind, type)


def _cached(observer: Observer, obj: Any, member: Any, name: str) -> Any:
    value = observer.run(member.func, obj)
    write_field(observer, obj, name, value)
    return value


def _registered(observer: Observer, obj: Any, name: str, path: str) -> Any:
    """Module.__getattr__: parameters, buffers and submodules."""
    fields = obj.__dict__
    for registry in _REGISTRIES:
        entries = fields.get(registry)
        if entries is None:
            continue
        if observer.is_known(obj):
            holder = f"{observer.path(obj)}.{registry}"
            observer.read(fields, registry, holder, True, obj)
            value = observer.read(entries, name, path, observer.is_watched(entries))
        else:
            value = entries.get(name, MISSING)
        if value is not MISSING:
            return value
    return getattr(obj, name)


def _module(observer: Observer, module: Any, name: str) -> Any:
    namespace = names_so_far(module)
    path = f"{observer.path(module)}.{name}" if observer.is_known(module) else name
    if name == "__dict__":  # graphc's import what is missing
        return observer.know(observer.plainly(getattr, (module, name), {}), path)
    late = namespace.get("__getattr__")
    own = "graphc" in (module.__name__.split(".")[0], namespace.get("__package__"))
    if name not in namespace and (late is not None if own else numpy_tables.is_late(module, name)):
        found = observer.plainly(getattr, (module, name), {})  # may be imported only now
        if name not in namespace:
            return observer.know(found, path)
    value = observer.read(namespace, name, path)
    if value is not MISSING:
        return value
    if not own:
        late = observer.read(namespace, "__getattr__", f"{module.__name__}.__getattr__")
    if isinstance(late, types.FunctionType):
        return observer.run(late, name)
    return getattr(module, name)  # raises what Python raises


def _class(observer: Observer, kind: Any, name: str) -> Any:
    if name in _OF_TYPES:
        return c_attributes.of_class(observer, kind, name)
    if isinstance(kind, EnumMeta):
        return c_attributes.ask(observer, kind, name)
    meta = observer.lookup(type(kind), name) if type(kind) is not type else MISSING
    if isinstance(meta, property) and meta.fget is not None:
        return observer.run(meta.fget, kind)
    if name == "__dict__":
        return observer.know(vars(kind), f"{kind.__qualname__}.__dict__")
    found = observer.lookup(kind, name)
    if found is MISSING:
        if isinstance(meta, types.FunctionType):
            return types.MethodType(meta, kind)
        late = observer.lookup(type(kind), "__getattr__") if type(kind) is not type else MISSING
        if isinstance(late, types.FunctionType):
            return observer.run(late, kind, name)
        return getattr(kind, name)
    return _of_class(observer, kind, found, name, kind)


def _of_class(
    observer: Observer, kind: Any, found: Any, name: str, holder: Any
) -> Any:
    """A class member, seen from a class; `holder` is what Python would ask for it. It is known
    already, unless the call itself has put it there."""
    member = type(found)
    if member is classmethod:
        return types.MethodType(found.__func__, kind)
    if member is staticmethod:
        return found.__func__
    if member is types.FunctionType or isinstance(found, property):
        return found
    getter = getattr(member, "__get__", None)
    if isinstance(getter, types.FunctionType):
        return observer.run(getter, found, None, kind)
    return found if getter is None else getattr(holder, name)  # lookup() knows it, or it is new


_OF_TYPES = frozenset("__name__ __qualname__ __mro__ __bases__ __base__ __class__ mro".split())


def _function(observer: Observer, function: Any, name: str) -> Any:
    if observer.is_known(function):
        path = f"{function.__qualname__}.{name}"
        if name in function.__dict__:
            return observer.read(function.__dict__, name, path)
        if type(getattr(function, name, None)) is types.MethodWrapperType:
            return getattr(function, name)  # its type's
        try:
            return observer.result(getattr, (function, name), path)
        except AttributeError:
            observer.result(hasattr, (function, name), path)
            raise
    return getattr(function, name)


# --- writes ----------------------------------------------------------------------------------


def store_attribute(observer: Observer, obj: Any, name: str, value: Any) -> None:
    """`obj.name = value`."""
    kind = kind_of(type(obj))
    if kind is Kind.INSTANCE:
        _store(observer, obj, name, value)
        return
    if kind is Kind.TENSOR:
        tensor_attributes.store(observer, obj, name, value)
        return
    if kind is Kind.MODULE:
        observer.write(obj.__dict__, name, observer.path(obj))
    elif kind is Kind.CLASS:
        observer.write(obj, name, obj.__qualname__)
    elif kind is Kind.FUNCTION and observer.is_known(obj):
        if name.startswith("__"):
            observer.open(f"setting {name} of {obj.__qualname__}()")
        observer.write(obj.__dict__, name, f"{obj.__qualname__}()")
    elif kind is Kind.FIELDS and has_field(type(obj), name):
        observer.save_field(obj, name, f"{observer.path(obj)}.{name}")
    elif kind in (Kind.OPEN, Kind.FIELDS, Kind.METHOD, Kind.BUILTIN) or (
        kind is Kind.PARTIAL and observer.is_known(obj)
    ):
        observer.open(f"setting {name} of a {full_name(type(obj))}")
    own_objects.stored(observer, obj, name)
    setattr(obj, name, value)


def _store(observer: Observer, obj: Any, name: str, value: Any) -> None:
    if observer.is_known(obj):
        observer.kind(obj)
    setter = observer.lookup(type(obj), "__setattr__")
    if setter is Module.__setattr__:
        if observer.is_known(obj):
            for registry in _REGISTRIES:
                entries = obj.__dict__.get(registry)
                if entries is not None:
                    observer.write(entries, name, f"{observer.path(obj)}.{registry}")
        found = observer.lookup(type(obj), name)
        if isinstance(found, property) and name not in obj.__dict__.get("_parameters", ()):
            plain_store(observer, obj, name, value)
            return
        _save_fields(observer, obj, name)
        Module.__setattr__(obj, name, value)
    elif isinstance(setter, types.FunctionType):
        observer.run(setter, obj, name, value)
    else:
        plain_store(observer, obj, name, value)


def plain_store(observer: Observer, obj: Any, name: str, value: Any) -> None:
    """object.__setattr__."""
    found = observer.lookup(type(obj), name)
    if isinstance(found, property):
        if found.fset is None:
            object.__setattr__(obj, name, value)
        else:
            observer.run(found.fset, obj, value)
    elif type(found) is _SLOT:
        if observer.is_known(obj):
            observer.save_field(obj, found, f"{observer.path(obj)}.{name}")
        object.__setattr__(obj, name, value)
    elif found is not MISSING and hasattr(type(found), "__set__"):
        setter = observer.lookup(type(found), "__set__")
        if isinstance(setter, types.FunctionType):
            observer.run(setter, found, obj, value)
            return
        if observer.is_known(obj):
            observer.open(f"setting {name} of {observer.path(obj)}")
        object.__setattr__(obj, name, value)
    else:
        write_field(observer, obj, name, value)


def write_field(observer: Observer, obj: Any, name: str, value: Any) -> None:
    """Put an attribute into an instance's own."""
    _save_fields(observer, obj, name)
    object.__setattr__(obj, name, value)
    if is_counted(obj):
        state_version.bump()


def _save_fields(observer: Observer, obj: Any, name: str) -> None:
    fields = fields_of(obj)
    if fields is not None and observer.is_known(obj):
        observer.write(fields, name, observer.path(obj))


def delete_attribute(observer: Observer, obj: Any, name: str) -> None:
    """`del obj.name`."""
    kind = kind_of(type(obj))
    if kind is Kind.INSTANCE:
        if observer.is_known(obj):
            observer.kind(obj)
        remover = observer.lookup(type(obj), "__delattr__")
        if isinstance(remover, types.FunctionType) and remover is not Module.__delattr__:
            observer.run(remover, obj, name)
        elif remover is Module.__delattr__:
            if observer.is_known(obj):
                observer.open(f"del {observer.path(obj)}.{name}")
            delattr(obj, name)
        else:
            plain_delete(observer, obj, name)
        return
    if kind is Kind.FIELDS and has_field(type(obj), name):
        observer.read(obj, name, f"{observer.path(obj)}.{name}")
        observer.save_field(obj, name, f"{observer.path(obj)}.{name}")
    elif kind is not Kind.TENSOR or name != "grad":
        observer.open(f"del {observer.path(obj)}.{name}")
    delattr(obj, name)


def plain_delete(observer: Observer, obj: Any, name: str) -> None:
    """object.__delattr__."""
    if observer.is_known(obj):
        found, fields = observer.lookup(type(obj), name), fields_of(obj)
        if type(found) is _SLOT:
            observer.read(obj, found, f"{observer.path(obj)}.{name}")
            observer.save_field(obj, found, f"{observer.path(obj)}.{name}")
        elif fields is None or is_counted(obj) or (found is not MISSING and _overrides(found)):
            observer.open(f"del {observer.path(obj)}.{name}")
        else:
            observer.membership(observer.know(fields, f"{observer.path(obj)}.__dict__"), name)
            observer.remove(fields, name)
    object.__delattr__(obj, name)


def special(observer: Observer, obj: Any, name: str) -> Any:
    """A special method of an object's class, bound: what `with` and its kin call."""
    kind = kind_of(type(obj))
    if kind is Kind.INSTANCE:
        found = observer.lookup(type(obj), name)
        if found is not MISSING:
            return _bind(observer, obj, found, name)
    elif kind is Kind.OWN:
        own_objects.entered(observer, obj, name)
    elif kind is Kind.OPEN:
        observer.open(f"{name} of a {full_name(type(obj))}")
    return getattr(obj, name)
