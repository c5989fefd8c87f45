"""`emit_driver(program, ...)`: the one native call of a program, as an LLVM module in text.

The driver is a table of steps and a loop over it: each step adds up its operands' addresses and
calls its kernel. All it reads comes in one block of 8-byte words:

    0        always zero
    1        the arena's address
    2        the callback: i64 (i64 step, ptr args), non-zero stops the call
    3..6     the status words: state, step, number of the failed Check, its value
    then     inputs, outputs, constants (addresses), the dims, and sizes computed from the dims

An operand is word[a] + word[b] + constant, so that arena offsets, symbolic offsets, dims and plain
numbers are one case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.backends.llvm.emit_index import Indices
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module
from graphc.backends.llvm.values import Value
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.kernel import BufferRef, Launch, Program, Routine

ZERO, ARENA, CALLBACK, STATUS = 0, 1, 2, 3
FIRST_BUFFER = 7
RUN = "graphc_run_program"
RUN_STEPS = "graphc_run_steps"
SIZES = "graphc_sizes"

_STEP = "{ ptr, i32, i32, i64 }"  # kernel (null: the callback), first operand, count, has Checks
_OPERAND = "{ i32, i32, i64 }"  # two words and a constant


@dataclass(frozen=True, slots=True)
class Layout:
    """Which word of the block holds what."""

    inputs: int
    outputs: int
    constants: int
    dims: int
    derived: int
    words: int


class Block:
    """Gives every buffer, dim and symbolic size of a program its word."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs = FIRST_BUFFER
        self.outputs = self.inputs + len(program.input_types)
        self.constants = self.outputs + len(program.output_types)
        self.dims = self.constants + len(program.constants)
        self.derived = self.dims + len(program.dims)
        self.sizes: dict[Dim, int] = {}  # symbolic sizes that are not plain dims, by word

    def layout(self) -> Layout:
        """The finished layout: every step must have been visited."""
        words = self.derived + len(self.sizes)
        return Layout(self.inputs, self.outputs, self.constants, self.dims, self.derived, words)

    def size(self, size: Size) -> tuple[int, int]:
        """A size as (word, constant)."""
        if isinstance(size, int):
            return ZERO, size
        text = size.text()
        if text in self.program.dims:
            return self.dims + self.program.dims.index(text), 0
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

    def operands(self, step: Launch | Routine) -> list[tuple[int, int, int]]:
        """What a step's args array holds."""
        if isinstance(step, Launch):
            sizes = [(ZERO, *self.size(size)) for size in step.dims]
            return [*map(self.buffer, step.buffers), *sizes]
        dims = [(ZERO, self.dims + index, 0) for index in range(len(self.program.dims))]
        return [*map(self.buffer, step.inputs), *map(self.buffer, step.outputs), *dims]


def emit_driver(
    program: Program, symbols: Sequence[str], checks: Sequence[bool], target: Target
) -> tuple[str, Layout]:
    """The driver's text and the block's layout.

    `symbols`: per step the kernel's name, or "" for a Routine; `checks`: may the step fail.
    Defines i64 @graphc_run_program(ptr block) and, for one step at a time, void
    @graphc_sizes(ptr block) and i64 @graphc_run_steps(ptr block, i64 first, i64 last). The result
    is 0, or the number of the step that failed plus one.
    """
    module, block = Module(), Block(program)
    steps: list[str] = []
    operands: list[str] = []
    most = 1
    for step, symbol, checked in zip(program.steps, symbols, checks, strict=True):
        words = block.operands(step)
        most = max(most, len(words))
        kernel = f"@{symbol}" if symbol else "null"
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
    layout = block.layout()
    _emit_run_steps(module, most)
    _emit_run(module, len(steps), block, target)
    return module.text(), layout


def _emit_run(module: Module, steps: int, block: Block, target: Target) -> None:
    """Computes the sizes that depend on dims, then runs all steps."""
    f = module.function(f"i64 @{RUN}(ptr %block)")
    f.call("void", f"@{SIZES}", "ptr %block")
    f.ret(f"i64 {f.call('i64', f'@{RUN_STEPS}', 'ptr %block', 'i64 0', f'i64 {steps}')}")
    f = module.function(f"void @{SIZES}(ptr %block)")
    _emit_sizes(f, module, block.sizes, block.program.dims, block.dims, target)
    f.ret()


def _emit_sizes(
    f: Function,
    module: Module,
    sizes: Mapping[Dim, int],
    names: Sequence[str],
    first: int,
    target: Target,
) -> None:
    context = Indices(f, module, target, {})
    for position, name in enumerate(names):
        word = f.load(f.gep("%block", first + position, "i64"), "i64", 8)
        context.bind(name, Value(word, dtypes.i64, 1, 0))
    for size, position in sizes.items():
        f.store(context.index(size), "i64", f.gep("%block", position, "i64"), 8)


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
