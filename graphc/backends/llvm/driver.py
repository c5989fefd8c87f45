"""`emit_driver(program, ...)`: the one native call of a program, as an LLVM module in text.

The driver is a table of steps and a loop over it: each step adds up its operands' addresses and
calls its kernel. Loops and branches of the program are code around runs of that table. All it reads
comes in one block of 8-byte words:

    0        always zero
    1        the arena's address
    2        the callback: i64 (i64 step, ptr args), non-zero stops the call
    3..6     the status words: state, step, number of the failed Check, its value
    7, 8     for the contraction that runs: the address of scratch memory, and how many of its
             chunks have some at a time
    then     inputs, outputs, constants (addresses), the dims, the loops' variables, and sizes
             computed from dims and variables

An operand is word[a] + word[b] + constant, so that arena offsets, symbolic offsets, dims and plain
numbers are one case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from graphc.backends.llvm.draw_call import emit_draw
from graphc.backends.llvm.emit_index import Indices
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module
from graphc.backends.llvm.values import Value
from graphc.backends.llvm.words import (
    ARENA,
    CALLBACK,
    FIRST_BUFFER,
    PYTHON,
    RUN,
    RUN_ROWS,
    RUN_STEPS,
    SIZES,
    STATUS,
    ZERO,
    Layout,
)
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.kernel import (
    Branch,
    BufferRef,
    Launch,
    Leaf,
    Program,
    ProgramStep,
    Repeat,
    Routine,
    leaves,
)

LOOK_EVERY = 4096  # iterations of a loop that ends by a flag

_STEP = "{ ptr, i32, i32, i64 }"  # kernel (null: the callback), first operand, count, has Checks
_OPERAND = "{ i32, i32, i64 }"  # two words and a constant


class Block:
    """Gives every buffer, dim and symbolic size of a program its word."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs = FIRST_BUFFER
        self.outputs = self.inputs + len(program.input_types)
        self.constants = self.outputs + len(program.output_types)
        self.dims = self.constants + len(program.constants)
        self.names = (*program.dims, *_variables(program.steps))
        self.derived = self.dims + len(self.names)
        self.sizes: dict[Dim, int] = {}  # symbolic sizes that are not plain names, by word
        self.leaves = list(leaves(program.steps))
        self.table = [self._operands(step) for step in self.leaves]
        for step in _held(program.steps):
            if isinstance(step, Repeat) and step.count is not None:
                self.size(step.count)
            if step.flag is not None:
                self.buffer(step.flag)

    def layout(self) -> Layout:
        """Which word holds what."""
        words = self.derived + len(self.sizes)
        return Layout(self.inputs, self.outputs, self.constants, self.dims, words)

    def word(self, name: str) -> int:
        """The word of a dim or a loop's variable."""
        return self.dims + self.names.index(name)

    def size(self, size: Size) -> tuple[int, int]:
        """A size as (word, constant)."""
        if isinstance(size, int):
            return ZERO, size
        text = size.text()
        if text in self.names:
            return self.word(text), 0
        return self.sizes.setdefault(size, self.derived + len(self.sizes)), 0

    def buffer(self, ref: BufferRef) -> tuple[int, int, int]:
        """A buffer's address as (word, word, constant)."""
        word = {
            "arena": ARENA,
            "input": self.inputs + ref.index,
            "output": self.outputs + ref.index,
            "const": self.constants + ref.index,
        }[ref.space]
        return word, *self.size(ref.offset)

    def _operands(self, step: Leaf) -> list[tuple[int, int, int]]:
        """What a step's args array holds."""
        if isinstance(step, Launch):
            sizes = [(ZERO, *self.size(size)) for size in step.dims]
            return [*map(self.buffer, step.buffers), *sizes]
        dims = [(ZERO, self.dims + index, 0) for index in range(len(self.program.dims))]
        return [*map(self.buffer, step.inputs), *map(self.buffer, step.outputs), *dims]


def _held(steps: Iterable[ProgramStep]) -> Iterator[Repeat | Branch]:
    """The loops and branches, outer ones first."""
    for step in steps:
        if isinstance(step, Repeat):
            yield step
            yield from _held((*step.test, *step.steps))
        elif isinstance(step, Branch):
            yield step
            yield from _held((*step.then, *step.otherwise))


