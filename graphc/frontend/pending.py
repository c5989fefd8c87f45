"""`return loss.item()`: a number that is only returned need not end a segment, nor need values that
are only kept: `log.append(weights.numpy())`, `self.losses.append(loss.item())`.

The value is fetched after the run. Whether it is only returned is read off the bytecode: from the
call of item() straight on, nothing may touch it but the building of the tuple, list or dict that
is returned; a local variable in between is one whose every use is such. Where a device tells what
failed when it is waited for, item() is where the host waits: inside a `try` that is there, and not
behind the run.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NoReturn

_PUSH = frozenset("LOAD_FAST LOAD_DEREF LOAD_CONST PUSH_NULL LOAD_GLOBAL".split())
_NOTHING = frozenset("PRECALL RESUME NOP KW_NAMES CACHE".split())
# methods that put what they are given into something, and ask it nothing
_KEEP = frozenset({"append", "appendleft"})
# what puts a value below so many operands into something
_KEEPERS = {0: "LIST_APPEND", 1: "STORE_ATTR", 2: "STORE_SUBSCR"}
_TWO = frozenset("COMPARE_OP BINARY_OP BINARY_SUBSCR".split())


class PendingItem:
    """Stands for `tensor.item()`, or another `method` of it, where Python does nothing with it but
    to hand it on.

    Whoever asks it for anything ends the recording (`_asked`): it is none of the values that
    Python knows, and has none of their methods.
    """

    __slots__ = ("_asked", "method", "tensor")

    def __init__(
        self, tensor: Any, method: str = "item", asked: Callable[[], NoReturn] | None = None
    ) -> None:
        self.tensor, self.method, self._asked = tensor, method, asked

    def __getattr__(self, name: str) -> Any:
        if self._asked is None:
            raise AttributeError(name)
        return self._asked()


def _asked(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    if self._asked is not None:
        self._asked()
    raise TypeError("the number is there once the function has returned")


_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()
for _name in (
    *(f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i") if name != "divmod"),
    *"""
    __divmod__ __rdivmod__ __neg__ __pos__ __abs__ __invert__ __complex__ __int__ __float__
    __index__ __round__ __trunc__ __floor__ __ceil__ __bool__ __len__ __length_hint__ __getitem__
    __setitem__ __delitem__ __iter__ __next__ __reversed__ __contains__ __call__ __lt__ __le__
    __eq__ __ne__ __gt__ __ge__ __hash__ __repr__ __str__ __format__ __bytes__ __array__
    __array_interface__ __array_struct__ __array_priority__ __array_ufunc__ __array_function__
    __dlpack__ __copy__ __deepcopy__ __reduce__ __reduce_ex__ __enter__ __exit__ __await__ __dir__
    """.split(),
):
    setattr(PendingItem, _name, _asked)


def only_returned(entry: CodeType | None, site: Any, late: bool = False) -> bool:
    """Whether the result of item() goes straight into the result of the user's function, which
    code `entry` called. `site`: the call in the original of the user's code, which runs rewritten
    (its `code` and `offset`); None where it does not. `late`: what failed before may be told here
    first, so that nothing may be there to handle it."""
    # this function, SegmentTrace.pending_item(), item(), and who called it
    frame: FrameType = sys._getframe(3)
    if frame.f_back is None or frame.f_back.f_code is not entry:
        return False
    code, offset = _place(frame, site)
    return flow(code, offset) == "returned" and not (late and is_handled(code, offset))


def only_kept(site: Any) -> bool:
    """Whether the result of the method that a user's function has called (see only_returned())
    goes into a container or an attribute, or into the function's result."""
    return flow(*_place(sys._getframe(3), site)) != ""


def number_is_kept(site: Any) -> bool:
    """The same of item(), but for what is given to a method that may well ask it for its value."""
    return flow(*_place(sys._getframe(3), site)) in PENDING


def _place(frame: FrameType, site: Any) -> tuple[CodeType, int]:
    if site is not None and site.code.co_qualname == frame.f_code.co_qualname:
        return site.code, site.offset
    return frame.f_code, frame.f_lasti


@functools.lru_cache(maxsize=1024)
def is_handled(code: CodeType, offset: int) -> bool:
    """Whether what the instruction at `offset` raises goes to a handler in the same code."""
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return any(entry.start <= offset < entry.end for entry in entries)


# what flow() says of a number that need not be known
PENDING = frozenset({"returned", "kept"})


@functools.lru_cache(maxsize=1024)
def flow(code: CodeType, offset: int) -> str:
    """What becomes of what the call at `offset` gives: "returned", straight as a part of the
    function's result; "kept", likewise put into a list by its method, or as an item or attribute;
    "given" to some method, or function, whose own result is dropped; else ""."""
    above = 0  # operands that lie above the value on the stack
    given = ""  # to a call, whose result is where the value was
    steps = list(dis.get_instructions(code))
    for i, step in enumerate(steps):
        if step.offset <= offset:
            continue
        name, count = step.opname, step.arg or 0
        if name in _NOTHING:
            continue
        if given:  # None, of list.append
            return given if name == "POP_TOP" else ""
        if name == "RETURN_VALUE":
            return "returned" if above == 0 else ""
        if name == _KEEPERS.get(above):
            return "kept"
        if name == "STORE_FAST" and above == 0:
            return _of_variable(code, step.argval)
        if name == "CALL" and count > above == 0:  # it is the last argument
            given = "kept" if _callee(steps[:i], count) in _KEEP else "given"
            continue
        change = _change(name, count, above)
        if change is None:
            return ""
        above += change
    return ""


def _change(name: str, count: int, above: int) -> int | None:
    """How many more operands lie above a value behind an instruction; None: it may read the
    value."""
    if name in _PUSH:
        return 2 if name == "LOAD_GLOBAL" and count & 1 else 1
    if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"):
        taken = {"BUILD_MAP": 2 * count, "BUILD_CONST_KEY_MAP": count + 1}.get(name, count)
        return -above if taken > above else 1 - taken
    if name in ("LOAD_METHOD", "LOAD_ATTR"):
        method = name == "LOAD_METHOD" or (sys.version_info >= (3, 12) and count & 1)
        needs, more = 1, int(method)
    elif name == "CALL":
        needs, more = count + 2, -count - 1
    elif name in _TWO:
        needs, more = 2, -1
    else:
        return None
    return more if above >= needs else None


def _callee(steps: list[dis.Instruction], count: int) -> str:
    """The method of a call with so many arguments, which these instructions lead to."""
    for step in reversed(steps):
        if step.opname in _NOTHING:
            continue
        if count <= 0:
            return str(step.argval) if step.opname in ("LOAD_METHOD", "LOAD_ATTR") else ""
        count -= dis.stack_effect(step.opcode, step.arg)
    return ""


def _of_variable(code: CodeType, name: str) -> str:
    """What becomes of the value of a local variable that is stored in one place."""
    if name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return ""
    stores = 0
    for step in dis.get_instructions(code):
        names = step.argval if type(step.argval) is tuple else (step.argval,)
        if "_FAST" not in step.opname or name not in names:
            continue
        if step.opname == "STORE_FAST":
            stores += 1
        elif step.opname != "LOAD_FAST" or flow(code, step.offset) not in PENDING:
            return ""
    return "kept" if stores == 1 else ""
