"""The opcode table of the Python that runs, indexed by opcode."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable
from types import CodeType
from typing import TypeAlias

Amount: TypeAlias = "int | Callable[[int], int]"

if sys.version_info[:2] == (3, 11):
    from . import opcodes_311 as table
elif sys.version_info[:2] == (3, 12):
    from . import opcodes_312 as table
else:
    from . import opcodes_313 as table

KNOWN_PYTHON = sys.version_info[:2] <= (3, 13)
OPMAP = {name: number for name, number in opcode.opmap.items() if number < 256}


class Uninstrumentable(Exception):
    """Code with an opcode, or a use of one, that the tables do not describe."""


def _caches() -> list[int]:
    """Code units of inline cache behind each opcode."""
    entries = opcode._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(entries, dict):  # from 3.13 on by name
        return [entries.get(name, 0) for name in opcode.opname[:256]]
    return list(entries[:256])


def _jumps() -> list[int]:
    """1 where an opcode jumps forward, -1 backward, 0 where it does not jump."""
    signs = [0] * 256
    for number in opcode.hasjrel:
        if number < 256:
            signs[number] = -1 if "BACKWARD" in opcode.opname[number] else 1
    return signs


CACHES = _caches()
JUMPS = _jumps()
EXTENDED_ARG = OPMAP["EXTENDED_ARG"]
EFFECTS: list[tuple[Amount, Amount] | None] = [None] * 256
JUMPED: list[tuple[Amount, Amount] | None] = [None] * 256
if KNOWN_PYTHON:
    for _name, _effect in table.EFFECTS.items():
        EFFECTS[OPMAP[_name]] = _effect
        JUMPED[OPMAP[_name]] = table.JUMPED.get(_name, _effect)
ENDS = frozenset(
    OPMAP[name]
    for name in (
        "RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE"
        " JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT"
    ).split()
    if name in OPMAP
)


def refuse(code: CodeType, op: int, line: int | None, why: str) -> Uninstrumentable:
    """The error that names the opcode and the user's file:line."""
    return Uninstrumentable(
        f"{code.co_filename}:{line}: {opcode.opname[op]} in {code.co_qualname}: {why}"
    )
