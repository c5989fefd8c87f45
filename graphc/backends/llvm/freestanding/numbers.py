"""Python's numbers of a training step, computed at each call as Python does: to the bit, and
refused where Python raises.

A bool is an i64, as an int is; an int that grows beyond 64 bits is refused, too. Mathematics are
functions of libm, as they are CPython's, called so that LLVM puts nothing else in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.backends.host.interface import CODE, Interface, Number, Stored
from graphc.backends.llvm.freestanding.layout import TENSOR, Tensor, Word, encoded
from graphc.backends.llvm.freestanding.messages import A, B, Texts, plain
from graphc.backends.llvm.freestanding.tables import Tables, array
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.text import Module

_TYPES = {"bool": "i64", "int": "i64", "float": "double"}
_LEAST = -(1 << 63)
_EXACT = 1 << 53  # ints up to here are floats, too
_TWO_63 = "0x43E0000000000000"
_INFINITY = "0x7FF0000000000000"
_ZERO, _ONE, _HALF = "0.0", "1.0", "0.5"
_LARGE = "it needs more than 64 bits"
_MOST_SAID = 300
_MOST_EXPONENT = 4096  # of bits: as steps/numbers.py has it


def emit_numbers(module: Module, texts: Texts, interface: Interface, tables: Tables) -> None:
    """Defines i32 @graphc_numbers(ptr ctx, ptr inputs, ptr dims): all numbers of a call, into
    memory of the context that nothing else reads yet."""
    assert interface.step is not None
    w = Writer(module, texts, "i32 @graphc_numbers(ptr %ctx, ptr %inputs, ptr %dims)")
    numbers = Numbers(w, tables)
    for decided in interface.step.decided:
        found, wanted = numbers.value(decided.number), numbers.value(decided.wanted)
        compare = "fcmp une double" if decided.number.kind == "float" else "icmp ne i64"
        w.refuse_if(
            w.f.let(f"{compare} {found}, {wanted}"), "%ctx", CODE["VALUE"], plain(decided.text)
        )
    for each in interface.step.numbers:
        numbers.store(each)
    w.f.ret("i32 0")


class Numbers:
    """Emits Numbers into a function of %ctx, %inputs and %dims, each once."""

    def __init__(self, w: Writer, tables: Tables) -> None:
        self.w, self.f = w, w.f
        self._sizes = tables.expressions(w.f)
        self._state = w.pointer("%ctx", Word.STATE)
        self._known: dict[Number, str] = {}
        self._said = ""

    def store(self, stored: Stored) -> None:
        """Into the context, as a number of its dtype."""
        self._said = stored.said
        f, number = self.f, stored.number
        place = self.w.bytes_behind(self._state, stored.offset)
        name = stored.dtype.name
        if name in ("f32", "f64"):
            value = self._float(number)
            if name == "f32":
                value = f.let(f"fptrunc double {value} to float")
            f.store(value, "float" if name == "f32" else "double", place, stored.dtype.itemsize)
        elif name == "bool":
            f.store(f.let(f"trunc i64 {self.value(number)} to i8"), "i8", place, 1)
        else:
            assert name == "i64" and number.kind != "float", stored
            f.store(self.value(number), "i64", place, 8)

    def value(self, number: Number) -> str:
        """As its kind's type."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._made(number)
        return found

    # --- what numbers begin with ---------------------------------------------------------------

    def _made(self, number: Number) -> str:
        f, kind = self.f, _TYPES[number.kind]
        if number.op == "constant":
            return _spelled(number)
        if number.op == "held":
            return f.load(self.w.bytes_behind(self._state, number.value.offset), kind, 8)
        if number.op == "given":
            tensor = self.w.table("%inputs", number.value, TENSOR)
            return f.load(self.w.field(tensor, TENSOR, Tensor.DATA), kind, 8)
        if number.op == "dim":
            return str(self._sizes.index(number.value))
        if number.op == "row":
            return self._row(number)
        if number.op == "item":
            return self._item(number)
        if number.op.startswith("math."):
            return self._mathematics(number.op.removeprefix("math."), number)
        return _OPERATIONS[number.op](self, number)

    def _row(self, number: Number) -> str:
        """A schedule's number in this call."""
        f, (which,) = self.f, number.operands
        place, rows = number.value
        at = self.value(which)
        text = (
            f"the step was exported with a schedule of {A} calls, and this is call {B}. Cure: "
            "export_step(..., calls=N) with more"
        )
        self.w.refuse_if(
            f.let(f"icmp uge i64 {at}, {rows}"), "%ctx", CODE["VALUE"], text,
            numbers=(rows, f.let(f"add i64 {at}, 1")),
        )
        table = f.call("ptr", "@graphc_at", "ptr %ctx", f"i64 {encoded(place)}")
        kind = _TYPES[number.kind]
        return f.load(f.gep(table, at, kind), kind, 8)

    def _item(self, number: Number) -> str:
        """Of a table that is in the code."""
        f, count, kind = self.f, len(number.value), _TYPES[number.kind]
        at = self.value(number.operands[0])
        below = f.let(f"icmp slt i64 {at}, 0")
        at = f.let(f"select i1 {below}, i64 {f.let(f'add i64 {at}, {count}')}, i64 {at}")
        self._refuse(f.let(f"icmp uge i64 {at}, {count}"), "an index out of range")
        name = f"@items.{f.module.count_use('items')}"
        table = array(f.module, name, kind, map(_spelled, number.value))
        return f.load(f.gep(table, at, kind), kind, 8)

    # --- what operations are made of -------------------------------------------------------------

    def _refuse(self, condition: str, why: str) -> None:
        said = plain(self._said)
        said = said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}..."
        self.w.refuse_if(
            condition, "%ctx", CODE["VALUE"],
            f"{said} cannot be computed: {why}. Cure: other numbers",
        )

    def _float(self, number: Number, exact: bool = False) -> str:
        """As a double. `exact`: an int that is none is refused."""
        value = self.value(number)
        if number.kind == "float":
            return value
        if exact and number.kind == "int":
            span = self.f.let(f"add i64 {value}, {_EXACT}")
            self._refuse(
                self.f.let(f"icmp ugt i64 {span}, {2 * _EXACT}"), "an integer is beyond 2 ** 53"
            )
        return self.f.let(f"sitofp i64 {value} to double")

    def _integer(self, value: str) -> str:
        """A double that is whole, as an i64."""
        size = self._call("llvm.fabs.f64", value)
        self._refuse(self.f.let(f"fcmp uge double {size}, {_TWO_63}"), _LARGE)
        return self.f.let(f"fptosi double {value} to i64")

    def _call(self, name: str, *values: str) -> str:
        """A function of doubles. `nobuiltin`: no other code for special operands."""
        kinds = ", ".join(["double"] * len(values))
        self.f.module.declare(f"declare double @{name}({kinds})")
        end = "" if name.startswith("llvm.") else " nobuiltin"
        given = ", ".join(f"double {value}" for value in values)
        return self.f.let(f"call double @{name}({given}){end}")

    def _select(self, condition: str, a: str, b: str) -> str:
        return self.f.let(f"select i1 {condition}, double {a}, double {b}")

    def _is(self, predicate: str, a: str, b: str) -> str:
        return self.f.let(f"fcmp {predicate} double {a}, {b}")

    def _finite(self, value: str) -> str:
        return self._is("olt", self._call("llvm.fabs.f64", value), _INFINITY)

    def _infinite(self, value: str) -> str:
        return self._is("oeq", self._call("llvm.fabs.f64", value), _INFINITY)

    def _overflowing(self, name: str, a: str, b: str) -> str:
        found, over = self._told(name, a, b)
        self._refuse(over, _LARGE)
        return found

    def _told(self, name: str, a: str, b: str) -> tuple[str, str]:
        """A sum, difference or product, and whether it is another than that of 64 bits."""
        f = self.f
        f.module.declare(f"declare {{ i64, i1 }} @llvm.{name}.with.overflow.i64(i64, i64)")
        pair = f.let(f"call {{ i64, i1 }} @llvm.{name}.with.overflow.i64(i64 {a}, i64 {b})")
        over = f.let(f"extractvalue {{ i64, i1 }} {pair}, 1")
        return f.let(f"extractvalue {{ i64, i1 }} {pair}, 0"), over

    # --- operations ----------------------------------------------------------------------------

    def arithmetic(self, real: str, whole: str, number: Number) -> str:
        """Sums, differences, products."""
        a, b = number.operands
        if number.kind == "float":
            return self.f.let(f"{real} double {self._float(a)}, {self._float(b)}")
        return self._overflowing(whole, self.value(a), self.value(b))

    def divide(self, number: Number) -> str:
        """A quotient of ints is the nearest float: that of floats, where both are."""
        both = all(each.kind != "float" for each in number.operands)
        a, b = (self._float(each, exact=both) for each in number.operands)
        self._refuse(self._is("oeq", b, _ZERO), "a division by zero")
        return self.f.let(f"fdiv double {a}, {b}")

    def whole_divide(self, remainder: bool, number: Number) -> str:
        """a // b, or a % b, which has b's sign."""
        f, (first, second) = self.f, number.operands
        if number.kind == "float":
            return self._divided(remainder, self._float(first), self._float(second))
        a, b = self.value(first), self.value(second)
        self._refuse(f.let(f"icmp eq i64 {b}, 0"), "a division by zero")
        least, minus = f.let(f"icmp eq i64 {a}, {_LEAST}"), f.let(f"icmp eq i64 {b}, -1")
        self._refuse(f.let(f"and i1 {least}, {minus}"), _LARGE)
        return str(f.mod(a, b) if remainder else f.floordiv(a, b))

    def _divided(self, remainder: bool, a: str, b: str) -> str:
        """Of floats. Source: float_divmod's description in CPython's documentation of numbers."""
        f = self.f
        self._refuse(self._is("oeq", b, _ZERO), "a division by zero")
        rest = self._call("fmod", a, b)
        some = self._is("une", rest, _ZERO)
        other = f.let(f"xor i1 {self._is('olt', b, _ZERO)}, {self._is('olt', rest, _ZERO)}")
        apart = f.let(f"and i1 {some}, {other}")
        if remainder:
            moved = self._select(apart, f.let(f"fadd double {rest}, {b}"), rest)
            return self._select(some, moved, self._call("llvm.copysign.f64", _ZERO, b))
        quotient = f.let(f"fdiv double {f.let(f'fsub double {a}, {rest}')}, {b}")
        quotient = self._select(apart, f.let(f"fsub double {quotient}, {_ONE}"), quotient)
        floor = self._call("llvm.floor.f64", quotient)
        far = self._is("ogt", f.let(f"fsub double {quotient}, {floor}"), _HALF)
        floor = self._select(far, f.let(f"fadd double {floor}, {_ONE}"), floor)
        zero = self._call("llvm.copysign.f64", _ZERO, f.let(f"fdiv double {a}, {b}"))
        return self._select(self._is("une", quotient, _ZERO), floor, zero)

    def power(self, number: Number) -> str:
        """Of floats by libm; of ints, whose exponent is not below 0, by products."""
        first, second = number.operands
        if number.kind == "int" and second.op != "constant":
            return self._power_of(self.value(first), self.value(second), first.kind == "bool")
        if number.kind == "int":
            return self._whole_power(self.value(first), second)
        f, a, b = self.f, self._float(first), self._float(second)
        below = self._is("olt", a, _ZERO)
        finite = f.let(f"and i1 {self._finite(a)}, {self._finite(b)}")
        nothing = f.let(f"and i1 {self._is('oeq', a, _ZERO)}, {self._is('olt', b, _ZERO)}")
        self._refuse(f.let(f"and i1 {finite}, {nothing}"), "a division by zero")
        broken = self._is("une", b, self._call("llvm.floor.f64", b))
        complex_ = f.let(f"and i1 {finite}, {f.let(f'and i1 {below}, {broken}')}")
        self._refuse(complex_, "it is a complex number")
        found = self._call("pow", a, b)
        large = f.let(f"and i1 {finite}, {self._infinite(found)}")
        self._refuse(large, "it is too large")
        return found

    def _whole_power(self, base: str, exponent: Number) -> str:
        left, square, found = exponent.value, base, "1"
        while left:
            if left & 1:
                found = square if found == "1" else self._overflowing("smul", found, square)
            left >>= 1
            if left:
                square = self._overflowing("smul", square, square)
        return found

    def _power_of(self, base: str, exponent: str, small: bool) -> str:
        """By an exponent of this call, bit by bit; below 0 it would be a float. `small`: a bool."""
        f = self.f
        self._refuse(f.let(f"icmp slt i64 {exponent}, 0"), "an exponent is below 0")
        if not small:
            far = f.let(f"icmp sgt i64 {exponent}, {_MOST_EXPONENT}")
            some = f.let(f"icmp ne i64 {base}, 0")
            self._refuse(f.let(f"and i1 {far}, {some}"), "it is too large")
        loop = f.carry_loop(0, 63, 1, [
            ("i64", "1"), ("i64", base), ("i64", exponent), ("i1", "false"), ("i1", "false"),
        ])
        found, square, rest, wrong, large = loop.values
        used = f.let(f"trunc i64 {rest} to i1")
        factor = f.let(f"select i1 {used}, i64 {square}, i64 1")
        found, over = self._told("smul", found, factor)
        over = f.let(f"or i1 {over}, {f.let(f'and i1 {used}, {large}')}")
        square, above = self._told("smul", square, square)
        loop.close([
            found, square, f.let(f"lshr i64 {rest}, 1"), f.let(f"or i1 {wrong}, {over}"),
            f.let(f"or i1 {large}, {above}"),
        ])
        self._refuse(loop.values[3], _LARGE)
        return str(loop.values[0])

    def divisor(self, number: Number) -> str:
        """math.gcd, by Euclid: of 64 bits in 93 steps at most (Lame: numbers of Fibonacci)."""
        f = self.f
        f.module.declare("declare i64 @llvm.abs.i64(i64, i1)")
        a, b = (
            f.let(f"call i64 @llvm.abs.i64(i64 {self.value(each)}, i1 false)")
            for each in number.operands
        )
        loop = f.carry_loop(0, 93, 1, [("i64", a), ("i64", b)])
        a, b = loop.values
        done = f.let(f"icmp eq i64 {b}, 0")
        rest = f.let(f"urem i64 {a}, {f.let(f'select i1 {done}, i64 1, i64 {b}')}")
        loop.close([
            f.let(f"select i1 {done}, i64 {a}, i64 {b}"),
            f.let(f"select i1 {done}, i64 0, i64 {rest}"),
        ])
        self._refuse(f.let(f"icmp slt i64 {loop.values[0]}, 0"), _LARGE)
        return str(loop.values[0])

    def negative(self, number: Number) -> str:
        """-x."""
        (a,) = number.operands
        if number.kind == "float":
            return self.f.let(f"fneg double {self.value(a)}")
        return self._overflowing("ssub", "0", self.value(a))

    def absolute(self, number: Number) -> str:
        """abs(x)."""
        (a,) = number.operands
        if number.kind == "float":
            return self._call("llvm.fabs.f64", self.value(a))
        value = self.value(a)
        other = self._overflowing("ssub", "0", value)
        below = self.f.let(f"icmp slt i64 {value}, 0")
        return self.f.let(f"select i1 {below}, i64 {other}, i64 {value}")

    def to_float(self, number: Number) -> str:
        """float(x)."""
        return self._float(number.operands[0])

    def to_integer(self, rounding: str, number: Number) -> str:
        """int(x), and what rounds first."""
        (a,) = number.operands
        value = self.value(a)
        if a.kind != "float":
            return value
        return self._integer(self._call(f"llvm.{rounding}.f64", value) if rounding else value)

    def bits(self, operation: str, number: Number) -> str:
        """and, or, xor; bools give bools."""
        a, b = map(self.value, number.operands)
        return self.f.let(f"{operation} i64 {a}, {b}")

    def invert(self, number: Number) -> str:
        """~x."""
        return self.f.let(f"xor i64 {self.value(number.operands[0])}, -1")

    def shift(self, number: Number) -> str:
        """x >> n."""
        f = self.f
        a, b = map(self.value, number.operands)
        self._refuse(f.let(f"icmp slt i64 {b}, 0"), "a negative shift")
        return f.let(f"ashr i64 {a}, {f.smin(b, 63)}")

    def as_single(self, number: Number) -> str:
        """The nearest number of 32 bits."""
        value = self._float(number.operands[0])
        return self.f.let(f"fpext float {self.f.let(f'fptrunc double {value} to float')} to double")

    def compare(self, predicate: str, number: Number) -> str:
        """An int and a float as the numbers that they are."""
        f, (first, second) = self.f, number.operands
        if "float" in (first.kind, second.kind):
            a, b = (self._float(each, exact=True) for each in (first, second))
            found = self._is(f"o{predicate}", a, b)
        else:
            signed = predicate if predicate == "eq" else f"s{predicate}"
            found = f.let(f"icmp {signed} i64 {self.value(first)}, {self.value(second)}")
        return f.let(f"zext i1 {found} to i64")

    def _mathematics(self, name: str, number: Number) -> str:
        """A function of libm; what is no number, or infinite, and was not, is refused."""
        if name == "gcd":
            return self.divisor(number)
        f = self.f
        given = [self._float(each) for each in number.operands]
        if name in ("fabs", "copysign"):
            return self._call(f"llvm.{name}.f64", *given)
        found = self._call(name, *given)
        were, finite = "true", "true"
        for each in given:
            were = f.let(f"and i1 {were}, {self._is('ord', each, each)}")
            finite = f.let(f"and i1 {finite}, {self._finite(each)}")
        none = f.let(f"and i1 {were}, {self._is('uno', found, found)}")
        large = f.let(f"and i1 {finite}, {self._infinite(found)}")
        self._refuse(f.let(f"or i1 {none}, {large}"), "a number outside of the function's domain")
        return found


