"""The kinds of containers that _pytree takes apart, and how others are added."""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_namedtuple = namedtuple  # the key under which all named tuples are registered


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """The place in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The element there."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A key of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The value there."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """An attribute's name."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The attribute."""
        return getattr(obj, self.name)


class NodeDef(NamedTuple):
    """How a class is taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Any]]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None
    serialized_type_name: str | None = None

    def keyed_children(self, value: Any) -> list[tuple[Any, Any]]:
        """(key, child) pairs; raises ValueError for a class registered without keys."""
        if self.flatten_with_keys_fn is None:
            raise ValueError(
                f"Did not find a flatten_with_keys_fn for type: {self.type}. Please pass one to "
                "register_pytree_node."
            )
        return list(self.flatten_with_keys_fn(value)[0])


def _list_flatten(d: list[Any]) -> tuple[list[Any], Any]:
    return d, None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _tuple_flatten(d: tuple[Any, ...]) -> tuple[list[Any], Any]:
    return list(d), None


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _ordered_unflatten(values: Iterable[Any], context: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


def _defaultdict_flatten(d: defaultdict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d.keys())]


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> defaultdict[Any, Any]:
    return defaultdict(context[0], zip(context[1], values, strict=True))


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


def _deque_flatten(d: deque[Any]) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> deque[Any]:
    return deque(values, maxlen=context)


def _sequence_keys(flatten: Callable[[Any], tuple[list[Any], Any]]) -> Any:
    def keyed(d: Any) -> tuple[list[Any], Any]:
        values, context = flatten(d)
        return [(SequenceKey(i), value) for i, value in enumerate(values)], context

    return keyed


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d.keys())


def _defaultdict_keys(d: defaultdict[Any, Any]) -> tuple[list[Any], Any]:
    return _dict_flatten_with_keys(d)[0], _defaultdict_flatten(d)[1]


def _namedtuple_keys(d: Any) -> tuple[list[Any], Any]:
    return [(GetAttrKey(f), v) for f, v in zip(d._fields, d, strict=True)], type(d)


def _nodes(*definitions: NodeDef) -> dict[Any, NodeDef]:
    return {definition.type: definition for definition in definitions}


SUPPORTED_NODES: dict[Any, NodeDef] = _nodes(
    NodeDef(list, _list_flatten, _list_unflatten, _sequence_keys(_list_flatten)),
    NodeDef(tuple, _tuple_flatten, _tuple_unflatten, _sequence_keys(_tuple_flatten)),
    NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    NodeDef(OrderedDict, _dict_flatten, _ordered_unflatten, _dict_flatten_with_keys),
    NodeDef(defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_keys),
    NodeDef(_namedtuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_keys),
    NodeDef(deque, _deque_flatten, _deque_unflatten, _sequence_keys(_deque_flatten)),
)
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class is a named tuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether a value is a named tuple."""
    return is_namedtuple_class(type(obj))


_is_namedtuple_instance = is_namedtuple_instance


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple_class(kind):
        return _namedtuple
    return kind


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], tuple[Any, Any]],
    unflatten_fn: Callable[[Any, Any], Any], *, serialized_type_name: str | None = None,
    to_dumpable_context: Any = None, from_dumpable_context: Any = None,
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None,
) -> None:
    """Make a class a container. Raises ValueError where it is one already."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(
        cls, flatten_fn, unflatten_fn, flatten_with_keys_fn, serialized_type_name
    )


_register_pytree_node = register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    SUPPORTED_NODES.pop(cls, None)


def register_dataclass(
    cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make a dataclass a container of its fields that are not None; again: in place of what it was.
    Raises ValueError for another class without `field_names`, and for names that are not
    those its constructor takes."""
    names = _constructed(cls, field_names, set(drop_field_names or ()))

    def flatten(value: Any) -> tuple[list[Any], Any]:
        given = [name for name in names if getattr(value, name) is not None]
        missing = [name for name in names if getattr(value, name) is None]
        return [getattr(value, name) for name in given], [given, missing]

    def keyed(value: Any) -> tuple[list[Any], Any]:
        values, (given, missing) = flatten(value)
        pairs = zip(map(GetAttrKey, given), values, strict=True)
        return list(pairs), [given, missing]

    def unflatten(values: Iterable[Any], context: Any) -> Any:
        given, missing = context
        return cls(**dict(zip(given, values, strict=True)), **dict.fromkeys(missing))

    if cls in SUPPORTED_NODES:
        warnings.warn(
            f"{cls} is already registered as pytree node. Overwriting the previous registration.",
            stacklevel=2,
        )
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten, unflatten, keyed, serialized_type_name)


def _constructed(cls: type, given: list[str] | None, dropped: set[str]) -> list[str]:
    """The names of the fields that a container of the class has."""
    if not dataclasses.is_dataclass(cls):
        if given is None:
            raise ValueError(
                "field_names must be specified with a list of all fields used to initialize "
                f"{cls}, as it is not a dataclass."
            )
        return given
    wanted = [f.name for f in dataclasses.fields(cls) if f.init]
    if given is None:
        return wanted
    kept = set(wanted) - dropped
    if kept != set(given):
        said = "field_names does not include all dataclass fields.\n"
        if missing := kept - set(given):
            said += (
                f"Missing fields in `field_names`: {missing}. If you want to include these fields "
                "in the pytree, please add them to `field_names`, otherwise please add them to "
                "`drop_field_names`.\n"
            )
        if unexpected := set(given) - kept:
            said += (
                f"Unexpected fields in `field_names`: {unexpected}. Please remove these fields, or "
                "add them to `drop_field_names`.\n"
            )
        raise ValueError(said)
    return given


def register_constant(cls: type) -> None:
    """Make a class a container without leaves."""

    def keyed(value: Any) -> tuple[list[Any], Any]:
        return [], value

    register_pytree_node(cls, keyed, lambda values, context: context, flatten_with_keys_fn=keyed)
