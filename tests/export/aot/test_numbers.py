"""Python's numbers as a library computes them: the same bits, and refused where Python raises."""

from __future__ import annotations

import ctypes
import itertools
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from graphc.backends.host.interface import Interface, Number, Stored
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.freestanding.layout import Word
from graphc.backends.llvm.freestanding.messages import Texts, emit_messages
from graphc.backends.llvm.freestanding.numbers import Numbers
from graphc.backends.llvm.freestanding.tables import Tables
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.target import host_target
from graphc.backends.llvm.text import Module
from graphc.export.aot.numbers import typed
from graphc.export.errors import ExportError
from graphc.export.steps import numbers
from graphc.ir import dtypes

from .client import Tensor

SOURCES = {
    "a": Number("given", "float", (), 0), "b": Number("given", "float", (), 1),
    "i": Number("given", "int", (), 2), "j": Number("given", "int", (), 3),
}
_DTYPES = {"float": dtypes.f64, "int": dtypes.i64, "bool": dtypes.bool_}
_LETTERS = {"float": "<d", "int": "<q", "bool": "<?"}
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-3, 7.0, -7.25, 0.9, 0.999, 1e300, -1e300, 5e-324,
    float(2**53), 1.5e19, math.inf, -math.inf, math.nan,
)
INTS = (0, 1, -1, 2, 3, -7, 10, 63, 64, 1000, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))


class Compiled:
    """Expressions as native code."""

    def __init__(self, expressions: Sequence[numbers.Expression]) -> None:
        module = Module()
        texts = Texts(module)
        emit_messages(module)
        tables = Tables(module, texts, host_target(), Interface("m", (), (), (), ()))
        self.kinds = []
        for k, expression in enumerate(expressions):
            number = typed(expression, SOURCES)
            self.kinds.append(number.kind)
            w = Writer(module, texts, f"i32 @number_{k}(ptr %ctx, ptr %inputs, ptr %dims)", "")
            made = Numbers(w, tables)
            made.store(Stored(number, _DTYPES[number.kind], 0, "it"))
            w.f.ret("i32 0")
        self.library = Library([ObjectCache(None).compile(module.text(), host_target())], {})
        kinds = [ctypes.c_void_p] * 3
        self.functions = [
            ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(self.library.address(f"number_{k}"))
            for k in range(len(expressions))
        ]
        self.result, self.text = (ctypes.c_uint8 * 8)(), ctypes.create_string_buffer(1024)
        self.context = (ctypes.c_int64 * (max(Word) + 1))()
        self.context[Word.MESSAGE] = ctypes.addressof(self.text)
        self.context[Word.MESSAGE_BYTES] = 1024
        self.context[Word.STATE] = ctypes.addressof(self.result)

    def __call__(self, k: int, values: dict[str, Any]) -> Any:
        """What an expression comes to; None: it is refused."""
        words = [struct.pack("<d" if type(v) is float else "<q", v) for v in values.values()]
        memory = [ctypes.create_string_buffer(word, 8) for word in words]
        given = (Tensor * 4)(*(Tensor(ctypes.addressof(each), 8) for each in memory))
        code = self.functions[k](ctypes.addressof(self.context), ctypes.addressof(given), None)
        if code:
            assert self.text.value.startswith(b"it cannot be computed: ")
            return None
        (found,) = struct.unpack_from(_LETTERS[self.kinds[k]], self.result)
        return found


def check(compiled: Compiled, k: int, expression: Any, values: dict[str, Any]) -> None:
    """Equal bits; refused where Python raises, and for ints that C has not."""
    found = compiled(k, values)
    try:
        wanted = numbers.evaluate(expression, values, {})
    except numbers.ERRORS:
        assert found is None, (expression, values, found)
        return
    if found is None:
        parts = _values(expression, values)
        large = any(type(each) is int and abs(each) > 2**53 for each in parts)
        assert large or type(wanted) is complex or _below(expression, values), (
            expression, values, wanted
        )
        return
    assert type(found) is type(wanted), (expression, values, found, wanted)
    same = struct.pack("<d", found) == struct.pack("<d", wanted) if type(found) is float else (
        found == wanted
    )
    assert same or (found != found and wanted != wanted), (expression, values, found, wanted)


def _below(expression: Any, values: dict[str, Any]) -> bool:
    """Whether some part is an int to a power that is an int below 0, found in the call."""
    if expression[0] in ("source", "dim", "constant"):
        return False
    if expression[0] == "pow" and expression[2][0] != "constant":
        base, exponent = (numbers.evaluate(each, values, {}) for each in expression[1:])
        if type(base) is not float and type(exponent) is not float and exponent < 0:
            return True
    return any(_below(each, values) for each in expression[1:])


def _values(expression: Any, values: dict[str, Any]) -> list[Any]:
    """What all parts of an expression come to."""
    found = [numbers.evaluate(expression, values, {})]
    if expression[0] not in ("source", "dim", "constant"):
        for each in expression[1:]:
            if not (each[0] == "constant" and isinstance(each[1], list)):
                found += _values(each, values)
    return found


