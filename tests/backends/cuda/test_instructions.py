"""Instructions with two bodies: the host's against NumPy; NVRTC takes the device's."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.cuda.emulator import ALL, EmulatedError, Library, Schedule, Toolchain
from graphc.backends.cuda.instructions import INSTRUCTIONS
from graphc.backends.cuda.prelude import PRELUDE
from graphc.ir import dtypes

from . import needs

RNG = np.random.default_rng(0)

# Fragments are filled element by element, as PTX's pictures of them say.
MMA_16 = """
extern "C" __global__ void mma_KIND_16(const KIND* a, const KIND* b, float* c) {
  const int lane = threadIdx.x, row = lane / 4, pair = lane % 4 * 2;
  unsigned x[4], y[2];
  for (int r = 0; r < 4; r++) {
    const KIND* at = a + (row + r % 2 * 8) * 16 + pair + r / 2 * 8;
    x[r] = at[0].bits | (unsigned)at[1].bits << 16;
  }
  for (int r = 0; r < 2; r++)
    y[r] = b[(pair + r * 8) * 8 + row].bits | (unsigned)b[(pair + r * 8 + 1) * 8 + row].bits << 16;
  float d[4];
  for (int e = 0; e < 4; e++) d[e] = c[(row + e / 2 * 8) * 8 + pair + e % 2];
  mma_KIND(d, x, y);
  for (int e = 0; e < 4; e++) c[(row + e / 2 * 8) * 8 + pair + e % 2] = d[e];
}
"""
SOURCES = {
    "bf16": MMA_16.replace("KIND", "bf16"),
    "f16": MMA_16.replace("KIND", "f16"),
    "tf32": """
extern "C" __global__ void mma_tf32_8(const unsigned* a, const unsigned* b, float* c) {
  const int lane = threadIdx.x, row = lane / 4, four = lane % 4;
  unsigned x[4], y[2];
  for (int r = 0; r < 4; r++) x[r] = a[(row + r % 2 * 8) * 8 + four + r / 2 * 4];
  for (int r = 0; r < 2; r++) y[r] = b[(four + r * 4) * 8 + row];
  float d[4] = {};
  mma_tf32(d, x, y);
  for (int e = 0; e < 4; e++) c[(row + e / 2 * 8) * 8 + four * 2 + e % 2] = d[e];
}
""",
    # o[matrix, lane, half]: what each lane gets
    "ldmatrix": """
extern "C" __global__ void load_matrices(const unsigned short* a, unsigned* o, unsigned* t) {
  DYNAMIC_SHARED(shared);
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) ((unsigned short*)shared)[i] = a[i];
  __syncthreads();
  const unsigned row = shared_address(shared) + lane * 16;
  unsigned r[4];
  ldmatrix_x4(r, row);
  for (int i = 0; i < 4; i++) o[i * 32 + lane] = r[i];
  ldmatrix_x2_trans(r, row);
  ldmatrix_x1_trans(r + 2, row + 256);
  for (int i = 0; i < 3; i++) t[i * 32 + lane] = r[i];
}
""",
    "copies": """
extern "C" __global__ void copy_pieces(const float* a, float* o, i64 wait) {
  DYNAMIC_SHARED(shared);
  float* s = (float*)shared;
  const int t = threadIdx.x;
  const unsigned to = shared_address(s);
  cp_async_16(to + t * 16, a + t * 4, t == 3 ? 4 : 16);
  cp_async_commit();
  cp_async_8(to + 512 + t * 8, a + 128 + t * 2, 8);
  cp_async_4(to + 768 + t * 4, a + 192 + t, t == 5 ? 0 : 4);
  cp_async_commit();
  if (wait) cp_async_wait<0>(); else cp_async_wait<1>();
  __syncthreads();
  for (int i = t; i < 224; i += 32) o[i] = s[i];
}
""",
    "bulk": """
extern "C" __global__ void copy_rows(const float* a, float* o, i64 rows) {
  DYNAMIC_SHARED(shared);
  const unsigned to = shared_address(shared), full = to + 1024, free = full + 8;
  if (threadIdx.x == 0) { mbarrier_init(full, 1); mbarrier_init(free, 64); }
  __syncthreads();
  for (int row = 0; row < rows; row++) {
    if (threadIdx.x == 0) {
      if (row > 0) mbarrier_wait(free, (row - 1) & 1);
      mbarrier_arrive_expecting(full, 256);
      copy_bulk(to, a + row * 64, 256, full);
    }
    mbarrier_wait(full, row & 1);
    o[row * 64 + threadIdx.x] = 2 * ((float*)shared)[threadIdx.x];
    mbarrier_arrive(free);
  }
}
""",
    "named": """
extern "C" __global__ void halves_apart(const float* a, float* o) {
  DYNAMIC_SHARED(shared);
  float* s = (float*)shared;
  const int t = threadIdx.x, half = t / 64;
  s[t] = a[t];
  named_barrier(1 + half, 64);
  float x = s[half * 64 + 63 - t % 64];
  if (half == 0) named_barrier(3, 64);
  o[t] = x;
}
""",
    "banks": """