def ends_by_flag(program: Program) -> bool:
    """Whether a loop of the program ends by what it computes. Its entry point then takes the GIL
    from the caller, gives it back, and leaves the exception of a signal handler set."""
    return any(isinstance(step, Repeat) and step.flag is not None for step in _held(program.steps))


def _variables(steps: Iterable[ProgramStep]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step.var for step in _held(steps) if isinstance(step, Repeat)))


def emit_driver(
    program: Program, symbols: Sequence[str], checks: Sequence[bool], target: Target,
    alone: bool = False,
) -> tuple[str, Layout]:
    """The driver's text and the block's layout.

    `symbols`: per leaf the kernel's name, or "" for a Routine (of a draw, which is claimed, the
    module has the call); `checks`: may the leaf fail; `alone`: there is no Python around it, whose
    signals a loop would look at.
    Defines i64 @graphc_run_program(ptr block) and, for one leaf at a time, void
    @graphc_sizes(ptr block) and i64 @graphc_run_steps(ptr block, i64 first, i64 last). The result
    is 0, or the number of the leaf that failed plus one. Of some programs (has_rows), i64
    @graphc_run_rows(ptr block, ptr table, i64 rows), too, whose result is that of a row.
    """
    module, block = Module(), Block(program)
    steps: list[str] = []
    operands: list[str] = []
    most = 1
    for leaf, words, symbol, checked in zip(
        block.leaves, block.table, symbols, checks, strict=True
    ):
        most = max(most, len(words))
        kernel = f"@{symbol}" if symbol else "null"
        if isinstance(leaf, Routine) and leaf.claimed:
            kernel = f"@{emit_draw(module, target, leaf, program.dims)}"
        if symbol:
            module.declare(f"declare void @{symbol}(ptr, ptr)")
        flag = int(checked)
        steps.append(
            f"{_STEP} {{ ptr {kernel}, i32 {len(operands)}, i32 {len(words)}, i64 {flag} }}"
        )
        operands += [f"{_OPERAND} {{ i32 {a}, i32 {b}, i64 {c} }}" for a, b, c in words]
    module.globals += [
        f"@steps = internal constant [{len(steps)} x {_STEP}] [{', '.join(steps)}]",
        f"@operands = internal constant [{len(operands)} x {_OPERAND}] [{', '.join(operands)}]",
    ]
    _emit_run_steps(module, most)
    _Main(module, block, target, alone).emit()
    if has_rows(program):
        _emit_rows(module, block)
    return module.text(), block.layout()


def has_rows(program: Program) -> bool:
    """Whether its code has an entry for many calls: kernels of symbolic sizes, of no template."""
    return bool(program.dims) and not program.constants and all(
        isinstance(step, Launch) and step.kernel.template is None for step in program.steps
    )


