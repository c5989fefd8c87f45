"""A picture of all that a program can see: values, types, and which things are the same object."""

from __future__ import annotations

import collections
import ctypes
import functools
import itertools
import math
import operator
import pathlib
import random
import threading
import types
import weakref
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

# whether an equal value is the same object means nothing
_IMMUTABLE = ("fractions", "decimal", "datetime")
_NUMBERS = (int, float, complex, str, bytes, type(None))
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_ITERATORS = (Iterator, types.GeneratorType)


class Painter:
    """Turns objects into nested tuples of plain values; keeps what it took from iterators."""

    def __init__(self, torch: Any, module: types.ModuleType) -> None:
        self.torch, self.module = torch, module
        optimizers = torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler
        self._painted = (torch.Tensor, torch.nn.Module, *optimizers, tuple)
        self._taken: dict[int, tuple[Any, Any]] = {}
        self._names: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self.written: list[bool] = []  # of each tensor in a picture
        # by the id of a tensor
        self._versions: dict[int, tuple[weakref.ref[Any] | None, int]] = {}
        self._alive: list[Any] = []
        self._sets: list[Any] = []
        self._taking = False

    def paint(self, roots: Mapping[str, Any], results: list[Any]) -> Any:
        """One picture; objects are numbered in the order in which they are met."""
        self._names, self._storages, self._alive, self._sets = {}, {}, [], []
        self.written = []
        self._taking = True
        taken = tuple(self._item(result) for result in results)
        self._taking = False
        named = tuple((name, self._item(value)) for name, value in sorted(roots.items()))
        return taken, named, tuple(self._members())

    def _members(self) -> Iterator[Any]:
        """What the sets hold, last: their order says nothing, what else has a number keeps it."""
        for number, value in enumerate(self._sets, 1):  # grows, where sets hold sets
            met = sorted(value, key=lambda v: self._names.get(id(v), len(self._names)))
            yield f"set {number}", tuple(sorted((self._item(v) for v in met), key=repr))

    def _item(self, value: Any) -> Any:
        if isinstance(value, _NUMBERS) and type(value).__module__ == "builtins":
            return type(value).__name__, value
        if hasattr(type(value), "__compiled_function__"):
            return self._item(value.__compiled_function__)
        if id(value) in self._names:
            return "same", self._names[id(value)]
        self._alive.append(value)  # ids are names only as long as their objects live
        if not isinstance(value, (tuple, range, np.generic)) and (
            type(value).__module__ not in _IMMUTABLE
        ):
            self._names[id(value)] = len(self._names)
        kind = type(value)
        if isinstance(value, type):
            return "type", *self._code(value)
        if kind.__module__.startswith(("torch", "graphc")) and not isinstance(value, self._painted):
            return "library", str(value) if "dtype" in kind.__name__.lower() else ""
        if isinstance(value, _FUNCTIONS) and not self._own(value):
            return "function", value.__name__  # a library's; some are built in
        return (kind.__name__, *self._contents(value, kind))

    def _own(self, value: Any) -> bool:
        """Whether a function is the program's, or a method that is bound to something of its."""
        holder = getattr(value, "__self__", None)
        if isinstance(value, types.BuiltinMethodType):
            return holder is not None and not isinstance(holder, (types.ModuleType, type))
        return value.__module__ == self.module.__name__

    def _contents(self, value: Any, kind: type) -> tuple[Any, ...]:
        torch = self.torch
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            return self._module(value)
        if isinstance(value, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)):
            return self._optimizer(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, _ITERATORS):
            return self._iterator(value)
        if isinstance(value, (random.Random, torch.Generator)) or kind.__name__ == "Generator":
            return (_stream(value),)
        return self._container(value, kind) + self._attributes(value, kind)

    def _container(self, value: Any, kind: type) -> tuple[Any, ...]:
        if isinstance(value, (set, frozenset, weakref.WeakSet)):
            self._sets.append(value)
            return (len(self._sets),)
        if isinstance(value, weakref.WeakKeyDictionary) and all(isinstance(k, type) for k in value):
            return ()  # what functools.singledispatch remembers
        if isinstance(value, Mapping):
            items = tuple((self._item(k), self._item(v)) for k, v in list(value.items()))
            if isinstance(value, collections.ChainMap):
                return (*items, self._item(value.maps))
            factory = value.default_factory if kind is collections.defaultdict else None
            return (*items, self._item(factory))
        if isinstance(value, (list, tuple, collections.deque, collections.UserList)) or (
            type(value).__name__.startswith("dict_") or type(value).__name__ in ("array", "range")
        ):
            return (*map(self._item, list(value)), getattr(value, "maxlen", None))
        if isinstance(value, (bytearray, memoryview)):
            return (bytes(value),)
        if isinstance(value, weakref.ref):
            return (self._item(value()),)
        return ()

    def _attributes(self, value: Any, kind: type) -> tuple[Any, ...]:
        if isinstance(value, (types.FunctionType, functools.partial, types.MethodType,
                              types.BuiltinMethodType, types.ModuleType, slice)):
            return self._code(value)
        if hasattr(kind, "cache_info"):
            return ()  # a trace calls what a cache wraps
        module = kind.__module__
        if isinstance(value, pathlib.PurePath):
            return (value.name,)  # every program has a folder of its own
        if module in _IMMUTABLE or module in ("uuid", "re") or kind.__name__ == "dtype":
            return (str(value),) if module != "uuid" else ()
        if isinstance(value, threading.local):
            return tuple((k, self._item(v)) for k, v in vars(value).items())
        if isinstance(value, BaseException):
            return tuple(map(self._item, value.args))
        if module == "_contextvars" or kind.__name__ == "ContextVar":
            return (self._item(value.get()),)
        if module == "_io" and hasattr(value, "getvalue"):
            return (value.getvalue(),)
        if module.startswith(("ctypes", "_ctypes")) or (
            kind.__base__ is ctypes._SimpleCData
        ):
            return (value.value,)
        if isinstance(value, np.generic):
            return (value.item(),)
        found = [(k, self._item(v)) for k, v in list(_dictionary(value).items())]
        for base in kind.__mro__:
            slots = vars(base).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if base.__module__ == self.module.__name__ and hasattr(value, name):
                    found.append((name, self._item(getattr(value, name))))
        return tuple(found)

    def _code(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, types.FunctionType):
            if value.__code__.co_filename != self.module.__file__:
                return value.__name__, self._item(getattr(value, "__wrapped__", None))
            cells = [_cell(cell) for cell in value.__closure__ or ()]
            # but for the marks that torch.compiler makes
            own = {k: v for k, v in vars(value).items() if not k.startswith(("_dynamo", "_torch"))}
            parts = (value.__defaults__, value.__kwdefaults__, cells, own)
            return value.__name__, *map(self._item, parts)
        if isinstance(value, functools.partial):
            return self._item(value.func), self._item(value.args), self._item(value.keywords)
        if isinstance(value, (types.MethodType, types.BuiltinMethodType)):
            return value.__name__, self._item(value.__self__)
        if isinstance(value, types.ModuleType):
            if not value.__name__.startswith(("aid", "made")):
                return (value.__name__,)
            return tuple((k, self._item(v)) for k, v in sorted(vars(value).items())
                         if not k.startswith("__"))
        if isinstance(value, slice):
            return self._item(value.start), self._item(value.stop), self._item(value.step)
        if value.__module__ != self.module.__name__:
            return (value.__name__,)
        return value.__name__, *((k, self._item(v)) for k, v in sorted(vars(value).items())
                                 if not k.startswith("_"))

    # --- tensors and what holds them ---------------------------------------------------------

    def _tensor(self, value: Any) -> tuple[Any, ...]:
        own = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        storage = value.untyped_storage().data_ptr() if value.numel() else 0
        number = self._storages.setdefault(storage, len(self._storages))
        array = value.detach().to(self.torch.float32) if "bfloat" in str(value.dtype) else value
        flags = (str(value.dtype), value.requires_grad, value.is_leaf, value.is_contiguous())
        self.written.append(self._was_written(value))
        grad = value.grad if value.is_leaf else None
        numbers = np.array(array.detach().clone().numpy())
        return *flags, number, numbers, self._item(grad), self._item(own) if own else ()

    def _was_written(self, value: Any) -> bool:
        """Whether a tensor was written to, as autograd counts it, since the last picture."""
        known, before = self._versions.get(id(value), (None, 0))
        self._versions[id(value)] = weakref.ref(value), value._version
        return known is not None and known() is value and before != value._version

    def _module(self, value: Any) -> tuple[Any, ...]:
        own = {k: v for k, v in vars(value).items() if not k.startswith("_") and k != "training"}
        parts = [value.training, own]
        for name in ("_parameters", "_buffers", "_modules"):
            parts.append(dict(getattr(value, name)))
        hooks = len(value._forward_hooks), len(value._forward_pre_hooks)
        return (*hooks, *map(self._item, parts))

    def _optimizer(self, value: Any) -> tuple[Any, ...]:
        if not hasattr(value, "param_groups"):
            return value.last_epoch, self._item(value.get_last_lr())
        names = ("lr", "momentum", "betas", "eps", "weight_decay")
        groups = [{n: g[n] for n in names if n in g} for g in value.param_groups]
        states = [
            {k: v for k, v in value.state[p].items() if v is not None}
            for g in value.param_groups for p in g["params"] if p in value.state
        ]
        return self._item(groups), self._item(states)

    def _array(self, value: np.ndarray) -> tuple[Any, ...]:
        if value.dtype == object:
            return value.shape, *map(self._item, value.ravel().tolist())
        if value.nbytes > 10000:
            return str(value.dtype), value.shape, zlib.crc32(value.tobytes())
        return str(value.dtype), np.array(value)

    def _iterator(self, value: Any) -> tuple[Any, ...]:
        """What is left in a result's iterator; of a state's, as much as shows without reading."""
        if id(value) in self._taken:
            return (self._taken[id(value)][1],)
        if not self._taking:
            if isinstance(value, itertools.count):
                return (repr(value),)
            return (operator.length_hint(value, -1),)
        left = tuple(self._item(v) for v in itertools.islice(value, 8))
        self._taken[id(value)] = value, left
        return (left,)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _dictionary(value: Any) -> dict[str, Any]:
    own = getattr(value, "__dict__", None)
    return own if isinstance(own, dict) else {}