extern "C" __global__ void stride(const float* a, float* o, i64 step) {
  DYNAMIC_SHARED(shared);
  float* s = (float*)shared;
  for (int i = threadIdx.x; i < 32 * 33; i += 32) s[i] = a[i % 32];
  __syncthreads();
  o[threadIdx.x] = s[threadIdx.x * step];
}
""",
}


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Library:
    return toolchain.compile(SOURCES)


@pytest.mark.parametrize("kind", ("bf16", "f16"))
def test_mma_of_halves(kind: str, library: Library) -> None:
    numbers = {"bf16": dtypes.bf16, "f16": dtypes.f16}[kind].numpy
    a, b = (RNG.standard_normal(s).astype(numbers) for s in ((16, 16), (16, 8)))
    c = RNG.standard_normal((16, 8)).astype("f4")
    want = c + a.astype("f8") @ b.astype("f8")
    library.launch(f"mma_{kind}_16", (1,), (32,), [a, b, c])
    np.testing.assert_allclose(c, want, rtol=1e-6, atol=1e-6)


def test_mma_of_tf32_drops_the_last_13_bits(library: Library) -> None:
    a, b = RNG.standard_normal((16, 8)).astype("f4"), RNG.standard_normal((8, 8)).astype("f4")
    c = np.zeros((16, 8), "f4")
    library.launch("mma_tf32_8", (1,), (32,), [a, b, c])
    cut = [(x.view("u4") & np.uint32(0xFFFFE000)).view("f4").astype("f8") for x in (a, b)]
    np.testing.assert_allclose(c, cut[0] @ cut[1], rtol=1e-6, atol=1e-6)
    assert not np.allclose(c, a @ b, rtol=1e-6, atol=1e-6)


def test_ldmatrix(library: Library) -> None:
    a = RNG.integers(0, 1 << 16, (4, 8, 8)).astype("u2")
    o, t = np.zeros((4, 32), "u4"), np.zeros((3, 32), "u4")
    library.launch("load_matrices", (1,), (32,), [a, o, t], 512)
    np.testing.assert_array_equal(o.view("u2").reshape(4, 8, 8), a)
    swapped = np.ascontiguousarray(a[:3].transpose(0, 2, 1))
    np.testing.assert_array_equal(t.view("u2").reshape(3, 8, 8), swapped)


@pytest.mark.parametrize("schedule", (Schedule(), Schedule(early=True)), ids=str)
def test_cp_async(schedule: Schedule, library: Library) -> None:
    a, o = RNG.standard_normal(224).astype("f4"), np.zeros(224, "f4")
    want = a.copy()
    want[[13, 14, 15, 197]] = 0  # what is not copied is filled with zeros
    library.launch("copy_pieces", (1,), (32,), [a, o, 1], 896, schedule)
    np.testing.assert_array_equal(o, want)
    library.launch("copy_pieces", (1,), (32,), [a, o, 0], 896, schedule)
    np.testing.assert_array_equal(o[:128], want[:128])
    assert np.isnan(o[128:]).all() != schedule.early  # shared memory is poisoned


def test_cp_async_wants_its_alignment(library: Library) -> None:
    a = np.zeros(300, "f4")
    with pytest.raises(EmulatedError, match=r"copies:7: cp.async of 16 bytes .* not aligned"):
        library.launch("copy_pieces", (1,), (32,), [a[1:], np.zeros(224, "f4"), 1, a], 896)


@pytest.mark.parametrize("schedule", ALL, ids=str)
def test_bulk_copies_and_mbarriers(schedule: Schedule, library: Library) -> None:
    a = RNG.standard_normal((5, 64)).astype("f4")
    o = np.zeros_like(a)
    library.launch("copy_rows", (1,), (64,), [a, o, 5], 1040, schedule)
    np.testing.assert_array_equal(o, 2 * a)


@pytest.mark.parametrize("schedule", (*ALL, Schedule(watch=True)), ids=str)
def test_named_barriers(schedule: Schedule, library: Library) -> None:
    a = RNG.standard_normal((2, 64)).astype("f4")
    o = np.zeros_like(a)
    library.launch("halves_apart", (1,), (128,), [a, o], 512, schedule)
    np.testing.assert_array_equal(o, a[:, ::-1])


@pytest.mark.parametrize(("step", "ways"), ((1, 1), (2, 2), (32, 32), (33, 1), (0, 1)))
def test_bank_conflicts_are_counted(step: int, ways: int, library: Library) -> None:
    a, o = RNG.standard_normal(32).astype("f4"), np.zeros(32, "f4")
    counts = library.launch(
        "stride", (1,), (32,), [a, o, step], 33 * 32 * 4, Schedule(watch=True)
    )
    assert counts.worst == ways and counts.wavefronts == counts.phases + ways - 1
    if ways > 1:
        assert counts.worst_place == "banks:7"


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
def test_nvrtc_takes_them(architecture: str) -> None:
    texts = [text for name, text in SOURCES.items() if name != "bulk" or architecture != "sm_80"]
    text = PRELUDE + INSTRUCTIONS + "".join(texts)
    assert needs.compiler().compile(text, architecture).cubin[:4] == b"\x7fELF"
