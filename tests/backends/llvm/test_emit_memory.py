"""Loads and stores of every pattern, masks, checks and element types, against the interpreter."""

import numpy as np
import pytest

from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.target import make_target
from graphc.backends.llvm.values import memory_type
from graphc.ir import dtypes

from .native import Native, compare, kernel_of

RNG = np.random.default_rng(1)


def values(size: int, dtype: str = "f32") -> np.ndarray:
    kind = dtypes.by_name(dtype).numpy
    return RNG.integers(0, 2 if dtype == "bool" else 100, size).astype(kind)


def zeros(size: int, dtype: str = "f32") -> np.ndarray:
    return np.zeros(size, dtypes.by_name(dtype).numpy)


EVERY = [d.name for d in dtypes.ALL]


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize(
    "index", ("v", "2*v", "3*v", "99 + -1*v", "v // 4", "v % 7", "v*0", "(v*37) % 100")
)
def test_loads(dtype: str, index: str) -> None:
    for size in (1, 16, 27, 80):
        index = index if index != "3*v" else "3*v + 1"
        text = f"""kernel k(a: {dtype}[300] in, o: {dtype}[{size}] out) dims () {{
          stage {{ vector v in [{size}] {{ store o[v] = a[{index}] }} }} }}"""
        compare(text, [values(300, dtype), zeros(size, dtype)])


@pytest.mark.parametrize("unit", (2, 3))
def test_division_of_negative_numbers_rounds_down(unit: int) -> None:
    for size in (1, 16, 27):
        for index in (f"(-v % {unit}) + {unit}*(-v // {unit})", f"-v // {unit}", f"-v % {unit}"):
            text = f"""kernel k(a: f32[300] in, o: f32[{size}] out) dims () {{
              stage {{ vector v in [{size}] {{ store o[v] = a[100 + {index}] }} }} }}"""
            compare(text, [values(300), zeros(size)])


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("index", ("v", "2*v", "2*v + 1", "3*v", "v + 2", "(v*37) % 100"))
def test_stores(dtype: str, index: str) -> None:
    for size in (1, 16, 27, 80):
        text = f"""kernel k(a: {dtype}[{size}] in, o: {dtype}[300] out) dims () {{
          stage {{ vector v in [{size}] {{ store o[{index}] = a[v] }} }} }}"""
        compare(text, [values(size, dtype), values(300, dtype)])


@pytest.mark.parametrize("dtype", ("f32", "f64", "i64"))
def test_every_other_element_is_stored_and_no_more(dtype: str) -> None:
    """What lies between keeps its values, and the last one is the last of the memory."""
    for size in (1, 2, 15, 16, 17, 27, 80):
        text = f"""kernel k(a: {dtype}[{size}] in, m: bool[{size}] in,
          o: {dtype}[{2 * size - 1}] inout, p: {dtype}[{2 * size - 1}] inout) dims () {{
          stage {{ vector v in [{size}] {{
            store o[2*v] = a[v] if m[v]
            store p[2*v] = a[v]
          }} }} }}"""
        between = [values(2 * size - 1, dtype) for _ in range(2)]
        compare(text, [values(size, dtype), values(size, "bool"), *between])


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("index", ("v + -3", "2*v + -3", "(v + -3) // 2"))
def test_masked_loads_never_touch_what_the_mask_hides(dtype: str, index: str) -> None:
    other = {"bool": "true", "f": "7.0", "b": "7.0"}.get(
        dtype, {"f": "7.0", "b": "7.0"}.get(dtype[0], "7")
    )
    for size in (5, 16, 45):
        inside = "logical_and.bool(ge.bool(index[v], 3:i64), lt.bool(index[v], 30:i64))"
        text = f"""kernel k(a: {dtype}[60] in, o: {dtype}[{size}] out) dims () {{
          stage {{ vector v in [{size}] {{
            store o[v] = (a[{index}] if {inside} else {other}:{dtype})
          }} }} }}"""
        compare(text, [values(60, dtype), zeros(size, dtype)])


