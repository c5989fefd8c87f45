"""Nested containers as a flat list of leaves and a hashable structure.

`flatten` takes lists, tuples, namedtuples, dicts (also OrderedDict and subclasses of dict with
plain constructors) and dataclass instances apart; anything else is a leaf, None too, and so is
a dataclass whose `tree_leaf` is true. Of a dataclass these are its fields, those that are set.

What compiled functions are given (`flatten_call`) is taken apart *whole*: attributes that are no
fields are children of a dataclass, too, and other containers with attributes are leaves.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from .numbers import Size


class Structure:
    """The shape of a nested container, which nobody changes. `kind` is its type, None for a leaf;
    `keys` are the dict's keys or the dataclass's field names; `extra` a defaultdict's factory."""

    __slots__ = ("_hash", "children", "extra", "keys", "kind")

    def __init__(
        self, kind: type | None, keys: tuple[Any, ...] = (),
        children: tuple[Structure, ...] = (), extra: Any = None,
    ) -> None:
        self.kind, self.keys, self.children, self.extra = kind, keys, children, extra
        self._hash = 0  # asked at each call

    def __eq__(self, other: object) -> bool:
        if type(other) is not Structure:
            return NotImplemented
        return (self.kind, self.keys, self.children, self.extra) == (
            other.kind, other.keys, other.children, other.extra
        ) and (
            not self.keys or all(map(operator.is_, self.keys, other.keys))
            or all(map(_alike, self.keys, other.keys))
        )

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((self.kind, self.keys, self.children, self.extra)) or 1
        return self._hash

    def __repr__(self) -> str:
        return f"Structure({self.kind!r}, {self.keys!r}, {self.children!r}, {self.extra!r})"

    def __reduce__(self) -> Any:  # a class has another hash in another process
        return Structure, (self.kind, self.keys, self.children, self.extra)

    @property
    def leaves(self) -> int:
        """How many leaves it holds."""
        return 1 if self.kind is None else sum(child.leaves for child in self.children)


def _alike(a: Any, b: Any) -> bool:
    """Whether two keys that are equal are the same: 1, 1.0 and True are three."""
    if a is b:
        return True
    if type(a) is tuple and type(b) is tuple:
        return all(map(_alike, a, b))
    return type(a) is type(b) and (type(a) is not float or str(a) == str(b))


LEAF = Structure(None)
# kinds that are never taken apart; tensor.py adds its own
LEAVES: set[type] = {int, float, bool, complex, str, bytes, type(None)}
_positional: dict[int, Structure] = {}  # of calls with so many leaves, and nothing else


def flatten_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Structure]:
    """flatten((args, kwargs)) whole, and quickly where the arguments are leaves."""
    if kwargs:
        return _flatten_whole((args, kwargs))
    for value in args:
        if type(value) not in LEAVES:
            return _flatten_whole((args, kwargs))
    structure = _positional.get(len(args))
    if structure is None:
        structure = _positional[len(args)] = flatten((args, kwargs))[1]
    return list(args), structure


def _flatten_whole(value: Any) -> tuple[list[Any], Structure]:
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves, None, whole=True)


def flatten(value: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[
    list[Any], Structure
]:
    """(leaves in order, structure). `is_leaf` stops the descent."""
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves, is_leaf)


def _flatten(
    value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None, whole: bool = False
) -> Structure:
    kind = type(value)
    parts = None if is_leaf is not None and is_leaf(value) else _parts(value, kind, whole)
    if parts is None:
        leaves.append(value)
        return LEAF
    keys, children, extra = parts
    inside = tuple([_flatten(child, leaves, is_leaf, whole) for child in children])
    return Structure(kind, keys, inside, extra)


def _parts(
    value: Any, kind: type, whole: bool = False
) -> tuple[tuple[Any, ...], list[Any], Any] | None:
    if kind in LEAVES:
        return None
    if kind is list or kind is tuple or kind is Size:
        return (), list(value), None
    if kind is dict:
        return tuple(value), list(value.values()), None
    besides = vars(value) if whole and hasattr(value, "__dict__") else {}
    if besides and isinstance(value, (tuple, dict)) and not dataclasses.is_dataclass(value):
        return None
    if kind is OrderedDict:
        return tuple(value), list(value.values()), None
    if kind is defaultdict:
        return tuple(value), list(value.values()), value.default_factory
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return (), list(value), None
    if isinstance(value, dict) and dataclasses.is_dataclass(value) is False and not _slots(kind):
        return tuple(value), list(value.values()), None
    if getattr(kind, "tree_leaf", False) or kind.__module__.startswith("graphc.ir."):
        return None  # a dtype, say, is a dataclass, too
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        names += [name for name in besides if name not in names]
        return tuple(names), [getattr(value, n) for n in names], None
    return None


def children(value: Any) -> list[Any] | None:
    """What a container holds whole, in the order of its leaves; None for a leaf."""
    parts = _parts(value, type(value), whole=True)
    return None if parts is None else parts[1]


def _slots(kind: type) -> bool:
    """A dict subclass with a constructor of its own cannot be made again from its items."""
    return kind.__dict__.get("__init__") is not None


def unflatten(leaves: list[Any], structure: Structure) -> Any:
    """Put leaves back. Raises ValueError where their number is wrong."""
    if len(leaves) != structure.leaves:
        raise ValueError(f"the structure has {structure.leaves} leaves, got {len(leaves)}")
    return _unflatten(iter(leaves), structure)


def _unflatten(leaves: Any, structure: Structure) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    children = [_unflatten(leaves, child) for child in structure.children]
    if kind is list:
        return children
    if kind is tuple or kind is Size:
        return kind(children)
    if issubclass(kind, tuple):
        return kind._make(children)  # type: ignore[attr-defined]
    if kind is defaultdict:
        return defaultdict(structure.extra, zip(structure.keys, children, strict=True))
    if issubclass(kind, dict):
        return kind(zip(structure.keys, children, strict=True))
    made = object.__new__(kind)
    for name, child in zip(structure.keys, children, strict=True):
        object.__setattr__(made, name, child)
    return made


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same containers with `function` applied to every leaf."""
    leaves, structure = flatten(value)
    return unflatten([function(leaf) for leaf in leaves], structure)
