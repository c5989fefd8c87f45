"""How loops become threads: what is waited for, packs at any address, the same bits on any grid."""

from __future__ import annotations

import ctypes
import itertools
import re

import numpy as np
import pytest

from graphc.backends.cuda.driver import pack
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Library, Schedule, Toolchain
from graphc.backends.cuda.loops import plan
from graphc.backends.cuda.loops.ordering import ALL as ALL_THREADS
from graphc.backends.cuda.loops.ordering import FIRST, LANE, Access, conflict
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import grid
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir.dim import Dim, parse
from graphc.ir.kernel import Kernel
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel

from ...ir import kernel_cases as cases

RNG = np.random.default_rng(0)

# rows of a warp, of a block, and with a tile that is kept
ROWS = """kernel rows(a: f32[{total}] in, w: f32[{row}] in, o: f32[{total}] out) dims () {{
  stage {{ parallel p in [{rows}] chunk [1] {{
    local kept: f32[{row}]
    vector v in [{row}] carry s: f32 = 0.0:f32 {{
      t0 = exp.f32(a[{row}*p + v])
      store kept[v] = t0
      next s add t0
    }}
    r = reciprocal.f32(s)
    vector w1 in [{row}] {{ store o[{row}*p + w1] = mul.f32(mul.f32(kept[w1], r), w[w1]) }}
  }} }} }}"""
# many columns: a thread has several, each with a sum and a running product of its own
COLUMNS = """kernel columns(a: f32[1048576] in, o: f32[262144] out, q: f32[1048576] out) dims () {
  stage { parallel p in [256] chunk [1] { vector v in [1024] {
    i = index[1024*p + v]
    x = a[i]
    serial r in [4] carry s: f32 = x, c: i64 = 1:i64 {
      t = a[262144*r + i]
      store q[262144*r + i] = mul.f32(t, cast.f32(c))
      next s add t
      next c set add.i64(c, 1:i64)
    }
    store o[i] = add.f32(s, x)
  } } } }"""
# channels of [batch, channel, place]: sums over both, then what is made of them
CHANNELS = """kernel channels(a: f32[12288] in, o: f32[12288] out, m: f32[8] out) dims () {
  stage { parallel p in [8] chunk [1] {
    serial r in [4] carry c1: f32 = 0.0:f32, most: f32 = -inf:f32 {
      serial y in [3] carry c2: f32 = 0.0:f32, m2: f32 = -inf:f32 {
        vector v in [128] carry c3: f32 = 0.0:f32, m3: f32 = -inf:f32 {
          t = a[3072*r + 384*p + 128*y + v]
          next c3 add t
          next m3 max t
        }
        next c2 add c3
        next m2 max m3
      }
      next c1 add c2
      next most max m2
    }
    serial r2 in [12] {
      vector v2 in [128] {
        i = index[3072*(r2 // 3) + 384*p + 128*(r2 % 3) + v2]
        store o[i] = sub.f32(a[i], c1)
      }
    }
    store m[p] = most
  } } }"""
# scalars that are the same for all blocks, and take long
STEP = """kernel step(b: f64[1] in, g: f32[n] in, o: f32[n] inout) dims (n) {
  stage { parallel p in [(n + 63) // 64] chunk [1] {
    t0 = b[0]
    t1 = cast.f32(pow.f64(t0, 7.0:f64))
    vector v in [min(64, n + -64*p)] {
      store o[64*p + v] = add.f32(o[64*p + v], mul.f32(g[64*p + v], t1))
    }
  } } }"""
# a bias gradient in place: updates of rows that data name, one after another
UPDATES = """kernel updates(i: i64[40] in, g: f32[5120] in, o: f32[1280] inout) dims () {
  stage { parallel p in [1] chunk [1] { serial r in [40] {
    t = i[r]
    check logical_and.bool(ge.bool(t, 0:i64), lt.bool(t, 10:i64)), "IndexError: {value}", t
    vector v in [128] { store o[128*t + v] add= g[128*r + v] }
  } } } }"""
