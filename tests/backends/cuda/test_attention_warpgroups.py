"""Attention by wgmma on the emulator: its meaning under orders of threads, planted faults, and what
NVRTC makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, EmulatedError, Library, Schedule, Toolchain
from graphc.backends.cuda.source import Source, Target
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.kernel import Kernel
from graphc.ir.record import replaced

from . import needs
from .attention_cases import Case, agree, check, counted, launched, meaning, operands
from .emulated import EmulatedBackend

bf16, f16, bool_ = dtypes.bf16, dtypes.f16, dtypes.bool_
HOPPER = Target("sm_90a")
GRAD = "attention_grad"
WATCHED = (Schedule(watch=True), Schedule(watch=True, early=True))
BY_WGMMA = "wgmma_registers("

OPTIONS = {
    "causal": Case(dtype=bf16, m=200, n=270, e=64, f=64, causal=True),
    "added mask, kept": Case(
        dtype=f16, m=129, n=333, e=40, f=128, mask=(f16, (2, 1, 333)), drop="kept"
    ),
    "gradient": Case(GRAD, dtype=bf16, m=270, n=200, e=64, f=64, causal=True, drop="draw"),
    "gradient, bool mask": Case(GRAD, dtype=f16, m=65, n=131, e=40, f=100, mask=(bool_, (65, 131))),
}
MORE = {
    "wide, drawn": Case(dtype=bf16, m=65, n=333, e=256, f=200, drop="draw", causal=True),
    "one of a width": Case(dtype=bf16, m=65, n=65, e=1, f=1),
    "more queries than keys": Case(dtype=bf16, m=400, n=65, e=64, f=64, causal=True),
    "scores that fall": Case(dtype=bf16, m=70, n=140, e=64, f=64, scale=-0.5),
    "gradient, added mask, kept": Case(
        GRAD, dtype=bf16, m=129, n=333, e=96, f=128, mask=(bf16, (2, 1, 333)), drop="kept",
        causal=True,
    ),
    "gradient, scores that fall": Case(GRAD, dtype=bf16, m=70, n=140, e=64, f=64, scale=-0.5),
    "gradient, wide": Case(GRAD, dtype=f16, m=70, n=140, e=192, f=256, drop="draw"),
    "only dk": Case(GRAD, dtype=bf16, m=129, n=133, e=64, f=128, results=("dk",)),
    "only dv": Case(GRAD, dtype=bf16, m=129, n=133, e=64, f=128, results=("dv",)),
}


@pytest.fixture(scope="module")
def hopper(toolchain: Toolchain) -> EmulatedBackend:
    return EmulatedBackend(toolchain, HOPPER)


@pytest.mark.parametrize(
    "name", [*OPTIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
)
def test_options(name: str, hopper: EmulatedBackend) -> None:
    """At odd sizes, without a race."""
    case = (OPTIONS | MORE)[name]
    if "wide" not in name:
        assert BY_WGMMA in emit(case.kernel(), HOPPER).text
    check(hopper, case, WATCHED)


@pytest.mark.parametrize("name", ["causal", "gradient"])
def test_every_schedule_gives_the_same_bits(name: str, hopper: EmulatedBackend) -> None:
    """With several tiles along either side."""
    check(hopper, replaced(OPTIONS[name], batch=(1,)), ALL)


def test_symbolic_lengths(hopper: EmulatedBackend) -> None:
    """One text, for lengths below a tile, too."""
    m, n = Dim.var("m"), Dim.var("n")
    texts = set()
    for lengths in ((129, 257), (2, 130), (17, 3), (300, 2)):
        case = Case(
            m=m, n=n, dtype=bf16, causal=True, e=64, f=64,
            dims={"m": lengths[0], "n": lengths[1]},
        )
        texts.add(emit(case.kernel(), HOPPER).text)
        check(hopper, case)
    assert len(texts) == 1 and BY_WGMMA in texts.pop()


@pytest.mark.parametrize("kind", ["attention", pytest.param(GRAD, marks=pytest.mark.slow)])
def test_rows_that_attend_to_nothing(kind: str, hopper: EmulatedBackend) -> None:
    """0 and infinity; a gradient of zeros."""
    kernel = Case(kind, dtype=bf16, m=70, n=140, e=64, f=64, mask=(bool_, (70, 140))).kernel()
    arrays = operands(kernel, {})
    names = [param.name for param in kernel.params]
    inputs = dict(kernel.template.inputs)  # type: ignore[union-attr]
    arrays[names.index(inputs["mask"].buffer)].reshape(70, 140)[[0, 69]] = False
    if kind == GRAD:
        arrays[names.index(inputs["lse"].buffer)].reshape(2, 70)[:, [0, 69]] = np.inf
    agree(kernel, launched(hopper, kernel, arrays, {}), meaning(kernel, arrays, {}))


@pytest.mark.slow
def test_what_is_dropped_is_0(hopper: EmulatedBackend) -> None:
    """Whatever it was."""
    kernel = Case(GRAD, dtype=bf16, m=70, n=140, e=64, f=64, drop="kept").kernel()
    arrays = operands(kernel, {})
    names = [param.name for param in kernel.params]
    inputs = dict(kernel.template.inputs)  # type: ignore[union-attr]
    arrays[names.index(inputs["lse"].buffer)].reshape(2, 70)[:, 3] = np.nan
    agree(kernel, launched(hopper, kernel, arrays, {}), meaning(kernel, arrays, {}))


def test_what_is_left_to_mma() -> None:
    """Few rows, f32, and other architectures."""
    case = OPTIONS["causal"]
    assert BY_WGMMA not in emit(case.kernel(), Target("sm_90")).text
    for other in (replaced(case, m=64), replaced(case, dtype=dtypes.f32), replaced(case, n=64)):
        assert BY_WGMMA not in emit(other.kernel(), HOPPER).text


class Fault(NamedTuple):
    """A change to a text, and what a watched launch says of it; nothing: results are wrong.
    `early`: also where products are done at once."""

    old: str
    new: str
    watched: str = ""
    early: bool = True


FAULTS = {
    "no fence": Fault(
        "  settle<COLUMNS / 4>(halves);\n  wgmma_fence();", "",
        "registers of a wgmma have been written since",
    ),
    "no fence of shared memory": Fault("  async_proxy_fence();\n", "", "without fence.proxy"),
    "another swizzle": Fault("(piece ^ row) & 7", "piece & 7"),
    "values a tile too late": Fault(
        "begin_sums<F>(sums, halves, stage + RIGHT_F);\n      load",
        "begin_sums<F>(sums, halves, other + RIGHT_F);\n      load", "race: ",
    ),
    "scores read too soon": Fault("wgmma_wait<1>();", "", early=False),
    "sums read too soon": Fault(
        "wgmma_wait<0>();\n      settle<F", "settle<F", "race: ", early=False
    ),
    "a short wait for copies": Fault(
        "  cp_async_wait<0>();\n  async_", "  cp_async_wait<1>();\n  async_", "race: "
    ),
    "no barrier": Fault("fence();\n  __syncthreads();", "fence();", "race: "),
    "panels that lie elsewhere": Fault("COLUMNS * 128));", "128));"),
    "a fragment of other rows": Fault(
        "(s[2 * n], s[2 * n + 1]);", "(s[2 * (n ^ 1)], s[2 * n + 1]);"
    ),
}


class Made(NamedTuple):
    library: Library
    sources: dict[str, Source]
    kernel: Kernel


@pytest.fixture(scope="module")
def made(toolchain: Toolchain) -> Made:
    """A text for each fault, of heads of two panels."""
    kernel = Case(batch=(1,), m=130, n=390, e=64, f=128, dtype=bf16).kernel()
    right, sources = emit(kernel, HOPPER), {}
    for number, (name, fault) in enumerate(FAULTS.items()):
        assert right.text.count(fault.old) == 1, name
        wrong = right.text.replace(fault.old, fault.new).replace("attention_", f"fault{number}_")
        (stage,) = right.stages
        stage = replaced(stage, name=stage.name.replace("attention_", f"fault{number}_"))
        sources[name] = replaced(right, text=wrong, stages=(stage,))
    texts = {name: source.text for name, source in sources.items()}
    return Made(toolchain.compile(texts), sources, kernel)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, made: Made) -> None:
    fault, arrays = FAULTS[name], operands(made.kernel, {})
    want = meaning(made.kernel, arrays, {})
    for schedule in WATCHED if fault.early else WATCHED[:1]:
        call = (made.library, made.sources[name], made.kernel, arrays, schedule)
        if fault.watched:
            with pytest.raises(EmulatedError, match=fault.watched):
                counted(*call)
        else:
            got, _ = counted(*call)
            with pytest.raises(AssertionError):
                agree(made.kernel, got, want)


def test_what_waits_for_a_product_is_seen() -> None:
    """The assembler says where sums are read that are under way: it would make wgmma wait."""
    nvrtc = needs.compiler(12)
    text = emit(OPTIONS["causal"].kernel(), HOPPER).text
    assert not nvrtc.compile(text, "sm_90a").losses
    fault = "      wgmma_wait<1>();\n      settle<COLUMNS / 2>(s);\n"
    assert text.count(fault) == 1
    (said,) = nvrtc.compile(text.replace(fault, ""), "sm_90a").losses
    assert "wgmma.mma_async instructions are serialized" in said


@pytest.mark.slow
def test_what_nvrtc_makes_of_it(golden: Callable[[str, str], None]) -> None:
    """Nothing spills, and nothing is serialised; registers are recorded."""
    nvrtc, lines = needs.compiler(12), []
    for width, kind in itertools.product((64, 128, 256), ("attention", GRAD)):
        plain = Case(kind, m=300, n=300, e=width, f=width, dtype=bf16, causal=True)
        for what, case in {
            "": plain, ", drawn": replaced(plain, drop="draw"),
            ", bool mask, drawn": replaced(plain, mask=(bool_, (300, 300)), drop="draw"),
            ", added mask, drawn": replaced(plain, mask=(bf16, (300, 300)), drop="draw"),
        }.items():
            source = emit(case.kernel(), HOPPER)
            compiled = nvrtc.compile(source.text, "sm_90a")
            assert not compiled.losses, (case, compiled.losses)
            for stage in source.stages:
                use = compiled.uses[stage.name]
                assert use.spilled == 0, (case, stage, use)
                lines.append(
                    f"bf16 {stage.name.split('_')[-1]}, heads of {width}{what}: {use.registers} "
                    f"registers, {stage.threads} threads, {stage.shared} bytes\n"
                )
    if nvrtc.version == (12, 9):  # other releases give other numbers
        golden("cuda/attention_sm_90a.txt", "".join(lines))
