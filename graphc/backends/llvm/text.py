"""A builder of LLVM IR text: lines in a list, joined once, no objects per instruction.

Values are SSA names ("%t12"), constants as LLVM spells them, or Python integers (i64), which fold.
"""

import re
from collections.abc import Iterable, Sequence
from types import TracebackType

Value = int | str

_PREDICATES = {
    "eq": int.__eq__,
    "ne": int.__ne__,
    "slt": int.__lt__,
    "sle": int.__le__,
    "sgt": int.__gt__,
    "sge": int.__ge__,
}


class Module:
    """One LLVM module: declarations (a set, in order of first use), globals and functions."""

    def __init__(self) -> None:
        self.globals: list[str] = []
        self._declarations: dict[str, None] = {}
        self._functions: list[Function] = []
        self._uses: dict[str, int] = {}

    def declare(self, text: str) -> None:
        """Adds a declaration ("declare ..." in full) unless it is there already."""
        self._declarations[text] = None

    def function(self, signature: str, linkage: str = "", attrs: str = "nounwind") -> "Function":
        """Starts a function, e.g. signature "void @name(ptr noalias %a, i64 %n)"."""
        function = Function(self, signature, linkage, attrs)
        self._functions.append(function)
        return function

    def count_use(self, name: str) -> int:
        """Counts the uses of a module-level helper: whoever gets 1 defines it."""
        count = self._uses[name] = self._uses.get(name, 0) + 1
        return count

    def text(self) -> str:
        """The whole module as LLVM assembly."""
        lines = [*self.globals, *self._declarations]
        for function in self._functions:
            lines += function.lines()
        lines.append("")
        return "\n".join(lines)

    def apart(self, name: str) -> tuple[str, str]:
        """The module as two: functions that are optimised, and the others, which take a third as
        long to compile where no function is. What one has of the other's gets `name` behind its
        own, and is seen from outside."""
        parts = [f for f in self._functions if not f.is_optimised], [
            f for f in self._functions if f.is_optimised
        ]
        texts = ["\n".join(line for f in part for line in f.lines()) for part in parts]
        own = [*self.globals, *self._declarations]
        declared: list[list[str]] = [[], []]
        renamed: dict[str, str] = {}
        for at, part in enumerate(parts):
            for f in part:
                if not re.search(rf"{re.escape(f.name)}(?![\w.])", texts[1 - at]):
                    continue
                symbol = f"{f.name}.{name}" if f.is_internal else f.name
                declared[1 - at].append(f.declaration)
                renamed[f.name] = symbol

        def seen(text: str) -> str:
            for old, new in renamed.items():
                text = re.sub(rf"define internal (.*?{re.escape(old)}\()", r"define \1", text)
                text = re.sub(rf"{re.escape(old)}(?![\w.])", new, text)
            return text

        plain, optimised = (
            seen("\n".join([*own, *more, text, ""]))
            for more, text in zip(declared, texts, strict=True)
        )
        return optimised, plain


