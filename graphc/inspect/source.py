"""The user's lines: where operators were recorded, and what is written there."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from typing import NamedTuple

from graphc.inspect.report import short_path
from graphc.ir.graph import Loc, Node


class UserLine(NamedTuple):
    """A line with the operators that it recorded. `place`: "net.py:9, module blocks.0"; `text`: as
    it is written now ("": nobody knows)."""

    place: str
    text: str
    ops: tuple[str, ...]

    def __str__(self) -> str:
        ops = " ".join(self.ops)
        return ": ".join(each for each in (self.place, ops) if each) + (
            f"  |  {self.text}" if self.text else ""
        )


def user_lines(nodes: Iterable[Node]) -> list[UserLine]:
    """The lines behind some nodes, in order of first appearance."""
    found: dict[str, tuple[Loc | None, list[str]]] = {}
    for node in nodes:
        found.setdefault(node.place, (node.loc, []))[1].append(node.op.name)
    return [
        UserLine(short_path(place), written_at(loc), tuple(ops))
        for place, (loc, ops) in found.items()
    ]


def written_at(loc: Loc | None) -> str:
    """What a line says, without its margin."""
    return "" if loc is None else linecache.getline(loc.file, loc.line).strip()
