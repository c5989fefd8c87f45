"""`emit(kernel, target)`: a kernel as an LLVM module in text. Pure: nothing is compiled or run.

The module defines `void @<symbol>(ptr %args, ptr %status)`. `args` are 8-byte words: the buffers'
addresses in order of params, then the dims as i64. `status` are four words: state (0 while all
is well), step (set by the driver), the number of the failed Check, and its value; two more are for
templates, the address of scratch memory and for how many chunks at a time it is. A parallel loop
becomes an internal function of one chunk, run by `@graphc_par(fn, ctx, chunks)` of the pool.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.backends.llvm import around, patterns, turned
from graphc.backends.llvm.contraction import EPILOGUE_PARAMETERS, emit_contraction, is_last
from graphc.backends.llvm.emit_context import Buffer
from graphc.backends.llvm.emit_index import UNKNOWN
from graphc.backends.llvm.emit_loops import Statements
from graphc.backends.llvm.epilogue import epilogue_symbol
from graphc.backends.llvm.gemm_descriptor import ENTRY
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.prefetch import along, beside, distances, next_rows, written_next
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module
from graphc.backends.llvm.values import Value
from graphc.backends.llvm.vector_plan import halves_registers
from graphc.ir import dim as dims
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import (
    Attention,
    Check,
    IndexValue,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Stmt,
    Store,
    walk,
)
from graphc.ir.kernel.text import kernel_symbol, parse_kernel
from graphc.ir.late import late
from graphc.ir.record import replaced

if TYPE_CHECKING:
    from graphc.backends.llvm import attention, conv_last_kernel
else:  # where a program has some
    attention = late("graphc.backends.llvm.attention")
    conv_last_kernel = late("graphc.backends.llvm.conv_last_kernel")

PARALLEL = "@graphc_par"
_HALF = 'nounwind "prefer-vector-width"="256" "min-legal-vector-width"="0"'


def emit(kernel: Kernel, target: Target, symbol: str = "") -> str:
    """LLVM assembly that defines the kernel under `symbol` (default: kernel_symbol(kernel))."""
    symbol = symbol or kernel_symbol(kernel)
    module = Module()
    if isinstance(kernel.template, Attention):
        attention.emit_attention(module, kernel, kernel.template, target, symbol)
    elif kernel.template is not None:
        emit_contraction(module, kernel, target, symbol, emit_epilogue)
    else:
        _KernelEmitter(kernel, target, module, symbol).run()
    return module.text()


def kernel_checks(kernel: Kernel) -> list[Check]:
    """The Checks of a kernel by number, as status words report them."""
    return [
        stmt for body in walk.bodies(kernel) for stmt in walk.statements(body)
        if isinstance(stmt, Check)
    ]


def mutable_buffers(body: Sequence[Stmt]) -> frozenset[str]:
    """Buffers that statements both load and store: their loads may not move."""
    stored = {stmt.buffer for stmt in walk.statements(body) if isinstance(stmt, Store)}
    loaded = {scalar.buffer for scalar in walk.parts(walk.roots(body)) if isinstance(scalar, Load)}
    return frozenset(loaded & stored)


def _context(
    fn: Function, module: Module, target: Target, kernel: Kernel, body: Sequence[Stmt]
) -> Statements:
    """A function's statements, with params and dims bound to the words of %args."""
    mutable = mutable_buffers(body)
    buffers: dict[str, Buffer] = {}
    context = Statements(fn, module, target, buffers)
    for position, param in enumerate(kernel.params):
        pointer = functools.partial(_param_pointer, context, position)
        buffers[param.name] = Buffer(pointer, param.dtype, param.name in mutable)
    for position, name in enumerate(kernel.dims):
        word = fn.gep("%args", len(kernel.params) + position, "i64")
        context.bind(name, Value(fn.load(word, "i64", 8), dtypes.i64, 1, 0))
        context.upper[name] = UNKNOWN
    return context


