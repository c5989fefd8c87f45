"""torch.utils._pytree: nested containers as a list of leaves and a TreeSpec.

Classes become containers by register_pytree_node(). The walks keep a stack: any depth goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ._pytree_nodes import BUILTIN_TYPES as BUILTIN_TYPES
from ._pytree_nodes import SUPPORTED_NODES, NodeDef, _get_node_type
from ._pytree_nodes import GetAttrKey as GetAttrKey
from ._pytree_nodes import MappingKey as MappingKey
from ._pytree_nodes import SequenceKey as SequenceKey
from ._pytree_nodes import _deregister_pytree_node as _deregister_pytree_node
from ._pytree_nodes import _dict_flatten as _dict_flatten
from ._pytree_nodes import _dict_flatten_with_keys as _dict_flatten_with_keys
from ._pytree_nodes import _dict_unflatten as _dict_unflatten
from ._pytree_nodes import _is_namedtuple_instance as _is_namedtuple_instance
from ._pytree_nodes import _list_flatten as _list_flatten
from ._pytree_nodes import _list_unflatten as _list_unflatten
from ._pytree_nodes import _register_pytree_node as _register_pytree_node
from ._pytree_nodes import _tuple_flatten as _tuple_flatten
from ._pytree_nodes import _tuple_unflatten as _tuple_unflatten
from ._pytree_nodes import is_namedtuple_class as is_namedtuple_class
from ._pytree_nodes import is_namedtuple_instance as is_namedtuple_instance
from ._pytree_nodes import register_constant as register_constant
from ._pytree_nodes import register_dataclass as register_dataclass
from ._pytree_nodes import register_pytree_node as register_pytree_node

PyTree = Any
Context = Any
KeyPath = tuple[Any, ...]
IsLeaf = Callable[[Any], bool] | None


class TreeSpec:
    """The shape of a nested container: its type (None for a leaf), context and children."""

    __slots__ = ("_children", "context", "num_children", "num_leaves", "num_nodes", "type")

    num_leaves: int
    num_nodes: int

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self._children = type, context, children_specs
        self.num_children = len(children_specs)
        leaf = type is None
        self.num_leaves = 1 if leaf else sum(child.num_leaves for child in children_specs)
        self.num_nodes = 1 + sum(child.num_nodes for child in children_specs)

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The specs of the children."""
        return self._children

    def children(self) -> list[TreeSpec]:
        """The specs of the children."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The spec of one child."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """Whether it stands for one leaf."""
        return self.type is None

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of `tree` at this spec's leaves. Raises ValueError where it differs."""
        parts: list[Any] = []
        work = [(self, tree)]
        while work:
            spec, value = work.pop()
            if spec.is_leaf():
                parts.append(value)
                continue
            kind = _get_node_type(value)
            if kind != spec.type:
                raise ValueError(f"Type mismatch; expected {spec.type!r}, but got {kind!r}.")
            children, context = SUPPORTED_NODES[kind].flatten_fn(value)
            if len(children) != spec.num_children:
                raise ValueError(
                    f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}."
                )
            if kind is dict:
                children = [value[key] for key in spec.context]
            elif context != spec.context:
                raise ValueError(f"Node context mismatch for custom node type {kind!r}.")
            work.extend(reversed(list(zip(spec._children, children, strict=True))))
        return parts

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put leaves back. Raises ValueError where their number is wrong."""
        return tree_unflatten(leaves, self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        work = [(self, other)]
        while work:
            a, b = work.pop()
            if (a.type, a.num_children) != (b.type, b.num_children) or a.context != b.context:
                return False
            work.extend(zip(a._children, b._children, strict=True))
        return True

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), self.num_nodes, self.num_leaves))

    def __repr__(self, indent: int = 0) -> str:
        if self.is_leaf():
            return "*"
        name = getattr(self.type, "__name__", str(self.type))
        children = ", ".join(map(repr, self._children))
        return f"TreeSpec({name}, {self.context}, [{children}])"


class LeafSpec(TreeSpec):
    """The spec of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


PyTreeSpec = TreeSpec
_LEAF = LeafSpec()


