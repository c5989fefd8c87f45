"""Attention's gradient: blocks of queries along blocks of keys.

Probabilities are made again from scores and their log-sum-exp. What is summed over keys has a
column per query; what is summed over queries is added up in the results themselves, block after
block of queries.

A chunk is one b. Where there are too few of them (`plan_attention.shared_sums`), it is a block
of keys, whose dk and dv it sums over all queries, or a block of queries, whose dq it sums over all
keys: scores are then made twice. Every sum goes in the same order either way.
"""

from __future__ import annotations

from collections.abc import Container

from graphc.backends.llvm.attention_block import Head, choose, clear, column_tiles, copy
from graphc.backends.llvm.attention_tile import Matrix, call_tiles, chosen_tile
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_kernel import WORKERS
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.dim import ceil_div
from graphc.ir.kernel import Attention, Kernel
from graphc.ir.kernel.plan_attention import plan_attention, shared_sums
from graphc.ir.record import record

_OF_KEYS, _OF_QUERIES = ("dk", "dv"), ("dq",)


def emit_gradient(
    module: Module, kernel: Kernel, t: Attention, tile: Tile, symbol: str
) -> None:
    """Defines @symbol.chunk, which does one b, and @symbol.block, which does one block."""
    f = module.function(f"void @{symbol}.chunk(ptr %ctx, i64 %chunk)", "internal")
    h = Head(f, kernel, t, tile)
    h.arguments.names["b"] = "%chunk"
    h.take()
    clear_rows(h, 0, h.n)
    with f.loop(0, h.m, h.queries) as first:
        _along_keys(h, _Queries.gathered(h, first), h.results)
    h.give()
    f.ret()
    _emit_one_block(module, kernel, t, tile, symbol)


def gradient_chunks(
    f: Function, arguments: Arguments, t: Attention, tile: Tile, symbol: str
) -> tuple[str, Value]:
    """The function of a chunk, and how many there are."""
    plan = plan_attention(t, tile.machine)
    assert plan is not None
    batch = arguments.size(t.batch)
    blocks = f.mul(batch, _blocks(arguments, t, plan.queries, plan.keys)[1])
    workers = f.load(f.gep("%status", WORKERS, "i64"), "i64", 8)
    # of the worker that has most to do: all of some b, or its part of all that blocks sum
    together, apart = shared_sums(t)
    rounds = f.sdiv(f.sub(f.add(batch, workers), 1), workers)
    shared = f.cmp("sgt", f.mul(f.mul(rounds, workers), together), f.mul(batch, apart))
    chunk = f.let(f"select i1 {shared}, ptr @{symbol}.block, ptr @{symbol}.chunk")
    return chunk, choose(f, shared, blocks, batch)


def _blocks(arguments: Arguments, t: Attention, queries: int, keys: int) -> tuple[Value, Value]:
    """Of one b: blocks of keys that have results, and blocks of both kinds."""
    wanted = dict(t.results)
    of_keys = any(name in wanted for name in _OF_KEYS)
    of_queries = any(name in wanted for name in _OF_QUERIES)
    first = arguments.size(ceil_div(t.n, keys)) if of_keys else 0
    second = arguments.size(ceil_div(t.m, queries)) if of_queries else 0
    return first, arguments.f.add(first, second)


def _emit_one_block(
    module: Module, kernel: Kernel, t: Attention, tile: Tile, symbol: str
) -> None:
    f = module.function(f"void @{symbol}.block(ptr %ctx, i64 %chunk)", "internal")
    h = Head(f, kernel, t, tile)
    of_keys, blocks = _blocks(h.arguments, t, h.queries, h.plan.keys)
    h.arguments.names["b"] = f.floordiv("%chunk", blocks)
    number = f.mod("%chunk", blocks)
    h.take()
    with f.when(f.cmp("slt", number, of_keys)):
        _along_queries(h, f.mul(number, h.plan.keys))
    with f.when(f.cmp("sge", number, of_keys)):
        first = f.mul(f.sub(number, of_keys), h.queries)
        _along_keys(h, _Queries.gathered(h, first), _OF_QUERIES)
    h.give()
    f.ret()


def clear_rows(h: Head, key: Value, keys: Value) -> None:
    """Zeros, to which blocks of queries add."""
    f = h.f
    for name, step, width in (("dk", "e", h.e), ("dv", "f", h.f_width)):
        if name in h.results:
            into = h.matrix(h.results[name], "n", step).at(f, key)
            with f.loop(0, keys) as row:
                clear(f, into.at(f, row).base, width * h.tile.bytes)