def _param_pointer(context: Statements, position: int) -> str:
    fn = context.fn
    key = ("param", position)
    return context.compute(0, key, lambda: fn.load(fn.gep("%args", position, "ptr"), "ptr", 8))


def emit_epilogue(fn: Function, kernel: Kernel, tile: Tile) -> None:
    """The epilogue of a contraction on one tile of sums; see contraction.EPILOGUE_PARAMETERS."""
    template = kernel.template
    assert template is not None and not isinstance(template, Attention)
    context = _context(fn, fn.module, tile.target, kernel, template.epilogue)
    known = conv_last_kernel.panel_columns(template, tile.lanes) if is_last(template) else None
    if known and (next_one := conv_last_kernel.follows(template, tile)):
        context.ahead = beside(template.epilogue, *next_one)
    upper = {"b": template.batch, "tile.m": template.m}
    _sums(context, tile, template.acc_dtype, template.epilogue, upper, known)


def emit_shared_epilogue(module: Module, tile: Tile, text: str) -> None:
    """Defines one that kernels share (epilogue.py)."""
    kernel = parse_kernel(text)
    (sums, *params), ((_, *body),) = kernel.params, kernel.stages
    given = replaced(kernel, params=tuple(params))
    fn = module.function(f"void {epilogue_symbol(text, tile)}({EPILOGUE_PARAMETERS})")
    _sums(_context(fn, module, tile.target, given, body), tile, sums.dtype, body, {}, None)
    fn.ret()


def _sums(
    context: Statements, tile: Tile, acc: DType, epilogue: Sequence[Stmt], upper: dict[str, Size],
    known: int | None,
) -> None:
    """Some statements for each of a tile's sums. `upper`: ends of what variables are; `known`: how
    many columns the tile has."""
    context.buffers["acc.tile"] = Buffer(lambda: "%tile", acc, False)
    for name, word in (("b", "%b"), ("tile.m", "%m"), ("tile.n", "%n"), ("tile.pitch", "%pitch"),
                       ("tile.rows", "%rows"), ("tile.columns", "%columns")):
        context.bind(name, Value(word, dtypes.i64, 1, 0))
        size = upper.get(name)
        context.upper[name] = size - 1 if isinstance(size, int) else UNKNOWN
    context.vector_base, context.aligned = "%n", False
    context.most_lanes = 0 if known else tile.lanes  # a tile is only a few registers wide
    row, pitch, first = (Dim.var(name) for name in ("tile.row", "tile.pitch", "tile.n"))
    where = row * pitch + Dim.var("n") - first
    body = (Let("acc", Load("acc.tile", where, acc)), *patterns.joined(epilogue))
    columns = Loop("vector", "n", known or Dim.var("tile.columns"), body)
    m = Let("m", IndexValue(row + Dim.var("tile.m"), dtypes.i64))
    context.loop(Loop("serial", "tile.row", Dim.var("tile.rows"), (m, columns)))