# rows of a group, one after another: each lane adds up its columns
NORM = """kernel norm(
    a: f32[{total}] in, w: f32[{row}] in, o: f32[{total}] out, s0: f32[{sums}] out) dims () {{
  stage {{ parallel p in [{groups}] chunk [1] {{
    local sum: f32[{row}]
    local tile: f32[{row}]
    vector v in [{row}] {{ store sum[v] = 0.0:f32 }}
    serial r in [4] {{
      vector v in [{row}] carry c: f32 = 0.0:f32 {{
        t = mul.f32(a[{four}*p + {row}*r + v], w[v])
        store tile[v] = t
        store sum[v] add= t
        store sum[v] add= 1.0:f32
        next c add t
      }}
      vector v in [{row}] {{ store o[{four}*p + {row}*r + v] = sub.f32(tile[v], c) }}
    }}
    vector v in [{row}] {{ store s0[{row}*p + v] = sum[v] }}
  }} }} }}"""
# what a lane stores another one reads, which has to wait
SHIFT = """kernel shift(a: f32[4096] in, o: f32[4096] out) dims () {
  stage { parallel p in [32] chunk [1] {
    local t: f32[128]
    vector v in [128] { store t[v] = a[128*p + v] }
    vector w in [128] { store o[128*p + w] = t[(w + 1) % 128] }
  } } }"""
# parts beside each other: a bound that no pack crosses, or one that packs do
PARTS = """kernel parts(a: f32[{a}] in, b: f32[{b}] in, n: i64[1] in, o: f32[16384] out) dims () {{
  stage {{ parallel p in [16] chunk [1] {{
    k = n[0]
    vector v in [1024] {{
      i = index[v + {minus}]
      low = lt.bool(index[v], {first}:i64)
      in = logical_and.bool(ge.bool(i, 0:i64), logical_or.bool(le.bool(i, {last}:i64), low))
      x = (a[{first}*p + v] if low else 7.0:f32)
      y = (b[{second}*p + v + {minus}] if in else 0.0:f32)
      z = (b[v] if gt.bool(k, 4:i64) else 3.0:f32)
      store o[1024*p + v] = add.f32(z, add.f32(x, y))
    }}
  }} }} }}"""
# rows of more than a warp, between which nobody waits: a block takes several
APPLY = """kernel apply(a: f32[262912] in, w: f32[256] in, o: f32[262912] inout) dims () {
  stage { parallel p in [1027] chunk [1] { vector v in [256] {
    store o[256*p + v] = add.f32(o[256*p + v], mul.f32(a[256*p + v], w[v]))
  } } } }"""
BYTES = """kernel bytes(
    a: i8[4096] in, b: bool[4096] in, o: i8[4096] out, q: bool[4096] out) dims () {
  stage { parallel p in [4] chunk [1] { vector v in [1024] {
    t = where.i8(b[1024*p + v], a[1024*p + v], 3:i8)
    store o[1024*p + v] = t
    store q[1024*p + v] = lt.bool(t, 0:i8)
  } } } }"""

KERNELS = {
    "SHORT_ROWS": ROWS.format(rows=301, row=64, total=301 * 64),
    "WARP_ROWS": ROWS.format(rows=40, row=128, total=40 * 128),
    "BLOCK_ROWS": ROWS.format(rows=3, row=1536, total=3 * 1536),
    "ODD_ROWS": ROWS.format(rows=11, row=65, total=11 * 65),
    "NORM": NORM.format(row=256, total=256 * 40, groups=10, four=1024, sums=2560),
    "LONG_NORM": NORM.format(row=20000, total=20000 * 8, groups=2, four=80000, sums=40000),
    "COLUMNS": COLUMNS,
    "CHANNELS": CHANNELS,
    "STEP": STEP,
    "UPDATES": UPDATES,
    "SHIFT": SHIFT,
    "APPLY": APPLY,
    "PARTS": PARTS.format(first=256, second=768, minus=-256, last=767, a=4096, b=12288),
    "ODD_PARTS": PARTS.format(first=255, second=769, minus=-255, last=768, a=4080, b=12304),
    "BYTES": BYTES,
}
N = 70_001


def kernel_of(name: str) -> Kernel:
    kernel = parse_kernel(KERNELS[name])
    verify_kernel(kernel)
    return kernel


