"""Attention's gradient: one b after the other, blocks of queries along blocks of keys.

Probabilities are made again from scores and their log-sum-exp. What is summed over keys has a
column per query; what is summed over queries is added up in the results themselves, block after
block of queries.
"""

from __future__ import annotations

from graphc.backends.llvm.attention_block import Head, clear, column_tiles, copy
from graphc.backends.llvm.attention_tile import Matrix, call_tiles, chosen_tile
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Module, Value
from graphc.ir.kernel import Attention, Kernel


def emit_gradient(
    module: Module, kernel: Kernel, t: Attention, tile: Tile, symbol: str
) -> None:
    """Defines @symbol.chunk, which does one b."""
    f = module.function(f"void @{symbol}.chunk(ptr %ctx, i64 %chunk)", "internal")
    h = Head(f, kernel, t, tile)
    h.arguments.names["b"] = "%chunk"
    h.take()
    for name, step, width in (("dk", "e", h.e), ("dv", "f", h.f_width)):
        if name in h.results:
            into = h.matrix(h.results[name], "n", step)
            with f.loop(0, h.n) as row:
                clear(f, into.at(f, row).base, width * tile.bytes)
    with f.loop(0, h.m, h.queries) as first:
        _block(h, first)
    h.give()
    f.ret()


def _block(h: Head, first: Value) -> None:
    """All that a block of queries adds to the results."""
    f, t, tile = h.f, h.t, h.tile
    rows = f.smin(f.sub(h.m, first), h.queries)
    registers = h.registers(rows)
    fresh, add = (chosen_tile(f, tile, registers, fresh) for fresh in (True, False))
    h.gather(h.input("q", "m", "e").at(f, first), rows, h.e, "q_rows", "q")
    h.gather(h.input("g", "m", "f").at(f, first), rows, h.f_width, "g_rows", "g")
    for name in ("lse", "slope"):
        to = Matrix(h.scratch[name], tile.bytes, 0)
        copy(f, tile, h.input(name, "m", "f").at(f, first), to, rows, 1)
    h.clear("dq", h.queries * h.padded(h.e))
    k, v = h.input("k", "n", "e"), h.input("v", "n", "f")
    end = f.smin(h.n, f.add(first, rows)) if t.causal else h.n
    with f.loop(0, end, h.plan.keys) as key:
        keys = f.smin(f.sub(end, key), h.plan.keys)
        h.products(fresh, k, key, "q", "p", keys, h.e)
        h.products(fresh, v, key, "g", "s", keys, h.f_width)
        h.prepare_pairs(first, rows, key, keys)
        with f.loop(0, f.mul(registers, tile.lanes), tile.lanes) as column:
            _probabilities(h, first, key, keys, column)
        _add_rows(h, "dv", "f", h.f_width, "p", "g_rows", key, keys, rows)
        _add_rows(h, "dk", "e", h.e, "s", "q_rows", key, keys, rows)
        if "dq" in h.results:
            left = k.at(f, key).turned()
            call_tiles(f, add, left, h.by_query("s"), h.by_query("dq"), h.e, keys)
    if "dq" in h.results:
        into = h.matrix(h.results["dq"], "m", "e").at(f, first)
        h.scatter("dq", "q_rows", into, rows, h.e)


def _probabilities(h: Head, first: Value, key: Value, keys: Value, column: Value) -> None:
    """Raw scores become probabilities p, and g @ v.T what scores' gradients are, scaled."""
    f, lanes, tile = h.f, h.lanes, h.tile
    score = h.scores(first, key, column)
    thinned = h.thinned(key, column, 1.0 / (1.0 - h.t.dropout))
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


def _add_rows(
    h: Head, name: str, step: str, width: int, left: str, right: str, key: Value, keys: Value,
    rows: Value,
) -> None:
    """What a block of queries adds to the gradient of a block of keys, or of values."""
    if name not in h.results:
        return
    f, tile = h.f, h.tile
    into = h.matrix(h.results[name], "n", step).at(f, key)
    b = Matrix(h.scratch[right], h.padded(width) * tile.bytes, tile.bytes)
    for first, symbol in column_tiles(f.module, tile, width):
        call_tiles(
            f, symbol, h.by_query(left), b.at(f, 0, first), into.at(f, 0, first), keys, rows
        )
