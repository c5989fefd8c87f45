"""Which loads ask memory ahead, and how far; what is asked for changes no value."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.prefetch import along, next_rows, written_next
from graphc.backends.llvm.target import Target, make_target
from graphc.ir.dim import Dim
from graphc.ir.kernel import Kernel, Loop

from .native import compare, kernel_of

WIDE = make_target(
    "x86_64-unknown-linux-gnu", features="+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"
)
ERF = """kernel k(a: f32[{size}] in, o: f32[{size}] out) dims ({dims}) {{
  stage {{
    vector v in [{size}] {{
      t0 = a[v]
      t1 = erf.f32(t0)
      store o[v] = t1
    }}
  }}
}}"""
ROWS = """kernel k(a: f32[{size}] in, {given}o: f32[{size}] out) dims ({dims}) {{
  stage {{
    parallel p in [{rows}] chunk [4] {{
      vector v in [{columns}] carry c: f32 = 0.0:f32 {{
        t0 = a[({columns}*p + v)]
        next c add t0
      }}
      vector v in [{columns}] carry d: f32 = 0.0:f32 {{
        t1 = a[({columns}*p + v)]
        t2 = {term}
        next d add t2
      }}
      vector v in [{columns}] {{
        t3 = a[({columns}*p + v)]
        {last}
        store o[({columns}*p + v)] = t
      }}
    }}
  }}
}}"""


def norm(rows: int, columns: int) -> str:
    """Rows that are gone along three times, with light work."""
    last = "t4 = w[v]\n t5 = mul.f32(t3, t4)\n t = sub.f32(t5, d)"
    return ROWS.format(
        size=rows * columns, rows=rows, columns=columns, dims="",
        given=f"w: f32[{columns}] in, ", term="sub.f32(t1, c)", last=last,
    )


def softmax(rows: int | str, columns: int | str) -> str:
    """The same with much work before the last time; where they are dims, `d1` rows of `d0`."""
    dims = "d0, d1" if isinstance(rows, str) else ""
    return ROWS.format(
        size=f"{rows}*{columns}", rows=rows, columns=columns, dims=dims,
        given="", term="exp.f32(t1)", last="t = mul.f32(t3, d)",
    )


def asked(kernel: Kernel) -> list[str]:
    """The getelementptrs of what a kernel asks for."""
    text = emit(kernel, WIDE).splitlines()
    return [
        before for before, line in itertools.pairwise(text)
        if "call void @llvm.prefetch" in line
    ]


@pytest.mark.parametrize(("size", "dims"), [("n", "n"), ("1000001", "")])
def test_loops_that_mask_every_vector_ask_a_kilobyte_ahead(size: str, dims: str) -> None:
    (place,) = asked(kernel_of(ERF.format(size=size, dims=dims)))
    assert place.endswith("i64 256")


def test_what_the_caches_hold_or_no_mask_is_on_is_not_asked_for() -> None:
    assert not asked(kernel_of(ERF.format(size=10001, dims="")))  # 40 kB
    assert not asked(kernel_of(ERF.format(size=1 << 20, dims="")))  # whole vectors


def test_the_second_time_through_a_row_asks_for_the_next_one() -> None:
    kernel = kernel_of(norm(4096, 1024))
    (rows,) = kernel.stages[0]
    assert isinstance(rows, Loop)
    second = rows.body[1]
    ((name, index), further), = next_rows(kernel, kernel.stages[0])[id(second)].items()
    assert (name, further) == ("a", 1024) and "1024*p" in str(index)
    assert list(next_rows(kernel, kernel.stages[0])) == [id(second)]
    places = asked(kernel)
    assert places and all(int(place.rsplit(" ", 1)[1]) >= 1024 for place in places)


@pytest.mark.parametrize(("rows", "columns"), [(64, 1024), (1 << 16, 64)])
def test_of_rows_in_the_caches_or_short_ones_nothing_is_asked(rows: int, columns: int) -> None:
    kernel = kernel_of(norm(rows, columns))
    assert next_rows(kernel, kernel.stages[0]) == {} and not asked(kernel)


def test_buffers_of_any_element_count_by_bytes() -> None:
    text = """kernel k(a: f64[n] in, b: bf16[n] in, c: u8[1000] in, o: f64[n] out) dims (n) {
      stage { vector v in [n] { store o[v] = a[v] } } }"""
    assert along(kernel_of(text)) == {"a": 128, "b": 512, "o": 128}


@pytest.mark.parametrize("count", [1, 15, 16, 17, 300, 1003])
def test_values_are_the_same(count: int) -> None:
    x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    for size, dims, given in ((str(count), "", ()), ("n", "n", (count,))):
        text = ERF.format(size=size, dims=dims)
        compare(text, [x, np.zeros(count, np.float32)], given, tolerance=1e-6)


def test_values_of_rows_are_the_same() -> None:
    rows, columns = 300, 1030  # above a megabyte
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, rows * columns).astype(np.float32)
    w = rng.integers(-4, 5, columns).astype(np.float32)
    compare(norm(rows, columns), [a, w, np.zeros(rows * columns, np.float32)])


AVX2 = make_target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx,+avx2,+fma,+f16c")


@pytest.mark.parametrize(
    ("target", "rows", "asks"), ((AVX2, 4096, True), (AVX2, 64, False), (WIDE, 4096, False))
)
def test_lines_of_a_row_are_asked_for_before_they_are_written(
    target: Target, rows: int, asks: bool
) -> None:
    """By the loop before the one that writes, where the row goes to memory."""
    kernel = kernel_of(norm(rows, 1024))
    (stage,) = kernel.stages
    found = written_next(kernel, stage, target)
    if not asks:
        assert not found
        return
    (rows_loop,) = (stmt for stmt in stage if isinstance(stmt, Loop))
    loops = [stmt for stmt in rows_loop.body if isinstance(stmt, Loop)]
    ((buffer, place),) = found[id(loops[1])]
    assert (buffer, str(place)) == ("o", str(Dim.var("p") * 1024 + Dim.var("v")))
    assert len(found) == 1
    # 64 lanes are four lines
    lines = [line for line in emit(kernel, target).splitlines() if "i32 1, i32 3, i32 1" in line]
    assert len(lines) == 4, lines


def test_lines_asked_for_are_written_as_without() -> None:
    text = norm(257, 1024)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(263168).astype("f4")
    w = rng.standard_normal(1024).astype("f4")
    compare(text, [x, w, np.zeros(263168, "f4")], tolerance=1e-3)


FAR = make_target(
    "x86_64-unknown-linux-gnu", "emeraldrapids",
    "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma",
)


def test_behind_much_work_lines_are_asked_for_where_the_third_cache_is_far() -> None:
    kernel = kernel_of(softmax(4096, 1024))
    assert len(written_next(kernel, kernel.stages[0], FAR)) == 1
    assert not written_next(kernel, kernel.stages[0], WIDE)
    light = kernel_of(norm(4096, 1024))
    assert not written_next(light, light.stages[0], FAR)
    text = emit(kernel, FAR)
    assert "i32 1, i32 3, i32 1" in text and "i32 0, i32 3, i32 1" in text
    # of a row that would fill the first cache, the second one takes the next
    assert "i32 0, i32 3, i32 1" not in emit(kernel_of(softmax(1024, 4096)), FAR)


def test_rows_of_a_size_that_is_not_known_are_asked_for_by_it() -> None:
    kernel = kernel_of(softmax("d1", "d0"))
    (rows,) = (stmt for stmt in kernel.stages[0] if isinstance(stmt, Loop))
    (further,) = next_rows(kernel, kernel.stages[0])[id(rows.body[1])].values()
    assert further == Dim.var("d0")
    rng = np.random.default_rng(0)
    for d1, d0 in ((5, 16), (3, 70), (1, 1), (33, 129)):
        x = rng.standard_normal(d0 * d1).astype("f4")
        compare(softmax("d1", "d0"), [x, np.zeros(d0 * d1, "f4")], (d0, d1), tolerance=1e-3)