def text_of(name: str) -> str:
    """Without the prelude."""
    return emit(kernel_of(name)).text.removeprefix(PRELUDE)


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Library:
    return toolchain.compile({name: emit(kernel_of(name)).text for name in KERNELS})


def buffers_of(kernel: Kernel) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for param in kernel.params:
        size = param.size if isinstance(param.size, int) else N
        if param.dtype.is_float:
            found.append(RNG.standard_normal(size).astype(param.dtype.numpy))
        else:
            found.append(RNG.integers(0, 9, size).astype(param.dtype.numpy))
    return found


def run(
    library: Library, name: str, buffers: list[np.ndarray], schedule: Schedule, blocks: int = 0,
    by: int = 0,
) -> int:
    """All stages, on a grid of `blocks` if it is given; buffers begin `by` elements behind an
    aligned address. Returns the most wavefronts that an access of shared memory took."""
    kernel, runtime = kernel_of(name), library.runtime
    dims = [N] * len(kernel.dims)
    status = np.zeros(4, np.int64)
    arrays = [*buffers, status]
    starts = [runtime.allocate(a.nbytes + by * a.itemsize) for a in arrays]
    places = [start + by * a.itemsize for start, a in zip(starts, arrays, strict=True)]
    for place, array in zip(places, arrays, strict=True):
        ctypes.memmove(place, array.ctypes.data, array.nbytes)
    worst = 0
    packed = pack(f"{len(buffers)}P{len(dims)}qP", (*places[:-1], *dims, places[-1]))
    for stage in emit(kernel).stages:
        size = blocks or grid(stage, list(zip(kernel.dims, dims, strict=True)))
        counts = library.run(stage.name, (size,), (stage.threads,), packed, stage.shared, schedule)
        worst = max(worst, counts.worst)
    for start, place, array in zip(starts, places, arrays, strict=True):
        ctypes.memmove(array.ctypes.data, place, array.nbytes)
        runtime.free(start)
    assert not status.any()
    return worst


@pytest.mark.parametrize("name", KERNELS)
def test_threads_mean_the_loops(name: str, library: Library) -> None:
    """Under schedules, watched; the bits are those of any grid, and of buffers at any address."""
    kernel = kernel_of(name)
    start = buffers_of(kernel)
    want = [b.copy() for b in start]
    run_kernel(kernel, want, [N] * len(kernel.dims), TABLE)
    bits: list[bytes] | None = None
    watched = Schedule(watch=True)
    ways = [(s, 0, 0) for s in (ALL[1], ALL[8], watched)] + [(watched, 0, 1), (ALL[9], 1, 0)]
    for schedule, blocks, by in ways:
        got = [b.copy() for b in start]
        worst = run(library, name, got, schedule, blocks, by)
        assert worst <= (4 if name == "LONG_NORM" else 1)  # bank conflicts
        for g, w, param in zip(got, want, kernel.params, strict=True):
            cases.assert_close(g, w, param.dtype)
        found = [g.tobytes() for g in got]
        assert bits is None or bits == found
        bits = found


def test_nothing_is_waited_for_where_nothing_is_shared() -> None:
    """A row of a warp, kept in registers, needs no memory and no barrier; one of a block waits once
    for its sum; what lanes exchange is waited for."""
    waits = {name: len(re.findall(r"__sync\w+\(", text_of(name))) for name in KERNELS}
    for name in ("BLOCK_ROWS", "ODD_ROWS", "NORM", "LONG_NORM"):
        assert waits.pop(name) == 1
    assert waits.pop("SHIFT") == 2  # behind what was read of the last row's, and what is stored
    assert waits.pop("STEP") == 1  # for what a warp computes
    assert set(waits.values()) == {0}, waits
    for name, most in (
        ("SHORT_ROWS", 4), ("WARP_ROWS", 4), ("BLOCK_ROWS", 4), ("ODD_ROWS", 1), ("NORM", 4)
    ):
        (mapping,) = plan(kernel_of(name))
        assert mapping.kept and set(mapping.widths) == {most}
    assert len(plan(kernel_of("LONG_NORM"))[0].kept) == 1  # there is no room for both
    assert "DYNAMIC_SHARED" not in text_of("WARP_ROWS")


