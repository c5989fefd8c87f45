"""Nested containers as JSON, so that a file says what a model takes and gives without its classes.

A container is {"list": [...]}, {"tuple": [...]}, {"dict": [[key, item], ...]}, or
{"namedtuple": name, "fields": [...], "items": [...]}; anything else is a leaf, also a dict.
{"dataclass": cls, "fields": [...], "items": [...]} holds a registered class; in a file, its name.
"""

from __future__ import annotations

import keyword
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

from graphc.export import registered
from graphc.export.errors import ExportError
from graphc.frontend.numbers import Size
from graphc.frontend.tree import Structure

_CONTAINERS = ("list", "tuple", "dict", "ordered_dict", "namedtuple", "dataclass")
_OF_FIELDS = ("namedtuple", "dataclass")
_KEYS = (str, int, float, bool, type(None))


def to_json(structure: Structure, leaves: Iterator[Any], what: str) -> Any:
    """A structure with its leaves' JSON in place. Raises ExportError for other containers."""
    kind = structure.kind
    if kind is None:
        return next(leaves)
    items = [to_json(child, leaves, what) for child in structure.children]
    if kind is list or kind is tuple:
        return {kind.__name__: items}
    if kind is Size:
        return {"tuple": items}
    if issubclass(kind, tuple):
        return {"namedtuple": kind.__name__, "fields": list(kind._fields), "items": items}  # type: ignore[attr-defined]
    if registered.is_registered(kind):
        return {"dataclass": kind, "fields": list(structure.keys), "items": items}
    if not issubclass(kind, dict):
        raise ExportError(
            f"Found {kind} in output, which is not a known type: {what} holds it. If this type "
            "holds tensors, you need to register a pytree for it. Cure: "
            f"graphc.export.register_dataclass({kind.__name__}), or use tuples, lists, dicts or "
            "namedtuples in the arguments and results of an exported model"
        )
    for key in structure.keys:
        if not isinstance(key, _KEYS):
            raise ExportError(
                f"{what} holds a dict with the key {key!r}, which a file cannot hold. Cure: use "
                "strings or numbers as keys"
            )
    name = "ordered_dict" if issubclass(kind, OrderedDict) else "dict"
    return {name: [list(pair) for pair in zip(structure.keys, items, strict=True)]}


def check_known(structure: Structure) -> None:
    """Raise ValueError, in torch's words, for arguments that hold what is no container."""
    kind = structure.kind
    if kind is not None and not issubclass(kind, (list, tuple, dict)) and (
        not registered.is_registered(kind)
    ):
        raise ValueError(
            f"Unsupported input type {kind}. Export only supports pytree containers of basic types "
            "(Tensor, int, float, ...) as input. To register a custom dataclass, use "
            "torch.export.register_dataclass."
        )
    for child in structure.children:
        check_known(child)


def to_file(spec: Any) -> Any:
    """The JSON with names of classes in place of them. Raises NotImplementedError for a class
    without one."""
    return _with_types(spec, lambda cls, fields: registered.type_name(cls))


def from_file(spec: Any) -> Any:
    """The JSON with classes in place of their names. Raises ExportError for an unknown one."""
    return _with_types(spec, registered.type_of_name)


def has_dataclass(spec: Any) -> bool:
    """Whether there is one among the containers."""
    return is_container(spec) and (
        "dataclass" in spec or any(has_dataclass(item) for _, item in children(spec))
    )


def _with_types(spec: Any, of: Callable[[Any, list[str]], Any]) -> Any:
    if not has_dataclass(spec):
        return spec
    kind = _kind(spec)
    pairs = [(key, _with_types(item, of)) for key, item in children(spec)]
    if kind in ("dict", "ordered_dict"):
        return {kind: [list(pair) for pair in pairs]}
    items = [item for _, item in pairs]
    if kind in ("list", "tuple"):
        return {kind: items}
    name, fields = spec[kind], _fields(spec)
    return {
        kind: of(name, fields) if kind == "dataclass" else name, "fields": fields, "items": items
    }


def _kind(spec: dict[str, Any]) -> str:
    return next(name for name in _CONTAINERS if name in spec)


def absent(spec: Any) -> list[bool]:
    """Of each leaf: whether it is a None in a dataclass, which torch does not count as one."""
    if not is_container(spec):
        return [False]
    found: list[bool] = []
    for _, item in children(spec):
        none = "dataclass" in spec and item == {"value": None}
        found += [True] if none else absent(item)
    return found


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
    kind = _kind(spec)
    try:
        if kind in ("list", "tuple"):
            return list(enumerate(spec[kind]))
        if kind in _OF_FIELDS:
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
    if "dataclass" in spec:
        return registered.made(spec["dataclass"], dict(pairs))
    return OrderedDict(pairs) if "ordered_dict" in spec else dict(pairs)


def match(spec: Any, value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """(leaf's JSON, leaf's value, path) in order. Raises TypeError where containers differ."""
    if not is_container(spec):
        yield spec, value, path
        return
    pairs = children(spec)
    if "list" in spec or "tuple" in spec:
        kind: type[Any] = list if "list" in spec else tuple
        fits = type(value) is kind or (type(value) is Size and kind is tuple)
        _expect(fits and len(value) == len(pairs), path, value,
                f"a {kind.__name__} of {len(pairs)}")
        for (key, item), part in zip(pairs, value, strict=True):
            yield from match(item, part, f"{path}[{key}]")
    elif "namedtuple" in spec:
        names = [key for key, _ in pairs]
        _expect(list(getattr(value, "_fields", ())) == names, path, value,
                f"a namedtuple with the fields {', '.join(names)}")
        for (key, item), part in zip(pairs, value, strict=True):
            yield from match(item, part, f"{path}.{key}")
    elif "dataclass" in spec:
        kind = spec["dataclass"]
        _expect(type(value) is kind, path, value, f"a {kind.__name__}")
        for key, item in pairs:
            yield from match(item, getattr(value, key), f"{path}.{key}")
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
        fields = "namedtuple" in spec or "dataclass" in spec
        yield from named(item, f"{path}.{key}" if fields else f"{path}[{key!r}]")


def paths(structure: Structure, path: str) -> Iterator[str]:
    """The path of each leaf: "x", "x[0]", "x['mask']", "x.field"."""
    if structure.kind is None:
        yield path
        return
    keys: Any = structure.keys or range(len(structure.children))
    if issubclass(structure.kind, tuple) and hasattr(structure.kind, "_fields"):
        parts = [f".{name}" for name in structure.kind._fields]
    elif registered.is_registered(structure.kind):
        parts = [f".{name}" for name in keys]
    else:
        parts = [f"[{key!r}]" for key in keys]
    for part, child in zip(parts, structure.children, strict=True):
        yield from paths(child, path + part)
