"""The plan of a contraction whose sizes are known only in the call: the rule of
`ir/kernel/blocking.py`, run on an emitter's numbers, as a function of the descriptor.
"""

from __future__ import annotations

from graphc.backends.llvm.gemm_descriptor import PLAN, Descriptor, Word
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.blocking import Blocking, Request, tiled


def ceil_div(f: Function, a: Value, b: Value) -> Value:
    """a / b rounded up, for a >= 0, b > 0."""
    return f.sdiv(f.sub(f.add(a, b), 1), b)


def round_up(f: Function, a: Value, b: Value) -> Value:
    """The next multiple of b."""
    return f.mul(ceil_div(f, a, b), b)


def clamp(f: Function, x: Value, low: Value, high: Value) -> Value:
    """x between low and high."""
    return f.smin(f.smax(x, low), high)


def choose(f: Function, condition: str, a: Value, b: Value) -> Value:
    """a if the i1 condition holds, else b."""
    return f.let(f"select i1 {condition}, i64 {a}, i64 {b}")


class Number:
    """An i64 of a function under construction, with the operators that the rule uses. All numbers
    of a plan are >= 0."""

    def __init__(self, f: Function, value: Value) -> None:
        self.f, self.value = f, value

    def _of(self, value: Value) -> Number:
        return Number(self.f, value)

    def __add__(self, other: Number | int) -> Number:
        return self._of(self.f.add(self.value, value_of(other)))

    def __radd__(self, other: int) -> Number:
        return self._of(self.f.add(other, self.value))

    def __sub__(self, other: Number | int) -> Number:
        return self._of(self.f.sub(self.value, value_of(other)))

    def __mul__(self, other: Number | int) -> Number:
        return self._of(self.f.mul(self.value, value_of(other)))

    def __rmul__(self, other: int) -> Number:
        return self._of(self.f.mul(other, self.value))

    def __floordiv__(self, other: Number | int) -> Number:
        return self._of(self.f.sdiv(self.value, value_of(other)))

    def __rfloordiv__(self, other: int) -> Number:
        return self._of(self.f.sdiv(other, self.value))

    def __mod__(self, other: Number | int) -> Number:
        return self._of(self.f.srem(self.value, value_of(other)))

    def least(self, other: Number | int) -> Number:
        """The smaller one."""
        return self._of(self.f.smin(self.value, value_of(other)))

    def most(self, other: Number | int) -> Number:
        """The larger one."""
        return self._of(self.f.smax(self.value, value_of(other)))

    def quotient_up_of(self, other: Number | int) -> Number:
        """The other divided by this one, rounded up."""
        return self._of(ceil_div(self.f, value_of(other), self.value))

    def __le__(self, other: Number | int) -> Condition:
        return Condition(self.f, self.f.cmp("sle", self.value, value_of(other)))

    def __lt__(self, other: Number | int) -> Condition:
        return Condition(self.f, self.f.cmp("slt", self.value, value_of(other)))

    def __gt__(self, other: Number | int) -> Condition:
        return Condition(self.f, self.f.cmp("sgt", self.value, value_of(other)))

    def equals(self, other: Number | int) -> Condition:
        """Whether both are the same number."""
        return Condition(self.f, self.f.cmp("eq", self.value, value_of(other)))


class Condition:
    """An i1 of a function under construction."""

    def __init__(self, f: Function, value: str) -> None:
        self.f, self.value = f, value

    def __and__(self, other: Condition | bool) -> Condition:
        return Condition(self.f, self.f.let(f"and i1 {self.value}, {_bit(other)}"))

    def __or__(self, other: Condition | bool) -> Condition:
        return Condition(self.f, self.f.let(f"or i1 {self.value}, {_bit(other)}"))

    def choose(self, a: Number | Condition | int, b: Number | Condition | int) -> Number:
        """a if it holds, else b."""
        return Number(self.f, choose(self.f, self.value, value_of(a), value_of(b)))


def _bit(condition: Condition | bool) -> str:
    return condition.value if isinstance(condition, Condition) else str(condition).lower()


def value_of(number: Number | Condition | int) -> Value:
    """What an emitter takes for an i64: flags are 0 or 1."""
    if isinstance(number, Condition):
        return number.f.let(f"zext i1 {number.value} to i64")
    return number.value if isinstance(number, Number) else int(number)


def plan_symbol(tile: Tile) -> str:
    """The plan made in the call: void (ptr descriptor)."""
    return f"@graphc_plan_{tile.name}"


def declare_plan(module: Module, tile: Tile) -> str:
    """Declares the plan and returns its name."""
    module.declare(f"declare void {plan_symbol(tile)}(ptr)")
    return plan_symbol(tile)


def emit_plan(module: Module, tile: Tile) -> None:
    """Defines the plan: fills its words from the request's."""
    f = module.function(f"void {plan_symbol(tile)}(ptr %d)")
    d = Descriptor(f, "%d")

    def number(word: Word) -> Number:
        return Number(f, d[word])

    def given(word: Word) -> Condition:
        return Condition(f, f.cmp("ne", d[word], 0))

    segment = ceil_div(f, d[Word.SEGMENT], tile.group)
    request = Request(
        number(Word.BATCH), number(Word.M), number(Word.N), number(Word.K), number(Word.TERMS),
        given(Word.LEFT_DIRECT), given(Word.RIGHT_DIRECT), Number(f, segment),
        number(Word.K_QUANTUM), number(Word.MOST_STEPS),
        Condition(f, f.cmp("eq", d[Word.POINTER_COLUMNS], 0)), given(Word.PANEL),
        given(Word.GEOMETRY),
        number(Word.PACK_SCRATCH), number(Word.PACK_SCRATCH_COLUMN), tile.step.heads,
        number(Word.MOST_COLUMNS),
    )
    set_plan(d, tiled(request, tile.machine, tile.bytes))
    f.ret()


def set_plan(d: Descriptor, plan: Blocking) -> None:
    """Fills in a plan."""
    for name, word in PLAN.items():
        d[word] = value_of(getattr(plan, name))
