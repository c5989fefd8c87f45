"""Attention: blocks of queries go along blocks of keys, with a running maximum and sum (online
softmax: Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).

What is summed for a block of queries has a column per query until it is stored.
"""

from __future__ import annotations

from graphc.backends.llvm.attention_block import Head, copy, emit_context
from graphc.backends.llvm.attention_few import emit_few
from graphc.backends.llvm.attention_grad import emit_gradient, gradient_chunks
from graphc.backends.llvm.attention_tile import Matrix, call_tiles, chosen_tile
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Module, Value
from graphc.ir import dtypes
from graphc.ir.dim import ceil_div
from graphc.ir.kernel import Attention, Kernel
from graphc.ir.kernel.plan_attention import plan_attention

PARALLEL = "@graphc_par"
_WIDEST = 256  # of a head; scratch memory grows with it


def renders_attention(t: Attention) -> bool:
    """Whether there is code: for floats, and heads of a known, not too large width."""
    return t.dtype in (dtypes.f32, dtypes.f64) and all(
        isinstance(width, int) and 1 <= width <= _WIDEST for width in (t.e, t.f)
    )


def attention_tile(t: Attention, target: Target) -> Tile:
    """The registers that a template is computed in."""
    return Tile("f64" if t.dtype is dtypes.f64 else "f32", target)


def emit_attention(
    module: Module, kernel: Kernel, t: Attention, target: Target, symbol: str
) -> None:
    """Defines void @symbol(ptr %args, ptr %status)."""
    tile = attention_tile(t, target)
    f = module.function(f"void @{symbol}(ptr %args, ptr %status)")
    arguments = Arguments(f, kernel)
    plan = plan_attention(t, tile.machine)
    assert plan is not None
    if plan.along_keys:
        chunk, chunks = f"@{symbol}.chunk", arguments.size(t.batch)
        emit_few(module, kernel, t, tile, symbol)
    elif t.kind == "attention":
        chunk = f"@{symbol}.chunk"
        chunks = f.mul(arguments.size(t.batch), arguments.size(ceil_div(t.m, tile.columns)))
        _emit_block(module, kernel, t, tile, symbol)
    else:
        emit_gradient(module, kernel, t, tile, symbol)
        chunk, chunks = gradient_chunks(f, arguments, t, tile, symbol)
    context = emit_context(f)
    module.declare(f"declare void {PARALLEL}(ptr, ptr, i64)")
    with f.when(f.cmp("sgt", chunks, 0)):
        f.call("void", PARALLEL, f"ptr {chunk}", f"ptr {context}", f"i64 {chunks}")
    f.ret()


def _emit_block(
    module: Module, kernel: Kernel, t: Attention, tile: Tile, symbol: str
) -> None:
    """One block of queries of one b."""
    f = module.function(f"void @{symbol}.chunk(ptr %ctx, i64 %chunk)", "internal")
    h = Head(f, kernel, t, tile)
    blocks = h.arguments.size(ceil_div(t.m, h.queries))
    h.arguments.names["b"] = f.floordiv("%chunk", blocks)
    first = f.mul(f.mod("%chunk", blocks), h.queries)
    rows = f.smin(f.sub(h.m, first), h.queries)
    h.take()
    h.clear("out", h.queries * h.padded(h.f_width))
    h.clear("total", h.queries)
    with f.loop(0, h.queries, tile.lanes) as column:
        f.store(h.lanes.const(float("-inf")), tile.vector, _at(h, "peak", column), tile.bytes)
    registers = h.registers(rows)
    fresh, add = (chosen_tile(f, tile, registers, fresh) for fresh in (True, False))
    h.gather(h.input("q", "m", "e").at(f, first), rows, h.e, "rows", "q")
    k, v = h.input("k", "n", "e"), h.input("v", "n", "f")
    end = f.smin(h.n, f.add(first, rows)) if t.causal else h.n
    with f.loop(0, end, h.plan.keys) as key:
        keys = f.smin(f.sub(end, key), h.plan.keys)
        h.products(fresh, k, key, "q", "scores", keys, h.e)
        h.prepare_pairs(first, rows, key, keys)
        with f.loop(0, f.mul(registers, tile.lanes), tile.lanes) as column:
            _powers(h, first, key, keys, column)
        call_tiles(
            f, add, v.at(f, key).turned(), h.by_query("scores"), h.by_query("out"), h.f_width, keys
        )
    _finish(h, first, rows, registers)
    h.give()
    f.ret()


