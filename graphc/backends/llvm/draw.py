"""Draws from torch's generator as steps of a program: native code beside the kernels.

A step takes a state and gives values, and the state behind them. What it calls is a function of
the draw's kind, @graphc_draw_KIND(state, values, state behind, count, two integers), whose object
has all that it needs (of stream_text.py): one object for all sizes. Words are drawn a stretch at a
time, on the stack. A state whose position is not among its words counts as used up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from graphc.backends.llvm.stream import between_integers, limit
from graphc.backends.llvm.stream_few import PAIR
from graphc.backends.llvm.stream_text import define, each_lane, kind_of, lanes_below
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.dim import Size

_WORDS, _POSITION = 624, 624  # of a state; where it has the place of its next word
_STATE = 626
_ROOM = 2048  # words on the stack
_BLOCK = 16  # normal numbers come by so many; fewer come by pairs

# the bits of 1 in each dtype that a choice may be drawn as
_ONE = {
    "bool": 1, "u8": 1, "i8": 1, "i16": 1, "i32": 1, "i64": 1,
    "f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF0000000000000,
}
_BITS = {
    "bool": 8, "u8": 8, "i8": 8, "i16": 16, "f16": 16, "bf16": 16, "i32": 32, "f32": 32,
    "i64": 64, "f64": 64,
}


class Draw(NamedTuple):
    """What a step calls: the kind of its draw, of what shape, and two integers."""

    kind: str
    shape: tuple[Size, ...]
    numbers: tuple[int, ...] = ()


def draw_of(op: str, attrs: Mapping[str, Any]) -> Draw | None:
    """An operator's draw; None for what has no native code."""
    find = _FOUND.get(op)
    return None if find is None else find(attrs)


def symbol(kind: str) -> str:
    """The function of a kind."""
    return f"graphc_draw_{kind.replace('.', '_')}"


# --- which draw ----------------------------------------------------------------------------------


def _floats(name: str, attrs: Mapping[str, Any]) -> Draw | None:
    dtype = attrs["dtype"].name
    return Draw(f"{name}.{dtype}", tuple(attrs["shape"])) if dtype in ("f32", "f64") else None


def _choice(attrs: Mapping[str, Any]) -> Draw | None:
    dtype = attrs["dtype"].name
    if dtype not in _ONE:
        return None
    return Draw(f"kept.{dtype}", tuple(attrs["shape"]), (limit(attrs["p"]),))


def _integers(attrs: Mapping[str, Any]) -> Draw | None:
    if attrs["dtype"].name != "i64":
        return None
    name, _, numbers = between_integers(attrs["low"], attrs["high"])
    return Draw(name, tuple(attrs["shape"]), numbers)


_FOUND: dict[str, Callable[[Mapping[str, Any]], Draw | None]] = {
    "rng_uniform": partial(_floats, "unit"),
    "rng_normal": partial(_floats, "normal"),
    "rng_exponential": partial(_floats, "exponential"),
    "rng_bernoulli": _choice,
    "rng_randint": _integers,
    "rng_permutation": lambda attrs: Draw("permutation", (attrs["n"],)),
    "rng_words": lambda attrs: Draw("words", tuple(attrs["shape"])),
    "rng_normal_pairs": lambda attrs: Draw("pairs.f64", tuple(attrs["shape"])),
}


# --- text ----------------------------------------------------------------------------------------


