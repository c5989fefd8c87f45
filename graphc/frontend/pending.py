"""`return loss.item()`: a number that is only returned need not end a segment, nor need values that
are only kept: `log.append(weights.numpy())`, `self.losses.append(loss.item())`.

The value is fetched after the run. Whether it is only returned is read off the bytecode: from the
call of item() straight on, nothing may touch it but the building of the tuple, list or dict that
is returned; a local variable in between is one whose every use is such. Arithmetic on it is done in
the graph: `total += loss.item()`, `y = x * scale.item()` (pending_numbers.py). Where a device tells
what failed when it is waited for, item() is where the host waits: inside a `try` that is there, and
not behind the run.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeAlias

from graphc.ir.named import NamedTuple

_PUSH = frozenset("LOAD_FAST LOAD_FAST_CHECK LOAD_DEREF LOAD_CONST PUSH_NULL LOAD_GLOBAL".split())
_NOTHING = frozenset("PRECALL RESUME NOP KW_NAMES CACHE".split())
# methods that put what they are given into something, and ask it nothing
_KEEP = frozenset({"append", "appendleft"})
# what puts a value below so many operands into something
_KEEPERS = {0: ("LIST_APPEND", "STORE_GLOBAL"), 1: ("STORE_ATTR",), 2: ("STORE_SUBSCR",)}
_TWO = frozenset("COMPARE_OP BINARY_OP BINARY_SUBSCR".split())
_ARITHMETIC = frozenset("+ - * / += -= *= /=".split())
_DROPS = frozenset({"STORE_FAST", "POP_TOP", "STORE_GLOBAL"})  # one operand
# what asks a number, or a tensor, for its value, or is seldom done with a tensor
_ASKS = frozenset("""
    COMPARE_OP CONTAINS_OP FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE TO_BOOL