def test_scalar_masked_access() -> None:
    """In a serial loop the address under a false mask may be anything."""
    text = """kernel k(a: f32[10] in, o: f32[10] out) dims () {
      stage { serial i in [20] {
        inside = lt.bool(index[i], 10:i64)
        t = (a[1000000000*i] if eq.bool(index[i], 0:i64) else 5.0:f32)
        store o[i] = t if inside
      } } }"""
    compare(text, [values(10), zeros(10)])


def test_uniform_load_under_a_varying_mask() -> None:
    text = """kernel k(a: f32[4] in, o: f32[90] out) dims () {
      stage { parallel p in [3] chunk [1] { vector v in [30] {
        store o[30*p + v] = (a[p] if gt.bool(index[v], 17:i64) else index_free.f32(2.0:f32))
      } } } }""".replace("index_free.f32(2.0:f32)", "neg.f32(2.0:f32)")
    compare(text, [values(4), zeros(90)])


@pytest.mark.parametrize("combine", ("add", "mul", "max", "min"))
def test_combining_stores(combine: str) -> None:
    for index in ("v", "2*v", "v // 3", "5*(v // 9)", "v*0"):
        text = f"""kernel k(a: f32[50] in, o: f32[100] inout) dims () {{
          stage {{ serial r in [2] {{ vector v in [50] {{
            store o[{index}] {combine}= add.f32(mul.f32(a[v], 0.01:f32), 1.0:f32)
          }} }} }} }}"""
        compare(text, [values(50), values(100)], tolerance=1e-5)


def test_scatter_of_equal_places_keeps_the_last() -> None:
    text = """kernel k(a: f32[50] in, i: i64[50] in, o: f32[10] inout) dims () {
      stage { vector v in [50] {
        t = i[v]
        check logical_and.bool(ge.bool(t, 0:i64), lt.bool(t, 10:i64)), "IndexError: {value}", t
        store o[t] = a[v]
      } } }"""
    places = RNG.integers(0, 10, 50)
    compare(text, [values(50), places, values(10)])


GATHER = """kernel k(i: i64[21] in, w: f32[640] in, o: f32[1344] out) dims () {
  stage { parallel p in [21] chunk [4] {
    t = i[p]
    u = where.i64(lt.bool(t, 0:i64), add.i64(t, 10:i64), t)
    ok = logical_and.bool(ge.bool(u, 0:i64), lt.bool(u, 10:i64))
    check ok, "IndexError: index {value} is out of bounds", t
    vector v in [64] { store o[64*p + v] = w[64*u + v] }
  } } }"""


def test_embedding_rows() -> None:
    rows = RNG.integers(-10, 10, 21)
    compare(GATHER, [rows, values(640), zeros(1344)], threads=2)


@pytest.mark.parametrize("bad", (10, -11, 1 << 40, -(1 << 62)))
def test_a_failed_check_touches_nothing(bad: int) -> None:
    native = Native(kernel_of(GATHER))
    rows = RNG.integers(-10, 10, 21)
    rows[7] = bad
    o = zeros(1344)
    with pytest.raises(RuntimeError, match=f"index {bad} is out of bounds"):
        native([rows, values(640), o], threads=2)
    assert (o[7 * 64 : 8 * 64] == 0).all()


@pytest.mark.parametrize("bad", (-1, 100, 1 << 50))
def test_a_failed_check_in_one_lane(bad: int) -> None:
    text = """kernel k(i: i64[40] in, a: f32[100] in, o: f32[40] out, s: f32[1] out) dims () {
      stage { vector v in [40] carry c: f32 = 0.0:f32 {
        t = i[v]
        check logical_and.bool(ge.bool(t, 0:i64), lt.bool(t, 100:i64)), "IndexError: {value}", t
        x = a[t]
        store o[v] = x
        next c add x
      }
      store s[0] = c } }"""
    native = Native(kernel_of(text))
    places, a = RNG.integers(0, 100, 40), values(100)
    o, s = zeros(40), zeros(1)
    native([places, a, o, s])
    assert (o == a[places]).all() and s[0] == a[places].sum()
    places[33] = bad
    o[:] = 0
    with pytest.raises(RuntimeError, match=str(bad)):
        native([places, a, o, s])
    assert (
        o[33] == 0
        and (np.delete(o, 33) == np.delete(a[np.where(places == bad, 0, places)], 33)).all()
    )


