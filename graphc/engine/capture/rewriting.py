"""One code object while it is rewritten: what the events of `events.py` are made of."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from ...ir.named import NamedTuple
from .assembly import Jump, handlers_of, instructions_of, locations_of, one
from .stack_states import stack_states


class Where(NamedTuple):
    """The instruction of the original code that an event comes from."""

    code: CodeType
    offset: int
    line: int | None


Make = Callable[[str, Any, Where], Any]

SWAP = [one("SWAP", depth) for depth in range(5)]
COPY = [one("COPY", depth) for depth in range(5)]
TUPLE = [one("BUILD_TUPLE", count) for count in range(5)]
PUSH_NULL, POP_TOP = one("PUSH_NULL"), one("POP_TOP")
APPLY = SWAP[2] + one("BINARY_SUBSCR")  # [operand, site] to [result]


class Rewriting:
    """One code object while it is rewritten."""

    def __init__(self, code: CodeType, make: Make) -> None:
        self.code, self.make = code, make
        self.locations = locations_of(code)
        self.instructions = instructions_of(code, self.locations)
        self.handlers = handlers_of(code, self.instructions)
        self.states = stack_states(code, self.instructions, self.handlers)
        self.constants: list[Any] = list(code.co_consts)
        self.names = code.co_names
        self.locals = len(code.co_varnames) + len(set(code.co_cellvars) - set(code.co_varnames))
        self.jumps: dict[int, Jump] = {}
        self.targets = {each.target for each in self.instructions if each.target >= 0}
        self.call_sites: dict[int, bytes | None] = {}

    def site(self, kind: str, detail: Any, at: int) -> bytes | None:
        """The instruction that loads the site of an event, or None: no event."""
        instruction = self.instructions[at]
        site = self.make(kind, detail, Where(self.code, instruction.offset, instruction.line))
        return None if site is None else self.constant(site)

    def constant(self, value: Any) -> bytes:
        """The instruction that loads one more constant."""
        self.constants.append(value)
        return one("LOAD_CONST", len(self.constants) - 1)

    def on_top(self, kind: str, detail: Any, at: int) -> bytes | None:
        """An event whose operand is the top of the stack, replaced by what the site gives."""
        site = self.site(kind, detail, at)
        return None if site is None else site + APPLY

    def on_tuple(self, count: int, kind: str, detail: Any, at: int) -> bytes | None:
        """An event whose operands are the topmost values, in order."""
        site = self.site(kind, detail, at)
        return None if site is None else TUPLE[count] + site + APPLY

    def before(self, kind: str, detail: Any, at: int) -> bytes | None:
        """An event on the top of the stack, and then the instruction itself."""
        chunk = self.on_top(kind, detail, at)
        each = self.instructions[at]
        return None if chunk is None else chunk + self.code.co_code[each.start : each.end]

    def variable(self, arg: int) -> str | None:
        """The name of a free variable, None for the code's own variables."""
        free = arg - self.locals
        return self.code.co_freevars[free] if free >= 0 else None

    def is_jump_target(self, at: int) -> bool:
        return at in self.targets