def treespec_leaf() -> TreeSpec:
    """The spec of a leaf."""
    return _LEAF


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether a walk stops here."""
    if is_leaf is not None and is_leaf(tree):
        return True
    return _get_node_type(tree) not in SUPPORTED_NODES


class _Open(NamedTuple):
    """A container whose children are being walked."""

    kind: Any
    context: Any
    children: Any  # an iterator
    specs: list[TreeSpec]


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """(leaves in order, spec). `is_leaf` stops the descent; None is a leaf."""
    leaves: list[Any] = []
    result: list[TreeSpec] = []
    stack = [_Open(None, None, iter([tree]), result)]
    while True:
        top = stack[-1]
        for value in top.children:
            if tree_is_leaf(value, is_leaf):
                leaves.append(value)
                top.specs.append(_LEAF)
                continue
            kind = _get_node_type(value)
            children, context = SUPPORTED_NODES[kind].flatten_fn(value)
            stack.append(_Open(kind, context, iter(children), []))
            break
        else:
            stack.pop()
            if not stack:
                return leaves, result[0]
            stack[-1].specs.append(TreeSpec(top.kind, top.context, top.specs))


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Put leaves back. Raises ValueError where their number is wrong, TypeError without a spec."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but "
            f"got item of type {type(treespec)}."
        )
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(given)} but the spec "
            f"refers to a pytree that holds {treespec.num_leaves} items ({treespec})."
        )
    remaining = iter(given)
    result: list[Any] = []
    stack = [(None, None, iter([treespec]), result)]
    while True:
        kind, context, specs, made = stack[-1]
        for spec in specs:
            if spec.is_leaf():
                made.append(next(remaining))
                continue
            stack.append((spec.type, spec.context, iter(spec._children), []))
            break
        else:
            stack.pop()
            if not stack:
                return result[0]
            stack[-1][3].append(SUPPORTED_NODES[kind].unflatten_fn(made, context))


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterable[Any]:
    """An iterator over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """The spec alone."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """The same containers with func(leaf, *leaves of the rests) for every leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    return tree_unflatten(map(func, *columns), spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Call func for every leaf; gives the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for row in zip(leaves, *(spec.flatten_up_to(rest) for rest in rests), strict=True):
        func(*row)
    return tree


def _is_a(type_or_types_or_pred: Any) -> Callable[[Any], bool]:
    kinds = type_or_types_or_pred
    if isinstance(kinds, type | tuple) or not callable(kinds):
        return lambda value: isinstance(value, kinds)
    return kinds


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function on values of these types, others unchanged."""
    fits = _is_a(type_or_types_or_pred)
    return lambda func: lambda value: func(value) if fits(value) else value


def tree_map_only(
    type_or_types_or_pred: Any, /, func: Callable[..., Any], tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """tree_map on the leaves of these types; others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, /, func: Callable[..., Any], tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """tree_map_ on the leaves of these types."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether pred holds for every leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether pred holds for some leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Whether pred holds for every leaf of these types."""
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Whether pred holds for some leaf of these types."""
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """(path of keys, leaf) for every leaf."""
    found: list[tuple[KeyPath, Any]] = []
    work: list[tuple[KeyPath, Any]] = [((), tree)]
    while work:
        path, value = work.pop()
        if tree_is_leaf(value, is_leaf):
            found.append((path, value))
            continue
        node: NodeDef = SUPPORTED_NODES[_get_node_type(value)]
        children = node.keyed_children(value)
        work.extend(((*path, key), child) for key, child in reversed(children))
    return found


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """([(path, leaf), ...], spec)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    """tree_map with func(path, leaf, ...)."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(rest) for rest in rests]
    rows = zip(pairs, *columns, strict=True)
    return tree_unflatten([func(path, leaf, *more) for (path, leaf), *more in rows], spec)


def keystr(kp: KeyPath) -> str:
    """A path as Python would index it: ['a'][0].x"""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """The part of `obj` at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of the arguments."""
    return tree_leaves((args, kwargs))
