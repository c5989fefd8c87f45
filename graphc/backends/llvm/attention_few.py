"""Attention of a few queries (decoding: one), and its gradient: vectors go along keys, and along
the width of heads. A chunk is one b."""

from __future__ import annotations

from collections.abc import Callable

from graphc.backends.llvm.attention_block import Head, clear, copy
from graphc.backends.llvm.attention_grad import add_rows, clear_rows
from graphc.backends.llvm.attention_rows import dots, rows_of, weighted_sum
from graphc.backends.llvm.attention_tile import Matrix
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Module, Value
from graphc.ir.kernel import Attention, Kernel


def emit_few(module: Module, kernel: Kernel, t: Attention, tile: Tile, symbol: str) -> None:
    """Defines @symbol.chunk, which does one b."""
    f = module.function(f"void @{symbol}.chunk(ptr %ctx, i64 %chunk)", "internal")
    h = Head(f, kernel, t, tile)
    h.arguments.names["b"] = "%chunk"
    h.take()
    _rows(h, "q", "e", h.e)
    if t.kind == "attention":
        _forward(h)
    else:
        _gradient(h)
    h.give()
    f.ret()


def _rows(h: Head, name: str, step: str, width: int) -> None:
    """Queries, or their results' gradients, to scratch."""
    into = Matrix(h.scratch[name], h.padded(width) * h.tile.bytes, h.tile.bytes)
    copy(h.f, h.tile, h.input(name, "m", step), into, h.m, width)


def _forward(h: Head) -> None:
    f, tile = h.f, h.tile
    h.clear("out", h.queries * h.padded(h.f_width))
    h.clear("total", h.queries * tile.lanes)
    with f.loop(0, h.queries) as query:
        f.store(h.lanes.const(float("-inf")), tile.vector, _vector(h, "peak", query), tile.bytes)
    end = f.smin(h.n, h.m) if h.t.causal else h.n
    with f.loop(0, end, h.plan.keys) as key:
        keys = f.smin(f.sub(end, key), h.plan.keys)
        k, v = (rows_of(h, name, key, keys) for name in ("k", "v"))
        h.prepare_rows(key, keys)
        with f.loop(0, h.m) as query:
            scores = _row(h, "scores", query, h.plan.keys)
            dots(h, _row(h, "q", query, h.padded(h.e)), k, keys, scores, h.e)
            shrunk = _powers(h, query, key, keys, scores)
            into = _row(h, "out", query, h.padded(h.f_width))
            weighted_sum(h, scores, v, keys, into, h.f_width, shrunk)
    with f.loop(0, h.m) as query:
        _finish(h, query)
    if "out" in h.results:
        rows = Matrix(h.scratch["out"], h.padded(h.f_width) * tile.bytes, tile.bytes)
        copy(f, tile, rows, h.matrix(h.results["out"], "m", "f"), h.m, h.f_width)
    if "lse" in h.results:
        rows = Matrix(h.scratch["lse"], tile.bytes, 0)
        copy(f, tile, rows, h.matrix(h.results["lse"], "m", "f"), h.m, 1)


def _row(h: Head, name: str, query: Value, elements: int) -> str:
    return h.f.gep(h.scratch[name], h.f.mul(query, elements), h.tile.element)


def _vector(h: Head, name: str, query: Value) -> str:
    """A register of a query."""
    return _row(h, name, query, h.tile.lanes)


def _scores(h: Head, query: Value, key: Value, keys: Value) -> Callable[[str, Value], str]:
    """A function: the raw products of a query with key + at, a lane each -> scores."""
    f, lanes = h.f, h.lanes
    mask = h.pairs.get("mask")
    added = mask.along_keys(query) if mask is not None else None
    # where a key is beyond the block's, or the query does not see it
    end = f.smin(keys, f.sub(f.add(query, 1), key)) if h.t.causal else keys
    ends = h.splat_number(end)

    def found(raw: str, at: Value) -> str:
        score = lanes.mul(raw, lanes.const(h.t.scale))
        if mask is not None and added is not None:
            score = mask.added(score, added(at))
        inside = f.let(f"icmp slt {lanes.itype} {h.counted(at)}, {ends}")
        return lanes.select(inside, score, float("-inf"))

    return found


def _powers(h: Head, query: Value, key: Value, keys: Value, scores: str) -> str:
    """exp(score - the largest so far), in the scores' place; the factor, in all lanes, for what was
    summed before. Where all scores are -inf so far, the largest counts as 0."""
    f, lanes, tile = h.f, h.lanes, h.tile
    score = _scores(h, query, key, keys)

    def place(at: Value) -> str:
        return f.gep(scores, at, tile.element)

    old = f.load(_vector(h, "peak", query), tile.vector, tile.bytes)
    loop = f.carry_loop(0, keys, tile.lanes, [(tile.vector, old)])
    value = score(f.load(place(loop.index), tile.vector, tile.bytes), loop.index)
    f.store(value, tile.vector, place(loop.index), tile.bytes)
    (peak,) = loop.close([_larger(h, value, loop.values[0])])
    peak = _in_all_lanes(h, peak, _larger)
    f.store(peak, tile.vector, _vector(h, "peak", query), tile.bytes)
    away = lanes.select(lanes.cmp("oeq", peak, float("-inf")), 0.0, peak)
    shrunk = lanes.exp(lanes.sub(old, away))
    total = _vector(h, "total", query)
    before = lanes.mul(f.load(total, tile.vector, tile.bytes), shrunk)
    thinned = h.thinned_along_keys(query, key, 1.0)
    loop = f.carry_loop(0, keys, tile.lanes, [(tile.vector, before)])
    power = lanes.exp(lanes.sub(f.load(place(loop.index), tile.vector, tile.bytes), away))
    f.store(thinned(power, loop.index), tile.vector, place(loop.index), tile.bytes)
    (after,) = loop.close([lanes.add(loop.values[0], power)])
    f.store(after, tile.vector, total, tile.bytes)
    return shrunk