def _at(h: Head, name: str, column: Value) -> str:
    return h.f.gep(h.scratch[name], column, h.tile.element)


def _powers(h: Head, first: Value, key: Value, keys: Value, column: Value) -> None:
    """exp(score - the largest so far), in the scores' place; what is summed follows a new largest
    one. Where all scores are -inf so far, the largest counts as 0."""
    f, lanes, tile = h.f, h.lanes, h.tile
    score = h.scores(first, key, column)
    scores = h.by_query("scores")
    old = f.load(_at(h, "peak", column), tile.vector, tile.bytes)
    loop = f.carry_loop(0, keys, 1, [(tile.vector, old)])
    place = scores.at(f, loop.index, column).base
    value = score(f.load(place, tile.vector, tile.bytes), loop.index)
    f.store(value, tile.vector, place, tile.bytes)
    (peak,) = loop.close([lanes.select(lanes.cmp("ogt", value, loop.values[0]), value,
                                       loop.values[0])])
    f.store(peak, tile.vector, _at(h, "peak", column), tile.bytes)
    away = lanes.select(lanes.cmp("oeq", peak, float("-inf")), 0.0, peak)
    shrunk = lanes.exp(lanes.sub(old, away))
    before = lanes.mul(f.load(_at(h, "total", column), tile.vector, tile.bytes), shrunk)
    thinned = h.thinned(first, key, column, 1.0)
    loop = f.carry_loop(0, keys, 1, [(tile.vector, before)])
    place = scores.at(f, loop.index, column).base
    power = lanes.exp(lanes.sub(f.load(place, tile.vector, tile.bytes), away))
    f.store(thinned(power, loop.index), tile.vector, place, tile.bytes)
    (total,) = loop.close([lanes.add(loop.values[0], power)])
    f.store(total, tile.vector, _at(h, "total", column), tile.bytes)
    _multiply(h, column, shrunk)


def _multiply(h: Head, column: Value, factor: str) -> None:
    """What is summed so far, times a factor per query."""
    f, tile = h.f, h.tile
    with f.loop(0, h.f_width) as row:
        place = h.by_query("out").at(f, row, column).base
        value = f.load(place, tile.vector, tile.bytes)
        f.store(h.lanes.mul(value, factor), tile.vector, place, tile.bytes)


def _finish(h: Head, first: Value, rows: Value, registers: Value) -> None:
    """Divide by the sums, and store."""
    f, lanes, tile = h.f, h.lanes, h.tile
    with f.loop(0, f.mul(registers, tile.lanes), tile.lanes) as column:
        total = f.load(_at(h, "total", column), tile.vector, tile.bytes)
        empty = lanes.cmp("oeq", total, 0.0)
        factor = lanes.div(1.0 / (1.0 - h.t.dropout), total)
        _multiply(h, column, lanes.select(empty, 0.0, factor))
        if "lse" in h.results:
            peak = f.load(_at(h, "peak", column), tile.vector, tile.bytes)
            lse = lanes.select(empty, float("inf"), lanes.add(peak, lanes.log(total)))
            f.store(lse, tile.vector, _at(h, "lse", column), tile.bytes)
    if "out" in h.results:
        h.scatter("out", "rows", h.matrix(h.results["out"], "m", "f").at(f, first), rows, h.f_width)
    if "lse" in h.results:
        into = h.matrix(h.results["lse"], "m", "f").at(f, first)
        copy(f, tile, Matrix(h.scratch["lse"], tile.bytes, 0), into, rows, 1)

