"""What is special to one kernel: its arguments, its descriptor, where its operands begin."""

from collections.abc import Callable, Sequence
from functools import partial

from graphc.backends.llvm.gemm import declare_contract
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import ENTRY, Descriptor, Word, begin_request
from graphc.backends.llvm.gemm_dot import (
    LENGTH,
    LINES,
    SHAPE_WORDS,
    declare_point_columns,
    dot_symbol,
    dot_table,
)
from graphc.backends.llvm.gemm_pack import LEFT_TYPES, RIGHT_TYPES, Source, right_packer
from graphc.backends.llvm.gemm_plan import Number, ceil_div, declare_plan, set_plan, value_of
from graphc.backends.llvm.gemm_reach import Reach, reach
from graphc.backends.llvm.gemm_store import epilogue_pointers
from graphc.backends.llvm.microkernel import (
    Tile,
    declare_table,
    emit_table,
    kernel_types,
    run_kernel_symbol,
    run_types,
    runs_table,
    tile_symbol,
    tiles_table,
)
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import memory_type
from graphc.ir.dim import Size
from graphc.ir.kernel import Kernel, Operand, Product
from graphc.ir.kernel.blocking import reads_left
from graphc.ir.kernel.plan_contraction import is_dot, plan_contraction
from graphc.ir.kernel.templates.operand import Panels, base_and_strides, panels_of

SCRATCH, WORKERS = 4, 5  # words of %status for templates


def emit_gemm_kernel(
    module: Module, kernel: Kernel, c: Product, tile: Tile, symbol: str
) -> None:
    """Defines the entry and the `bases` of a matrix product."""
    left_base, left_m, left_k = base_and_strides(c.left, "m", "k")
    panels = panels_of(c.right.index)
    if panels is None:
        right_base, right_k, right_n = base_and_strides(c.right, "k", "n")
    else:
        _check_panels(panels, tile)
        right_base, right_k, right_n = panels.base, panels.columns, 1
    _emit_bases(module, kernel, c, symbol, left_base, right_base)
    left, right = Source(c.left.dtype, tile), Source(c.right.dtype, tile)
    packer = right_packer(right_k, right_n)
    reached = reach(c, tile) if tile.group == 1 else None
    f = module.function(f"void @{symbol}(ptr %args, ptr %status)", "", ENTRY)
    arguments = Arguments(f, kernel)
    k, m, n = arguments.size(c.k), arguments.size(c.m), arguments.size(c.n)
    group = tile.group
    if group > 1:  # words are read where they lie if there are whole ones, of bytes as they are
        left_direct: Value = 0
        if left.same and left_k == 1 and not tile.step.centred:
            left_direct = f.let(f"zext i1 {f.cmp('eq', f.srem(k, group), 0)} to i64")
    else:
        sizes = (Number(f, m), Number(f, n), Number(f, k))
        direct = reads_left(left_k == 1, left_m == 1, sizes, tile.tiling, tile.bytes)
        left_direct = value_of(left.same and direct)
    steps = ceil_div(f, k, group)
    words: dict[Word, Value] = {
        Word.BATCH: arguments.size(c.batch),
        Word.M: m,
        Word.N: n,
        Word.K: steps,
        Word.VALUES: k,
        Word.LEFT_DIRECT: left_direct,
        Word.LEFT_M: arguments.size(left_m),
        Word.LEFT_K: arguments.size(left_k),
        Word.LEFT_STEP: f.mul(arguments.size(left_k), tile.bytes),
        Word.SEGMENT: k,
        Word.RIGHT_DIRECT: int(
            c.right.dtype is tile.step.right and packer == "rows" and panels is None and group == 1
        ),
        Word.RIGHT_K: arguments.size(right_k),
        Word.RIGHT_N: arguments.size(right_n),
        Word.K_QUANTUM: tile.step.quantum,
        Word.POSITIONS: n,
        Word.TERMS: k,
        Word.MOST_STEPS: tile.tiling.product_steps(tile.bytes),
        Word.EPILOGUE_B: 1,
        Word.WORKERS: f.load(f.gep("%status", WORKERS, "i64"), "i64", 8),
        Word.PANEL: 0 if panels is None else panels.panel // panels.group,
    }
    epilogue, epilogue_arguments = epilogue_pointers(f, kernel, tile, symbol, arguments)
    pointers = {
        Word.ARGUMENTS: epilogue_arguments,
        Word.OPERANDS: "%args",
        Word.BASES: f"@{symbol}.bases",
        Word.PACK_LEFT: _packer(module, "left", left, reached),
        Word.PACK_RIGHT: _packer(module, packer, right, reached),
        Word.EPILOGUE: epilogue,
        Word.MEMORY: f.load(f.gep("%status", SCRATCH, "ptr"), "ptr", 8),
    }
    if reached is not None:
        pointers |= _tables(module, tile, symbol, reached)
    d = begin_request(f, words, pointers)
    if is_dot(c, tile.tiling):
        _choose_dots(f, d, tile, (m, n, k), partial(_dots, module, tile, symbol, reached))
    plan = plan_contraction(c, tile.machine)
    if plan is None:
        f.call("void", declare_plan(module, tile), f"ptr {d.pointer}")
    else:
        set_plan(d, plan)
    f.call("void", declare_contract(module, tile), f"ptr {d.pointer}")
    f.ret()


def _check_panels(panels: Panels, tile: Tile) -> None:
    if (panels.columns, panels.group) != (tile.columns, tile.group):
        raise ValueError(
            f"panels of {panels.columns} columns by {panels.group}; tiles of this target have "
            f"{tile.columns} by {tile.group}"
        )