class _Main:
    """The entry: computes the sizes that depend on dims, then runs all steps."""

    def __init__(self, module: Module, block: Block, target: Target, alone: bool) -> None:
        self.module = module
        self.block = block
        self.target = target
        self.alone = alone
        self.done = 0  # leaves emitted so far

    def emit(self) -> None:
        f = self.f = self.module.function(f"i64 @{RUN}(ptr %block)")
        f.call("void", f"@{SIZES}", "ptr %block")
        program = self.block.program
        if any(isinstance(step, Repeat | Branch) for step in program.steps):
            self.failed = f.label("failed")
            self.result = f.alloca("i64", 1, 8)
            open_end = ends_by_flag(program) and not self.alone
            if open_end:
                self.thread = f.alloca("ptr", 1, 8)
                for name, (result, parameters) in PYTHON.items():
                    self.module.declare(f"declare {result} @{name}({parameters})")
                self._release_gil()
            self._steps(program.steps)
            f.store(0, "i64", self.result, 8)
            f.br(self.failed)
            f.block(self.failed)
            if open_end:
                self._hold_gil()
            f.ret(f"i64 {f.load(self.result, 'i64', 8)}")
        else:
            count = len(program.steps)
            f.ret(f"i64 {f.call('i64', f'@{RUN_STEPS}', 'ptr %block', 'i64 0', f'i64 {count}')}")
        self._emit_sizes(SIZES, list(self.block.sizes))
        for name in self.block.names[len(program.dims):]:
            varying = [size for size in self.block.sizes if name in size.variables()]
            self._emit_sizes(f"{SIZES}_{name}", varying)

    def _emit_sizes(self, symbol: str, sizes: Sequence[Dim]) -> None:
        f = self.module.function(f"void @{symbol}(ptr %block)")
        context = Indices(f, self.module, self.target, {})
        for name in self.block.names:
            word = f.load(f.gep("%block", self.block.word(name), "i64"), "i64", 8)
            context.bind(name, Value(word, dtypes.i64, 1, 0))
        for size in sizes:
            place = f.gep("%block", self.block.sizes[size], "i64")
            f.store(context.index(size), "i64", place, 8)
        f.ret()

    def _steps(self, steps: Sequence[ProgramStep]) -> None:
        """Runs of leaves as one call each, loops and branches around them."""
        first = self.done
        for step in steps:
            if not isinstance(step, Repeat | Branch):
                self.done += 1
                continue
            self._run(first)
            if isinstance(step, Repeat):
                self._repeat(step)
            else:
                self._branch(step)
            first = self.done
        self._run(first)

    def _run(self, first: int) -> None:
        if first == self.done:
            return
        f = self.f
        answer = f.call(
            "i64", f"@{RUN_STEPS}", "ptr %block", f"i64 {first}", f"i64 {self.done}"
        )
        f.store(answer, "i64", self.result, 8)
        going = f.label("going")
        f.cond_br(f.cmp("ne", answer, 0), self.failed, going)
        f.block(going)

    def _repeat(self, step: Repeat) -> None:
        f = self.f
        head, body, end = f.label("head"), f.label("body"), f.label("end")
        place = f.gep("%block", self.block.word(step.var), "i64")
        f.store(0, "i64", place, 8)
        f.br(head)
        f.block(head)
        f.call("void", f"@{SIZES}_{step.var}", "ptr %block")
        self._steps(step.test)
        if step.flag is not None:
            if not self.alone:
                self._look_at_signals(place)
            on = body if step.count is None else f.label("on")
            f.cond_br(self._flag(step.flag), on, end)
            if step.count is not None:
                f.block(on)
        if step.count is not None:
            word, constant = self.block.size(step.count)
            count = f.add(f.load(f.gep("%block", word, "i64"), "i64", 8), constant)
            f.cond_br(f.cmp("slt", f.load(place, "i64", 8), count), body, end)
        f.block(body)
        self._steps(step.steps)
        f.store(f.add(f.load(place, "i64", 8), 1), "i64", place, 8)
        f.br(head)
        f.block(end)

    def _look_at_signals(self, place: str) -> None:
        """A loop without a known end lets Python's signal handlers run, which may raise."""
        f = self.f
        look, on = f.label("look"), f.label("on")
        late = f.cmp("eq", f.mod(f.load(place, "i64", 8), LOOK_EVERY), LOOK_EVERY - 1)
        f.cond_br(late, look, on)
        f.block(look)
        self._hold_gil()
        answer = f.let(f"sext i32 {f.call('i32', '@PyErr_CheckSignals')} to i64")
        self._release_gil()
        f.store(answer, "i64", self.result, 8)
        f.cond_br(f.cmp("ne", answer, 0), self.failed, on)
        f.block(on)

    def _hold_gil(self) -> None:
        f = self.f
        f.call("void", "@PyEval_RestoreThread", f"ptr {f.load(self.thread, 'ptr', 8)}")

    def _release_gil(self) -> None:
        f = self.f
        f.store(f.call("ptr", "@PyEval_SaveThread"), "ptr", self.thread, 8)

    def _branch(self, step: Branch) -> None:
        f = self.f
        then, otherwise, end = f.label("then"), f.label("else"), f.label("end")
        f.cond_br(self._flag(step.flag), then, otherwise)
        for label, arm in ((then, step.then), (otherwise, step.otherwise)):
            f.block(label)
            self._steps(arm)
            f.br(end)
        f.block(end)

    def _flag(self, ref: BufferRef) -> str:
        """An i1: a bool in memory."""
        f = self.f
        first, second, constant = self.block.buffer(ref)
        address: str | int = constant
        for word in (first, second):
            address = f.add(f.load(f.gep("%block", word, "i64"), "i64", 8), address)
        pointer = f.let(f"inttoptr i64 {address} to ptr")
        return f.let(f"icmp ne i8 {f.load(pointer, 'i8', 1)}, 0")


