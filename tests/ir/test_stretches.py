"""An axis along which a kernel computes different things is walked stretch by stretch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.config import Config
from graphc.engine import pipeline
from graphc.ir import interpret, ops
from graphc.ir.dim import Dim, floordiv, mod, rejoined
from graphc.ir.graph import Graph
from graphc.ir.kernel import Apply, Kernel, Load, Loop, Param, Store
from graphc.ir.kernel.text import print_kernel
from graphc.ir.passes.plan.in_place import safe_in_place

from .kernel_cases import arrays, build, check, compiled, f32, kernels, only_kernel
from .machines import TINY, WIDE

QUIET = Config()._replace(cache_dir=None, check=0, threads=2, debug=0, dump=None)


def beside(x: Any, low: int, high: int) -> Any:
    """x among zeros along its last dim."""
    return ops.pad(x, low=(0, low), high=(0, high), interior=(0, 0), value=0.0)


def written(x: Any, y: Any, start: int) -> Any:
    """x with y written into its columns from `start` on."""
    stop = start + y.shape[1]
    return ops.slice_update(x, y, starts=(0, start), stops=(x.shape[0], stop), steps=(1, 1))


CASES: dict[str, tuple[Any, list[tuple[int, ...]], list[int]]] = {
    "concat": (lambda x, y: ops.concat(x, y, dim=1), [(40, 48), (40, 80)], [48, 80]),
    "concat of what is computed": (
        lambda x, y: ops.concat(ops.relu(x), x * y, y, dim=1), [(40, 64), (40, 64)], [64] * 3
    ),
    "short ones beside a long one": (
        lambda x, y: ops.concat(x, y, x, dim=1), [(40, 3), (40, 250)], [3, 250, 3]
    ),
    "sums of paddings": (
        lambda x, y: (beside(x * 2.0, 64, 16) + beside(y * y, 0, 112)) + beside(y, 32, 80),
        [(40, 64), (40, 32)], [32, 32, 64, 16],
    ),
    "an update": (lambda x, y: written(x, y * 2.0, 20), [(40, 96), (40, 60)], [20, 60, 16]),
    "one beside the other": (
        lambda x, y: ops.concat(written(x, y, 0), x, dim=1), [(40, 96), (40, 60)], [60, 36, 96]
    ),
}


ROWS: dict[str, tuple[Any, list[tuple[int, ...]], list[int]]] = {
    "short rows": (lambda x, y: ops.concat(x, y, dim=0), [(400, 3), (100, 3)], [1200, 300]),
    "of what is computed": (
        lambda x, y: ops.concat(x * y, ops.relu(x), y, dim=0), [(200, 5), (200, 5)], [1000] * 3
    ),
    "planes of few": (
        lambda x, y: ops.concat(x, y, dim=0), [(40, 3, 2), (60, 3, 2)], [240, 360]
    ),
    "within a batch": (
        lambda x, y: ops.concat(x, y, dim=1), [(6, 40, 3), (6, 60, 3)], [120, 180]
    ),
}


@pytest.mark.parametrize("case", ROWS)
def test_short_rows_are_walked_together(case: str) -> None:
    function, shapes, sizes = ROWS[case]
    text = print_kernel(only_kernel(function, *shapes))
    assert [f"v_{i} in [{size}]" in text for i, size in enumerate(sizes)] == [True] * len(sizes)
    assert " if " not in text and "where" not in text and "//" not in text and "%" not in text
    agrees(build(function, *shapes))


def test_other_rows_of_few() -> None:
    """What stretches do not decide, or whose places would be taken apart, stays in rows."""
    for function, shapes in (
        (lambda x: ops.pad(x, low=(40, 0), high=(20, 0), interior=(0, 0), value=0.0), [(60, 3)]),
        (lambda x, y: ops.concat(ops.permute(x, dims=(1, 0)), y, dim=0), [(3, 50), (70, 3)]),
        (lambda x, y: ops.concat(x, y, dim=0) * ops.concat(y, x, dim=0), [(50, 3), (70, 3)]),
        (lambda x, y: ops.concat(x, ops.expand(y, shape=(70, 3)), dim=0), [(50, 3), (1, 3)]),
        (lambda x, y: written(x, y, 1), [(60, 7), (60, 3)]),
        (lambda x, y: ops.concat(x, y, dim=0) + ops.concat(x, y, dim=0), [(1, 3), (2, 3)]),
    ):
        agrees(build(function, *shapes))


def rows_of_two(a: Any, b: Any) -> Any:
    return ops.reshape(ops.concat(a, b, dim=0), shape=(1, 2 * a.shape[0]))


def test_parts_of_parts_are_left_out_where_no_loop_comes() -> None:
    """Where the outer part was not known to end, no inner one was left: an error."""
    for size in (1, 2, 3, 16):
        agrees(build(
            lambda x, y: ops.concat(rows_of_two(x + 1.0, y), rows_of_two(y, x * y), dim=0),
            (size,), (size,),
        ))


@pytest.mark.parametrize("case", CASES)
def test_each_stretch_has_a_loop_without_conditions(case: str) -> None:
    function, shapes, sizes = CASES[case]
    text = print_kernel(only_kernel(function, *shapes))
    assert [f"v_{i} in [{size}]" in text for i, size in enumerate(sizes)] == [True] * len(sizes)
    assert text.count("vector ") == len(sizes) and " if " not in text and "where" not in text


@pytest.mark.parametrize("case", CASES)
def test_native_code(case: str) -> None:
    function, shapes, _ = CASES[case]
    agrees(build(function, *shapes))


def agrees(graph: Graph) -> None:
    inputs = arrays(graph)
    want = interpret.evaluate(graph, inputs, TABLE)
    got = [np.empty(x.shape, x.dtype) for x in want]
    pipeline.build(graph, config=QUIET).run(inputs, got)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_zeros_that_are_added_make_minus_zero_zero() -> None:
    """As they do where all is computed everywhere."""
    graph = build(lambda x, y: beside(x, 0, 32) + beside(y, 32, 0), (40, 32), (40, 32))
    nothing = np.full((40, 32), -0.0, np.float32)
    got = np.empty((40, 64), np.float32)
    pipeline.build(graph, config=QUIET).run([nothing, nothing], [got])
    assert not np.signbit(got).any()


def test_paddings_of_what_is_not_finite_are_zero() -> None:
    graph = build(lambda x: beside(x, 32, 32) * 0.5, (40, 32))
    got = np.empty((40, 96), np.float32)
    pipeline.build(graph, config=QUIET).run([np.full((40, 32), np.nan, np.float32)], [got])
    assert np.isnan(got[:, 32:64]).all() and not got[:, :32].any() and not got[:, 64:].any()


def test_a_serial_loop_has_stretches_too() -> None:
    """Panels of two weights one behind the other: rows are read where they are contiguous."""

    def panels(w: Any) -> Any:
        split = ops.reshape(w, shape=(8, 64, 128))
        return ops.permute(split, dims=(0, 2, 1))

    kernel = only_kernel(
        lambda x, y: ops.concat(panels(x), panels(y), dim=1), (512, 128), (512, 128)
    )
    text = print_kernel(kernel)
    assert "serial r0_0 in [128]" in text and "serial r0_1 in [128]" in text
    assert text.count("vector v in [64]") == 2 and " if " not in text


def test_pairs_are_walked_by_the_others_of_their_kind() -> None:
    """What is stored to every other place, rotary embeddings say, is walked along these places, not
    along the batch, of which each element lies in another line of memory."""

    def pairs(x: Any, y: Any) -> Any:
        def part(number: int) -> Any:
            return ops.slice(
                x, starts=(0, 0, number), stops=(8, 64, 64), steps=(1, 1, 2)
            )

        both = [ops.reshape(z, shape=(8, 64, 32, 1)) for z in (-part(1), part(0))]
        return x * y + ops.reshape(ops.concat(*both, dim=3), shape=(8, 64, 64)) * (y + 1.0)

    text = print_kernel(only_kernel(pairs, (8, 64, 64), (64, 64)))
    assert "vector v in [2048]" in text and "+ 2*v)] = " in text


@pytest.mark.parametrize(
    "sizes", [(3, 2), (2, 4), tuple([4] * 33)], ids=["short", "one", "many"]
)
def test_short_or_many_stretches_are_walked_as_one(sizes: tuple[int, ...]) -> None:
    shapes = [(40, size) for size in sizes]
    program = check(build(lambda *parts: ops.concat(*parts, dim=1), *shapes))
    (kernel,) = kernels(program)
    assert print_kernel(kernel).count("vector ") == 1


def around(x: Any, width: int) -> Any:
    """x and, around its last two dims, what lies on the other side."""
    for dim in (1, 2):
        size = x.shape[dim]
        first = ops.slice(x, starts=(0, 0, 0), stops=tuple(
            width if d == dim else s for d, s in enumerate(x.shape)
        ), steps=(1, 1, 1))
        last = ops.slice(x, starts=tuple(size - width if d == dim else 0 for d in range(3)),
                         stops=tuple(x.shape), steps=(1, 1, 1))
        x = ops.concat(last, x, first, dim=dim)
    return x


OUTER: dict[str, tuple[Any, list[tuple[int, ...]], int]] = {
    "rows": (lambda x, y: ops.concat(x, y, dim=0), [(64, 512), (35, 512)], 2),
    "rows of a few planes": (
        lambda x, y: ops.concat(x, y * 2.0, dim=1), [(3, 70, 300), (3, 1, 300)], 2
    ),
    "rows of many planes": (lambda x: around(x, 2), [(40, 30, 30)], 9),
    "rows of one plane": (lambda x: around(x, 3), [(1, 150, 150)], 9),
    "one line": (lambda x, y: ops.concat(x, y, x, dim=0), [(70000,), (5,)], 3),
    "a few lines": (lambda x, y: ops.concat(x, y, x, dim=1), [(2, 30000), (2, 5)], 3),
    "planes, then rows": (
        lambda x, y: ops.concat(around(x, 1), y, dim=0), [(2, 40, 40), (11, 42, 42)], 18
    ),
}


@pytest.mark.parametrize("case", OUTER)
def test_rows_have_stretches_too(case: str) -> None:
    """Of an axis that threads share, each goes along its part of each stretch."""
    function, shapes, loops = OUTER[case]
    text = print_kernel(only_kernel(function, *shapes))
    assert " if " not in text and "where" not in text and "parallel" in text
    assert text.count("vector ") <= loops
    agrees(build(function, *shapes))


@pytest.mark.parametrize("machine", [TINY, WIDE], ids=["tiny", "wide"])
@pytest.mark.parametrize("shapes", [
    [(7, 5), (9, 5)], [(2, 7, 5), (2, 9, 5)], [(13, 2, 7, 5), (13, 2, 9, 5)],
])
def test_rows_on_another_machine(shapes: list[tuple[int, ...]], machine: Any) -> None:
    dim = len(shapes[0]) - 2
    check(build(lambda x, y: ops.concat(x, y * 2.0, x, dim=dim), *shapes), machine=machine)


@pytest.mark.parametrize("machine", [TINY, WIDE], ids=["tiny", "wide"])
@pytest.mark.parametrize("case", CASES)
def test_on_another_machine(case: str, machine: Any) -> None:
    function, shapes, _ = CASES[case]
    check(build(function, *shapes), machine=machine)


def test_symbolic_sizes_have_no_stretches() -> None:
    graph = build(lambda x, y: ops.concat(x, y, dim=1), (40, 64), (40, 64))
    assert " if " not in print_kernel(kernels(compiled(graph))[0])
    n = Dim.var("n")
    graph = build(lambda x, y: ops.concat(x, y, dim=1), (40, n), (40, n), dims={"n": 64})
    assert print_kernel(kernels(compiled(graph))[0]).count("vector ") == 1


# --- in place --------------------------------------------------------------------------------


def test_an_update_is_made_in_place() -> None:
    kernel = only_kernel(lambda x, y: written(x, y * 2.0, 20), (40, 96), (40, 60))
    whole, part = ("a1", "a0") if kernel.params[0].size == 2400 else ("a0", "a1")
    assert safe_in_place(kernel, whole, "o0") and not safe_in_place(kernel, part, "o0")


def test_stretches_that_are_moved_are_not() -> None:
    """The first loop would write over what the second one reads."""
    kernel = only_kernel(
        lambda x: ops.concat(
            ops.slice(x, starts=(0, 48), stops=(40, 96), steps=(1, 1)),
            ops.slice(x, starts=(0, 0), stops=(40, 48), steps=(1, 1)), dim=1,
        ),
        (40, 96),
    )
    assert not safe_in_place(kernel, "a0", "o0")


@pytest.mark.parametrize(("start", "safe"), [(8, True), (7, False)])
def test_stretches_must_not_overlap(start: int, safe: bool) -> None:
    """A second loop over the same elements would read what the first one wrote."""
    def loop(var: str, start: int) -> Loop:
        at = Dim.var(var) + start
        stored = Store("o0", at, Apply("neg", (Load("a0", at, f32),), f32))
        return Loop("serial", var, 8, (stored,))

    params = (Param("a0", f32, 16, "in"), Param("o0", f32, 16, "out"))
    kernel = Kernel("k", params, (), ((loop("i", 0), loop("j", start)),))
    assert safe_in_place(kernel, "a0", "o0") is safe


def test_every_other_of_a_row_is_walked_without_divisions() -> None:
    def sliced(x: Any) -> Any:
        return ops.slice(x, starts=(0, 0), stops=(40, 96), steps=(1, 2)) * 2.0

    text = print_kernel(only_kernel(sliced, (40, 96)))
    assert "//" not in text and "%" not in text
    agrees(build(sliced, (40, 96)))


def test_parts_of_a_division_are_joined_again() -> None:
    v, n = Dim.var("v"), Dim.var("n")
    for value, joined in (
        (floordiv(v, 5) * 10 + mod(v, 5) * 2, v * 2), (floordiv(v, 5) * 5 + mod(v, 5) + n, v + n),
        (floordiv(v, 5) * 10 + mod(v, 5), None), (floordiv(v, 4) * 5 + mod(v, 5), None),
        (floordiv(v * 10 + n, 5) * 5 + mod(n, 5) + 3, v * 10 + n + 3), (mod(v, 5), None), (7, None),
    ):
        assert rejoined(value) == (value if joined is None else joined)
