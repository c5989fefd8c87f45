"""The code of products: planted faults are found, no architecture spills, no bank conflicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, EmulatedError, Schedule, Toolchain
from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.templates import gemm_plan
from graphc.ir.record import replaced

from . import needs
from .product_cases import Case, arrays, launch, wrong

MMA = Case("bf16", 72, 66, 264, "r", "k")
SIMT = Case("f32", 70, 66, 50, "k", "r")
SPLIT = Case("f32", 9, 17, 600, "r", "k")
WGMMA = Case("bf16", 70, 66, 400)
WGMMA_ROWS = Case("bf16", 70, 100, 200, "r", "r")
UNALIGNED = Case("bf16", 40, 20, 101, "k", "r")
EVERY = (*ALL, Schedule(watch=True), Schedule(watch=True, early=True))


class Fault(NamedTuple):
    """A change to a kernel's text, the place-th of those that could be so changed."""

    case: Case
    old: str
    new: str
    place: int = 0


_WAIT = "      cp_async_wait<AHEAD - 1>();\n      __syncthreads();\n"
_LINES = "  right_tile.begin(n0);\n"
FAULTS = {
    "a short wait": Fault(MMA, "cp_async_wait<AHEAD - 1>", "cp_async_wait<AHEAD>"),
    "no barrier behind the wait": Fault(MMA, _WAIT, _WAIT.split("\n")[0] + "\n"),
    "no barrier before the sums": Fault(
        MMA, "  cp_async_wait<0>();\n  __syncthreads();\n", "  cp_async_wait<0>();\n"
    ),
    "no barrier behind the sums": Fault(
        MMA, "first, end, sums);\n    __syncthreads();", "first, end, sums);"
    ),
    "no zeros behind the edge": Fault(MMA, "from, count * ITEM_BYTES)", "from, 16)"),
    "a wrong transposed row": Fault(MMA, "16 + lane / 16 * 8 + lane % 8;", "16 + lane % 16;"),
    "a wrong swizzle": Fault(MMA, "(piece ^ (line & 7))", "(piece ^ (line & 3))", -1),
    "a wrong order of pieces": Fault(SPLIT, "((piece * size_", "((piece / 2 * size_"),
    "a wait too many": Fault(SIMT, "cp_async_wait<0>();\n    __syncthreads();", "__syncthreads();"),
    "no barrier between stages": Fault(
        SIMT, "cp_async_wait<0>();\n    __syncthreads();", "cp_async_wait<0>();"
    ),
    "a stage too few": Fault(SIMT, "(step + 1) % 2", "step % 2"),
    "a piece left out": Fault(SPLIT, "for (i64 piece = 1;", "for (i64 piece = 2;"),
    "no barrier behind the lines": Fault(MMA, _LINES + "  __syncthreads();\n", _LINES),
    "a shift left out": Fault(UNALIGNED, "skip & 4 ?", "skip & 8 ?"),
    "a half of another row": Fault(UNALIGNED, "found & 0xffff", "found"),
    "a stage written too soon": Fault(WGMMA, "step + AHEAD;", "step + AHEAD + 1;"),
    "no fence of the proxies": Fault(WGMMA, "      async_proxy_fence();\n", ""),
    "a short wait for a stage": Fault(WGMMA, "cp_async_wait<AHEAD - 1>", "cp_async_wait<AHEAD>"),
    "a panel of another place": Fault(WGMMA_ROWS, "DEEP * 128)", "DEEP * 64)", -1),
    "rows taken for k": Fault(WGMMA_ROWS, "bf16_n128<1, 1>", "bf16_n128<1, 0>"),
    "sums read too soon": Fault(WGMMA, "  wgmma_wait<0>();\n", ""),
    "a row of another place": Fault(SIMT, "thread + i * (TALL / OWN)", "thread * OWN + i", -1),
}
HOPPER = (WGMMA, WGMMA_ROWS)
HARMLESS = {"a wrong swizzle", "a row of another place"}  # as long as all sides agree


def changed(name: str) -> Source:
    fault = FAULTS[name]
    source = emit(fault.case.kernel(), Target("sm_90a" if fault.case in HOPPER else "sm_80"))
    assert fault.old in source.text, name
    return replaced(source, text=source.text.replace(fault.old, fault.new))


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(
    name: str, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    if FAULTS[name].case in HOPPER:
        monkeypatch.setattr(gemm_plan, "BLOCKS", 1)
        monkeypatch.setattr(gemm_plan, "WARPGROUPS", gemm_plan.WARPGROUPS[::-1])
    source, kernel = changed(name), FAULTS[name].case.kernel()
    library = toolchain.compile({"fault": source.text})

    def is_found(schedule: Schedule) -> bool:
        try:
            return bool(wrong(kernel, source, library, schedule))
        except EmulatedError:
            return True

    assert any(map(is_found, EVERY)) != (name in HARMLESS)


def code(dtypes: str, layouts: str) -> tuple[Case, ...]:
    """Products that take the large tile, and such as take the small one, k in pieces."""
    return tuple(
        Case(dtype, m, 128, 4096, *layout)
        for dtype in dtypes.split() for m in (1 << 15, 100) for layout in layouts.split()
    )


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
def test_registers(architecture: str, golden: Callable[[str, str], None]) -> None:
    """What products use is recorded; one that spills fails."""
    record(f"products_{architecture}", architecture, code("bf16 f32", "kr kk"), golden)


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
def test_registers_of_tf32(architecture: str, golden: Callable[[str, str], None]) -> None:
    cases = tuple(case._replace(tf32=True) for case in code("f32", "kr rk"))
    record(f"tf32_products_{architecture}", architecture, cases, golden)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
def test_registers_of_more(architecture: str, golden: Callable[[str, str], None]) -> None:
    cases = (*code("bf16 f32", "rk rr"), *code("f16", "rr"), *code("f64", "kk kr rk rr"))
    record(f"more_products_{architecture}", architecture, cases, golden)


def record(
    name: str, architecture: str, cases: tuple[Case, ...], golden: Callable[[str, str], None]
) -> None:
    nvrtc = needs.compiler(12)
    lines, known = [], {}
    for case in cases:
        source = emit(case.kernel(), Target(architecture))
        if source.text not in known:
            compiled = nvrtc.compile(source.text, architecture)
            assert not compiled.losses, (case, compiled.losses)  # wgmma that waits for others
            known[source.text] = compiled.uses
        uses = known[source.text]
        assert all(use.spilled == 0 for use in uses.values()), case
        registers = ", ".join(f"{uses[stage.name].registers}" for stage in source.stages)
        size = "large" if case.m > 100 else "small"
        lines.append(
            f"{case.dtype} {case.left}{case.right} {size}: registers {registers}; "
            f"{source.stages[0].shared} bytes shared\n"
        )
    if nvrtc.version == (12, 9):
        golden(f"cuda/{name}.txt", "".join(lines))


def test_bank_conflicts(toolchain: Toolchain) -> None:
    kinds = (("bf16", False), ("f32", False), ("f32", True))
    cases = [
        Case(d, 64, 64, 64, x, y, tf32=tf32) for d, tf32 in kinds for x in "kr" for y in "kr"
    ]
    sources = [emit(case.kernel()) for case in cases]
    library = toolchain.compile({source.stages[0].name: source.text for source in sources})
    for case, source in zip(cases, sources, strict=True):
        (counts,) = launch(library, source, arrays(case.kernel(), {}), {}, Schedule(watch=True))
        # where sums are written, once in a tile: a pair or a piece of them is several accesses here
        assert counts.worst <= 4 and counts.wavefronts < 1.2 * counts.phases, (case, counts)