A, B, N, M = (["source", name] for name in "abij")
ONE = [
    "neg", "abs", "float", "int", "floor", "ceil", "round", "float32", "math.sqrt", "math.exp",
    "math.log", "math.log2", "math.log10", "math.log1p", "math.expm1", "math.sin", "math.cos",
    "math.tan", "math.asin", "math.acos", "math.atan", "math.sinh", "math.cosh", "math.tanh",
    "math.asinh", "math.acosh", "math.atanh", "math.erf", "math.erfc", "math.fabs", "math.degrees",
    "math.radians", "math.exp2", "math.cbrt",
]
TWO = [
    "add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "eq", "lt", "le", "math.atan2",
    "math.copysign", "math.fmod", "math.pow", "math.log",
]
TABLE = ["constant", [0.5, 0.25, -0.0, 3.0]]
EVERY: list[Any] = [
    *([op, each] for op in ONE for each in (A, N)),
    *([op, x, y] for op in TWO for x in (A, N) for y in (B, M)), ["math.gcd", N, M],
    *(["pow", x, ["constant", n]] for x in (A, N) for n in (0, 1, 2, 3, 7, -1, -2, 0.5)),
    *([op, N, M] for op in ("and", "or", "xor", "rshift")), ["invert", N],
    *([op, ["lt", A, B], ["le", N, M]] for op in ("and", "or", "xor", "add", "mul")),
    ["item", TABLE, N], ["item", ["constant", [3, -4]], ["lt", A, B]], ["constant", "-inf"],
    ["mul", ["constant", True], ["add", N, M]], ["invert", ["eq", N, M]], ["float", ["lt", A, B]],
    ["pow", ["lt", A, B], M],
]
EVERY = [each for each in EVERY if each[0] in numbers.PYTHON or each[0] == "constant"]


@pytest.fixture(scope="module")
def every() -> Compiled:
    return Compiled(EVERY)


def test_every_operation(every: Compiled) -> None:
    floats = [(a, b) for a in FLOATS for b in FLOATS]
    ints = [(i, j) for i in INTS for j in INTS]
    calls = max(len(floats), len(ints))
    for (a, b), (i, j) in itertools.islice(
        zip(itertools.cycle(floats), itertools.cycle(ints), strict=False), calls
    ):
        for k, expression in enumerate(EVERY):
            check(every, k, expression, {"a": a, "b": b, "i": i, "j": j})


def test_what_optimizers_compute() -> None:
    """Adam's corrections and a schedule, nested, of many counts and rates."""
    count = ["add", N, ["constant", 1]]
    corrections = [
        ["sub", ["constant", 1], ["pow", ["constant", beta], count]] for beta in (0.9, 0.999)
    ]
    rate = ["mul", A, ["mul", ["constant", 0.5], ["add", ["constant", 1], ["math.cos", [
        "div", ["mul", ["constant", math.pi], count], ["constant", 1000]]]]]]
    expressions = [*corrections, rate, ["div", rate, corrections[0]],
                   ["math.sqrt", corrections[1]], ["neg", ["div", A, corrections[0]]]]
    compiled = Compiled(expressions)
    rng = random.Random(0)
    for i in range(500):
        values = {"a": rng.random() * 10 ** rng.randint(-6, 0), "b": 0.0, "i": i, "j": 0}
        for k, expression in enumerate(expressions):
            assert compiled(k, values) is not None
            check(compiled, k, expression, values)


@pytest.mark.parametrize("expression", [
    ["math.gcd", A, N], ["pow", N, ["constant", 1 << 20]], ["round", A, ["constant", 2]],
    ["and", A, N],
    ["math.hypot", A, B], ["math.gcd", N, M, M], ["math.gamma", A], ["item", TABLE, A],
    ["item", ["constant", [1, 2.0]], N], ["constant", [1, 2]], ["add", N, ["constant", 1 << 63]],
    ["rshift", A, N], ["math.atan2", A],
])
def test_what_a_library_does_not_compute(expression: Any) -> None:
    with pytest.raises(ExportError, match="the step computes"):
        typed(expression, SOURCES)


@pytest.mark.slow
def test_random_expressions() -> None:
    rng = random.Random(int.from_bytes(b"steps", "little"))

    def made(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.2:
            return rng.choice([A, B, N, M, ["constant", rng.choice([2, 0.5, -1, 3.25, True])]])
        op = rng.choice([*ONE, *TWO])
        if op not in numbers.PYTHON:
            return made(depth)
        operands = [made(depth - 1) for _ in range(1 if op in ONE else 2)]
        return [op, *operands]

    def possible(expression: Any) -> bool:
        try:
            typed(expression, SOURCES)
        except ExportError:
            return False
        return True

    expressions = [each for each in (made(4) for _ in range(600)) if possible(each)]
    compiled = Compiled(expressions)
    for _ in range(200):
        values = {"a": rng.choice(FLOATS), "b": rng.gauss(0, 3), "i": rng.choice(INTS),
                  "j": rng.randint(-5, 5)}
        for k, expression in enumerate(expressions):
            check(compiled, k, expression, values)