class _KernelEmitter:
    """The functions of one kernel of loops."""

    def __init__(self, kernel: Kernel, target: Target, module: Module, symbol: str) -> None:
        stages = tuple(patterns.joined(stage) for stage in kernel.stages)
        self.kernel, self.target = replaced(kernel, stages=stages), target
        self.module, self.symbol = module, symbol
        self.check_numbers = {id(check): n for n, check in enumerate(kernel_checks(self.kernel))}

    def run(self) -> None:
        """Emits the stages one after the other: graphc_par returns when all chunks are done."""
        signature = f"void @{self.symbol}(ptr %args, ptr %status)"
        main = self.module.function(
            signature, attrs=ENTRY if self._only_starts() else "nounwind"
        )
        last = len(self.kernel.stages) - 1
        for number, stage in enumerate(self.kernel.stages):
            self._stage(main, number, stage)
            if number < last and any(isinstance(stmt, Check) for stmt in walk.statements(stage)):
                _return_if_failed(main)
        main.ret()

    def _only_starts(self) -> bool:
        """Whether the kernel's own function does nothing but run its stages' chunks."""
        return all(
            isinstance(stmt, Let | Local) or _in_chunks(stmt)
            for stage in self.kernel.stages for stmt in stage
        )

    def _stage(self, main: Function, number: int, stage: Sequence[Stmt]) -> None:
        """A stage's statements; a parallel loop becomes a function that starts with its Lets."""
        context = self._context(main, stage)

        def parallel(loop: Loop) -> bool:
            if _single_chunk(loop):
                return False
            place = next(n for n, other in enumerate(stage) if other is loop)
            lets = [stmt for stmt in stage[:place] if isinstance(stmt, Let | Local)]
            self._parallel(context, f"@{self.symbol}.stage{number}", stage, lets, loop)
            return True

        context.parallel = parallel
        context.statements(stage)

    def _context(self, fn: Function, stage: Sequence[Stmt]) -> Statements:
        context = _context(fn, self.module, self.target, self.kernel, stage)
        context.check_numbers = self.check_numbers
        context.ahead, context.along = distances(self.kernel, stage), along(self.kernel)
        context.again = next_rows(self.kernel, stage)
        context.written = written_next(self.kernel, stage, self.target)
        around.mark(context.buffers, self.kernel.params)
        return context

    def _parallel(
        self,
        outer: Statements,
        name: str,
        stage: Sequence[Stmt],
        lets: Sequence[Stmt],
        loop: Loop,
    ) -> None:
        """A chunk function, and the region that runs it over all chunks."""
        self._chunk_function(name, stage, lets, loop)
        fn = outer.fn
        chunks = outer.index(dims.ceil_div(loop.extent, loop.chunk))
        holder = fn.alloca("ptr", 2, 16)
        fn.store("%args", "ptr", holder, 8)
        fn.store("%status", "ptr", fn.gep(holder, 1, "ptr"), 8)
        self.module.declare(f"declare void {PARALLEL}(ptr, ptr, i64)")
        fn.call("void", PARALLEL, f"ptr {name}", f"ptr {holder}", f"i64 {chunks}")

    def _chunk_function(
        self, name: str, stage: Sequence[Stmt], lets: Sequence[Stmt], loop: Loop
    ) -> None:
        """Iterations chunk * c to min((chunk + 1) * c, extent); at least one."""
        half = halves_registers(loop.body, self.target)
        fn = self.module.function(
            f"void {name}(ptr %ctx, i64 %chunk)", "internal", _HALF if half else "nounwind"
        )
        fn.emit("%args = load ptr, ptr %ctx, align 8")
        fn.emit(f"%status = load ptr, ptr {fn.gep('%ctx', 1, 'ptr')}, align 8")
        context = self._context(fn, stage)
        context.statements(lets)
        chunk, extent = loop.chunk, loop.extent
        context.upper[loop.var] = extent - 1 if isinstance(extent, int) else UNKNOWN
        squares = turned.plan(loop, self.target, mutable_buffers(stage))
        if squares is not None:
            start = fn.mul("%chunk", context.index(chunk))
            end = fn.add(start, context.index(chunk))
            if squares.open:
                end = fn.smin(end, context.index(extent))
            turned.emit(context, loop, squares, start, end)
        elif chunk == 1:
            context.iteration(loop, "%chunk")
        else:
            size, total = context.index(chunk), context.index(extent)
            start = fn.mul("%chunk", size)
            context.serial(loop, start, fn.smin(fn.add(start, size), total))
        fn.ret()


def _return_if_failed(fn: Function) -> None:
    """Later stages may rely on what the Checks so far have promised."""
    state = fn.load("%status", "i64", 8)
    with fn.when(fn.cmp("ne", state, 0)):
        fn.ret()
        fn.block(fn.label("unreachable"))


def _in_chunks(stmt: Stmt) -> bool:
    return isinstance(stmt, Loop) and stmt.kind == "parallel" and not _single_chunk(stmt)


def _single_chunk(loop: Loop) -> bool:
    return dims.ceil_div(loop.extent, loop.chunk) == 1 or loop.extent == 0
