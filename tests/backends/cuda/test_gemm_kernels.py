"""Tensor cores, asynchronous copies and their planted faults, on two products written by hand."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from graphc.backends.cuda.emulator import (
    ALL,
    Counts,
    EmulatedError,
    Library,
    Schedule,
    Toolchain,
)
from graphc.backends.cuda.prelude import PRELUDE

from . import needs
from .gemm_kernels import MMA, SHARED, THREADS, TILE, WGMMA

WATCHED = (Schedule(watch=True), Schedule(watch=True, early=True))
KERNELS = {"gemm_mma": (MMA, "sm_80"), "gemm_wgmma": (WGMMA, "sm_90a")}


class Fault(NamedTuple):
    """A change to a kernel. `shown_by`: the schedules under which the results are wrong; all others
    miss it. `watched`: what a watched launch says of it, where it is a race."""

    kernel: str
    old: str
    new: str
    shown_by: frozenset[str]
    watched: str = ""


def schedules(**chosen: object) -> frozenset[str]:
    """The names of those whose fields are as chosen."""
    return frozenset(
        str(s) for s in ALL if all(getattr(s, name) == value for name, value in chosen.items())
    )


_LOAD = """    const int next = step + STAGES - 1;
    if (next < steps) {
      const unsigned to = base + next % STAGES * 2 * BYTES;
      load(to, a, m0, m, (i64)next * 64, k);
      load(to + BYTES, b, n0, n, (i64)next * 64, k);
    }
"""
_WAIT = "    cp_async_wait<STAGES - 2>();\n    \n    __syncthreads();\n"
FAULTS = {
    "a short wait": Fault(
        "gemm_mma", "cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>",
        schedules(early=False), "into which a cp.async may still be writing",
    ),
    "a missing barrier": Fault(
        "gemm_mma", _WAIT, "    cp_async_wait<STAGES - 2>();\n",
        schedules(ahead=True), "race: ",
    ),
    "an early prefetch": Fault(
        "gemm_mma", _WAIT + _LOAD, _LOAD + _WAIT,
        schedules(ahead=True, early=True), "race: ",
    ),
    "a missing zero fill": Fault("gemm_mma", "inside ? 16 : 0", "16", schedules()),
    "a wrong fragment row": Fault(
        "gemm_mma", "lane % 8 + lane / 16 * 8;", "lane % 16;", schedules()
    ),
    "a wrong swizzle": Fault("gemm_wgmma", "(column ^ (row & 7))", "column", schedules()),
    "a product not waited for": Fault(
        "gemm_wgmma", "async_proxy_fence(); wgmma_wait<0>();", "async_proxy_fence();",
        schedules(early=False),
    ),
}


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Library:
    """Both kernels, and one for each fault."""
    texts = {name: text for name, (text, _) in KERNELS.items()}
    for number, (name, fault) in enumerate(FAULTS.items()):
        right = texts[fault.kernel]
        assert right.count(fault.old) == 1, name
        wrong = right.replace(fault.old, fault.new)
        texts[name] = wrong.replace(f"{fault.kernel}(", f"fault_{number}(")
    texts["no proxy fence"] = WGMMA.replace("async_proxy_fence(); ", "").replace(
        "gemm_wgmma(", "unfenced("
    )
    return toolchain.compile(texts)


def product(
    library: Library, kernel: str, m: int, n: int, k: int, schedule: Schedule
) -> tuple[bool, Counts]:
    """Whether the result is right, and what was counted."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16)
    c = np.zeros((m, n), "f4")
    counts = library.launch(
        kernel, (-(-n // TILE), -(-m // TILE)), (THREADS,), [a, b, c, m, n, k], SHARED, schedule
    )
    want = a.astype("f8") @ b.astype("f8").T
    return bool(np.allclose(c, want, rtol=1e-4, atol=1e-3)), counts


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_product(kernel: str, library: Library) -> None:
    for schedule in (*ALL, *WATCHED):
        assert product(library, kernel, 70, 66, 264, schedule)[0], schedule
    assert product(library, kernel, 1, 129, 8, Schedule(ahead=True))[0]


@pytest.mark.parametrize("name", FAULTS)
def test_which_schedules_show_a_fault(name: str, library: Library) -> None:
    fault = FAULTS[name]
    kernel = f"fault_{list(FAULTS).index(name)}"
    wrong = {str(s) for s in ALL if not product(library, kernel, 70, 66, 264, s)[0]}
    assert wrong == set(fault.shown_by)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.watched])
def test_a_watched_launch_shows_a_fault_in_any_order(name: str, library: Library) -> None:
    kernel = f"fault_{list(FAULTS).index(name)}"
    for schedule in WATCHED:
        with pytest.raises(EmulatedError, match=FAULTS[name].watched):
            product(library, kernel, 70, 66, 264, schedule)


def test_wgmma_wants_a_fence(library: Library) -> None:
    with pytest.raises(EmulatedError, match=r"without fence\.proxy\.async"):
        product(library, "unfenced", 64, 64, 64, Schedule())


@pytest.mark.parametrize("kernel", KERNELS)
def test_nvrtc_takes_a_product(kernel: str) -> None:
    text, oldest = KERNELS[kernel]
    for architecture in needs.ARCHITECTURES[needs.ARCHITECTURES.index(oldest):]:
        use = needs.compiler(12).compile(PRELUDE + text, architecture).uses[kernel]
        assert use.registers <= 128 and use.spilled == 0, (architecture, use)


def test_the_swizzle_avoids_bank_conflicts(library: Library, toolchain: Toolchain) -> None:
    _, swizzled = product(library, "gemm_mma", 64, 64, 64, Schedule(watch=True))
    assert swizzled.worst == 1 and swizzled.wavefronts == swizzled.phases
    text = MMA.replace("(column ^ (row & 7))", "column").replace("gemm_mma(", "gemm_plain(")
    right, plain = product(
        toolchain.compile({"plain": text}), "gemm_plain", 64, 64, 64, Schedule(watch=True)
    )
    assert right and plain.worst == 8 and plain.worst_place.startswith("plain:")
