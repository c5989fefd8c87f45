"""Tensors of more than 2^31 elements: planned and emitted as others are, and a few blocks of their
grids run in memory of which hardly a page is there. The emulator reports a step of an index that
does not fit into an int, and an address outside of its buffer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from graphc.backends.cuda.backend import BACKEND
from graphc.backends.cuda.driver import pack
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import EmulatedError, Library, Schedule, Toolchain
from graphc.backends.cuda.source import Source, grid
from graphc.backends.cuda.statements import indices
from graphc.backends.cuda.templates import renders
from graphc.ir import dtypes, ops
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Launch, Store, leaves, walk
from graphc.ir.passes.lower.template_loops import as_loops

from ...ir import kernel_cases as cases

MANY = 1 << 31
WIDE = 65537, 32771  # rows, columns
WINDOW = {
    "window": (2, 2), "stride": (2, 2), "pad_low": (0, 0), "pad_high": (0, 0), "dilation": (1, 1),
}
CONV: dict[str, Any] = {
    "stride": (1, 1), "pad_low": (1, 1), "pad_high": (1, 1), "dilation": (1, 1), "groups": 1,
}
IMAGES = (11000, 4, 224, 224)
i64, u8, bf16 = dtypes.i64, dtypes.u8, dtypes.bf16


def total(*dims: int) -> Callable[[Any], Any]:
    return lambda x: ops.sum(x, dims=dims, keepdim=False)


def dot(a: Any, b: Any) -> Any:
    return ops.dot_general(a, b, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(0,))


LOOPS: dict[str, tuple[Any, ...]] = {
    "flat": (lambda x: ops.exp(x) + 1.0, (MANY + 5,)),
    "bytes": (lambda x: x + 1, (u8, (2 * MANY + 7,))),
    "rows and a bias": (lambda x, b: ops.relu(x + b), WIDE, WIDE[1:]),
    "permute": (lambda x: ops.permute(x, dims=(1, 0)) * 2.0, WIDE),
    "flip": (lambda x: ops.flip(x, dims=(0,)) * 2.0, (MANY + 5,)),
    "slice": (
        lambda x: ops.slice(x, starts=(1,), stops=(2 * MANY,), steps=(3,)) * 2.0, (2 * MANY + 8,),
    ),
    "as_strided": (  # few elements, far apart
        lambda x: ops.as_strided(x, size=(50000, 4), stride=(50000, 2), offset=7) * 2.0,
        (MANY + MANY // 2,),
    ),
    "pad": (
        lambda x: ops.pad(x * 2.0, low=(1, 2), high=(0, 1), interior=(1, 0), value=3.0), WIDE,
    ),
    "concat": (lambda x, y: ops.concat(x, y * 2.0, dim=1), WIDE, (65537, 5)),
    "sum": (total(0), (MANY + 5,)),
    "sum of rows": (total(1), WIDE),
    "sum of long rows": (total(1), (4, MANY // 2 + 9)),
    "sum of columns": (total(0), WIDE),
    "sum of tall columns": (total(0), (MANY // 4 + 9, 16)),
    "argmax": (lambda x: ops.argmax(x, dim=0, keepdim=False), (MANY + 5,)),
    "rows of a table": (
        lambda x, i: ops.index(x, i, dim=0), (MANY // 8 + 1, 16), (i64, (1000,))
    ),
    "many rows of a table": (
        lambda x, i: ops.index(x, i, dim=0) * 2.0, (1000, 4096), (i64, (MANY // 2048,))
    ),
    "gradient of a table": (
        lambda w, g, i: ops.index_put(w * 0.0, g, i, dim=0, accumulate=True),
        (1000, 1024), (MANY // 1024 + 5, 1024), (i64, (MANY // 1024 + 5,)),
    ),
    "index_put": (
        lambda x, g, i: ops.index_put(x, g, i, dim=0, accumulate=True),
        (MANY // 64 + 1, 128), (5000, 128), (i64, (5000,)),
    ),
    "scatter": (
        lambda x, i, g: ops.scatter(x, i, g, dim=1, reduce="add"),
        WIDE, (i64, (65537, 9)), (65537, 9),
    ),
    "cumsum": (lambda x: ops.cumsum(x, dim=0), (MANY + 5,)),
    "max_pool": (lambda x: ops.max_pool(x, **WINDOW), (70000, 3, 128, 128)),
}
TEMPLATES: dict[str, tuple[Any, ...]] = {
    "conv": (lambda x, w: ops.conv(x, w, **CONV), IMAGES, (8, 4, 3, 3)),
    "depthwise": (
        lambda x, w: ops.conv(x, w, **{**CONV, "groups": 4}), IMAGES, (4, 1, 3, 3)
    ),
    "product": (dot, (70000, 16), (16, 40000)),
    "product of halves": (dot, (bf16, (70000, 64)), (bf16, (64, 40000))),
    "product of a vector": (dot, (70000, 40000), (40000, 1)),
    "attention": (
        lambda q, k, v: ops.attention(q, k, v, causal=True, scale=0.5)[0],
        *[(bf16, (600000, 1, 64, 64))] * 3,
    ),
}
ALWAYS = ("flat", "rows and a bias", "as_strided", "sum of columns", "index_put")


def emitted(name: str) -> list[tuple[Launch, Source]]:
    function, *inputs = {**LOOPS, **TEMPLATES}[name]
    program = cases.compiled(cases.build(function, *inputs), machine=BACKEND.machine)
    steps = [step for step in leaves(program.steps) if isinstance(step, Launch)]
    assert steps
    return [(step, emit(step.kernel)) for step in steps]


@contextmanager
def placed(library: Library, sizes: list[int]) -> Iterator[list[int]]:
    """Memory of zeros, which is there where it is written."""
    places = [library.runtime.allocate(size) for size in sizes]
    try:
        yield places
    finally:
        for place in places:
            library.runtime.free(place)


def run_some(name: str, toolchain: Toolchain) -> None:
    """The first block of every stage, one in the middle, and the last."""
    launches = emitted(name)
    texts = dict.fromkeys(source.text for _, source in launches)
    library = toolchain.compile({f"text{n}": text for n, text in enumerate(texts)})
    for step, source in launches:
        kernel = step.kernel
        env = {dim: evaluate(size, {}) for dim, size in zip(kernel.dims, step.dims, strict=True)}
        sizes = [evaluate(p.size, env) * p.dtype.itemsize for p in kernel.params]
        more = [32, *[evaluate(source.scratch, env)] * (source.scratch != 0)]  # status words first
        with placed(library, sizes) as buffers, placed(library, more) as rest:
            words = [*buffers, *env.values(), *(evaluate(s, env) for s in source.sizes), *rest]
            packed = pack(f"{len(words)}q", words)
            for stage in source.stages:
                blocks = grid(stage, list(env.items()))
                for block in sorted({0, blocks // 2, blocks - 1}):
                    schedule = Schedule(block=block, accesses=1 << 24)
                    library.run(
                        stage.name, (blocks,), (stage.threads,), packed, stage.shared, schedule
                    )


@pytest.mark.parametrize("name", ALWAYS)
def test_indices_of_many_elements(name: str, toolchain: Toolchain) -> None:
    run_some(name, toolchain)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in (*LOOPS, *TEMPLATES) if name not in ALWAYS])
def test_more_of_many_elements(name: str, toolchain: Toolchain) -> None:
    run_some(name, toolchain)


@pytest.mark.parametrize("name", ["rows and a bias", "sum of columns"])
def test_too_narrow_an_index_is_seen(
    name: str, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indices, "MOST", 1 << 45)
    with pytest.raises(EmulatedError, match="overflows"):
        run_some(name, toolchain)


def test_places_of_a_long_sort(toolchain: Toolchain) -> None:
    """More than 2^31 updates of one place, in the order in which they come: the last of those that
    place them, after counts that are what they would be."""
    length = MANY + 5
    function = partial(ops.scatter, dim=0, reduce="add")
    graph = cases.build(function, (1000,), (i64, (length,)), (length,))
    (step,) = leaves(cases.compiled(graph, machine=BACKEND.machine).steps)
    assert isinstance(step, Launch)
    kernel, source = step.kernel, emit(step.kernel)
    numbers = BACKEND.machine.sorting
    assert numbers is not None
    chunks = -(-length // numbers.each)
    iterations = -(-chunks // numbers.lanes)
    first = (iterations - 1) * numbers.lanes  # chunk of the last iteration
    names = [param.name for param in kernel.params]
    stage = next(
        stage for stage, body in zip(source.stages, kernel.stages, strict=True)
        if any(isinstance(s, Store) and s.buffer == "s2" for s in walk.statements(body))
    )
    library = toolchain.compile({"sort": source.text})
    sizes = [evaluate(p.size, {}) * p.dtype.itemsize for p in kernel.params]
    with placed(library, [*sizes, 32]) as places:
        counts, found = (
            (ctypes.c_int64 * (sizes[at] // 8)).from_address(places[at])
            for at in (names.index("s0"), names.index("s2"))
        )
        for chunk in range(first, chunks):
            counts[chunk] = chunk * numbers.each
        library.run(
            stage.name, (iterations,), (stage.threads,), pack(f"{len(places)}q", places),
            stage.shared, Schedule(block=iterations - 1),
        )
        begin = first * numbers.each
        assert [found[at] for at in (begin - 1, begin, begin + 1, length - 1)] == [
            0, begin, begin + 1, length - 1,
        ]


@pytest.mark.slow
def test_a_plane_that_no_int_counts(toolchain: Toolchain) -> None:
    """Coordinates of a convolution's template are ints; a longer line is computed by loops."""
    line: dict[str, Any] = {
        "stride": (1,), "pad_low": (1,), "pad_high": (1,), "dilation": (1,), "groups": 1,
    }
    for length, by_template in ((1 << 20, True), (MANY + 8, False)):
        graph = cases.build(lambda x, w: ops.conv(x, w, **line), (1, 1, length), (1, 1, 3))
        (step,) = leaves(cases.compiled(graph, machine=BACKEND.machine).steps)
        assert isinstance(step, Launch) and step.kernel.template is not None
        assert renders(step.kernel.template) == by_template
    loops = as_loops(step.kernel, BACKEND.machine)
    source = emit(loops)
    library = toolchain.compile({"line": source.text})
    sizes = [evaluate(p.size, {}) * p.dtype.itemsize for p in loops.params]
    (stage,) = source.stages
    blocks = grid(stage, [])
    with placed(library, [*sizes, 32]) as places:
        x, w, y = (
            (ctypes.c_float * (size // 4)).from_address(place)
            for size, place in zip(sizes, places, strict=False)
        )
        w[:] = [1, 2, 4]
        x[MANY + 7] = x[MANY + 6] = 1
        library.run(
            stage.name, (blocks,), (stage.threads,), pack(f"{len(places)}q", places),
            stage.shared, Schedule(block=0),  # whose turn it is again at the end
        )
        assert (y[MANY + 6], y[MANY + 7]) == (6, 3)
