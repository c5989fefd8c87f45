"""Where a function's code says that its Python will need a tensor's value.

A training step that logs `loss.item()` meets the demand when all the rest is recorded, and to
record an operator takes ten times as long as to run it. Where such a call lies on the way of every
run of the function, or in a hook of a Module that it reaches, its first call is made in eager
mode, which tells whether the value was a tensor's: if not, the next call is recorded as the first
would have been.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any, TypeAlias

from ... import config as configuration
from ...config import AGAIN
from ...frontend.names import fields_of, is_module
from ...frontend.pending import PENDING, flow
from ..capture.reached import reached, unwrapped

Line: TypeAlias = tuple[str, int, bool]  # file and line, and whether bool() asks there
# functions that ask a tensor for its value, and methods whose results are likely to be tensors
_NUMBERS = frozenset({"float", "int", "bool"})
_TENSORS = frozenset("abs all any cpu detach max mean min norm prod std sum var".split())
# what makes a tensor of Python's own numbers: their values are known to a recording
_CONSTANTS = frozenset(
    "tensor as_tensor new_tensor scalar_tensor full new_full arange linspace from_numpy".split()
)
_LOADS_METHODS = sys.version_info >= (3, 12)  # LOAD_ATTR, by its lowest bit
_NOTHING = frozenset({"PRECALL", "CACHE", "KW_NAMES", "TO_BOOL", "NOT_TAKEN"})
_COMPARED = "a comparison"
_RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})


def values_needed(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> frozenset[Line]:
    """The lines where a call seems to need a value, for more than to return it."""
    settings = configuration.current()
    inner, _ = unwrapped(function, args)
    # eager mode would draw torch's numbers; who doubts a recording wants to see it
    if inner is None or settings.random == "counter" or settings.check >= AGAIN:
        return frozenset()
    codes = inner.__code__, *_hooks(function, args, kwargs)
    return frozenset().union(*map(_demands, codes))


def _hooks(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[CodeType]:
    """The code of the hooks that calls of the Modules run."""
    stack = [value for value in reached(function, args, kwargs).values() if is_module(value)]
    seen: set[int] = set()
    while stack:
        fields = fields_of(stack.pop())
        if id(fields) in seen:
            continue
        seen.add(id(fields))
        for name in ("_forward_hooks", "_forward_pre_hooks"):
            for hook in (fields.get(name) or {}).values():
                inner, _ = unwrapped(hook, ())
                if inner is not None:
                    yield inner.__code__
        stack += [child for child in fields["_modules"].values() if child is not None]


@functools.lru_cache(maxsize=1024)
def _demands(code: CodeType) -> frozenset[Line]:
    found: set[Line] = set()
    if not _CONSTANTS.isdisjoint(code.co_names):
        return frozenset()
    steps = list(dis.get_instructions(code))
    loops = _loops(steps)
    beyond = 0  # a jump may lead up to here, over what is before
    callees: list[str] = []  # that were loaded and not called yet
    called = ""  # by the instruction before: a method, or a comparison
    tested = False  # that comparison is of what a method of tensors gave
    for step in steps:
        name, argument = step.opname, step.arg or 0
        if name in _RETURNS:
            break  # what follows is not on every way
        if name in _NOTHING:
            continue
        if name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
            callee = callees.pop() if callees else ""
            if step.offset >= beyond and (
                callee == "tolist" or (callee in _NUMBERS and called in _TENSORS)
                or (callee == "item" and flow(code, step.offset) not in PENDING)
            ):
                found.add(_line(code, step))
            called = callee
            continue
        if step.offset >= beyond:
            if name == "BINARY_SUBSCR" and called == _COMPARED:  # x[y > 0]
                found.add(_line(code, step))
            elif "JUMP_" in name and "_IF_" in name and (called in _TENSORS or tested):
                found.add(_line(code, step, True))  # if x.any(), if x.mean() > 0
        tested = name == "COMPARE_OP" and called in _TENSORS
        if name == "COMPARE_OP":
            called = _COMPARED
        elif name != "LOAD_CONST":
            called = ""
        if name == "LOAD_METHOD" or (name == "LOAD_ATTR" and argument & 1 and _LOADS_METHODS):
            callees.append(step.argval if step.argval not in _NUMBERS else "")
        elif name == "PUSH_NULL" or (name == "LOAD_GLOBAL" and argument & 1):
            callees.append(step.argval or "")
        elif step.argval not in loops and "JUMP" in name and "BACKWARD" not in name:
            beyond = max(beyond, step.argval)
    return frozenset(found)


def _line(code: CodeType, step: dis.Instruction, truth: bool = False) -> Line:
    positions = step.positions
    line = None if positions is None else positions.lineno
    return code.co_filename, line or 0, truth


def _loops(steps: list[dis.Instruction]) -> set[int]:
    """Where loops end: a jump there leaves a loop that is likely to have begun."""
    after = itertools.pairwise(steps)
    return {next_.offset for step, next_ in after if "BACKWARD" in step.opname}