def _larger(h: Head, a: str, b: str) -> str:
    return h.lanes.select(h.lanes.cmp("ogt", a, b), a, b)


def _sum(h: Head, a: str, b: str) -> str:
    return h.lanes.add(a, b)


def _in_all_lanes(h: Head, value: str, combine: Callable[[Head, str, str], str]) -> str:
    """What all lanes are together, halves with halves, in each of them."""
    tile, distance = h.tile, h.tile.lanes // 2
    while distance:
        order = ", ".join(f"i32 {lane ^ distance}" for lane in range(tile.lanes))
        other = h.f.let(
            f"shufflevector {tile.vector} {value}, {tile.vector} poison, <{tile.lanes} x i32> "
            f"<{order}>"
        )
        value = combine(h, value, other)
        distance //= 2
    return value


def _finish(h: Head, query: Value) -> None:
    """Divide by the sum; the sum's log."""
    f, lanes, tile = h.f, h.lanes, h.tile
    total = f.load(_vector(h, "total", query), tile.vector, tile.bytes)
    total = _in_all_lanes(h, total, _sum)
    empty = lanes.cmp("oeq", total, 0.0)
    factor = lanes.select(empty, 0.0, lanes.div(1.0 / (1.0 - h.t.dropout), total))
    row = _row(h, "out", query, h.padded(h.f_width))
    with f.loop(0, h.f_width, tile.lanes) as column:
        place = f.gep(row, column, tile.element)
        value = f.load(place, tile.vector, tile.bytes)
        f.store(lanes.mul(value, factor), tile.vector, place, tile.bytes)
    peak = f.load(_vector(h, "peak", query), tile.vector, tile.bytes)
    lse = lanes.select(empty, float("inf"), lanes.add(peak, lanes.log(total)))
    first = f.let(f"extractelement {tile.vector} {lse}, i64 0")
    f.store(first, tile.element, f.gep(h.scratch["lse"], query, tile.element), tile.bytes)


def _gradient(h: Head) -> None:
    f, tile = h.f, h.tile
    _rows(h, "g", "f", h.f_width)
    for name in ("lse", "slope"):
        copy(f, tile, h.input(name, "m", "f"), Matrix(h.scratch[name], tile.bytes, 0), h.m, 1)
    clear_rows(h, 0, h.n)
    clear(f, h.scratch["dq"], h.queries * h.padded(h.e) * tile.bytes)
    end = f.smin(h.n, h.m) if h.t.causal else h.n
    with f.loop(0, end, h.plan.keys) as key:
        keys = f.smin(f.sub(end, key), h.plan.keys)
        k, v = (rows_of(h, name, key, keys) for name in ("k", "v"))
        h.prepare_rows(key, keys)
        with f.loop(0, h.m) as query:
            p, s = (_row(h, name, query, h.plan.keys) for name in ("p", "s"))
            dots(h, _row(h, "q", query, h.padded(h.e)), k, keys, p, h.e)
            dots(h, _row(h, "g", query, h.padded(h.f_width)), v, keys, s, h.f_width)
            _probabilities(h, query, key, keys, p, s)
            if "dq" in h.results:
                weighted_sum(h, s, k, keys, _row(h, "dq", query, h.padded(h.e)), h.e)
        for name, step, width, left, right in (
            ("dv", "f", h.f_width, "p", "g"), ("dk", "e", h.e, "s", "q")
        ):
            by_key = Matrix(h.scratch[left], tile.bytes, h.plan.keys * tile.bytes)
            add_rows(h, name, step, width, by_key, right, key, keys, h.m)
    if "dq" in h.results:
        rows = Matrix(h.scratch["dq"], h.padded(h.e) * tile.bytes, tile.bytes)
        copy(f, tile, rows, h.matrix(h.results["dq"], "m", "e"), h.m, h.e)


def _probabilities(h: Head, query: Value, key: Value, keys: Value, p: str, s: str) -> None:
    """Raw scores become probabilities p, and g @ v.T what scores' gradients are, scaled."""
    f, lanes, tile = h.f, h.lanes, h.tile
    score = _scores(h, query, key, keys)
    thinned = h.thinned_along_keys(query, key, 1.0 / (1.0 - h.t.dropout))
    lse, slope = (
        lanes.splat(f.load(f.gep(h.scratch[name], query, tile.element), tile.element, tile.bytes))
        for name in ("lse", "slope")
    )
    with f.loop(0, keys, tile.lanes) as at:
        places = [f.gep(row, at, tile.element) for row in (p, s)]
        raw, rise = (f.load(place, tile.vector, tile.bytes) for place in places)
        power = lanes.exp(lanes.sub(score(raw, at), lse))
        found = lanes.mul(lanes.mul(power, lanes.sub(thinned(rise, at), slope)), h.t.scale)
        for value, place in zip((thinned(power, at), found), places, strict=True):
            f.store(value, tile.vector, place, tile.bytes)