class Function:
    """One function under construction; instructions go to the end of the current block."""

    def __init__(self, module: Module, signature: str, linkage: str, attrs: str) -> None:
        self.module = module
        self.current = "entry"
        self._head = " ".join(part for part in ("define", linkage, signature, attrs, "{") if part)
        self._allocas: list[str] = []
        self._spare = self.fence = ""  # fence: the function that is called before it ends
        self._lines: list[str] = []
        self._count = 0

    @property
    def name(self) -> str:
        """With its @."""
        return self._head[self._head.index("@") : self._head.index("(")]

    @property
    def is_optimised(self) -> bool:
        """Whether it is not one of those that say no."""
        return "optnone" not in self._head

    @property
    def is_internal(self) -> bool:
        """Whether other modules do not see it."""
        return self._head.startswith("define internal")

    @property
    def declaration(self) -> str:
        """For another module."""
        head = self._head[: self._head.rindex(")") + 1]
        return "declare " + head.removeprefix("define ").removeprefix("internal ")

    def lines(self) -> list[str]:
        """The finished text of the function, line by line."""
        return [self._head, "entry:", *self._allocas, *self._lines, "}"]

    def tmp(self, prefix: str = "t") -> str:
        """A fresh SSA name."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def label(self, prefix: str = "L") -> str:
        """A fresh block label (without the %)."""
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, line: str) -> None:
        """Appends one instruction."""
        self._lines.append("  " + line)

    def let(self, expr: str, prefix: str = "t") -> str:
        """Appends "%fresh = expr" and returns the name."""
        self._count += 1
        name = f"%{prefix}{self._count}"
        self._lines.append(f"  {name} = {expr}")
        return name

    def opaque(self, value: Value) -> str:
        """An i64 of which LLVM does not know what it is made of."""
        return self.let(f'call i64 asm "", "=r,0"(i64 {value})')

    def frozen(self, pointer: str) -> str:
        """A pointer of which LLVM does not ask what it is made of: it takes long to try what a
        loop's addresses could be made of, where that is a sum of many."""
        return self.let(f"freeze ptr {pointer}", "p")

    def alloca(self, elem_type: str, count: int = 1, align: int = 64) -> str:
        """Stack memory, reserved once at the function's entry wherever this is called."""
        name = self.tmp("a")
        self._allocas.append(f"  {name} = alloca {elem_type}, i64 {count}, align {align}")
        return name

    def spare(self) -> str:
        """64 bytes that nobody reads for what they hold. They are written first: where memory is
        none's yet, a load that masks all its lanes is 300 ns of microcode, each time."""
        if not self._spare:
            self._spare = self.alloca("i8", 64)
            written = f"store <16 x i32> zeroinitializer, ptr {self._spare}, align 64"
            self._allocas.append("  " + written)
        return self._spare

    # Blocks and branches

    def block(self, label: str) -> None:
        """Starts the basic block `label`; the previous one must have ended in a branch."""
        self._lines.append(f"{label}:")
        self.current = label

    def br(self, label: str) -> None:
        """Ends the block with a jump."""
        self._lines.append(f"  br label %{label}")

    def cond_br(self, condition: str, then: str, otherwise: str) -> None:
        """Ends the block with a two-way branch; a constant condition becomes a jump."""
        if condition == "true":
            self.br(then)
        elif condition == "false":
            self.br(otherwise)
        else:
            self._lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}")

    def ret(self, value: str | None = None) -> None:
        """Ends the function; value is typed ("i64 %x")."""
        if self.fence:
            self.call("void", self.fence)
        self._lines.append("  ret void" if value is None else f"  ret {value}")

    def phi(self, kind: str, incoming: Iterable[tuple[Value, str]], prefix: str = "t") -> str:
        """A phi of (value, label) pairs; it must come first in its block."""
        pairs = ", ".join(f"[ {value}, %{label} ]" for value, label in incoming)
        return self.let(f"phi {kind} {pairs}", prefix)

    def when(self, condition: str) -> "When":
        """Context: what is emitted inside runs only if the i1 condition holds."""
        return When(self, condition)

    def loop(self, lo: Value, hi: Value, step: Value = 1, name: str = "i") -> "Loop":
        """Context: counts lo, lo+step, ... below hi (step > 0) and yields the index."""
        return Loop(self, lo, hi, step, name)

    def carry_loop(
        self,
        lo: Value,
        hi: Value,
        step: Value,
        inits: Sequence[tuple[str, str]],
        name: str = "i",
    ) -> "CarryLoop":
        """A loop carrying (type, value) pairs: read .index and .values, end with .close(new)."""
        return CarryLoop(self, lo, hi, step, inits, name)

    # i64 arithmetic; Python integers fold

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        if isinstance(a, int):
            if isinstance(b, int):
                return a + b
            if a == 0:
                return b
        elif b == 0:
            return a
        return self.let(f"add nsw i64 {a}, {b}")

    def sub(self, a: Value, b: Value) -> Value:
        """a - b."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if b == 0:
            return a
        return 0 if a == b else self.let(f"sub nsw i64 {a}, {b}")

    def mul(self, a: Value, b: Value) -> Value:
        """a * b."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            if b == 0:
                return 0
            if b == 1:
                return a
        return self.let(f"mul nsw i64 {a}, {b}")

    def sdiv(self, a: Value, b: Value) -> Value:
        """a / b rounded towards zero, as the machine does."""
        if isinstance(a, int) and isinstance(b, int) and b:
            quotient = abs(a) // abs(b)
            return quotient if (a < 0) == (b < 0) else -quotient
        return a if b == 1 else self.let(f"sdiv i64 {a}, {b}")

    def srem(self, a: Value, b: Value) -> Value:
        """The remainder of sdiv; it has the sign of a."""
        if isinstance(a, int) and isinstance(b, int) and b:
            return abs(a) % abs(b) * (-1 if a < 0 else 1)
        return 0 if b == 1 else self.let(f"srem i64 {a}, {b}")

    def floordiv(self, a: Value, b: Value) -> Value:
        """a // b with Python's rounding (towards minus infinity)."""
        if isinstance(b, int) and b > 0:
            if isinstance(a, int):
                return a // b
            if b & (b - 1) == 0:
                return a if b == 1 else self.let(f"ashr i64 {a}, {b.bit_length() - 1}")
            sign = self.let(f"ashr i64 {self.let(f'srem i64 {a}, {b}')}, 63")
            return self.let(f"add i64 {self.let(f'sdiv i64 {a}, {b}')}, {sign}")
        if isinstance(a, int) and isinstance(b, int) and b:
            return a // b
        quotient, remainder = self.let(f"sdiv i64 {a}, {b}"), self.let(f"srem i64 {a}, {b}")
        return self.let(f"sub i64 {quotient}, {self._signs_differ(remainder, b)}")

    def mod(self, a: Value, b: Value) -> Value:
        """a % b with Python's sign (that of b)."""
        if isinstance(b, int) and b > 0:
            if isinstance(a, int):
                return a % b
            if b & (b - 1) == 0:
                return 0 if b == 1 else self.let(f"and i64 {a}, {b - 1}")
            remainder = self.let(f"srem i64 {a}, {b}")
            sign = self.let(f"ashr i64 {remainder}, 63")
            return self.let(f"add i64 {remainder}, {self.let(f'and i64 {sign}, {b}')}")
        if isinstance(a, int) and isinstance(b, int) and b:
            return a % b
        remainder = self.let(f"srem i64 {a}, {b}")
        wrong = self.let(f"trunc i64 {self._signs_differ(remainder, b)} to i1")
        return self.let(f"add i64 {remainder}, {self.let(f'select i1 {wrong}, i64 {b}, i64 0')}")

    def _signs_differ(self, remainder: str, b: Value) -> str:
        """1 where a non-zero remainder has not the sign of b: floor and truncation differ."""
        opposite = self.let(f"icmp slt i64 {self.let(f'xor i64 {remainder}, {b}')}, 0")
        inexact = self.let(f"icmp ne i64 {remainder}, 0")
        return self.let(f"zext i1 {self.let(f'and i1 {opposite}, {inexact}')} to i64")

    def smin(self, a: Value, b: Value) -> Value:
        """The smaller of two signed integers."""
        return self._extreme(a, b, "smin")

    def smax(self, a: Value, b: Value) -> Value:
        """The larger of two signed integers."""
        return self._extreme(a, b, "smax")

    def _extreme(self, a: Value, b: Value, name: str) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b) if name == "smin" else max(a, b)
        if a == b:
            return a
        self.module.declare(f"declare i64 @llvm.{name}.i64(i64, i64)")
        return self.let(f"call i64 @llvm.{name}.i64(i64 {a}, i64 {b})")

    def cmp(self, predicate: str, a: Value, b: Value) -> str:
        """An i1: icmp with predicate eq, ne, slt, sle, sgt or sge (or ult ... on names)."""
        if isinstance(a, int) and isinstance(b, int):
            return "true" if _PREDICATES[predicate](a, b) else "false"
        return self.let(f"icmp {predicate} i64 {a}, {b}")

    # Memory and calls

    def gep(self, base: str, index: Value, elem_type: str) -> str:
        """The address of base[index], index counted in elements."""
        if index == 0:
            return base
        return self.let(f"getelementptr inbounds {elem_type}, ptr {base}, i64 {index}", "p")

    def load(self, ptr: str, kind: str, align: int) -> str:
        """Loads a scalar or a vector; align in bytes."""
        return self.let(f"load {kind}, ptr {ptr}, align {align}")

    def store(self, value: Value, kind: str, ptr: str, align: int) -> None:
        """Stores a scalar or a vector; align in bytes."""
        self._lines.append(f"  store {kind} {value}, ptr {ptr}, align {align}")

    def call(self, kind: str, callee: str, *args: str) -> str:
        """Calls callee ("@f") with typed arguments ("i64 %x"); returns "" for a void call."""
        if kind == "void":
            self._lines.append(f"  call void {callee}({', '.join(args)})")
            return ""
        return self.let(f"call {kind} {callee}({', '.join(args)})")

    def preheader(self) -> "Preheader":
        """A place before what follows, to which code can be added until it is closed."""
        return Preheader(self)

    # Used by the loops: a phi's back edge is known only when the loop closes.

    def reserve(self) -> int:
        """Leaves room for one line and returns its place."""
        self._lines.append("")
        return len(self._lines) - 1

    def fill(self, place: int, line: str) -> None:
        """Writes the line that `reserve` left room for."""
        self._lines[place] = "  " + line


