"""What a library knows of its model, as constants: entries, sizes, expressions over sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from graphc.backends.host.interface import CODE, DTYPES, Entry, Interface
from graphc.backends.llvm.emit_index import Indices
from graphc.backends.llvm.freestanding.layout import ENTRY, SIZE
from graphc.backends.llvm.freestanding.messages import A, B, C, Texts, plain
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import Value as Scalar
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Guard, Size

COMPUTED = -(1 << 63)  # of a shape that callers see: to be asked for
TERM = "{ i64, i64, i64 }"  # of an input's size: which named size (-1: none), times, plus
_ITEMSIZES = [dtypes.by_name(name).itemsize for name in DTYPES]


def array(module: Module, name: str, kind: str, values: Iterable[object]) -> str:
    """A constant table; its name."""
    items = [f"{kind} {value}" for value in values] or [f"{kind} zeroinitializer"]
    module.globals.append(
        f"{name} = internal constant [{len(items)} x {kind}] [{', '.join(items)}]"
    )
    return name


def linear(size: Size, names: Sequence[str]) -> tuple[int, int, int] | None:
    """A size as (which named size or -1, times, plus); None for another expression."""
    if isinstance(size, int):
        return -1, 0, size
    which, times, plus = -1, 0, 0
    for monomial, coefficient in size.terms:
        if not monomial:
            plus = coefficient
        elif len(monomial) > 1 or monomial[0][1] > 1 or monomial[0][0].kind != "var" or times:
            return None
        else:
            which, times = names.index(monomial[0][0].name), coefficient
    return which, times, plus


class Tables:
    """The tables of an interface, in a module."""

    def __init__(self, module: Module, texts: Texts, target: Target, interface: Interface) -> None:
        self.module, self.texts, self.target, self.interface = module, texts, target, interface
        self.names = [size.name for size in interface.sizes]
        self.computed: list[Size] = []  # what @graphc_computed gives, in order
        self.first_computed = [self._append(entry.shape) for entry in interface.outputs]
        self.size_results = {
            i: self._append((result.size,)) for i, result in enumerate(interface.results)
            if result.kind == "size"
        }

    def _append(self, sizes: Sequence[Size]) -> int:
        first = len(self.computed)
        self.computed += sizes
        return first

    def emit(self) -> None:
        """All of them."""
        interface, module = self.interface, self.module
        self._entries("inputs", interface.inputs)
        self._entries("outputs", interface.outputs)
        if interface.step is not None:
            self._entries("states", [each.entry for each in interface.step.states])
        array(module, "@itemsizes", "i64", _ITEMSIZES)
        array(module, "@dtypes", "ptr", map(self.texts, DTYPES))
        array(module, "@first_computed", "i64", self.first_computed)
        terms: list[str] = []
        first: list[int] = []
        for entry in interface.inputs:
            first.append(len(terms))
            for size in entry.shape:
                found = linear(size, self.names)
                assert found is not None, size
                which, times, plus = found
                terms.append(f"{{ i64 {which}, i64 {times}, i64 {plus} }}")
        array(module, "@first_terms", "i64", first)
        array(module, "@terms", TERM, terms)
        array(module, "@sizes", SIZE, [
            f"{{ ptr {self.texts(each.name)}, i64 {each.least}, i64 {each.most} }}"
            for each in interface.sizes
        ])
        array(module, "@ranges", "ptr", [
            self.texts(f"{plain(each.name)}, which may be {each.least} to {each.most}")
            for each in interface.sizes
        ])
        f = module.function("void @graphc_computed(ptr %dims, ptr %out)", "internal")
        context = self.expressions(f)
        for i, size in enumerate(self.computed):
            f.store(context.index(size), "i64", f.gep("%out", i, "i64"), 8)
        f.ret()

    def _entries(self, name: str, entries: Sequence[Entry]) -> None:
        records: list[str] = []
        for i, entry in enumerate(entries):
            shape = array(
                self.module, f"@{name}.shape{i}", "i64", map(self._seen, entry.shape)
            )
            records.append(
                f"{{ ptr {self.texts(entry.name)}, i32 {DTYPES.index(entry.dtype.name)}, "
                f"i32 {len(entry.shape)}, ptr {shape} }}"
            )
        array(self.module, f"@{name}", ENTRY, records)

    def _seen(self, size: Size) -> int:
        """A size as callers see it."""
        found = linear(size, self.names) if not isinstance(size, int) else (-1, 0, size)
        if found is None:
            return COMPUTED
        which, times, plus = found
        if which < 0:
            return plus
        return -1 - which if (times, plus) == (1, 0) else COMPUTED

    def expressions(self, f: Function) -> Indices:
        """What emits sizes in a function of the named ones, %dims."""
        context = Indices(f, self.module, self.target, {})
        for i, name in enumerate(self.names):
            word = f.load(f.gep("%dims", i, "i64"), "i64", 8)
            context.bind(name, Scalar(word, dtypes.i64, 1, 0))
        return context

    def guards(self, symbol: str, guards: Sequence[Guard]) -> None:
        """Defines i32 (ptr messenger, ptr dims): what has to hold of the sizes."""
        w = Writer(self.module, self.texts, f"i32 {symbol}(ptr %m, ptr %dims)")
        context = self.expressions(w.f)
        for guard in guards:
            names = sorted({
                name for side in (guard.left, guard.right) if isinstance(side, Dim)
                for name in side.variables()
            })[:3]
            here = ", ".join(
                f"{plain(n)} = {mark}" for n, mark in zip(names, (A, B, C), strict=False)
            )
            broken = _broken(w.f, guard, context.index(guard.left), context.index(guard.right))
            w.refuse_if(
                broken, "%m", CODE["SHAPE"],
                f"the model holds only where {plain(guard.text())}; here {here}",
                numbers=[context.index(Dim.var(name)) for name in names],
            )
        w.f.ret("i32 0")


def _broken(f: Function, guard: Guard, left: Value, right: Value) -> str:
    """An i1: a guard does not hold."""
    if guard.relation == "divides":
        none = f.cmp("eq", left, 0)
        divisor = f.let(f"select i1 {none}, i64 1, i64 {left}")
        rest = f.mod(right, divisor)
        differs = f.cmp("ne", rest, 0)
        broken = f.let(f"or i1 {none}, {differs}")
        return broken if guard.holds else f.let(f"xor i1 {broken}, true")
    predicate = {"eq": ("ne", "eq"), "le": ("sgt", "sle")}[guard.relation][not guard.holds]
    return f.cmp(predicate, left, right)


def flat(tables: Iterable[Iterable[object]]) -> list[object]:
    """All of them, one behind the other."""
    return list(itertools.chain.from_iterable(tables))
