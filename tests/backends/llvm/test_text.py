"""The text builder: folding, floor division, loops with zero and one trip, carried values."""

import ctypes
import itertools
from collections.abc import Callable, Sequence

import pytest

from graphc.backends.llvm.gemm_descriptor import ENTRY
from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.target import host_target
from graphc.backends.llvm.text import Function, Module, Value

DIVISORS = (-7, -4, -1, 1, 2, 3, 8, 12)
NUMBERS = (-25, -8, -7, -1, 0, 1, 5, 8, 24)


def integers(count: int, emit: Callable[[Function, list[str]], Value]) -> Callable[..., int]:
    """Compiles i64 f(i64, ...) from what `emit` returns."""
    module = Module()
    names = [f"%x{index}" for index in range(count)]
    fn = module.function(f"i64 @f({', '.join('i64 ' + name for name in names)})")
    fn.ret(f"i64 {emit(fn, names)}")
    library = Library([compile_object(module.text(), host_target())])
    native = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(library.address("f"))
    return lambda *args, keep=library: native(*args)


def total(fn: Function, values: Sequence[Value]) -> Value:
    """A sum that tells the values apart."""
    result: Value = 0
    for value in values:
        result = fn.add(fn.mul(result, 1000), value)
    return result


PYTHON = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "sdiv": lambda a, b: int(a / b),
    "srem": lambda a, b: a - b * int(a / b),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "smin": min,
    "smax": max,
}


@pytest.mark.parametrize("name", PYTHON)
def test_integer_operations(name: str) -> None:
    """Folded, with a constant on the right, and with two run-time operands."""

    def both(fn: Function, x: list[str]) -> Value:
        return getattr(fn, name)(x[0], x[1])

    variable = integers(2, both)
    for b in DIVISORS:
        constant = integers(1, lambda fn, x, b=b: getattr(fn, name)(x[0], b))
        for a in NUMBERS:
            expected = PYTHON[name](a, b)
            assert getattr(Module().function("void @f()"), name)(a, b) == expected
            assert variable(a, b) == expected, (a, b)
            assert constant(a) == expected, (a, b)


def test_constants_cost_nothing() -> None:
    fn = Module().function("void @f()")
    assert (fn.add("%x", 0), fn.mul("%x", 1), fn.mul(0, "%x")) == ("%x", "%x", 0)
    assert (fn.floordiv("%x", 1), fn.mod("%x", 1), fn.gep("%p", 0, "i8")) == ("%x", 0, "%p")
    assert (fn.cmp("slt", 1, 2), fn.cmp("eq", 1, 2)) == ("true", "false")
    assert fn.lines() == ["define void @f() nounwind {", "entry:", "}"]


@pytest.mark.parametrize("constant", list(itertools.product((False, True), repeat=3)))
def test_loops(constant: tuple[bool, bool, bool]) -> None:
    """Counting and carried values, with any mix of constant and run-time bounds."""

    def emit(bounds: tuple[int, int, int]) -> Callable[[Function, list[str]], Value]:
        def body(fn: Function, x: list[str]) -> Value:
            lo, hi, step = (
                number if fixed else name
                for number, fixed, name in zip(bounds, constant, x, strict=True)
            )
            slot = fn.alloca("i64", align=8)
            fn.store(0, "i64", slot, 8)
            with fn.loop(lo, hi, step) as i:
                seen = fn.load(slot, "i64", 8)
                fn.store(fn.add(fn.mul(seen, 3), i), "i64", slot, 8)
            loop = fn.carry_loop(lo, hi, step, [("i64", "7"), ("i64", "1")])
            a, b = loop.values
            with fn.when(fn.cmp("sgt", loop.index, 2)):  # a block inside the body
                fn.store(fn.add(fn.load(slot, "i64", 8), 1), "i64", slot, 8)
            a, b = loop.close([str(fn.add(a, b)), str(fn.add(b, loop.index))])
            return total(fn, [fn.load(slot, "i64", 8), a, b])

        return body

    for bounds in ((0, 5, 1), (0, 7, 3), (1, 2, 1), (2, 9, 7), (3, 3, 1), (5, 2, 2), (-2, 1, 1)):
        indices = range(*bounds)
        slot, a, b = 0, 7, 1
        for i in indices:
            slot = slot * 3 + i
        for i in indices:
            slot += i > 2
            a, b = a + b, b + i
        assert integers(3, emit(bounds))(*bounds) == (slot * 1000 + a) * 1000 + b, bounds


def test_conditions() -> None:
    def emit(fn: Function, x: list[str]) -> Value:
        slot = fn.alloca("i64", align=8)
        fn.store(1, "i64", slot, 8)
        for condition in (fn.cmp("slt", x[0], 10), "true", "false"):
            with fn.when(condition):
                fn.store(fn.mul(fn.load(slot, "i64", 8), 10), "i64", slot, 8)
        return fn.load(slot, "i64", 8)

    assert (integers(1, emit)(5), integers(1, emit)(15)) == (100, 10)


def test_what_is_not_optimised_is_a_module_of_its_own() -> None:
    """Each calls the other's, by names that no other module has."""
    module = Module()
    module.globals.append("@three = internal constant i64 3")
    entry = module.function("i64 @entry(i64 %x)", "", ENTRY)
    entry.ret(f"i64 {entry.call('i64', '@inner', 'i64 %x')}")
    inner = module.function("i64 @inner(i64 %x)", "internal")
    more = inner.call("i64", "@inner2", f"i64 {inner.mul('%x', 10)}")
    inner.ret(f"i64 {more}")
    last = module.function("i64 @inner2(i64 %x)", "internal", ENTRY)
    last.ret(f"i64 {last.add('%x', last.load('@three', 'i64', 8))}")
    optimised, plain = module.apart("kind.f32")
    for text, names in ((optimised, ["inner"]), (plain, ["entry", "inner2"])):
        heads = [line for line in text.split("\n") if line.startswith("define")]
        assert [head.split("@")[1].split("(")[0].split(".")[0] for head in heads] == names
    assert "define i64 @inner.kind.f32(" in optimised and "optnone" not in optimised
    assert all("optnone" in line for line in plain.split("\n") if line.startswith("define"))
    library = Library([compile_object(text, host_target()) for text in (optimised, plain)])
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("entry"))
    assert function(4) == 43
