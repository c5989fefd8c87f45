"""`return loss.item()`: a number that is only returned need not end a segment.

The value is fetched after the run. Whether it is only returned is read off the bytecode: from the
call of item() straight on, nothing may touch it but the building of the tuple, list or dict that
is returned. Where a device tells what failed when it is waited for, item() is where the host waits:
inside a `try` that is there, and not behind the run.
"""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType, FrameType
from typing import Any

_PUSH = frozenset("LOAD_FAST LOAD_DEREF LOAD_CONST PUSH_NULL LOAD_GLOBAL".split())
_NOTHING = frozenset("PRECALL RESUME NOP KW_NAMES CACHE".split())
_TWO = frozenset("COMPARE_OP BINARY_OP BINARY_SUBSCR".split())


class PendingItem:
    """Stands for `tensor.item()` in a function's result."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def only_returned(entry: CodeType | None, site: Any, late: bool = False) -> bool:
    """Whether the result of item() goes straight into the result of the user's function, which
    code `entry` called. `site`: the call in the original of the user's code, which runs rewritten
    (its `code` and `offset`); None where it does not. `late`: what failed before may be told here
    first, so that nothing may be there to handle it."""
    # this function, SegmentTrace.pending_item(), item(), and who called it
    frame: FrameType = sys._getframe(3)
    if frame.f_back is None or frame.f_back.f_code is not entry:
        return False
    code = frame.f_code
    offset = frame.f_lasti
    if site is not None and site.code.co_qualname == code.co_qualname:
        code, offset = site.code, site.offset
    return flows_to_return(code, offset) and not (late and is_handled(code, offset))


@functools.lru_cache(maxsize=1024)
def is_handled(code: CodeType, offset: int) -> bool:
    """Whether what the instruction at `offset` raises goes to a handler in the same code."""
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return any(entry.start <= offset < entry.end for entry in entries)


@functools.lru_cache(maxsize=1024)
def flows_to_return(code: CodeType, offset: int) -> bool:
    """Whether what the call at `offset` gives goes straight into the function's result."""
    above = 0  # operands that lie above the value on the stack
    for step in dis.get_instructions(code):
        if step.offset <= offset:
            continue
        name, count = step.opname, step.arg or 0
        if name == "RETURN_VALUE":
            return above == 0
        if name in _NOTHING:
            continue
        if name in _PUSH:
            above += 2 if name == "LOAD_GLOBAL" and count & 1 else 1
            continue
        if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"):
            taken = {"BUILD_MAP": 2 * count, "BUILD_CONST_KEY_MAP": count + 1}.get(name, count)
            above = 0 if taken > above else above - taken + 1
            continue
        if name in ("LOAD_METHOD", "LOAD_ATTR"):
            needs, more = 1, 1 if name == "LOAD_METHOD" or (
                sys.version_info >= (3, 12) and count & 1
            ) else 0
        elif name == "CALL":
            needs, more = count + 2, -count - 1
        elif name in _TWO:
            needs, more = 2, -1
        else:
            return False
        if above < needs:
            return False
        above += more
    return False
