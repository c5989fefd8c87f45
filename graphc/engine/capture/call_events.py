"""What stands in the place of a call: its site is asked, and what it gives is called natively."""

from __future__ import annotations

from typing import Any

from .assembly import Instruction, one
from .opcodes import OPMAP, refuse, table
from .rewriting import APPLY, COPY, POP_TOP, PUSH_NULL, SWAP, TUPLE, Rewriting

_NOP = one("NOP")
_KW_NAMES_BEFORE = 2 if "PRECALL" in OPMAP else 1  # instructions from KW_NAMES to its CALL
_JUMP_IF_KWARGS = "POP_JUMP_FORWARD_IF_NOT_NONE"
if _JUMP_IF_KWARGS not in OPMAP:
    _JUMP_IF_KWARGS = "POP_JUMP_IF_NOT_NONE"


def _native_call() -> bytes:
    """[args, kwargs or None, above the callable] to [result]."""
    without = POP_TOP + one("CALL_FUNCTION_EX", 0)
    with_kwargs = one("CALL_FUNCTION_EX", 1)
    over = one("JUMP_FORWARD", len(with_kwargs) // 2)
    jump = one(_JUMP_IF_KWARGS, (len(without) + len(over)) // 2)
    return COPY[1] + jump + without + over + with_kwargs


_NATIVE_CALL = _native_call()


def _call_site(it: Rewriting, at: int) -> bytes | None:
    """The site of the call at an instruction: KW_NAMES and PRECALL ask before the call does."""
    if at not in it.call_sites:
        it.call_sites[at] = it.site("call", None, at)
    return it.call_sites[at]


def call_ahead(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    """KW_NAMES or PRECALL of a call that is an event: nothing is left to do there."""
    call = next(n for n in range(at, at + 3) if it.instructions[n].op == OPMAP["CALL"])
    return None if _call_site(it, call) is None else _NOP


def call(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    site = _call_site(it, at)
    if site is None:
        return None
    names: tuple[str, ...] = ()
    before = it.instructions[at - _KW_NAMES_BEFORE]
    if before.op == OPMAP.get("KW_NAMES"):
        names = it.code.co_consts[before.arg]
    return _call(it, at, each.arg, names, site, it.constant(names) if names else b"")


def call_kw(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    """3.13's call with keywords: their names are the constant on top of the stack."""
    before = it.instructions[at - 1]
    names = it.code.co_consts[before.arg] if before.op == OPMAP["LOAD_CONST"] else None
    if not isinstance(names, tuple) or it.is_jump_target(at):
        raise refuse(it.code, each.op, each.line, "the names of its keywords are no constant")
    site = _call_site(it, at)
    return site and _call(it, at, each.arg, names, site, b"")


def _call(
    it: Rewriting, at: int, count: int, names: tuple[str, ...], site: bytes, load_names: bytes
) -> bytes:
    """[callable, NULL or argument, arguments] to [result], in the order of this Python."""
    state = it.states[at]
    assert state is not None
    depth, nulls = state
    below = depth - count - 2 - (1 if names and not load_names else 0)
    null = nulls >> (below if table.NULL_BELOW else below + 1) & 1
    positional = count - len(names) + (0 if null else 1)
    if names:
        keywords = load_names + one("BUILD_CONST_KEY_MAP", len(names))
        keywords += _args_below(it, positional)
    else:
        keywords = one("BUILD_TUPLE", positional) + it.constant(None)
    return keywords + _ask_and_call(it, site, bool(null))


def _args_below(it: Rewriting, positional: int) -> bytes:
    """[positional arguments, kwargs] to [args, kwargs]."""
    if positional == 0:
        return it.constant(()) + SWAP[2]
    return (
        one("BUILD_TUPLE", positional + 1)
        + COPY[1]
        + it.constant(-1)
        + one("BINARY_SUBSCR")
        + SWAP[2]
        + it.constant(None)
        + it.constant(-1)
        + one("BUILD_SLICE", 2)
        + one("BINARY_SUBSCR")
        + SWAP[2]
    )


def _ask_and_call(it: Rewriting, site: bytes, null: bool) -> bytes:
    """[callable, (NULL,) args, kwargs or None] to [result]."""
    if not null:
        prepare = TUPLE[3] + PUSH_NULL + SWAP[2]
    elif table.NULL_BELOW:
        prepare = TUPLE[3]
    else:  # [callable, NULL, args, kwargs] to [NULL, callable, args, kwargs]
        prepare = SWAP[3] + SWAP[4] + SWAP[3] + TUPLE[3]
    # [NULL, kwargs, args, callable] to [NULL, callable, args, kwargs], NULL second in 3.13
    order = SWAP[3] if table.NULL_BELOW else SWAP[4] + SWAP[3]
    return prepare + site + APPLY + one("UNPACK_SEQUENCE", 3) + order + _NATIVE_CALL


def call_spread(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    """CALL_FUNCTION_EX: its args are any iterable, its kwargs a dict that the code has built."""
    site = _call_site(it, at)
    if site is None:
        return None
    spread = it.on_top("spread", "CALL_FUNCTION_EX", at) or b""
    keywords = each.arg & 1
    callable_at = 2 if table.NULL_BELOW else 3
    as_tuple = COPY[callable_at + keywords] + TUPLE[2] + it.constant(_ARGS) + APPLY
    if keywords:
        return SWAP[2] + spread + as_tuple + SWAP[2] + _ask_and_call(it, site, True)
    return spread + as_tuple + it.constant(None) + _ask_and_call(it, site, True)


class _Arguments:
    """Gives `f(*iterable)` its tuple, with the interpreter's words where it is none."""

    __slots__ = ()

    def __getitem__(self, operands: tuple[Any, Any]) -> tuple:
        iterable, function = operands
        if type(iterable) is tuple:
            return iterable
        if not hasattr(type(iterable), "__iter__") and not hasattr(type(iterable), "__getitem__"):
            name = getattr(function, "__qualname__", None)
            name = f"{function.__module__}.{name}()" if name else str(function)
            kind = type(iterable).__name__
            raise TypeError(f"{name} argument after * must be an iterable, not {kind}")
        return tuple(iterable)


_ARGS = _Arguments()