def test_a_check_inside_a_serial_loop() -> None:
    """The bad iteration is skipped, carries go on with the old value."""
    text = """kernel k(i: i64[9] in, a: f32[5] in, o: f32[1] out) dims () {
      stage {
        serial r in [9] carry c: f32 = 0.0:f32 {
          t = i[r]
          check logical_and.bool(ge.bool(t, 0:i64), lt.bool(t, 5:i64)), "RuntimeError: {value}", t
          next c add a[t]
        }
        store o[0] = c
      } }"""
    native = Native(kernel_of(text))
    places, a, o = RNG.integers(0, 5, 9), values(5), zeros(1)
    native([places, a, o])
    assert o[0] == a[places].sum()
    places[4] = 1 << 60
    with pytest.raises(RuntimeError, match=str(1 << 60)):
        native([places, a, o])
    assert o[0] == np.delete(a[np.where(places > 5, 0, places)], 4).sum()


@pytest.mark.parametrize("channels, plane", ((3, 49), (4, 64), (8, 16), (5, 7)))
def test_flat_index_with_a_bias_by_channel(channels: int, plane: int) -> None:
    """(v // plane) % channels is one value a vector, or a gather, as the sizes have it."""
    size = 2 * channels * plane
    text = f"""kernel k(a: f32[{size}] in, b: f32[{channels}] in, o: f32[{size}] out) dims () {{
      stage {{ vector v in [{size}] {{
        store o[v] = add.f32(a[v], b[(v // {plane}) % {channels}])
      }} }} }}"""
    compare(text, [values(size), values(channels), zeros(size)])


@pytest.mark.parametrize("shape", ((2, 3), (16, 16), (17, 40)))
def test_transpose(shape: tuple[int, int]) -> None:
    m, n = shape
    text = f"""kernel k(a: f32[{m * n}] in, o: f32[{m * n}] out) dims () {{
      stage {{ parallel p in [{n}] chunk [2] {{ vector v in [{m}] {{
        store o[{m}*p + v] = a[p + {n}*v]
      }} }} }} }}"""
    a = values(m * n)
    o = compare(text, [a, zeros(m * n)])[1]
    assert (o.reshape(n, m) == a.reshape(m, n).T).all()


def test_symbolic_strides_are_gathered() -> None:
    text = """kernel k(a: f32[m*n] in, o: f32[m*n] out) dims (m, n) {
      stage { parallel p in [n] chunk [2] { vector v in [m] {
        store o[m*p + v] = a[p + n*v]
      } } } }"""
    for m, n in ((2, 3), (16, 5), (37, 20)):
        a = values(m * n)
        o = compare(text, [a, zeros(m * n)], (m, n))[1]
        assert (o.reshape(n, m) == a.reshape(m, n).T).all()


def test_index_values() -> None:
    text = """kernel k(o: f32[100] out, q: i64[100] out) dims () {
      stage { vector v in [100] {
        store o[v] = cast.f32(index[3*v + 2])
        store q[v] = index[(v // 8)*100 + v % 8]
      } } }"""
    compare(text, [zeros(100), zeros(100, "i64")])


@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
def test_the_lanes_behind_a_single_vector_have_divisions_of_their_own(lanes: int) -> None:
    """Both vectors begin at numbers that are known; what hangs on those is not the same in both."""
    size = 4 * lanes
    for extent in (lanes + 1, 2 * lanes - 1, 3 * lanes - 2):
        text = f"""kernel k(a: f32[{size}] in, o: f32[{size}] out, q: i64[{size}] out) dims () {{
          stage {{ vector v in [{extent}] {{
            t = mul.f32(a[v // {lanes}], 3.0:f32)
            store o[v] = t
            store q[v] = index[5*(v // {lanes}) + 1]
          }} }} }}"""
        compare(text, [values(size), zeros(size), zeros(size, "i64")])


