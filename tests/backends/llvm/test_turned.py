"""Squares that are transposed in registers, against the interpreter."""

import numpy as np
import pytest

from graphc.backends.llvm import emit, turned
from graphc.backends.llvm.target import host_target, make_target
from graphc.ir import dtypes
from graphc.ir.kernel import Loop

from .native import compare, kernel_of

SHAPES = [  # planes, rows, columns, iterations in a chunk
    (1, 16, 16, 8), (1, 64, 100, 16), (3, 24, 40, 8), (2, 32, 37, 4), (5, 8, 29, 40),
    (4, 12, 35, 8), (6, 16, 3, 16), (1, 30, 50, 10),
]
BODIES = {
    "copy": "store o[p*{c} + v] = a[{at}]",
    "rows": "store o[p*{c} + v] = add.{d}(a[{at}], b[p])",
    "lanes": "store o[p*{c} + v] = mul.{d}(a[{at}], b[v])",
    "twice": "t0 = a[{at}]  store o[p*{c} + v] = mul.{d}(t0, add.{d}(t0, b[v]))",
}


def text_of(shape: tuple[int, int, int, int], dtype: str, body: str, back: bool = False) -> str:
    planes, rows, columns, chunk = shape
    at = f"{rows * columns}*i0 + i1 + " + (
        f"{rows * (columns - 1)} + {-rows}*v" if back else f"{rows}*v"
    )
    size, total = planes * rows * columns, planes * rows
    inside = BODIES[body].format(c=columns, d=dtype, at=at).replace("  ", "\n")
    return f"""kernel k(a: {dtype}[{size}] in, b: {dtype}[{total + columns}] in,
      o: {dtype}[{size}] out) dims () {{ stage {{ parallel p in [{total}] chunk [{chunk}] {{
        i0 = index[p // {rows}]
        i1 = index[p % {rows}]
        vector v in [{columns}] {{
          {inside}
        }} }} }} }}"""


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "i16", "u8", "bf16", "bool"])
@pytest.mark.parametrize("shape", SHAPES)
def test_copies(shape: tuple[int, int, int, int], dtype: str) -> None:
    kind = dtypes.by_name(dtype).numpy
    planes, rows, columns, _ = shape
    size = planes * rows * columns
    a = np.arange(size) % (2 if dtype == "bool" else 101)
    b = np.zeros(planes * rows + columns, kind)
    for back in (False, True):
        compare(text_of(shape, dtype, "copy", back), [a.astype(kind), b, np.zeros(size, kind)])


def open_text(dtype: str, body: str, pitch: str = "r") -> str:
    """Of sizes that are known when it runs: `r` and `c`, and rows of `m` elements."""
    inside = BODIES[body].format(c="c", d=dtype, at=f"p + v*{pitch}").replace("  ", "\n")
    return f"""kernel k(a: {dtype}[{pitch}*c] in, b: {dtype}[r + c] in, o: {dtype}[r*c] out)
      dims (r, c, m) {{ stage {{ parallel p in [r] chunk [32] {{ vector v in [c] {{
          {inside}
        }} }} }} }}"""


@pytest.mark.parametrize("dtype", ["f32", "f64", "i16", "bf16", "u8"])
@pytest.mark.parametrize("sizes", [
    (64, 64), (32, 16), (33, 17), (7, 40), (40, 7), (100, 35), (1, 1), (31, 64), (72, 15),
])
def test_sizes_that_are_known_late(sizes: tuple[int, int], dtype: str) -> None:
    kind = dtypes.by_name(dtype).numpy
    rows, columns = sizes
    pitch = rows + 5
    out, b = np.zeros(rows * columns, kind), (np.arange(rows + columns) % 7).astype(kind)
    whole, wide = (
        (np.arange(n * columns) % 101).astype(kind) for n in (rows, pitch)
    )
    compare(open_text(dtype, "copy"), [whole, b, out], (rows, columns, pitch))
    compare(open_text(dtype, "copy", "m"), [wide, b, out], (rows, columns, pitch))
    if dtype == "f32":
        for body in ("rows", "lanes", "twice"):
            compare(open_text(dtype, body), [whole, b, out], (rows, columns, pitch))
    taken = "shufflevector <" in emit.emit(kernel_of(open_text(dtype, "copy")), host_target())
    assert taken or dtype == "u8"


@pytest.mark.parametrize("body", [body for body in BODIES if body != "copy"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_what_else_is_computed(dtype: str, shape: tuple[int, int, int, int], body: str) -> None:
    kind = dtypes.by_name(dtype).numpy
    planes, rows, columns, _ = shape
    size = planes * rows * columns
    a, b = np.arange(size) % 101, np.arange(planes * rows + columns) % 7
    compare(text_of(shape, dtype, body), [a.astype(kind), b.astype(kind), np.zeros(size, kind)])


@pytest.mark.parametrize(("shape", "taken"), [
    ((1, 64, 128, 16), True), ((4, 24, 128, 8), True), ((4, 12, 128, 8), False),
    ((1, 66, 128, 11), False),
])
def test_where_iterations_are_neighbours(shape: tuple[int, int, int, int], taken: bool) -> None:
    """Of a plane whose rows are no multiple of those done at a time, some are not."""
    text = emit.emit(kernel_of(text_of(shape, "f32", "copy")), host_target())
    assert ("shufflevector <" in text) == taken


@pytest.mark.parametrize(("cpu", "rows"), [("emeraldrapids", 16), ("znver4", 8)])
def test_whole_lines_are_read_where_the_third_cache_is_far(cpu: str, rows: int) -> None:
    features = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"
    target = make_target("x86_64-unknown-linux-gnu", cpu, features)
    (stage,) = kernel_of(text_of((1, 64, 64, 16), "f32", "copy")).stages
    (loop,) = (stmt for stmt in stage if isinstance(stmt, Loop))
    found = turned.plan(loop, target, frozenset())
    assert found is not None and found.rows == rows
