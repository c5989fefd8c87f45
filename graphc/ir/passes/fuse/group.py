"""A group: a kernel in the making, its members' orders, and what it stores.

Each member has an `Order`, how its elements correspond to the group's space: LINEAR one to one in
row-major order; a `Lower` order for values that are constant along the reduced axes of a pattern;
UP for the inputs of reductions whose results are LINEAR; OTHER for anything read through a general
index map. Only ordered nodes can be reduced or stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ...graph import Node
from ..lower.kinds import Kind
from .analysis import Pattern

Order: TypeAlias = str | Pattern  # a Pattern is a Lower order

LINEAR, UP, OTHER = "linear", "up", "other"


@dataclass(eq=False)
class Group:
    """One kernel in the making."""

    number: int
    kind: Kind
    orders: dict[Node, set[Order]] = field(default_factory=dict)  # its nodes
    outputs: dict[Node, None] = field(default_factory=dict)  # those that it stores
    pattern: Pattern | None = None
    flipped: bool = False  # reductions' results are LINEAR, their inputs UP
    below: int = 0  # bits of the groups that depend on this one
    merged_into: Group | None = None
    # the places (numbers of index maps, 0 for the group's own) at which a node is computed
    places: dict[Node, frozenset[int]] = field(default_factory=dict)
    numbers: dict[tuple[Node, int], int] = field(default_factory=dict)

    @property
    def kept(self) -> Order | None:
        """The order of reductions' results."""
        return LINEAR if self.flipped else self.pattern

    @property
    def full(self) -> Order:
        """The order of the whole space."""
        return UP if self.flipped else LINEAR
