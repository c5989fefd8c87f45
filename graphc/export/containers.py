"""Nested containers as JSON, so that a file says what a model takes and gives without its classes.

A container is {"list": [...]}, {"tuple": [...]}, {"dict": [[key, item], ...]}, or
{"namedtuple": name, "fields": [...], "items": [...]}; anything else is a leaf, also a dict.
"""

from __future__ import annotations

import keyword
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

from graphc.export.errors import ExportError
from graphc.frontend.tree import Structure

_CONTAINERS = ("list", "tuple", "dict", "ordered_dict", "namedtuple")
_KEYS = (str, int, float, bool, type(None))


def to_json(structure: Structure, leaves: Iterator[Any], what: str) -> Any:
    """A structure with its leaves' JSON in place. Raises ExportError for other containers."""
    kind = structure.kind
    if kind is None:
        return next(leaves)
    items = [to_json(child, leaves, what) for child in structure.children]
    if kind is list or kind is tuple:
        return {kind.__name__: items}
    if issubclass(kind, tuple):
        return {"namedtuple": kind.__name__, "fields": list(kind._fields), "items": items}  # type: ignore[attr-defined]
    if not issubclass(kind, dict):
        raise ExportError(
            f"{what} holds a {kind.__qualname__}, which a file cannot hold. Cure: use tuples, "
            "lists, dicts or namedtuples in the arguments and results of an exported model"
        )
    for key in structure.keys:
        if not isinstance(key, _KEYS):
            raise ExportError(
                f"{what} holds a dict with the key {key!r}, which a file cannot hold. Cure: use "
                "strings or numbers as keys"
            )
    name = "ordered_dict" if issubclass(kind, OrderedDict) else "dict"
    return {name: [list(pair) for pair in zip(structure.keys, items, strict=True)]}


def is_container(spec: Any) -> bool:
    """Whether a JSON value is a container of this form, not a leaf."""
    return isinstance(spec, dict) and any(name in spec for name in _CONTAINERS)


def leaves_of(spec: Any) -> Iterator[Any]:
    """The leaves of a JSON structure in order. Raises ExportError where it is malformed."""
    if not is_container(spec):
        yield spec
        return
    for _, item in children(spec):
        yield from leaves_of(item)


def children(spec: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(key, item) of each child; the key is a position, a field name or a dict's key."""
    kind = next(name for name in _CONTAINERS if name in spec)
    try:
        if kind in ("list", "tuple"):
            return list(enumerate(spec[kind]))
        if kind == "namedtuple":
            return list(zip(_fields(spec), spec["items"], strict=True))
        return [(_key(pair[0]), pair[1]) for pair in spec[kind] if len(pair) == 2]
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ExportError(f"the manifest has a malformed {kind}: {error}") from None


def _key(key: Any) -> Any:
    if not isinstance(key, _KEYS):
        raise TypeError(f"a dict's key cannot be {key!r}")
    return key


def _fields(spec: dict[str, Any]) -> list[str]:
    fields = spec["fields"]
    if not all(isinstance(f, str) and f.isidentifier() and not keyword.iskeyword(f)
               and not f.startswith("_") for f in fields):
        raise TypeError(f"fields {fields!r}")
    return list(fields)


def build(spec: Any, leaf: Callable[[Any], Any]) -> Any:
    """The containers with `leaf(json)` in place of each leaf; namedtuples are made anew."""
    if not is_container(spec):
        return leaf(spec)
    pairs = [(key, build(item, leaf)) for key, item in children(spec)]
    values = [value for _, value in pairs]
    if "list" in spec:
        return values
    if "tuple" in spec:
        return tuple(values)
    if "namedtuple" in spec:
        name = spec["namedtuple"]
        name = name if isinstance(name, str) and name.isidentifier() else "Result"
        return namedtuple(name, _fields(spec), rename=True)(*values)
    return OrderedDict(pairs) if "ordered_dict" in spec else dict(pairs)


def match(spec: Any, value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """(leaf's JSON, leaf's value, path) in order. Raises TypeError where containers differ."""
    if not is_container(spec):
        yield spec, value, path
        return
    pairs = children(spec)
    if "list" in spec or "tuple" in spec:
        kind: type[Any] = list if "list" in spec else tuple
        _expect(type(value) is kind and len(value) == len(pairs), path, value,
                f"a {kind.__name__} of {len(pairs)}")
        for (key, item), part in zip(pairs, value, strict=True):
            yield from match(item, part, f"{path}[{key}]")
    elif "namedtuple" in spec:
        names = [key for key, _ in pairs]
        _expect(list(getattr(value, "_fields", ())) == names, path, value,
                f"a namedtuple with the fields {', '.join(names)}")
        for (key, item), part in zip(pairs, value, strict=True):
            yield from match(item, part, f"{path}.{key}")
    else:
        keys = [key for key, _ in pairs]
        _expect(isinstance(value, dict) and set(value) == set(keys), path, value,
                f"a dict with the keys {keys}")
        for key, item in pairs:
            yield from match(item, value[key], f"{path}[{key!r}]")


def _expect(fits: bool, path: str, value: Any, wanted: str) -> None:
    if not fits:
        size = f" of {len(value)}" if isinstance(value, (list, tuple, dict)) else ""
        raise TypeError(f"{path} must be {wanted}, got a {type(value).__name__}{size}")


def named(spec: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, leaf's JSON) in order: "x", "x[0]", "x['mask']", "x.field"."""
    if not is_container(spec):
        yield path, spec
        return
    for key, item in children(spec):
        yield from named(item, f"{path}.{key}" if "namedtuple" in spec else f"{path}[{key!r}]")


def paths(structure: Structure, path: str) -> Iterator[str]:
    """The path of each leaf: "x", "x[0]", "x['mask']", "x.field"."""
    if structure.kind is None:
        yield path
        return
    keys: Any = structure.keys or range(len(structure.children))
    if issubclass(structure.kind, tuple) and hasattr(structure.kind, "_fields"):
        parts = [f".{name}" for name in structure.kind._fields]
    else:
        parts = [f"[{key!r}]" for key in keys]
    for part, child in zip(parts, structure.children, strict=True):
        yield from paths(child, path + part)