def test_blocks_of_several_rows() -> None:
    (mapping,) = plan(kernel_of("APPLY"))
    assert (mapping.groups, mapping.group, mapping.widths) == (2, 64, (4,))
    (mapping,) = plan(parse_kernel(APPLY.replace("1027", "99999").replace("262912", "25599744")))
    assert (mapping.groups, mapping.blocks) == (4, 1 << 14)
    for kernel in ("BLOCK_ROWS", "SHIFT", "LONG_NORM"):
        assert plan(kernel_of(kernel))[0].groups == 1


def test_conditions_of_packs() -> None:
    """Where a condition holds for all of a pack or for none, the pack is one access."""
    (even,), (odd,) = plan(kernel_of("PARTS")), plan(kernel_of("ODD_PARTS"))
    assert even.widths == (4,) and odd.widths == (1,)
    assert text_of("PARTS").count("? load_pack<4>(") == 3
    assert "load_pack" not in text_of("ODD_PARTS")


def test_what_no_iteration_changes_is_computed_once() -> None:
    (mapping,) = plan(kernel_of("STEP"))
    assert mapping.blocks == parse("min(1024, ((n + 63) // 64 + 15) // 16)")
    text = text_of("STEP")
    assert text.index("pow(") < text.index("for (i64 p")


def test_conflicts() -> None:
    """Which accesses of different threads may meet."""
    lane, t, u = (Dim.var(name) for name in (LANE, "t", "u"))

    def lanes(index: object, write: bool, width: int = 1, most: int | None = 128) -> Access:
        return Access("o", index, write, width, most)  # type: ignore[arg-type]

    apart = [
        (lanes(lane, True), lanes(lane, False)),
        (lanes(128 * t + lane, True), lanes(128 * u + lane, True)),
        (lanes(2 * lane + 256 * t, True), lanes(2 * lane, True)),
        (lanes(lane, False), lanes(lane + 1, False)),
        (Access("o", t, True, FIRST), Access("o", u, True, FIRST)),
        (Access("o", t, True, FIRST), Access("a", t, False, ALL_THREADS)),
    ]
    meet = [
        (lanes(lane, True), lanes(lane + 1, False)),
        (lanes(lane, True), lanes(lane, False, width=4)),
        (lanes(64 * t + lane, True), lanes(64 * u + lane, True)),
        (lanes(128 * t + lane, True, most=None), lanes(128 * u + lane, True)),
        (lanes(2 * lane, True), lanes(lane, False)),
        (lanes(lane % 4, True), lanes(lane % 4, False)),
        (lanes(t, True), lanes(t, False)),
        (Access("o", t, True, FIRST), Access("o", t, False, ALL_THREADS)),
        (Access("o", t, True, FIRST), lanes(lane, False)),
    ]
    for a, b in apart:
        assert not conflict(a, b) and not conflict(b, a), (a, b)
    for a, b in meet:
        assert conflict(a, b) and conflict(b, a), (a, b)


def test_indices_are_ints_where_that_is_proven() -> None:
    small, large = KERNELS["WARP_ROWS"], KERNELS["WARP_ROWS"].replace("5120", str(128 << 24))
    large = large.replace("[40]", f"[{1 << 24}]")
    texts = [emit(parse_kernel(text)).text.removeprefix(PRELUDE) for text in (small, large)]
    assert "i64" not in texts[0].replace("i64* status", "")
    assert "128LL * (i64)p" in texts[1]


def test_every_index_of_a_large_buffer_is_reached(toolchain: Toolchain) -> None:
    """Products that do not fit into 32 bits."""
    for value, most in itertools.product((1 << 20, 1 << 12), (1 << 22,)):
        text = f"""kernel far(i: i64[1] in, o: f32[8] inout) dims () {{
          stage {{
            t = i[0]
            vector v in [8] {{ store o[({value}*t + v) % {most}] = 1.0:f32 }}
          }} }}"""
        kernel = parse_kernel(text)
        source = emit(kernel)
        (stage,) = source.stages
        out = np.zeros(8, "f4")
        toolchain.compile({"far": source.text}).launch(
            stage.name, (1,), (stage.threads,),
            [np.array([most << 20], "i8"), out, np.zeros(4, "i8")],
        )
        assert out.all()
