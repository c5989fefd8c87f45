"""Attention as CUDA C, on the emulator: its meaning under every order of threads, planted faults,
and what NVRTC makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, EmulatedError, Library, Schedule, Toolchain
from graphc.backends.cuda.source import Source, Target
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Attention, Kernel
from graphc.ir.record import replaced

from . import needs
from .attention_cases import (
    Case,
    agree,
    check,
    counted,
    cut,
    in_the_middle,
    launched,
    meaning,
    operands,
    plain,
    shared,
    turned,
    viewed,
)
from .emulated import EmulatedBackend

f32, bf16, f16, bool_ = dtypes.f32, dtypes.bf16, dtypes.f16, dtypes.bool_
WATCHED = (Schedule(watch=True), Schedule(watch=True, early=True))
GRAD = "attention_grad"
SIZES = ((70, 100), (1, 1), (64, 64), (129, 33), (9, 200))

OPTIONS = {
    "f32": Case(causal=True),
    "bf16": Case(dtype=bf16, causal=True, e=40, f=64),
    "bf16, added mask, dropout": Case(dtype=bf16, mask=(bf16, (2, 1, 100)), drop="kept"),
    "f32, added mask, drawn": Case(mask=(f32, (70, 1)), drop="draw", f=72),
    "f32 gradient": Case(GRAD, causal=True, mask=(bool_, (1, 70, 100))),
    "bf16 gradient": Case(GRAD, dtype=bf16, causal=True, drop="draw"),
}
MORE = {
    "f16, bool mask": Case(dtype=f16, mask=(bool_, (70, 100))),
    "f32, added mask, kept": Case(mask=(f32, (2, 1, 100)), drop="kept"),
    "f16 gradient, wide": Case(GRAD, dtype=f16, e=136, f=130, mask=(f16, (70, 100)), drop="kept"),
    "f32 gradient, wide": Case(GRAD, e=256, f=200, drop="draw"),
    "bf16, wide": Case(dtype=bf16, e=256, f=256),
    "one of a width": Case(GRAD, dtype=bf16, e=1, f=1, mask=(bf16, (70, 1))),
    "only dk": Case(GRAD, dtype=bf16, results=("dk",)),
    "only dv": Case(GRAD, results=("dv",)),
}


@pytest.fixture(autouse=True)
def _compiled_soon(emulated: EmulatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """These kernels take longer to compile than to run."""
    monkeypatch.setattr(emulated, "optimized", False)


def sized(case: Case, m: int, n: int) -> Case:
    """The same with other lengths."""
    if case.mask is None:
        return replaced(case, m=m, n=n)
    dtype, shape = case.mask
    lengths: dict[Size, int] = {case.m: m, case.n: n}
    return replaced(case, m=m, n=n, mask=(dtype, tuple(lengths.get(size, size) for size in shape)))


@pytest.mark.parametrize(
    "name", [*OPTIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
)
def test_options(name: str, emulated: EmulatedBackend) -> None:
    """At several lengths, all by one text: but where numbers are equal by chance, or 1."""
    texts = set()
    for m, n in SIZES:
        case = sized((OPTIONS | MORE)[name], m, n)
        if m != n:
            texts.add(emit(case.kernel()).text)
        check(emulated, case, (Schedule(ahead=True, direction="descending"),))
    assert len(texts) == 1


@pytest.mark.parametrize("name", ["f32", "bf16", "f32 gradient", "bf16 gradient"])
def test_every_schedule_gives_the_same_bits(name: str, emulated: EmulatedBackend) -> None:
    """With several tiles along either side."""
    check(emulated, replaced(OPTIONS[name], batch=(1,)), (*ALL, *WATCHED))


FEW = (
    Case(m=3, n=700, mask=(bool_, (3, 700))), Case(m=8, n=400, dtype=bf16, e=64, f=40),
    Case(m=70, n=1030, dtype=bf16, e=16, f=8),
    Case(m=8, n=300, causal=True), Case(m=1, n=257, dtype=f16, drop="draw"),
    Case(m=130, n=1100, causal=True, drop="draw"),
)


@pytest.mark.parametrize(
    "few", [FEW[:3], pytest.param(FEW[3:], marks=pytest.mark.slow)], ids=("three", "more")
)
def test_few_queries_share_out_their_keys(
    few: Sequence[Case], emulated: EmulatedBackend
) -> None:
    """Parts in scratch, and a stage that puts them together in their order."""
    for case in few:
        stages = emit(case.kernel(), Target("sm_90a")).stages
        assert [stage.name.split("_")[-1] for stage in stages] == ["forward", "combine"]
        m, n = int(case.m), int(case.n)  # type: ignore[arg-type]
        assert stages[0].blocks == 2 * -(-m // (16 if m <= 16 else 64)) * -(-n // 256)
        check(emulated, case, (Schedule(), WATCHED[0]))
    assert len(emit(replaced(FEW[1], n=256).kernel()).stages) == 1


def test_blocks_that_share_keys_are_not_too_many() -> None:
    """As many as a device has room for; none shares where there are enough queries."""
    case = Case(batch=(8,), m=1, n=1 << 17, dtype=bf16, e=128, f=128)
    for batch, keys in (((8,), 1024), ((600,), 1 << 16), ((4096,), 1 << 17)):
        stages = emit(replaced(case, batch=batch).kernel()).stages
        assert stages[0].blocks == batch[0] * (1 << 17) // keys, (batch, stages)
    full = replaced(case, batch=(64,), m=64, n=8192)
    assert [len(emit(replaced(full, m=m).kernel()).stages) for m in (16, 64)] == [2, 1]


def test_symbolic_lengths(emulated: EmulatedBackend) -> None:
    """One kernel."""
    m, n = Dim.var("m"), Dim.var("n")
    for dtype, kind in ((bf16, "attention"), (f32, GRAD)):
        texts = set()
        for lengths in ((65, 70), (2, 130), (17, 3)):
            case = Case(
                kind, m=m, n=n, dtype=dtype, causal=True, e=40, f=64,
                dims={"m": lengths[0], "n": lengths[1]},
            )
            texts.add(emit(case.kernel()).text)
            check(emulated, case)
        assert len(texts) == 1


VIEWS = {
    "heads in the middle": (in_the_middle, in_the_middle, in_the_middle, in_the_middle),
    "shared heads": (plain, shared(3), shared(3), plain),
    "rows that begin anywhere": (cut, turned, cut, in_the_middle),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, emulated: EmulatedBackend) -> None:
    """Read where they lie."""
    for case in (Case(batch=(2, 3), m=9, dtype=bf16, e=40, f=64, causal=True),
                 Case(GRAD, batch=(2, 3), m=9, n=40, causal=True)):
        views = VIEWS[name][: 3 if case.kind == "attention" else 4]
        check(emulated, viewed(case, views), WATCHED[:1])


@pytest.mark.parametrize("kind, dtype", [
    ("attention", bf16), (GRAD, bf16), pytest.param("attention", f32, marks=pytest.mark.slow),
    pytest.param(GRAD, f32, marks=pytest.mark.slow),
], ids=str)
def test_rows_that_attend_to_nothing(kind: str, dtype: DType, emulated: EmulatedBackend) -> None:
    """0 and infinity; a gradient of zeros."""
    kernel = Case(kind, dtype=dtype, mask=(bool_, (70, 100))).kernel()
    arrays = operands(kernel, {})
    assert isinstance(kernel.template, Attention)
    reads = dict(kernel.template.inputs)
    buffers = [param.name for param in kernel.params]
    arrays[buffers.index(reads["mask"].buffer)].reshape(70, 100)[3:40] = False
    if kind == GRAD:
        arrays[buffers.index(reads["lse"].buffer)].reshape(2, 70)[:, 3:40] = np.inf
    agree(kernel, launched(emulated, kernel, arrays, {}), meaning(kernel, arrays, {}))


def test_rows_whose_mask_is_the_least_float(emulated: EmulatedBackend) -> None:
    """What some models add in place of -inf: where all keys have it, they count alike."""
    for kind in ("attention", GRAD):
        case = Case(kind, dtype=bf16, mask=(bf16, (2, 1, 100)), drop="kept")
        kernel = case.kernel()
        arrays = operands(kernel, {})
        assert isinstance(kernel.template, Attention)
        reads = dict(kernel.template.inputs)
        mask = arrays[[param.name for param in kernel.params].index(reads["mask"].buffer)]
        mask[:130] = -3.3895314e38
        assert np.isfinite(mask.astype("f8")).all()
        if kind == GRAD:
            lse = arrays[[param.name for param in kernel.params].index(reads["lse"].buffer)]
            lse.reshape(2, 70)[0] = -3.3895314e38
        agree(kernel, launched(emulated, kernel, arrays, {}), meaning(kernel, arrays, {}))


def test_what_is_dropped_is_0(emulated: EmulatedBackend) -> None:
    """Whatever it was: NaN times 0 would be NaN."""
    kernel = Case(GRAD, dtype=bf16, drop="kept").kernel()
    arrays = operands(kernel, {})
    names = [param.name for param in kernel.params]
    inputs = dict(kernel.template.inputs)  # type: ignore[union-attr]
    arrays[names.index(inputs["lse"].buffer)].reshape(2, 70)[:, 3] = np.nan
    want = meaning(kernel, arrays, {})
    assert all(np.isnan(x.astype("f8")).any() for x in want[-3:])
    assert not np.isnan(want[-1].astype("f8")).all()
    agree(kernel, launched(emulated, kernel, arrays, {}), want)


@pytest.mark.slow
def test_scores_of_f16_may_be_large(emulated: EmulatedBackend) -> None:
    """Beyond what f16 has: they are f32, and so is their log-sum-exp."""
    kernel = Case(dtype=f16, mask=(bool_, (70, 100)), scale=3.0, results=("lse",)).kernel()
    arrays = operands(kernel, {}, size=100.0)
    want = meaning(kernel, arrays, {})
    assert np.nanmax(want[-1][np.isfinite(want[-1])]) > 1e5
    agree(kernel, launched(emulated, kernel, arrays, {}), want)


class Fault(NamedTuple):
    """A change to a text, and what a watched launch says of it; nothing: results are wrong."""

    case: Case
    old: str
    new: str
    watched: str = ""


_BF16, _F32 = OPTIONS["bf16"], Case(m=17)
FAULTS = {
    "a short wait": Fault(
        _BF16, "= stage;\n      cp_async_wait<0>", "= stage;\n      cp_async_wait<1>",
        "into which a cp.async may still be writing",
    ),
    "a missing barrier": Fault(
        _BF16, "= stage;\n      cp_async_wait<0>();\n      __syncthreads();",
        "= stage;\n      cp_async_wait<0>();", "race: ",
    ),
    "no barrier behind a block": Fault(
        replaced(_BF16, n=40), "    }\n    __syncthreads();\n  }", "    }\n  }", "race: "
    ),
    "no barrier of a warp": Fault(
        _F32, "__syncwarp();\n  for (int column", "for (int column", "race: "
    ),
    "a missing zero fill": Fault(_BF16, "source : x.base, inside ? 16 : 0", "source : x.base, 16"),
    "a transposed fragment": Fault(_BF16, "ldmatrix_x4_trans(b", "ldmatrix_x4(b"),
    "keys beyond the diagonal": Fault(_BF16, "key <= query + pairs", "key <= 1 + query + pairs"),
    "sums that keep their size": Fault(_F32, "i, j)] *= shrunk[i]", "i, j)] *= 1.0f"),
}


class Made(NamedTuple):
    library: Library
    kernels: dict[str, tuple[Kernel, Source]]


COUNTED = {
    "bf16": Case(dtype=bf16, e=64, f=64), "bf16 gradient": Case(GRAD, dtype=bf16, e=64, f=64),
    "f32": Case(e=64, f=64),
}


@pytest.fixture(scope="module")
def made(toolchain: Toolchain) -> Made:
    """What is counted, and one text for each fault."""
    kernels: dict[str, tuple[Kernel, Source]] = {}
    for name, case in COUNTED.items():
        kernel = case.kernel()
        kernels[name] = kernel, emit(kernel)
    for number, (name, fault) in enumerate(FAULTS.items()):
        kernel = fault.case.kernel()
        right = emit(kernel)
        assert right.text.count(fault.old) == 1, name
        wrong = right.text.replace(fault.old, fault.new).replace("attention_", f"fault{number}_")
        stages = (replaced(s, name=s.name.replace("attention_", f"fault{number}_"))
                  for s in right.stages)
        kernels[name] = kernel, replaced(right, text=wrong, stages=tuple(stages))
    texts = {name: source.text for name, (_, source) in kernels.items()}
    return Made(toolchain.compile(texts), kernels)


@pytest.mark.parametrize("name", COUNTED)
def test_bank_conflicts(name: str, made: Made) -> None:
    """None, where operands are copied by pieces of 16 bytes. (The emulator sees a float4 as two
    halves, which conflict where whole ones, eight lanes at a time, do not.)"""
    kernel, source = made.kernels[name]
    arrays = operands(kernel, {})
    got, counts = counted(made.library, source, kernel, arrays, WATCHED[0])
    agree(kernel, got, meaning(kernel, arrays, {}))
    for each in counts:
        assert each.worst == (2 if name == "f32" else 1), each.worst_place


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, made: Made) -> None:
    kernel, source = made.kernels[name]
    arrays, fault = operands(kernel, {}), FAULTS[name]
    want = meaning(kernel, arrays, {})
    for schedule in WATCHED:
        if fault.watched:
            with pytest.raises(EmulatedError, match=fault.watched):
                counted(made.library, source, kernel, arrays, schedule)
        else:
            got, _ = counted(made.library, source, kernel, arrays, schedule)
            with pytest.raises(AssertionError):
                agree(kernel, got, want)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.slow
def test_what_nvrtc_makes_of_it(
    architecture: str, golden: Callable[[str, str], None]
) -> None:
    """Registers are recorded; nothing spills."""
    nvrtc, lines = needs.compiler(12), []
    for dtype, width, kind in itertools.product((bf16, f32), (64, 128, 256), ("attention", GRAD)):
        plain_case = Case(kind, m=300, n=300, e=width, f=width, dtype=dtype, causal=True)
        for case in (plain_case, replaced(plain_case, mask=(bool_, (300, 300)), drop="draw")):
            source = emit(case.kernel())
            uses = nvrtc.compile(source.text, architecture).uses
            for stage in source.stages:
                use = uses[stage.name]
                name = stage.name.split("_")[-1]
                what = f"{dtype.name} {name}, heads of {width}{', mask, drawn' * bool(case.drop)}"
                assert use.spilled == 0, (case, stage, use)
                lines.append(
                    f"{what}: {use.registers} registers, {stage.threads} threads, "
                    f"{stage.shared} bytes\n"
                )
    if nvrtc.version == (12, 9):  # other releases give other numbers
        golden(f"cuda/attention_{architecture}.txt", "".join(lines))