class Preheader:
    """`with preheader:` emits there instead of at the end; `close()` once nothing more comes.

    What is emitted there may have blocks of its own: the code after it starts a new block.
    """

    def __init__(self, function: Function) -> None:
        self._function = f = function
        self._label, self._lines = f.current, list[str]()
        self._saved: list[tuple[list[str], str]] = []
        self._place, after = f.reserve(), f.label("pre")
        f.br(after)
        f.block(after)

    def __enter__(self) -> None:
        f = self._function
        self._saved.append((f._lines, f.current))
        if f._lines is not self._lines:  # else already inside
            f._lines, f.current = self._lines, self._label

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        f = self._function
        self._label = f.current
        lines, label = self._saved.pop()
        if lines is not self._lines:
            f._lines, f.current = lines, label

    def close(self) -> None:
        """Puts the collected code into its place."""
        self._function._lines[self._place] = "\n".join(self._lines)


class When:
    """`with f.when(condition):`"""

    def __init__(self, function: Function, condition: str) -> None:
        self._function = function
        self._condition = condition

    def __enter__(self) -> None:
        f = self._function
        then, self._end = f.label("then"), f.label("endif")
        f.cond_br(self._condition, then, self._end)
        f.block(then)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._function.br(self._end)
        self._function.block(self._end)