def draw_text(kind: str) -> str:
    """The module of a kind's function."""
    module = Module()
    name, _, dtype = kind.partition(".")
    needed, body = _BODIES[name]
    define(module, [each.format(bits=_BITS.get(dtype, 0)) for each in needed])
    f = module.function(
        f"void @{symbol(kind)}(ptr %before, ptr %out, ptr %state, i64 %count, i64 %a, i64 %b)"
    )
    with f.loop(0, _STATE) as at:
        word = f.load(f.gep("%before", at, "i64"), "i64", 8)
        f.store(word, "i64", f.gep("%state", at, "i64"), 8)
    place = f.gep("%state", _POSITION, "i64")
    position = f.load(place, "i64", 8)
    known = f.cmp("ule", position, _WORDS)
    f.store(f.let(f"select i1 {known}, i64 {position}, i64 {_WORDS}"), "i64", place, 8)
    body(f, dtype)
    f.ret()
    text = module.text()
    if name not in _IN_PAIRS:
        return text
    lines = [
        line for line in PAIR.splitlines() if not (line.startswith("declare") and line in text)
    ]
    return "\n".join([text, *lines, ""])


def _stretches(
    f: Function, count: Value, each: int, make: Callable[[str, Value, Value], None],
    first: Value = 0,
) -> None:
    """`make(words, start, how many)` for so many numbers, of `each` words."""
    words = f.alloca("i32", _ROOM)
    with f.loop(first, count, _ROOM // each) as start:
        some = f.smin(_ROOM // each, f.sub(count, start))
        f.call(
            "void", "@graphc_stream_words", "ptr %state", f"ptr {words}", f"i64 {f.mul(some, each)}"
        )
        make(words, start, some)


def _filled(f: Function, name: str, scalar: str, each: int, count: Value, *numbers: str) -> None:
    """`count` numbers at %out, by a function of stream_text.py."""

    def make(words: str, start: Value, some: Value) -> None:
        out = f.gep("%out", start, scalar)
        given = (f"ptr {words}", f"ptr {out}", f"i64 {some}", *numbers)
        f.call("void", f"@graphc_stream_{name}", *given)

    _stretches(f, count, each, make)


def _unit(f: Function, dtype: str) -> None:
    bits = _BITS[dtype]
    _filled(f, f"unit{bits}", _scalar(dtype), bits // 32, "%count")


def _scalar(dtype: str) -> str:
    return "float" if dtype == "f32" else "double"


def _kept(f: Function, dtype: str) -> None:
    """1 where the 53 bits of two words, as a whole number, are below the limit, else 0."""
    bits, one = _BITS[dtype], _ONE[dtype]

    def make(words: str, start: Value, some: Value) -> None:
        out = f.gep("%out", start, f"i{bits}")

        def store(at: Value, lanes: int) -> None:
            less = lanes_below(f, words, "%a", at, lanes)
            kind = kind_of(f"i{bits}", lanes)
            ones = one if lanes == 1 else f"<{', '.join([f'i{bits} {one}'] * lanes)}>"
            zeros = 0 if lanes == 1 else "zeroinitializer"
            condition = kind_of("i1", lanes)
            value = f.let(f"select {condition} {less}, {kind} {ones}, {kind} {zeros}")
            f.store(value, kind, f.gep(out, at, f"i{bits}"), bits // 8)

        each_lane(f, some, store)

    _stretches(f, "%count", 2, make)


def _modulo32(f: Function, dtype: str) -> None:
    _filled(f, "modulo32", "i64", 1, "%count", "i64 %a", "i64 %b")


def _modulo64(f: Function, dtype: str) -> None:
    _filled(f, "modulo64", "i64", 2, "%count", "i64 %a", "i64 %b")


def _words(f: Function, dtype: str) -> None:
    """31 bits of each word, as i64."""

    def make(words: str, start: Value, some: Value) -> None:
        with f.loop(0, some) as at:
            word = f.load(f.gep(words, at, "i32"), "i32", 4)
            value = f.let(f"zext i32 {f.let(f'and i32 {word}, {2**31 - 1}')} to i64")
            f.store(value, "i64", f.gep("%out", f.add(start, at), "i64"), 8)

    _stretches(f, "%count", 1, make)


def _permutation(f: Function, dtype: str) -> None:
    with f.loop(0, "%count") as at:
        f.store(at, "i64", f.gep("%out", at, "i64"), 8)

    def make(words: str, start: Value, some: Value) -> None:
        f.call(
            "void", "@graphc_stream_permute", f"ptr {words}", "ptr %out", f"i64 {start}",
            f"i64 {some}", "i64 %count",
        )

    _stretches(f, f.sub("%count", 1), 1, make)


def _exponential(f: Function, dtype: str) -> None:
    if dtype == "f64":
        return _filled(f, "exponential", "double", 2, "%count")
    wide = f.alloca("double", _ROOM // 2)

    def make(words: str, start: Value, some: Value) -> None:
        f.call("void", "@graphc_stream_exponential", f"ptr {words}", f"ptr {wide}", f"i64 {some}")
        with f.loop(0, some) as at:
            value = f.load(f.gep(wide, at, "double"), "double", 8)
            place = f.gep("%out", f.add(start, at), "float")
            f.store(f.let(f"fptrunc double {value} to float"), "float", place, 4)

    return _stretches(f, "%count", 2, make)


def _pairs(f: Function, dtype: str) -> None:
    """Normal numbers by pairs, of which the state keeps the second."""
    scalar = _scalar(dtype)
    with f.loop(0, "%count") as at:
        value = f.call("double", "@graphc_stream_normal", "ptr %state")
        if dtype == "f32":
            value = f.let(f"fptrunc double {value} to float")
        f.store(value, scalar, f.gep("%out", at, scalar), 4 if dtype == "f32" else 8)


def _normal(f: Function, dtype: str) -> None:
    """By blocks of 16, the last of which are drawn again where the count is no multiple."""
    bits, scalar = _BITS[dtype], _scalar(dtype)
    few = f.cmp("slt", "%count", _BLOCK)
    pairs, blocks, rest, end = (f.label(name) for name in ("pairs", "blocks", "rest", "end"))
    f.cond_br(few, pairs, blocks)
    f.block(pairs)
    _pairs(f, dtype)
    f.br(end)
    f.block(blocks)
    _filled(f, f"unit{bits}", scalar, bits // 32, "%count")
    whole = f.let(f"and i64 %count, -{_BLOCK}")
    f.call("void", f"@graphc_stream_normal{bits}", "ptr %out", f"i64 {whole}")
    f.cond_br(f.cmp("eq", whole, "%count"), end, rest)
    f.block(rest)
    words, again = f.alloca("i32", 2 * _BLOCK), f.alloca(scalar, _BLOCK)
    count = _BLOCK * bits // 32
    f.call("void", "@graphc_stream_words", "ptr %state", f"ptr {words}", f"i64 {count}")
    f.call(
        "void", f"@graphc_stream_unit{bits}", f"ptr {words}", f"ptr {again}", f"i64 {_BLOCK}"
    )
    f.call("void", f"@graphc_stream_normal{bits}", f"ptr {again}", f"i64 {_BLOCK}")
    first = f.sub("%count", _BLOCK)
    with f.loop(0, _BLOCK) as at:
        value = f.load(f.gep(again, at, scalar), scalar, bits // 8)
        f.store(value, scalar, f.gep("%out", f.add(first, at), scalar), bits // 8)
    f.br(end)
    f.block(end)


_Body = Callable[[Function, str], None]
# by name: what it needs of stream_text.py, for the dtype's bits, and the function's body
_BODIES: dict[str, tuple[tuple[str, ...], _Body]] = {
    "unit": (("words", "unit{bits}"), _unit),
    "kept": (("words",), _kept),
    "modulo32": (("words", "modulo32"), _modulo32),
    "modulo64": (("words", "modulo64"), _modulo64),
    "words": (("words",), _words),
    "permutation": (("words", "permute"), _permutation),
    "exponential": (("words", "exponential"), _exponential),
    "pairs": (("words", "unit64"), _pairs),
    "normal": (("words", "unit32", "unit64", "normal{bits}"), _normal),
}
_IN_PAIRS = ("pairs", "normal")
