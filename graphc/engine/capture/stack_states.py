"""What stands on the stack before each instruction: how many values, and which are NULL.

A call is laid out as [callable, NULL, arguments] or [callable, first argument, other arguments],
and only the stack says which. NULLs are the bits of an integer, bit 0 being the bottom.
"""

from __future__ import annotations

from types import CodeType
from typing import TypeAlias

from .assembly import Handler, Instruction
from .opcodes import EFFECTS, ENDS, JUMPED, JUMPS, OPMAP, refuse, table

State: TypeAlias = "tuple[int, int]"  # depth, NULLs

_SWAP, _COPY, _PUSH_NULL = OPMAP["SWAP"], OPMAP["COPY"], OPMAP["PUSH_NULL"]
_LOADS = {OPMAP["LOAD_GLOBAL"]} | (
    {OPMAP["LOAD_ATTR"], OPMAP["LOAD_SUPER_ATTR"]} if table.METHOD_BIT else set()
)
# opcodes that push NULL, or do so when the lowest bit of their argument is set
_NULLS = _LOADS | {_PUSH_NULL} | ({OPMAP["LOAD_METHOD"]} if "LOAD_METHOD" in OPMAP else set())


def stack_states(
    code: CodeType, instructions: list[Instruction], handlers: list[Handler]
) -> list[State | None]:
    """The state before each instruction, None where it is never reached."""
    states: list[State | None] = [None] * len(instructions)
    pending: list[tuple[int, State]] = [(0, (0, 0))]
    while pending:
        while pending:
            at, state = pending.pop()
            _walk(code, instructions, states, pending, at, state)
        for handler in handlers:
            if states[handler.target] is not None:
                continue
            for at in range(handler.start, handler.stop):
                covered = states[at]
                if covered is not None:
                    below = covered[1] & ((1 << handler.depth) - 1)
                    depth = handler.depth + handler.lasti + 1  # the exception on top
                    pending.append((handler.target, (depth, below)))
                    break
    return states


def _walk(
    code: CodeType,
    instructions: list[Instruction],
    states: list[State | None],
    pending: list[tuple[int, State]],
    at: int,
    state: State,
) -> None:
    """Follow the code from one instruction to where it ends or is known."""
    while True:
        known = states[at]
        instruction = instructions[at]
        op = instruction.op
        if known is not None:
            if known != state:
                raise refuse(code, op, instruction.line, f"its stack is {known} or {state}")
            return
        states[at] = state
        arg = instruction.arg
        effect = EFFECTS[op]
        if effect is None:
            raise refuse(code, op, instruction.line, "not in graphc's table of opcodes")
        if JUMPS[op]:
            jumped = JUMPED[op]
            pops, pushes = jumped if jumped is not None else effect
            assert isinstance(pops, int) and isinstance(pushes, int)
            depth = state[0] - pops
            pending.append((instruction.target, (depth + pushes, state[1] & ((1 << depth) - 1))))
        if op in ENDS:
            return
        state = _after(state, op, arg, effect)
        if state[0] < 0:
            raise refuse(code, op, instruction.line, "more is taken from the stack than it holds")
        at += 1


def _after(state: State, op: int, arg: int, effect: tuple) -> State:
    depth, nulls = state
    pops, pushes = effect
    if not isinstance(pops, int):
        pops = pops(arg)
    if not isinstance(pushes, int):
        pushes = pushes(arg)
    if op == _SWAP and nulls:
        top, other = depth - 1, depth - arg
        if (nulls >> top & 1) != (nulls >> other & 1):
            nulls ^= 1 << top | 1 << other
    elif op == _COPY and nulls >> (depth - arg) & 1:
        nulls |= 1 << depth
    left = depth - pops
    if pops and nulls:
        nulls &= (1 << left) - 1 if left > 0 else 0
    if op in _NULLS and (op not in _LOADS or arg & 1):
        nulls |= 1 << (left if table.NULL_BELOW or pushes == 1 else left + 1)
    return left + pushes, nulls