def _emit_run_steps(module: Module, most: int) -> None:
    f = module.function(f"i64 @{RUN_STEPS}(ptr %block, i64 %first, i64 %last)")
    args = f.alloca("i64", most, 64)
    status = f.gep("%block", STATUS, "i64")
    failed = f.label("failed")
    loop = f.carry_loop("%first", "%last", 1, [])
    step = f.gep("@steps", loop.index, _STEP)
    kernel = f.load(step, "ptr", 8)
    start = _field(f, step, 1, "i32")
    count = _field(f, step, 2, "i32")
    _emit_operands(f, args, start, count)
    native, callback, done = f.label("native"), f.label("callback"), f.label("done")
    f.cond_br(f.let(f"icmp ne ptr {kernel}, null"), native, callback)
    f.block(native)
    f.call("void", kernel, f"ptr {args}", f"ptr {status}")
    state = f.load(status, "i64", 8)
    checked = f.load(f.let(f"getelementptr {_STEP}, ptr {step}, i64 0, i32 3"), "i64", 8)
    bad = f.cmp("ne", f.let(f"and i64 {state}, {checked}"), 0)
    f.cond_br(bad, failed, done)
    f.block(callback)
    function = f.load(f.gep("%block", CALLBACK, "i64"), "ptr", 8)
    answer = f.call("i64", function, f"i64 {loop.index}", f"ptr {args}")
    f.cond_br(f.cmp("ne", answer, 0), failed, done)
    f.block(done)
    loop.close()
    f.ret("i64 0")
    f.block(failed)
    number = f.add(loop.index, 1)
    f.store(number, "i64", f.gep(status, 1, "i64"), 8)
    f.ret(f"i64 {number}")


def _emit_rows(module: Module, block: Block) -> None:
    """Copies each row of a table into the block, and runs the program."""
    program = block.program
    places = [block.inputs + i for i in range(len(program.input_types) + len(program.output_types))]
    places += [block.dims + i for i in range(len(program.dims))]
    f = module.function(f"i64 @{RUN_ROWS}(ptr %block, ptr %table, i64 %rows)")
    failed = f.label("failed")
    loop = f.carry_loop(0, "%rows", 1, [])
    row = f.gep("%table", f.mul(loop.index, len(places)), "i64")
    for word, place in enumerate(places):
        value = f.load(f.gep(row, word, "i64"), "i64", 8)
        f.store(value, "i64", f.gep("%block", place, "i64"), 8)
    answer, done = f.call("i64", f"@{RUN}", "ptr %block"), f.label("done")
    f.cond_br(f.cmp("ne", answer, 0), failed, done)
    f.block(done)
    loop.close()
    f.ret("i64 0")
    f.block(failed)
    f.ret(f"i64 {f.add(loop.index, 1)}")


def _field(f: Function, step: str, field: int, kind: str) -> str:
    place = f.let(f"getelementptr {_STEP}, ptr {step}, i64 0, i32 {field}")
    return f.let(f"zext {kind} {f.load(place, kind, 4)} to i64")


def _emit_operands(f: Function, args: str, start: str, count: str) -> None:
    """args[i] = word[a] + word[b] + constant for every operand of the step."""
    with f.loop(0, count) as index:
        operand = f.gep("@operands", f.add(start, index), _OPERAND)
        total = f.load(f.let(f"getelementptr {_OPERAND}, ptr {operand}, i64 0, i32 2"), "i64", 8)
        for field in (0, 1):
            place = f.let(f"getelementptr {_OPERAND}, ptr {operand}, i64 0, i32 {field}")
            word = f.let(f"zext i32 {f.load(place, 'i32', 4)} to i64")
            total = f.let(f"add i64 {total}, {f.load(f.gep('%block', word, 'i64'), 'i64', 8)}")
        f.store(total, "i64", f.gep(args, index, "i64"), 8)
