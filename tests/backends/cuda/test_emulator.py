"""The emulator: what a GPU's threads do together, and what it says of kernels that are wrong.

Each fault names the schedules that show it by a wrong result (`shown_by`), where only results show
it, or the report that it gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda.emulator import ALL, EmulatedError, Library, Schedule, Toolchain
from graphc.backends.cuda.prelude import PRELUDE

from . import needs

WATCHED = Schedule(watch=True)


def kernel(body: str, parameters: str = "float* a, float* o") -> str:
    """A source with one kernel, `k`; its body begins at line 2."""
    return f'extern "C" __global__ void k({parameters}) {{\n{body}\n}}\n'


SUM = """
  DYNAMIC_SHARED(shared);
  float* s = (float*)shared;
  const unsigned t = threadIdx.x;
  s[t] = a[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {
    if (t < h) s[t] += s[t + h];
    __syncthreads();
  }
  if (t == 0) o[blockIdx.x] = s[0];"""

GOOD = {
    "sum": kernel(SUM),
    "static_sum": kernel(
        SUM.replace("DYNAMIC_SHARED(shared);", "").replace(
            "float* s = (float*)shared;", "__shared__ float s[96 * 4];"
        )
    ).replace("void k(", "void k_static("),
    "warp_sum": kernel("""
  float x = a[threadIdx.x];
  for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(~0u, x, by);
  o[threadIdx.x] = x + __shfl_down_sync(~0u, x, 1) + __shfl_up_sync(~0u, x, 40);
  if (threadIdx.x % 32 < 8) o[threadIdx.x] = __shfl_sync(0xffu, a[threadIdx.x], 3, 8);
  const unsigned votes = __ballot_sync(~0u, a[threadIdx.x] > 0);
  if (threadIdx.x % 32 == 31) o[threadIdx.x] = votes;""").replace("void k(", "void k_warp("),
    "geometry": kernel("""
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  o[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;""",
        "float* o",
    ).replace("void k(", "void k_geometry("),
}


@pytest.fixture(scope="module")
def good(toolchain: Toolchain) -> Library:
    return toolchain.compile(GOOD)


def test_a_second_toolchain_runs_beside_the_first(good: Library, tmp_path: Path) -> None:
    other = Toolchain(tmp_path).compile({"sum": GOOD["sum"]})
    a = np.random.default_rng(0).standard_normal((3, 256)).astype("f4")
    for library in (other, good, other):
        o = np.zeros(3, "f4")
        library.launch("k", (3,), (256,), [a, o], 1024, WATCHED)
        np.testing.assert_allclose(o, a.sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("schedule", [*ALL, WATCHED], ids=str)
def test_sums_by_shared_memory_and_by_shuffles(schedule: Schedule, good: Library) -> None:
    a = np.random.default_rng(0).standard_normal((3, 256)).astype("f4")
    for name, shared in (("k", 1024), ("k_static", 0)):
        o = np.zeros(3, "f4")
        good.launch(name, (3,), (256,), [a, o], shared, schedule)
        np.testing.assert_allclose(o, a.sum(1), rtol=1e-4, atol=1e-4)
    o = np.zeros(64, "f4")
    lanes = a[0, :64].reshape(2, 32)
    good.launch("k_warp", (1,), (64,), [a, o], schedule=schedule)
    total = lanes.sum(1, keepdims=True)
    np.testing.assert_allclose(o.reshape(2, 32)[:, 8:31], np.broadcast_to(3 * total, (2, 23)), 1e-4)
    np.testing.assert_array_equal(o.reshape(2, 32)[:, :8], np.repeat(lanes[:, 3:4], 8, 1))
    votes = ((lanes > 0) << np.arange(32, dtype=np.int64)).sum(1)
    np.testing.assert_array_equal(o.reshape(2, 32)[:, 31], votes.astype("f4"))


def test_every_thread_of_every_block_runs_once(good: Library) -> None:
    o = np.full(2 * 3 * 2 * 30, -1, "f4")
    good.launch("k_geometry", (2, 3, 2), (5, 3, 2), [o])
    block, thread = np.divmod(np.arange(o.size), 30)
    np.testing.assert_array_equal(o, 1000 * block + thread)


def test_what_no_device_launches(good: Library) -> None:
    o = np.zeros(2048, "f4")
    for grid, block, shared in (((0,), (32,), 0), ((1,), (1025,), 0), ((1,), (32,), 1 << 18)):
        with pytest.raises(ValueError, match=r"a grid|a block"):
            good.launch("k_geometry", grid, block, [o], shared)


def test_atomics(toolchain: Toolchain) -> None:
    text = kernel("  atomicAdd((unsigned*)o, threadIdx.x);", "float* o")
    o = np.zeros(1, "u4")
    toolchain.compile({"atomics": text}).launch("k", (3,), (128,), [o], schedule=WATCHED)
    assert o[0] == 3 * sum(range(128))


class Fault(NamedTuple):
    """A wrong kernel. `report`: what is said of it, under every schedule; or, where only results or
    a watched launch show it, `race`."""

    text: str
    report: str = ""
    thread: int | None = None
    line: int = 0
    race: str = ""


FAULTS = {
    "behind a buffer": Fault(
        "  o[threadIdx.x] = a[threadIdx.x + 1];", "reads 4 bytes at byte 512 of a buffer of 512",
        127, 2,
    ),
    "before a buffer": Fault(
        "  if (threadIdx.x == 5)\n    o[-1] = 0;", "writes 4 bytes", 5, 3
    ),
    "behind shared memory": Fault(
        "  DYNAMIC_SHARED(s);\n  ((float*)s)[threadIdx.x * 3] = 0;",
        "4 bytes of shared memory at 1032 end behind its 1024", 86, 3,
    ),
    "a barrier for some": Fault(
        "  if (threadIdx.x < 40)\n    __syncthreads();\n  o[threadIdx.x] = 0;",
        "hang: this thread waits in __syncthreads(), while thread 40 has left the kernel", 0, 3,
    ),
    "two barriers": Fault(
        "  if (threadIdx.x < 64)\n    __syncthreads();\n  else\n    __syncthreads();",
        "threads wait at different barriers: others at line 3, this one at line 5", 64, 5,
    ),
    "a shuffle for some": Fault(
        "  float x = a[threadIdx.x];\n  if (threadIdx.x % 32 != 7)\n"
        "    x = __shfl_xor_sync(~0u, x, 1);\n  o[threadIdx.x] = x;",
        "hang: this thread waits in a shuffle, while thread 7 has left the kernel", 0, 4,
    ),
    "a shuffle from outside of its mask": Fault(
        "  if (threadIdx.x % 32 < 8)\n"
        "    o[threadIdx.x] = __shfl_xor_sync(0xffu, a[threadIdx.x], 8);",
        "reads lane 8, which its mask 000000ff does not name", 0, 3,
    ),
    "a vector that is not aligned": Fault(
        "  if (threadIdx.x < 2)\n"
        "    *(float4*)(o + 4 * threadIdx.x) = *(float4*)(a + threadIdx.x);",
        "16 bytes at ", 1, 3,
    ),
    "an atomic behind a buffer": Fault(
        "  atomicAdd((unsigned*)o + threadIdx.x * 2, 1u);",
        "writes 4 bytes at byte 512 of a buffer of 512", 64, 2,
    ),
    "division by zero": Fault(
        "  o[threadIdx.x] = 100 / (int)threadIdx.x;", "integer division by zero", 0, 2
    ),
    "a sum that overflows": Fault(
        "  o[threadIdx.x] = (int)threadIdx.x + 2147483585;", "a sum overflows", 63, 2
    ),
    "a product that overflows": Fault(
        "  o[threadIdx.x] = (long long)threadIdx.x * (1ll << 62);", "a product overflows", 2, 2
    ),
    "a wide shift": Fault(
        "  o[threadIdx.x] = 1 << threadIdx.x;", "a shift by 32, more than", 32, 2
    ),
    "no end": Fault("  while (((volatile float*)a)[0] == a[0]);", "does not come to an end", 0, 2),
    "a missing barrier": Fault(
        SUM.replace("  __syncthreads();\n  for", "  for"),
        race="race: it writes memory .* that thread 0 has read",
    ),
    "a tree without barriers": Fault(
        SUM.replace("    __syncthreads();\n", ""), race="that other threads may still read",
    ),
    "what the next one still reads": Fault(
        "  DYNAMIC_SHARED(shared);\n  float* s = (float*)shared;\n  float x = 0;\n"
        "  for (int i = 0; i < 2; i++) {\n    s[threadIdx.x] = a[threadIdx.x] + i;\n"
        "    __syncthreads();\n    x += s[127 - threadIdx.x];\n  }\n  o[threadIdx.x] = x;",
        race="that thread 63 has written, with no barrier in between",
    ),
    "a block that writes what others read": Fault(
        "  if (blockIdx.x == 0) o[threadIdx.x] = a[0];\n"
        "  if (blockIdx.x == 1 && threadIdx.x == 9) a[0] = 1;",
        race="that another block has read in this launch",
    ),
    "blocks that meet": Fault(
        "  if (threadIdx.x == 0) o[0] = o[0] + a[blockIdx.x];",
        race="that another block has written in this launch",
    ),
}
# Orders of threads under which a race is seen in the results: none of them would do alone.
SHOWN_BY = {
    "a missing barrier": {
        "in step, ascending", "in step, shuffled", "one warp ahead, ascending",
    },
    "a tree without barriers": {
        "in step, ascending", "in step, shuffled", "one warp ahead, ascending",
    },
    "what the next one still reads": {
        "in step, descending", "in step, shuffled", "one warp ahead, descending",
    },
    "blocks that meet": set(),
}


@pytest.fixture(scope="module")
def faulty(toolchain: Toolchain) -> Library:
    texts = {}
    for number, (name, fault) in enumerate(FAULTS.items()):
        text = kernel(fault.text).replace("void k(", f"void k{number}(")
        texts[name] = text
    return toolchain.compile(texts)


def run(library: Library, name: str, schedule: Schedule) -> np.ndarray:
    number = list(FAULTS).index(name)
    a = np.random.default_rng(0).standard_normal(128).astype("f4")
    o = np.zeros(128, "f4")
    library.launch(f"k{number}", (2,) if "block" in name else (1,), (128,), [a, o], 1024, schedule)
    return o


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.report])
def test_a_fault_is_reported_with_its_place(name: str, faulty: Library) -> None:
    fault = FAULTS[name]
    with pytest.raises(EmulatedError) as raised:
        run(faulty, name, Schedule(accesses=1 << 20))
    error = raised.value
    assert fault.report in error.text
    assert (error.block, error.thread) == ((0, 0, 0), (fault.thread, 0, 0))
    assert error.place == f"{name}:{fault.line}"


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.race])
def test_a_watched_launch_shows_a_race(name: str, faulty: Library) -> None:
    with pytest.raises(EmulatedError, match=FAULTS[name].race):
        run(faulty, name, WATCHED)


@pytest.mark.parametrize("name", SHOWN_BY)
def test_which_schedules_show_a_race_by_results(name: str, faulty: Library) -> None:
    a = np.random.default_rng(0).standard_normal(128).astype("f4")
    right = 2 * a[127] + 1 if name == "what the next one still reads" else a.sum()
    if name == "blocks that meet":
        right = a[0] + a[1]
    wrong = {
        f"{'one warp ahead' if s.ahead else 'in step'}, {s.direction}"
        for s in ALL if not np.isclose(run(faulty, name, s)[0], right, rtol=1e-4)
    }
    assert wrong == SHOWN_BY[name]


@pytest.mark.parametrize("name", [*GOOD, *FAULTS])
def test_nvrtc_takes_what_is_emulated(name: str) -> None:
    text = GOOD.get(name) or kernel(FAULTS[name].text)
    assert needs.compiler().compile(PRELUDE + text, "sm_90").cubin[:4] == b"\x7fELF"
