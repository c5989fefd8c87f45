"""Attention as CUDA C, on the emulator: its meaning under every order of threads, planted faults,
and what NVRTC makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Schedule
from graphc.ir import dtypes
from graphc.ir.dim import Size

from .attention_cases import Case, check
from .emulated import EmulatedBackend

f32, bf16, f16, bool_ = dtypes.f32, dtypes.bf16, dtypes.f16, dtypes.bool_
WATCHED = (Schedule(watch=True), Schedule(watch=True, early=True))
GRAD = "attention_grad"
SIZES = ((70, 100), (1, 1), (64, 64), (129, 33), (9, 200))

OPTIONS = {
    "f32": Case(causal=True),
    "bf16": Case(dtype=bf16, causal=True, e=40, f=64),
    "f16, bool mask": Case(dtype=f16, mask=(bool_, (70, 100))),
    "bf16, added mask, dropout": Case(dtype=bf16, mask=(bf16, (2, 1, 100)), drop="kept"),
    "f32, added mask, drawn": Case(mask=(f32, (70, 1)), drop="draw", f=72),
    "f32 gradient": Case(GRAD, causal=True, mask=(bool_, (1, 70, 100))),
    "bf16 gradient": Case(GRAD, dtype=bf16, causal=True, drop="draw"),
    "f16 gradient, wide": Case(GRAD, dtype=f16, e=136, f=130, mask=(f16, (70, 100)), drop="kept"),
}


def sized(case: Case, m: int, n: int) -> Case:
    """The same with other lengths."""
    if case.mask is None:
        return replace(case, m=m, n=n)
    dtype, shape = case.mask
    lengths: dict[Size, int] = {case.m: m, case.n: n}
    return replace(case, m=m, n=n, mask=(dtype, tuple(lengths.get(size, size) for size in shape)))


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str, emulated: EmulatedBackend) -> None:
    """At several lengths, all by one text: but where numbers are equal by chance, or 1."""
    texts = set()
    for m, n in SIZES:
        case = sized(OPTIONS[name], m, n)
        if m != n:
            texts.add(emit(case.kernel()).text)
        check(emulated, case, (Schedule(ahead=True, direction="descending"),))
    assert len(texts) == 1


@pytest.mark.parametrize("name", ["f32", "bf16", "f32 gradient", "bf16 gradient"])
def test_every_schedule_gives_the_same_bits(name: str, emulated: EmulatedBackend) -> None:
    """With several tiles along either side."""
    check(emulated, replace(OPTIONS[name], batch=(1,)), (*ALL, *WATCHED))
