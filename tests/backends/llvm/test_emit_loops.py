"""Loops: tails, reductions, columns, stages, threads; native against the interpreter."""

import numpy as np
import pytest

from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.target import host_target, make_target
from graphc.ir.kernel.text import kernel_symbol

from .native import Native, compare, kernel_of

RNG = np.random.default_rng(0)
SIZES = (1, 2, 3, 8, 15, 16, 17, 31, 33, 64, 100, 128, 129, 500, 784)


def floats(size: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(size).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
def test_pointwise_chain_of_every_length(size: int) -> None:
    text = f"""kernel k(a: f32[{size}] in, b: f32[{size}] in, o: f32[{size}] out) dims () {{
      stage {{ vector v in [{size}] {{
        t = add.f32(mul.f32(a[v], b[v]), 1.5:f32)
        store o[v] = relu.f32(t)
      }} }} }}"""
    compare(text, [floats(size), floats(size), np.zeros(size, "f4")])


@pytest.mark.parametrize("size", (2, 15, 16, 17, 300, 1000))
def test_symbolic_length_and_ragged_chunks(size: int) -> None:
    text = """kernel k(a: f32[n] in, o: f32[n] out) dims (n) {
      stage { parallel p in [(n + 63) // 64] chunk [2] { vector v in [min(64, n + -64*p)] {
        store o[64*p + v] = tanh.f32(a[64*p + v])
      } } } }"""
    compare(text, [floats(size), np.zeros(size, "f4")], (size,), 1e-6, threads=2)


@pytest.mark.parametrize("combine", ("add", "mul", "max", "min"))
@pytest.mark.parametrize("dtype", ("f32", "f64", "f16", "bf16", "i64", "i32", "u8"))
def test_row_reductions(combine: str, dtype: str) -> None:
    from graphc.ir import dtypes

    kind = dtypes.by_name(dtype)
    init = {"add": "3", "mul": "1", "max": "-5", "min": "9"}[combine]
    init = {"u8": init.lstrip("-")}.get(dtype, init) + (".0" if kind.is_float else "")
    for size in (1, 7, 16, 40, 300):
        text = f"""kernel k(a: {dtype}[{4 * size}] in, o: {dtype}[4] out) dims () {{
          stage {{ parallel p in [4] chunk [1] {{
            vector v in [{size}] carry c: {dtype} = {init}:{dtype} {{
              next c {combine} a[{size}*p + v]
            }}
            store o[p] = c
          }} }} }}"""
        if combine == "mul":
            x = np.where(RNG.random(4 * size) < 0.02, 2, 1).astype(kind.numpy)
        else:
            x = RNG.integers(0, 4, 4 * size).astype(kind.numpy)
        if kind.is_float and combine in ("max", "min"):
            x[size - 1] = np.nan
            x[2 * size] = np.inf
        # bf16 counts exactly to 256 only, and lanes add in another order
        compare(text, [x, np.zeros(4, kind.numpy)], tolerance=0.05 if dtype == "bf16" else 0.0)


def test_any_and_all() -> None:
    for combine, init in (("or", "false"), ("and", "true")):
        text = f"""kernel k(a: bool[120] in, o: bool[3] out) dims () {{
          stage {{ parallel p in [3] chunk [1] {{
            vector v in [40] carry c: bool = {init}:bool {{ next c {combine} a[40*p + v] }}
            store o[p] = c
          }} }} }}"""
        x = np.zeros(120, bool) if combine == "or" else np.ones(120, bool)
        x[55] = not x[55]
        compare(text, [x, np.zeros(3, bool)])


@pytest.mark.parametrize("which", ("argmax", "argmin"))
@pytest.mark.parametrize("dtype", ("f4", "f8", "i8", "i4"))
def test_arg_reductions_take_the_first(which: str, dtype: str) -> None:
    name = {"f4": "f32", "f8": "f64", "i8": "i64", "i4": "i32"}[dtype]
    low = (
        {"f": "-inf", "i": "-128"}[dtype[0]]
        if which == "argmax"
        else {"f": "inf", "i": "127"}[dtype[0]]
    )
    for size in (1, 5, 16, 50, 200):
        text = f"""kernel k(a: {name}[{5 * size}] in, o: i64[5] out, w: {name}[5] out) dims () {{
          stage {{ parallel p in [5] chunk [1] {{
            vector v in [{size}] carry m: {name} = {low}:{name}, i: i64 = 0:i64 {{
              next m {which} a[{size}*p + v]
              next i index index[v]
            }}
            store o[p] = i
            store w[p] = m
          }} }} }}"""
        x = RNG.integers(0, 3, 5 * size).astype(dtype)
        if dtype[0] == "f":
            x[size : 2 * size][size // 2 :: 3] = np.nan
            x[2 * size : 3 * size] = -np.inf if which == "argmax" else np.inf
        compare(text, [x, np.zeros(5, "i8"), np.zeros(5, dtype)])


def test_softmax_rows() -> None:
    text = """kernel k(a: f32[6400] in, o: f32[6400] out) dims () {
      stage { parallel p in [64] chunk [8] {
        vector v in [100] carry m: f32 = -inf:f32 { next m max a[100*p + v] }
        vector w in [100] carry s: f32 = 0.0:f32 { next s add exp.f32(sub.f32(a[100*p + w], m)) }
        vector x in [100] { store o[100*p + x] = div.f32(exp.f32(sub.f32(a[100*p + x], m)), s) }
      } } }"""
    compare(text, [floats(6400), np.zeros(6400, "f4")], tolerance=1e-6)


@pytest.mark.parametrize("columns", (5, 16, 100, 256))
def test_column_reduction(columns: int) -> None:
    text = f"""kernel k(a: f32[{30 * columns}] in, o: f32[{columns}] out) dims () {{
      stage {{ vector v in [{columns}] {{
        serial r in [30] carry c: f32 = 1.0:f32 {{ next c add a[{columns}*r + v] }}
        store o[v] = c
      }} }} }}"""
    compare(text, [floats(30 * columns), np.zeros(columns, "f4")], tolerance=1e-5)


def test_symbolic_rows_may_be_few() -> None:
    text = """kernel k(a: f32[n] in, o: f32[16] out) dims (n) {
      stage { vector v in [16] {
        serial r in [n // 16] carry c: f32 = 0.5:f32 { next c max a[16*r + v] }
        store o[v] = c
      } } }"""
    for size in (2, 16, 48):  # with 2 the loop does not run at all
        compare(text, [floats(size), np.zeros(16, "f4")], (size,))


def test_two_stages_with_partials() -> None:
    text = """kernel k(a: f32[10000] in, part: f32[10] scratch, o: f32[1] out) dims () {
      stage { parallel p in [10] chunk [1] {
        vector v in [1000] carry c: f32 = 0.0:f32 { next c add a[1000*p + v] }
        store part[p] = c
      } }
      stage {
        vector v in [10] carry t: f32 = 0.0:f32 { next t add part[v] }
        store o[0] = t
      } }"""
    x = [floats(10000), np.zeros(10, "f4"), np.zeros(1, "f4")]
    first = compare(text, x, tolerance=1e-4)
    for threads in (2, 5):
        again = compare(text, x, tolerance=1e-4, threads=threads)
        assert [a.tobytes() for a in again] == [a.tobytes() for a in first]


def test_set_carries_read_themselves() -> None:
    """A linear recurrence along rows, one lane a column."""
    text = """kernel k(a: f32[480] in, o: f32[480] out) dims () {
      stage { vector v in [48] {
        serial r in [10] carry h: f32 = 0.0:f32 {
          t = add.f32(mul.f32(h, 0.5:f32), a[48*r + v])
          store o[48*r + v] = t
          next h set t
        }
      } } }"""
    compare(text, [floats(480), np.zeros(480, "f4")])


def test_local_tile_is_read_after_it_is_written() -> None:
    text = """kernel k(a: f32[256] in, o: f32[256] out) dims () {
      stage { parallel p in [4] chunk [2] {
        local t: f32[64]
        vector v in [64] { store t[v] = mul.f32(a[64*p + v], 2.0:f32) }
        serial r in [2] { vector v in [64] { store t[v] = add.f32(t[v], 1.0:f32) } }
        vector v in [64] { store o[64*p + v] = t[63 + -1*v] }
      } } }"""
    compare(text, [floats(256), np.zeros(256, "f4")])


def test_invariants_leave_the_loop() -> None:
    """exp of a value of the row, used in an inner vector loop, is computed once a row."""
    text = """kernel k(a: f32[8] in, b: f32[800] in, o: f32[800] out) dims () {
      stage { parallel p in [8] chunk [1] { vector v in [96] {
        store o[100*p + v] = mul.f32(exp.f32(a[p]), b[100*p + v])
      } } } }"""
    inputs = [floats(8), floats(800), np.zeros(800, "f4")]
    compare(text, inputs, tolerance=1e-6)
    assembly = emit(kernel_of(text), host_target())
    body = assembly[assembly.index("body") :]
    assert "fma" in assembly and "llvm.fma" not in body


def test_bits_do_not_depend_on_threads() -> None:
    text = """kernel k(a: f32[99999] in, o: f32[99] out) dims () {
      stage { parallel p in [99] chunk [2] {
        vector v in [1010] carry c: f32 = 0.0:f32 { next c add a[1010*p + v] }
        store o[p] = c
      } } }""".replace("99999", str(99 * 1010))
    native = Native(kernel_of(text))
    x = floats(99 * 1010)
    results = []
    for threads in (1, 2, 5):
        o = np.zeros(99, "f4")
        native([x, o], threads=threads)
        results.append(o.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("features", ("+avx2,+fma,+f16c,+bmi,+bmi2", "+sse4.2"))
def test_targets_without_masks(features: str) -> None:
    host = host_target()
    if host.arch != "x86_64":
        pytest.skip("x86-64 code")
    target = make_target(host.triple, "x86-64", features)
    text = """kernel k(a: f32[n] in, b: bool[n] out, o: f32[1] out) dims (n) {
      stage { vector v in [n] carry c: f32 = 0.5:f32 {
        t = exp.f32(a[v])
        store b[v] = gt.bool(t, 1.0:f32)
        next c add t
      }
      store o[0] = c
      } }"""
    for size in (2, 8, 37, 100):
        inputs = [floats(size), np.zeros(size, bool), np.zeros(1, "f4")]
        compare(text, inputs, (size,), 1e-5, target=target)


@pytest.mark.parametrize("size, extent, lanes", [
    (64, "64", 16), (40, "40", 8), (37, "37", 16), (8, "8", 8), (61, "n", 8),
    (61, "min(n, 64)", 16),
])
def test_polynomials_go_side_by_side(size: int, extent: str, lanes: int) -> None:
    """By two registers of 32 bytes where a size, or a chunk's, is known."""
    host = host_target()
    if host.arch != "x86_64":
        pytest.skip("x86-64 code")
    target = make_target(host.triple, "x86-64", "+avx2,+fma,+f16c,+bmi,+bmi2")
    whole, dims = ("n", (size,)) if "n" in extent else (extent, ())
    text = f"""kernel k(a: f32[{whole}] in, o: f32[{whole}] out) dims ({"n" * len(dims)}) {{
      stage {{ vector v in [{extent}] {{ store o[v] = erf.f32(tanh.f32(exp.f32(a[v]))) }} }} }}"""
    found = emit(kernel_of(text), target)
    assert max(each for each in (8, 16, 32) if f"<{each} x float>" in found) == lanes
    compare(text, [floats(size), np.zeros(size, "f4")], dims, 1e-5, target=target)


def test_equal_bodies_are_one_kernel() -> None:
    text = """kernel NAME(a: f32[4] in, o: f32[4] out) dims () {
      stage { vector v in [4] { store o[v] = a[v] } } }"""
    one, two = (kernel_of(text.replace("NAME", name)) for name in ("one", "two"))
    assert kernel_symbol(one) == kernel_symbol(two)
    assert emit(one, host_target()) == emit(two, host_target())


@pytest.mark.parametrize("plane", (5, 16, 49, 100, 256))
def test_a_reduction_over_several_axes_combines_its_lanes_once(plane: int) -> None:
    text = f"""kernel k(
      a: f32[{18 * plane}] in, m: f32[3] in, o: f32[3] out, q: f32[3] out) dims () {{
      stage {{ parallel p in [3] chunk [2] {{
        serial r in [2] carry c: f32 = 1.0:f32, d: f32 = 2.0:f32 {{
          serial s in [3] carry e: f32 = 0.0:f32, f: f32 = -inf:f32 {{
            t = m[s]
            vector v in [{plane}] carry g: f32 = 0.0:f32, h: f32 = -inf:f32 {{
              x = a[{plane}*p + {9 * plane}*r + {3 * plane}*s + v]
              next g add mul.f32(x, t)
              next h max x
            }}
            next e add g
            next f max h
          }}
          next c add e
          next d max f
        }}
        store o[p] = c
        store q[p] = d
      }} }} }}"""
    inputs = [floats(18 * plane), floats(3), np.zeros(3, "f4"), np.zeros(3, "f4")]
    compare(text, inputs, tolerance=1e-4)
    shuffles = Native(kernel_of(text)).text.count("shufflevector")
    assert shuffles <= 2 * 2 * 7, "lanes were combined more than once"


@pytest.mark.parametrize(("size", "starts"), ((4, True), (1, False)))
def test_a_function_that_only_starts_chunks_is_not_optimised(size: int, starts: bool) -> None:
    """It runs once a call; its loops, where it has some, take all of the time."""
    text = f"""kernel k(a: f32[64] in, o: f32[64] out) dims () {{
      stage {{ parallel p in [{size}] chunk [1] {{ vector v in [16] {{
        store o[16*p + v] = tanh.f32(a[16*p + v])
      }} }} }} }}"""
    kernel = kernel_of(text)
    head = f"define void @{kernel_symbol(kernel)}(ptr %args, ptr %status)"
    (line,) = (each for each in emit(kernel, host_target()).splitlines() if each.startswith(head))
    assert ("optnone" in line) == starts


@pytest.mark.parametrize(("cpu", "body", "half"), [
    ("znver4", "add.f32(a[v], b[v])", True), ("znver5", "add.f32(a[v], b[v])", False),
    ("znver4", "exp.f32(a[v])", False),
    ("znver4", "where.f32(lt.bool(a[v], b[v]), a[v], b[v])", True),
])
def test_what_waits_for_memory_fills_half_of_each_register(cpu: str, body: str, half: bool) -> None:
    """Of a CPU that computes registers in two halves."""
    kernel = kernel_of(f"""kernel k(a: f32[n] in, b: f32[n] in, o: f32[n] out) dims (n) {{
      stage {{ parallel p in [n // 1024] {{ vector v in [1024] {{
        store o[v + p*1024] = {body.replace('[v]', '[v + p*1024]')}
      }} }} }} }}""")
    features = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"
    target = make_target("x86_64-unknown-linux-gnu", cpu, features)
    assert ('"prefer-vector-width"="256"' in emit(kernel, target)) == half