def _spelled(constant: Number) -> str:
    """A constant as LLVM writes it."""
    return f"0x{constant.value:016X}" if constant.kind == "float" else str(int(constant.value))


def _of(method: Callable[..., str], *given: Any) -> Callable[[Numbers, Number], str]:
    return lambda numbers, number: method(numbers, *given, number)


_OPERATIONS: dict[str, Callable[[Numbers, Number], str]] = {
    "add": _of(Numbers.arithmetic, "fadd", "sadd"),
    "sub": _of(Numbers.arithmetic, "fsub", "ssub"),
    "mul": _of(Numbers.arithmetic, "fmul", "smul"),
    "div": Numbers.divide,
    "floor_divide": _of(Numbers.whole_divide, False), "remainder": _of(Numbers.whole_divide, True),
    "pow": Numbers.power, "neg": Numbers.negative, "abs": Numbers.absolute,
    "float": Numbers.to_float, "int": _of(Numbers.to_integer, ""),
    "floor": _of(Numbers.to_integer, "floor"), "ceil": _of(Numbers.to_integer, "ceil"),
    "round": _of(Numbers.to_integer, "rint"),
    "and": _of(Numbers.bits, "and"), "or": _of(Numbers.bits, "or"), "xor": _of(Numbers.bits, "xor"),
    "invert": Numbers.invert, "rshift": Numbers.shift, "float32": Numbers.as_single,
    "eq": _of(Numbers.compare, "eq"), "lt": _of(Numbers.compare, "lt"),
    "le": _of(Numbers.compare, "le"),
}