class CarryLoop:
    """A counted loop with carried values, tested at the bottom so that a trip costs one branch.

    A loop known to run exactly once is emitted straight, its index the Python integer lo.
    """

    def __init__(
        self,
        function: Function,
        lo: Value,
        hi: Value,
        step: Value,
        inits: Sequence[tuple[str, str]],
        name: str = "i",
    ) -> None:
        self._function = f = function
        self._lo, self._hi, self._step, self._inits = lo, hi, step, inits
        constant = isinstance(lo, int) and isinstance(hi, int)
        self._certain = isinstance(lo, int) and isinstance(hi, int) and lo < hi
        self._once = self._certain and isinstance(step, int) and f.sub(hi, lo) in range(step + 1)
        self.index: Value = lo
        self.values = [value for _, value in inits]
        if self._once:
            return
        self._body, self._exit, self._before = f.label("body"), f.label("exit"), f.current
        if self._certain:
            f.br(self._body)
        else:
            enter = "false" if constant else f.cmp("slt", lo, hi)
            # Never folded to a jump: the exit block's phis name both edges.
            f.emit(f"br i1 {enter}, label %{self._body}, label %{self._exit}")
        f.block(self._body)
        self.index = f.tmp(name)
        self.values = [f.tmp("c") for _ in inits]
        self._places = [f.reserve() for _ in range(1 + len(inits))]

    def close(self, new_values: Sequence[str] = ()) -> list[str]:
        """Ends the body; returns what the carried values are after the loop (inits if no trip)."""
        f = self._function
        if self._once:
            return list(new_values)
        latch, index = f.current, self.index
        following = f.let(f"add nsw i64 {index}, {self._step}")
        again = f.let(f"icmp slt i64 {following}, {self._hi}")
        f.emit(f"br i1 {again}, label %{self._body}, label %{self._exit}")
        edges = f"[ {self._lo}, %{self._before} ], [ {following}, %{latch} ]"
        f.fill(self._places[0], f"{index} = phi i64 {edges}")
        for place, carried, (kind, init), new in zip(
            self._places[1:], self.values, self._inits, new_values, strict=True
        ):
            edges = f"[ {init}, %{self._before} ], [ {new}, %{latch} ]"
            f.fill(place, f"{carried} = phi {kind} {edges}")
        f.block(self._exit)
        if self._certain:
            return list(new_values)
        return [
            f.phi(kind, ((init, self._before), (new, latch)))
            for (kind, init), new in zip(self._inits, new_values, strict=True)
        ]


class Loop:
    """`with f.loop(lo, hi, step) as index:`"""

    def __init__(self, function: Function, lo: Value, hi: Value, step: Value, name: str) -> None:
        self._make = (function, lo, hi, step, (), name)

    def __enter__(self) -> Value:
        self._loop = CarryLoop(*self._make)
        return self._loop.index

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._loop.close()