""".split())
_ASKING = frozenset("bool float format int print repr round str".split())


class PendingItem:
    """Stands for `tensor.item()`, or another `method` of it, where Python does nothing with it but
    to hand it on, and to compute with it what the graph can compute.

    Whoever asks it for anything else ends the recording (`ask`): it is none of the values that
    Python knows, and has none of their methods.
    """

    __slots__ = ("_combine", "ask", "method", "tensor")

    def __init__(
        self, tensor: Any, method: str = "item", asked: Callable[[], NoReturn] | None = None,
        combine: Combine | None = None,
    ) -> None:
        """`combine`: what arithmetic gives; without one, or where it gives None: nothing."""
        self.tensor, self.method, self._combine = tensor, method, combine
        self.ask: Callable[[], NoReturn] = asked or _late

    def __getattr__(self, name: str) -> Any:
        if self.ask is _late:
            raise AttributeError(name)
        return self.ask()

    def computed(self, op: str, other: Any = None, swap: bool = False) -> Any:
        """The result of an operation on it, and on another number behind it (`swap`: before)."""
        found = None if self._combine is None else self._combine(op, self, other, swap)
        return self.ask() if found is None else found


def is_pending(value: Any) -> bool:
    """Whether it is a number that is there once the graph has run."""
    return type(value) is PendingItem and value.method == "item"


Combine: TypeAlias = Callable[[str, PendingItem, Any, bool], Any]


def _late() -> NoReturn:
    raise TypeError("the number is there once the function has returned")


def _asked(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.ask()


def _operation(op: str, swap: bool) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.computed(op, other, swap)


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
for _name, _op in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}.items():
    setattr(PendingItem, f"__{_name}__", _operation(_op, False))
    setattr(PendingItem, f"__r{_name}__", _operation(_op, True))
    delattr(PendingItem, f"__i{_name}__")  # Python takes the first of these
for _name in ("neg", "abs"):
    setattr(PendingItem, f"__{_name}__", lambda self, op=_name: self.computed(op))


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


# what flow() says of a number that need not be known, as far as can be told
PENDING = frozenset({"returned", "kept", "computed"})


@functools.lru_cache(maxsize=1024)
def flow(code: CodeType, offset: int) -> str:
    """What becomes of what the call at `offset` gives: "returned", straight as a part of the
    function's result; "kept", likewise put into a list by its method, or as an item or attribute;
    "computed", an operand of arithmetic, whose result may be a tensor; "given" to some method, or
    function, whose own result is dropped; else ""."""
    return _flow(code, offset)


def _flow(
    code: CodeType, offset: int, variables: frozenset[str] = frozenset(), computed: str = ""
) -> str:
    """flow(), where these variables hold such values. `computed`: so is the value already."""
    steps = _steps(code)
    return _flow_behind(code, sum(step.offset <= offset for step in steps), variables, computed)


def _flow_behind(
    code: CodeType, start: int, variables: frozenset[str], computed: str
) -> str:
    """_flow() of what lies on top of the stack in front of this step."""
    above = 0  # operands that lie above the value on the stack
    given = ""  # to a call, whose result is where the value was
    steps = _steps(code)
    for i, step in enumerate(steps[start:], start):
        name, count = step.name, step.arg
        if name in _NOTHING:
            continue
        if given:  # None, of list.append
            return given if name == "POP_TOP" else computed
        if name == "RETURN_VALUE":
            return computed or ("returned" if above == 0 else "")
        if name in _KEEPERS.get(above, ()) or (name == "STORE_DEREF" and above == 0 and (
            step.argval in code.co_freevars
        )):
            return computed or "kept"
        if name in _DROPS and (above or (computed and name == "POP_TOP")):
            if not above:
                return computed
            above -= 1
            continue
        if name == "STORE_FAST" and above == 0:
            return _of_variable(code, step.argval, variables, computed)
        if name == "CALL" and count > above == 0:  # it is the last argument
            callee = _callee(steps[:i], count)
            if callee in _ASKING:
                return ""
            if callee == "abs" or callee.endswith("_"):  # x.add_(number)
                computed = "computed"
            else:
                given = "kept" if callee in _KEEP else "given"
            continue
        if (name == "BINARY_OP" and above < 2 and step.argrepr in _ARITHMETIC) or (
            name == "UNARY_NEGATIVE" and above == 0
        ):
            computed, above = "computed", 0
            continue
        change = _change(name, count, above)
        if change is None:
            return "" if name in _ASKS or "JUMP" in name else computed
        above += change
    return ""


def _change(name: str, count: int, above: int) -> int | None:
    """How many more operands lie above a value behind an instruction; None: it may read the
    value."""
    if name in _PUSH:
        return 2 if name == "LOAD_GLOBAL" and count & 1 else 1
    if name == "SWAP":
        return count - 1 if above == 0 else -above if above == count - 1 else 0
    if name == "COPY":
        return None if above == count - 1 else 1
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


class _Step(NamedTuple):
    """An instruction, or one of the two of variables that Python 3.13 has made one."""

    offset: int
    name: str
    arg: int
    argval: Any
    argrepr: str
    effect: int  # operands more on the stack


# instructions of Python 3.13 that are two in one
_PAIRS = {
    f"{first}_{second}": (first, second)
    for first in ("LOAD_FAST", "STORE_FAST") for second in ("LOAD_FAST", "STORE_FAST")
}


@functools.lru_cache(maxsize=256)
def _steps(code: CodeType) -> tuple[_Step, ...]:
    steps = []
    for each in dis.get_instructions(code):
        if each.opname in _PAIRS:
            for name, variable in zip(_PAIRS[each.opname], each.argval, strict=True):
                effect = 1 if name == "LOAD_FAST" else -1
                steps.append(_Step(each.offset, name, 0, variable, variable, effect))
            continue
        steps.append(_Step(
            each.offset, each.opname, each.arg or 0, each.argval, each.argrepr,
            dis.stack_effect(each.opcode, each.arg),
        ))
    return tuple(steps)


def _callee(steps: tuple[_Step, ...], count: int) -> str:
    """The method of a call with so many arguments, which these instructions lead to."""
    for step in reversed(steps):
        if step.name in _NOTHING:
            continue
        if count <= 0:
            loads = ("LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL")
            return str(step.argval) if step.name in loads else ""
        count -= step.effect
    return ""


def _of_variable(code: CodeType, name: str, variables: frozenset[str], computed: str) -> str:
    """What becomes of the value of a local variable, as far as its uses tell."""
    if name in variables:
        return computed or "kept"  # its uses are being looked at
    if name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return ""
    what = computed or "kept"
    for i, step in enumerate(_steps(code)):
        if "_FAST" not in step.name or step.argval != name or step.name == "STORE_FAST":
            continue
        found = _flow_behind(code, i + 1, variables | {name}, computed)
        if step.name not in ("LOAD_FAST", "LOAD_FAST_CHECK") or found not in PENDING:
            return ""
        if found == "computed":
            what = found
    return what