def _packer(module: Module, kind: str, source: Source, reached: Reach | None) -> str:
    """A packer, or null where nothing is packed."""
    types = LEFT_TYPES if kind == "left" else RIGHT_TYPES
    used = reached is None or kind in reached.packs
    return declare_packer(module, kind, source, types) if used else "null"


def _tables(module: Module, tile: Tile, symbol: str, reached: Reach) -> dict[Word, str]:
    """The kernel's tables: those of all kernels, or its own, of those that it reaches."""
    if reached.tiles is None:
        tables = {Word.TILES: tiles_table(tile), Word.RUNS: runs_table(tile)}
        return {word: declare_table(module, table) for word, table in tables.items()}
    tables = {Word.TILES: own_tiles(module, tile, f"@{symbol}.tiles", reached.tiles)}
    if reached.runs:
        own = {rows: run_kernel_symbol(tile, rows) for rows in reached.runs}
        kernels = [own.get(rows, "") for rows in tile.row_classes]
        tables[Word.RUNS] = _own_table(module, f"@{symbol}.runs", kernels, run_types())
    return tables


def own_tiles(
    module: Module, tile: Tile, symbol: str, reached: Sequence[tuple[int, int]], kind: str = "tile"
) -> str:
    """A kernel's own table of the kernels "tile" or "window"."""
    places = [(rows, width) for rows in tile.row_classes for width in tile.widths]
    names = {place: tile_symbol(tile, *place, kind) for place in reached}
    return _own_table(module, symbol, [names.get(place, "") for place in places], kernel_types())


def own_dots(module: Module, tile: Tile, symbol: str, reached: Sequence[int]) -> str:
    """A kernel's own table of the kernels "dot"."""
    names = {rows: dot_symbol(tile, rows) for rows in reached}
    kernels = [names.get(rows, "") for rows in tile.row_classes for _ in tile.widths]
    return _own_table(module, symbol, kernels, kernel_types())


def _own_table(module: Module, symbol: str, kernels: Sequence[str], types: str) -> str:
    """A table with null in the place of what is not reached."""
    for kernel in kernels:
        if kernel:
            module.declare(f"declare void {kernel}({types})")
    emit_table(module, symbol, [kernel or "null" for kernel in kernels], "internal")
    return symbol


def _dots(module: Module, tile: Tile, symbol: str, reached: Reach | None) -> str:
    """The table of all dots, or the kernel's own."""
    if reached is None or reached.dots is None:
        return declare_table(module, dot_table(tile))
    return own_dots(module, tile, f"@{symbol}.dots", reached.dots)


def _choose_dots(
    f: Function, d: Descriptor, tile: Tile, sizes: tuple[Value, Value, Value],
    table: Callable[[], str],
) -> None:
    """Asks for dot products if there are few rows or columns, here or in the call."""
    m, n, k = sizes
    few_rows = f.cmp("sle", m, tile.tiling.dot_rows)
    few_columns = f.cmp("sle", n, tile.tiling.dot_columns)
    if "true" in (few_rows, few_columns):
        _ask_for_dots(f, d, tile, k, table())
    elif few_rows.startswith("%") or few_columns.startswith("%"):
        with f.when(f.let(f"or i1 {few_rows}, {few_columns}")):
            _ask_for_dots(f, d, tile, k, table())


def _ask_for_dots(f: Function, d: Descriptor, tile: Tile, k: Value, table: str) -> None:
    """Changes a request: one step of k, of one line, read through pointers to columns."""
    shape = f.alloca("i64", SHAPE_WORDS)
    f.store("zeroinitializer", f"[{SHAPE_WORDS} x i64]", shape, 64)
    f.store(1, "i64", f.gep(shape, LINES, "i64"), 8)
    f.store(k, "i64", f.gep(shape, LENGTH, "i64"), 8)
    for word, value in (
        (Word.K, 1),
        (Word.SEGMENT, 1),
        (Word.LEFT_DIRECT, 1),
        (Word.RIGHT_DIRECT, 0),
        (Word.POINTER_COLUMNS, 1),
    ):
        d[word] = value
    d.set_pointer(Word.TILES, table)
    d.set_pointer(Word.PACK_RIGHT, declare_point_columns(f.module, tile))
    d.set_pointer(Word.A_STEP, shape)


def declare_packer(module: Module, kind: str, source: Source, types: str) -> str:
    """Declares a packer and returns its name."""
    symbol = f"@graphc_pack_{kind}_{source.name}"
    module.declare(f"declare void {symbol}({types})")
    return symbol


def _emit_bases(
    module: Module, kernel: Kernel, c: Product, symbol: str, left: Size, right: Size
) -> None:
    f = module.function(f"void @{symbol}.bases(ptr %args, i64 %b, ptr %out)", "internal", ENTRY)
    arguments = Arguments(f, kernel)
    arguments.names["b"] = "%b"
    for index, (operand, offset) in enumerate(((c.left, left), (c.right, right))):
        emit_base(f, arguments, operand, offset, index)
    f.ret()


def emit_base(
    f: Function, arguments: Arguments, operand: Operand, offset: Size, index: int
) -> None:
    """Stores where an operand begins as out[index]."""
    base = f.gep(
        arguments.buffer(operand.buffer), arguments.size(offset), memory_type(operand.dtype)
    )
    f.store(base, "ptr", f.gep("%out", index, "ptr"), 8)