@record
class _Queries:
    """A block of queries, which is in scratch."""

    first: Value
    rows: Value
    registers: Value
    fresh: str  # tiles of this many registers: these store a product,
    add: str  # these add it
    end: Value  # of the keys that some of the queries see

    @classmethod
    def gathered(cls, h: Head, first: Value) -> _Queries:
        f, tile = h.f, h.tile
        rows = f.smin(f.sub(h.m, first), h.queries)
        registers = h.registers(rows)
        fresh, add = (chosen_tile(f, tile, registers, fresh) for fresh in (True, False))
        h.gather(h.input("q", "m", "e").at(f, first), rows, h.e, "q_rows", "q")
        h.gather(h.input("g", "m", "f").at(f, first), rows, h.f_width, "g_rows", "g")
        for name in ("lse", "slope"):
            to = Matrix(h.scratch[name], tile.bytes, 0)
            h.clear(name, h.queries)
            copy(f, tile, h.input(name, "m", "f").at(f, first), to, rows, 1)
        end = f.smin(h.n, f.add(first, rows)) if h.t.causal else h.n
        return cls(first, rows, registers, fresh, add, end)


def _along_keys(h: Head, queries: _Queries, wanted: Container[str]) -> None:
    """A block of queries along all keys: its dq, and what it adds to dk and dv."""
    f = h.f
    of_queries = "dq" in h.results and "dq" in wanted
    if of_queries:
        h.clear("dq", h.queries * h.padded(h.e))
    k = h.input("k", "n", "e")
    with f.loop(0, queries.end, h.plan.keys) as key:
        keys = f.smin(f.sub(queries.end, key), h.plan.keys)
        _scores(h, queries, key, keys)
        if "dk" in wanted or "dv" in wanted:
            _add_to_keys(h, queries, key, keys)
        if of_queries:
            left = k.at(f, key).turned()
            call_tiles(f, queries.add, left, h.by_query("s"), h.by_query("dq"), h.e, keys)
    if of_queries:
        into = h.matrix(h.results["dq"], "m", "e").at(f, queries.first)
        h.scatter("dq", "q_rows", into, queries.rows, h.e)


def _along_queries(h: Head, key: Value) -> None:
    """A block of keys along all queries that may see it: its dk and dv."""
    f = h.f
    clear_rows(h, key, f.smin(f.sub(h.n, key), h.plan.keys))
    start = f.mul(f.floordiv(key, h.queries), h.queries) if h.t.causal else 0
    with f.loop(start, h.m, h.queries) as first:
        queries = _Queries.gathered(h, first)
        keys = f.smin(f.sub(queries.end, key), h.plan.keys)
        with f.when(f.cmp("sgt", keys, 0)):
            _scores(h, queries, key, keys)
            _add_to_keys(h, queries, key, keys)


def _scores(h: Head, queries: _Queries, key: Value, keys: Value) -> None:
    """Probabilities p and the scores' gradients s of a block of queries and one of keys."""
    f, tile = h.f, h.tile
    k, v = h.input("k", "n", "e"), h.input("v", "n", "f")
    h.products(queries.fresh, k, key, "q", "p", keys, h.e)
    h.products(queries.fresh, v, key, "g", "s", keys, h.f_width)
    h.prepare_pairs(queries.first, queries.rows, key, keys)
    with f.loop(0, f.mul(queries.registers, tile.lanes), tile.lanes) as column:
        _probabilities(h, queries.first, key, keys, column)


def _probabilities(h: Head, first: Value, key: Value, keys: Value, column: Value) -> None:
    """Raw scores become probabilities p, and g @ v.T what scores' gradients are, scaled."""
    f, lanes, tile = h.f, h.lanes, h.tile
    score = h.scores(first, key, column)
    thinned = h.thinned(first, key, column, 1.0 / (1.0 - h.t.dropout))
    lse, slope = (
        f.load(f.gep(h.scratch[name], column, tile.element), tile.vector, tile.bytes)
        for name in ("lse", "slope")
    )
    with f.loop(0, keys) as at:
        places = [h.by_query(name).at(f, at, column).base for name in ("p", "s")]
        raw, rise = (f.load(place, tile.vector, tile.bytes) for place in places)
        p = lanes.exp(lanes.sub(score(raw, at), lse))
        s = lanes.mul(lanes.mul(p, lanes.sub(thinned(rise, at), slope)), h.t.scale)
        for value, place in zip((thinned(p, at), s), places, strict=True):
            f.store(value, tile.vector, place, tile.bytes)


def _add_to_keys(h: Head, queries: _Queries, key: Value, keys: Value) -> None:
    """What a block of queries adds to dk and dv of a block of keys."""
    p, s = (h.by_query(name) for name in ("p", "s"))
    add_rows(h, "dv", "f", h.f_width, p, "g_rows", key, keys, queries.rows)
    add_rows(h, "dk", "e", h.e, s, "q_rows", key, keys, queries.rows)


def add_rows(
    h: Head, name: str, step: str, width: int, left: Matrix, right: str, key: Value, keys: Value,
    rows: Value,
) -> None:
    """What queries, which are the steps of `left`, add to the gradient of a block of keys, or of
    values."""
    if name not in h.results:
        return
    f, tile = h.f, h.tile
    into = h.matrix(h.results[name], "n", step).at(f, key)
    b = Matrix(h.scratch[right], h.padded(width) * tile.bytes, tile.bytes)
    for first, symbol in column_tiles(f.module, tile, width):
        call_tiles(
            f, symbol, left, b.at(f, 0, first), into.at(f, 0, first), keys, rows
        )
