"""What stands in the place of each opcode that reads or writes Python state.

A function gets the index of an instruction and the instruction; it gives the bytes that replace it
(for a jump: that go before it), or None where the instruction stays as it is.
"""

from __future__ import annotations

import dis
from collections.abc import Callable

from . import call_events
from .assembly import Instruction, Jump, one
from .opcodes import EFFECTS, OPMAP, refuse, table
from .rewriting import APPLY, COPY, POP_TOP, PUSH_NULL, SWAP, TUPLE, Rewriting

_BINARY = [text for _, text in dis._nb_ops]  # type: ignore[attr-defined]
_CONVERSIONS = (None, "s", "r", "a")
_UNARY_PLUS = 5  # of CALL_INTRINSIC_1
_UNARY = {
    OPMAP[name]: text
    for name, text in (("UNARY_POSITIVE", "+"), ("UNARY_NEGATIVE", "-"), ("UNARY_INVERT", "~"))
    if name in OPMAP
}
if "TO_BOOL" not in OPMAP:  # from 3.13 on `not` is a truth and then native
    _UNARY[OPMAP["UNARY_NOT"]] = "not"
# the bools that instructions push; what a site gives for `not` or `<` may be anything
_BOOLS = frozenset(
    OPMAP[name] for name in "IS_OP CONTAINS_OP CHECK_EXC_MATCH MATCH_MAPPING MATCH_SEQUENCE".split()
)


# names