def test_mixed_widths_share_one_lane_count() -> None:
    text = """kernel k(a: f32[70] in, i: i64[70] in, b: bool[70] in, h: bf16[70] in,
                       o: f64[70] out, c: u8[70] out) dims () {
      stage { vector v in [70] {
        t = where.f32(b[v], a[v], cast.f32(h[v]))
        store o[v] = add.f64(cast.f64(t), cast.f64(i[v]))
        store c[v] = cast.u8(i[v])
      } } }"""
    inputs = [values(70), values(70, "i64"), values(70, "bool"), values(70, "bf16")]
    compare(text, [*inputs, zeros(70, "f64"), zeros(70, "u8")])


def test_a_check_before_a_parallel_loop_and_before_the_next_stage() -> None:
    text = """kernel k(i: i64[2] in, a: f32[64] in, s: f32[64] scratch, o: f32[64] out) dims () {
      stage {
        t = i[0]
        check logical_and.bool(ge.bool(t, 0:i64), lt.bool(t, 8:i64)), "IndexError: {value}", t
        parallel p in [8] chunk [2] { vector v in [8] { store s[8*p + v] = a[8*t + v] } }
      }
      stage {
        u = i[1]
        check logical_and.bool(ge.bool(u, 0:i64), lt.bool(u, 8:i64)), "IndexError: {value}", u
        parallel p in [8] chunk [2] { vector v in [8] { store o[8*p + v] = s[8*u + v] } }
      } }"""
    places = np.array([3, 5])
    compare(text, [places, values(64), zeros(64), zeros(64)], threads=2)
    native = Native(kernel_of(text))
    for places in ([1 << 40, 5], [3, -(1 << 40)], [1 << 40, 1 << 41]):
        o = zeros(64)
        with pytest.raises(RuntimeError, match=str(next(p for p in places if not 0 <= p < 8))):
            native([np.array(places), values(64), zeros(64), o])
        assert (o == 0).all()


AVX2 = make_target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx,+avx2,+fma,+f16c")
AVX512 = make_target(
    "x86_64-unknown-linux-gnu", "x86-64-v4",
    "+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
)


@pytest.mark.parametrize("dtype", ("f32", "f64", "bf16", "bool", "i64"))
def test_without_masks_a_ragged_end_is_a_shorter_vector(dtype: str) -> None:
    """Neither masked stores, of a dozen cycles each on AMD's cores, nor element by element."""
    element = memory_type(dtypes.by_name(dtype))
    for size, stride in ((3, 1), (15, 1), (100, 1), (15, 2)):
        text = f"""kernel k(a: {dtype}[300] in, o: {dtype}[{size}] out) dims () {{
          stage {{ vector v in [{size}] {{ store o[v] = a[{stride}*v + 3] }} }} }}"""
        code = emit(kernel_of(text), AVX2)
        if stride == 1 or dtypes.by_name(dtype).itemsize >= 4:
            assert "llvm.masked" not in code, code
        assert f"x {element}> %" in code and f"store {element} " not in code
        assert "llvm.masked.store" in emit(kernel_of(text), AVX512) or size == 100


def test_long_sums_have_several_sums_under_way() -> None:
    """1000 = 125 * 8, but one register of sums would wait for each addition."""
    text = """kernel k(a: f32[1000] in, o: f32[1] out) dims () { stage {
      vector v in [1000] carry c: f32 = 0.0:f32 { next c add a[v] }
      store o[0] = c
    } }"""
    assert "phi <64 x float>" in emit(kernel_of(text), AVX2)


def test_a_kept_row_is_written_and_read_in_whole_vectors() -> None:
    """A core does not forward a store of two lanes to a load of four."""
    text = """kernel k(a: f32[640] in, o: f32[640] out) dims () {
      stage { parallel p in [64] chunk [64] {
      local t: f32[10]
      vector v in [10] carry s: f32 = 0.0:f32 {
        e = exp.f32(a[10*p + v])
        store t[v] = e
        next s add e
      }
      vector x in [10] { store o[10*p + x] = mul.f32(t[x], s) }
    } } }"""
    code = emit(kernel_of(text), AVX2)
    assert code.count("store <2 x float>") == 0 and code.count("store <10 x float>") == 1
    assert code.count("load <2 x float>") == 1  # of a
    compare(text, [RNG.standard_normal(640).astype("f4"), zeros(640)], tolerance=1e-5)