def _stream(value: Any) -> int:
    if isinstance(value, random.Random):
        return zlib.crc32(repr(value.getstate()).encode())
    if hasattr(value, "bit_generator"):
        return zlib.crc32(repr(value.bit_generator.state).encode())
    return 0


# --- comparing -------------------------------------------------------------------------------


def difference(a: Any, b: Any, tolerance: float, path: str = "") -> str:
    """Where two pictures differ; "" if nowhere."""
    if type(a) is not type(b):
        return f"{path}: {_short(a)} and {_short(b)}"
    if isinstance(a, tuple):
        if len(a) != len(b):
            return f"{path}: {_short(a)} and {_short(b)}"
        for i, (first, second) in enumerate(zip(a, b, strict=True)):
            step = str(first[0]) if isinstance(first, tuple) and len(first) == 2 else str(i)
            found = difference(first, second, tolerance, f"{path}/{step}")
            if found:
                return found
        return ""
    if isinstance(a, np.ndarray):
        same = (a.dtype, a.shape) == (b.dtype, b.shape) and _close(a, b, tolerance)
        return "" if same else f"{path}: {_short(a)} and {_short(b)}"
    if isinstance(a, float):
        both = math.isnan(a) and math.isnan(b)
        same = both or a == b or abs(a - b) <= tolerance * max(1, abs(a))
        return "" if same else f"{path}: {a!r} and {b!r}"
    return "" if a == b else f"{path}: {_short(a)} and {_short(b)}"


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if a.dtype.kind not in "fc":
        return bool((a == b).all())
    return bool(np.allclose(a, b, tolerance, tolerance, equal_nan=True))


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) < 160 else text[:157] + "..."