def load_attribute(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    bit = table.METHOD_BIT and each.arg & 1
    name = each.arg >> 1 if table.METHOD_BIT else each.arg
    chunk = it.on_top("attribute", it.names[name], at)
    if not bit:
        return chunk
    # Which slot would be NULL is only known at run time: a method is loaded as a value instead.
    return _with_null(chunk or one("LOAD_ATTR", each.arg & ~1))


def load_method(it: Rewriting, at: int, each: Instruction) -> bytes:
    chunk = it.on_top("attribute", it.names[each.arg], at)
    return _with_null(chunk or one("LOAD_ATTR", each.arg))


def load_super_attribute(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    chunk = it.on_tuple(3, "super_attribute", it.names[each.arg >> 2], at)
    if not each.arg & 1:
        return chunk
    return _with_null(chunk or one("LOAD_SUPER_ATTR", each.arg & ~1))


def store_attribute(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    chunk = it.on_tuple(2, "store_attribute", it.names[each.arg], at)
    return None if chunk is None else SWAP[2] + chunk + POP_TOP


def delete_attribute(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return _dropped(it.on_top("delete_attribute", it.names[each.arg], at))


def load_global(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    site = it.site("global", it.names[each.arg >> 1], at)
    if site is None:
        return None
    chunk = site + it.constant(None) + one("BINARY_SUBSCR")
    if not each.arg & 1:
        return chunk
    return PUSH_NULL + chunk if table.NULL_BELOW else chunk + PUSH_NULL


def store_global(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return _dropped(it.on_top("store_global", it.names[each.arg], at))


def delete_global(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    site = it.site("delete_global", it.names[each.arg], at)
    if site is None:
        return None
    return site + it.constant(None) + one("BINARY_SUBSCR") + POP_TOP


def load_free(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    name = it.variable(each.arg)
    site = it.site("free", name, at) if name is not None else None
    if site is None:
        return None
    return site + one(table.LOAD_CELL, each.arg) + one("BINARY_SUBSCR")


def store_free(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    name = it.variable(each.arg)
    if name is None:
        return None
    chunk = it.on_tuple(2, "store_free", name, at)
    return chunk and one(table.LOAD_CELL, each.arg) + SWAP[2] + chunk + POP_TOP


def delete_free(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    name = it.variable(each.arg)
    site = it.site("delete_free", name, at) if name is not None else None
    if site is None:
        return None
    return site + one(table.LOAD_CELL, each.arg) + one("BINARY_SUBSCR") + POP_TOP


# items


def subscript(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_tuple(2, "subscript", None, at)


def load_slice(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_tuple(3, "slice", None, at)


def store_subscript(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    chunk = it.on_tuple(3, "store_subscript", None, at)
    # [value, container, key] to [container, key, value]
    return chunk and SWAP[2] + SWAP[3] + chunk + POP_TOP


def store_slice(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    chunk = it.on_tuple(4, "store_slice", None, at)
    # [value, container, start, stop] to [container, start, stop, value]
    return chunk and SWAP[2] + SWAP[3] + SWAP[4] + chunk + POP_TOP


def delete_subscript(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return _dropped(it.on_tuple(2, "delete_subscript", None, at))


# operators


def binary(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_tuple(2, "binary", _BINARY[each.arg], at)


def unary(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_top("unary", _UNARY[each.op], at)


def compare(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    operator = dis.cmp_op[each.arg >> table.COMPARE_SHIFT]
    coerced = each.arg & table.COMPARE_BOOL
    plain = one("COMPARE_OP", each.arg & ~table.COMPARE_BOOL)
    chunk = it.on_tuple(2, "compare", operator, at)
    truth = it.on_top("truth", None, at) if coerced else b""
    if chunk is None and not truth:
        return None
    return (chunk or plain) + (truth or b"") + (one("TO_BOOL") if coerced else b"")


def identity(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_tuple(2, "identity", ("is", "is not")[each.arg], at)


def contains(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_tuple(2, "contains", ("in", "not in")[each.arg], at)


def to_bool(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.before("truth", None, at)


def intrinsic(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    name = dis.opname[each.op]
    if each.arg not in table.INTRINSICS[name]:
        raise refuse(it.code, each.op, each.line, f"its argument {each.arg} is not known")
    if name == "CALL_INTRINSIC_1" and each.arg == _UNARY_PLUS:
        return it.on_top("unary", "+", at)
    return None


# conditions


def condition(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    """POP_JUMP_IF_TRUE and its like; 3.13 tests nothing but bools there."""
    known = at > 0 and it.instructions[at - 1].op in _BOOLS and not it.is_jump_target(at)
    if known or "TO_BOOL" in OPMAP:
        return None
    return it.on_top("truth", None, at)


def none_condition(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_top("is_none", None, at)


def or_pop(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    """JUMP_IF_TRUE_OR_POP: the value itself stays where it jumps."""
    truth = it.on_top("truth", None, at)
    if truth is None:
        return None
    test = "TRUE" if "TRUE" in dis.opname[each.op] else "FALSE"
    op = OPMAP[f"POP_JUMP_FORWARD_IF_{test}"]
    it.jumps[at] = Jump(COPY[1] + truth, op, POP_TOP, each.target)
    return None


# iteration


def iterate(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_top("iterate", None, at)


def iterate_yield_from(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_top("iterate", "yield from", at)


def unpack(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.before("unpack", each.arg, at)


def unpack_starred(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.before("unpack", (each.arg & 255, each.arg >> 8), at)


def spread(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.before("spread", dis.opname[each.op], at)


# strings


def join(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    """The parts of an f-string."""
    site = it.site("join", None, at)
    return site and one("BUILD_TUPLE", each.arg) + site + APPLY


def format_value(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    site = it.site("format", None, at)
    if site is None:
        return None
    conversion = it.constant(_CONVERSIONS[each.arg & 3])
    spec = SWAP[2] if each.arg & 4 else it.constant("")
    return conversion + spec + TUPLE[3] + site + APPLY


def format_simple(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    site = it.site("format", None, at)
    if site is None:
        return None
    return it.constant(None) + it.constant("") + TUPLE[3] + site + APPLY


def format_with_spec(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    site = it.site("format", None, at)
    return site and it.constant(None) + SWAP[2] + TUPLE[3] + site + APPLY


def convert(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_top("convert", _CONVERSIONS[each.arg], at)


# with, imports and match statements


def enter(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    chunk = it.on_top("with", None, at)
    return chunk and chunk + one("UNPACK_SEQUENCE", 2) + SWAP[2]


def import_name(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    return it.on_tuple(2, "import", it.names[each.arg], at)


def import_from(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    chunk = it.on_top("import_from", it.names[each.arg], at)
    return chunk and COPY[1] + chunk


def match_keys(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    chunk = it.on_tuple(2, "match", "MATCH_KEYS", at)
    return chunk and COPY[2] + COPY[2] + chunk


def match_class(it: Rewriting, at: int, each: Instruction) -> bytes | None:
    site = it.site("match", "MATCH_CLASS", at)
    return site and it.constant(each.arg) + TUPLE[4] + site + APPLY


def _with_null(load: bytes) -> bytes:
    """The value, and NULL in the slot of a method's `self`."""
    return load + PUSH_NULL + (SWAP[2] if table.NULL_BELOW else b"")


def _dropped(chunk: bytes | None) -> bytes | None:
    return None if chunk is None else chunk + POP_TOP


Event = Callable[[Rewriting, int, Instruction], "bytes | None"]


def _events() -> list[Event | None]:
    """What is done to each opcode; None leaves it as it is."""
    named: dict[str, Event] = {
        "LOAD_ATTR": load_attribute,
        "LOAD_METHOD": load_method,
        "LOAD_SUPER_ATTR": load_super_attribute,
        "STORE_ATTR": store_attribute,
        "DELETE_ATTR": delete_attribute,
        "LOAD_GLOBAL": load_global,
        "STORE_GLOBAL": store_global,
        "DELETE_GLOBAL": delete_global,
        "LOAD_DEREF": load_free,
        "STORE_DEREF": store_free,
        "DELETE_DEREF": delete_free,
        "BINARY_SUBSCR": subscript,
        "BINARY_SLICE": load_slice,
        "STORE_SUBSCR": store_subscript,
        "STORE_SLICE": store_slice,
        "DELETE_SUBSCR": delete_subscript,
        "BINARY_OP": binary,
        "COMPARE_OP": compare,
        "IS_OP": identity,
        "CONTAINS_OP": contains,
        "TO_BOOL": to_bool,
        "CALL_INTRINSIC_1": intrinsic,
        "CALL_INTRINSIC_2": intrinsic,
        "JUMP_IF_TRUE_OR_POP": or_pop,
        "JUMP_IF_FALSE_OR_POP": or_pop,
        "GET_ITER": iterate,
        "GET_YIELD_FROM_ITER": iterate_yield_from,
        "UNPACK_SEQUENCE": unpack,
        "UNPACK_EX": unpack_starred,
        "LIST_EXTEND": spread,
        "SET_UPDATE": spread,
        "DICT_UPDATE": spread,
        "DICT_MERGE": spread,
        "BUILD_STRING": join,
        "FORMAT_VALUE": format_value,
        "FORMAT_SIMPLE": format_simple,
        "FORMAT_WITH_SPEC": format_with_spec,
        "CONVERT_VALUE": convert,
        "KW_NAMES": call_events.call_ahead,
        "PRECALL": call_events.call_ahead,
        "CALL": call_events.call,
        "CALL_KW": call_events.call_kw,
        "CALL_FUNCTION_EX": call_events.call_spread,
        "BEFORE_WITH": enter,
        "IMPORT_NAME": import_name,
        "IMPORT_FROM": import_from,
        "MATCH_KEYS": match_keys,
        "MATCH_CLASS": match_class,
    }
    for direction in ("", "_FORWARD", "_BACKWARD"):
        named[f"POP_JUMP{direction}_IF_TRUE"] = condition
        named[f"POP_JUMP{direction}_IF_FALSE"] = condition
        named[f"POP_JUMP{direction}_IF_NONE"] = none_condition
        named[f"POP_JUMP{direction}_IF_NOT_NONE"] = none_condition
    for op in _UNARY:
        named[dis.opname[op]] = unary
    return [named.get(dis.opname[op]) if EFFECTS[op] is not None else None for op in range(256)]


EVENTS = _events()
