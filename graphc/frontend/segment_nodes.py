"""Nodes that outlive a recording: a recording that was met before is made of the same nodes.

A node made again needs no type rule and no user's line, and two recordings with the same nodes as
outputs are the same graph, so that none of it need be looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphc.ir.dim import DimEnv
from graphc.ir.graph import Builder, Node, attrs_key, const
from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from .segment_again import Operation

_LIMIT = 20_000
_RECORDINGS = 1000


class KnownNodes:
    """The nodes of a function's recordings. Emptied when there are too many."""

    def __init__(self) -> None:
        self.table: dict[Any, Node] = {}
        self.found: dict[Any, Any] = {}  # what was made of a recording, by its `light_key`
        self.operations: dict[Any, Operation] = {}  # segment_again.py says by what

    def builder(self, env: DimEnv) -> SegmentBuilder:
        """A Builder for one recording."""
        if len(self.table) > _LIMIT:
            self.table, self.found, self.operations = {}, {}, {}
        return SegmentBuilder(env, self.table)

    def keep(self, builder: Builder, key: Any, value: Any) -> None:
        """Remember what was made of a recording, if all its nodes are known."""
        if not isinstance(builder, SegmentBuilder) or builder.own:
            return
        if len(self.found) > _RECORDINGS:
            self.found.clear()
        self.found[key] = value

    def keep_operation(
        self, builder: Builder, key: Any, node: Node, make: Callable[[], Operation]
    ) -> None:
        """Remember an operation whose node is known, and is the same one each time."""
        known = isinstance(builder, SegmentBuilder) and node not in builder.own
        if known and not (node.op.impure or node.graphs):
            self.operations[key] = make()


class SegmentBuilder(Builder):
    """Takes nodes from a table that recordings share, as long as they depend on nothing large:
    data of this recording alone, and what is computed from it, is not kept."""

    def __init__(self, env: DimEnv, table: dict[Any, Node]) -> None:
        super().__init__(env)
        self._shared = table
        self.own: set[Node] = set()

    def input(self, type_: TensorType, name: str = "") -> Node:
        key = len(self.inputs), name, type_
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = super().input(type_, name)
        else:
            self.inputs.append(found)
        return found

    def known(self, op: Op, inputs: tuple[Node, ...], attrs: Attrs) -> Node | None:
        if op.impure or (attrs and "graphs" in attrs):
            return None
        key = op.name, inputs, (), attrs_key(attrs) if attrs else ()
        found = self._shared.get(key)
        return self._interned.get(key) if found is None else found

    def find(self, key: Any) -> Node | None:
        found = self._shared.get(key)
        return self._interned.get(key) if found is None else found

    def keep(self, key: Any, node: Node) -> Node:
        large = node.op is const and node.attrs["value"].array.size > 1
        if large or node.graphs or not self.own.isdisjoint(node.inputs):
            self.own.add(node)
            return super().keep(key, node)
        return self._shared.setdefault(key, node)
