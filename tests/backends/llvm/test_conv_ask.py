"""Convolutions whose tiles ask for what comes next: where registers have 32 bytes, or the third
cache is far away. `test_conv_last.py` has those of 32 bytes."""

from collections.abc import Iterator
from typing import Any

import pytest

from graphc.backends.llvm import target as targets
from graphc.backends.llvm.conv_last_kernel import asks_rows, follows
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.target import Target, host_target, make_target
from graphc.ir.kernel import Convolution, plan_convolution
from graphc.ir.kernel.plan_convolution import contractions as planned
from graphc.ir.kernel.plan_convolution import strips_plan
from graphc.ir.kernel.plan_strips import strips_of
from graphc.ir.record import replaced

from .contractions import Conv, forget_machines
from .test_conv import check as check_conv
from .test_conv_last import Last, check, kernel_of

FEATURES = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"
LARGE = Last(2, 256, (33, 32), 40, (1, 1), (1, 1), (0, 0), (1, 1), 3)  # rows are asked for
MANY = Last(1, 512, (7, 7), 270, (1, 1), (1, 1), (0, 0), (1, 1), 4)  # weights are, for 49 pixels
LINES = Last(1, 256, (14, 14), 128, (3, 3), (1, 1), (1, 1), (1, 1), 4)  # and line by line


def _wide(cpu: str) -> Target:
    return make_target("x86_64-unknown-linux-gnu", cpu, FEATURES)


@pytest.mark.parametrize("cpu", ["skylake-avx512", "emeraldrapids", "znver4", "znver5", ""])
def test_wide_registers_ask_where_the_third_cache_is_far(cpu: str) -> None:
    target, far = _wide(cpu), cpu in ("skylake-avx512", "emeraldrapids")
    assert target.machine.tiling.channels.asks is far
    assert (target.machine.tiling.far is not None) is far
    c = kernel_of(LARGE, target)[0].template
    assert isinstance(c, Convolution)
    assert asks_rows(c, Tile("f32", target)) is far
    assert (follows(c, Tile("f32", target)) is not None) is far
    text = emit_library("conv_last.6.f32", target).text()
    assert ("@graphc_asking_6x4" in text) is far
    names = template_libraries(kernel_of(LINES, target)[0], target)
    assert any(name.startswith("strip_tile_asking.") for name in names) is far


def test_narrow_code_for_such_a_cpu_asks_for_nothing() -> None:
    """Nobody has timed it."""
    assert not make_target("x86_64-unknown-linux-gnu", "emeraldrapids").machine.tiling.channels.asks


@pytest.fixture(params=[True, False], ids=["far", "near"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """The host, whose third cache is far away, or is not."""
    if host_target().vector_bytes != 64:
        pytest.skip("such CPUs have AVX-512")
    found = host_target()
    monkeypatch.setattr(targets, "_FAR", {found.cpu} if request.param else set())
    forget_machines()
    yield found
    monkeypatch.undo()
    forget_machines()


@pytest.mark.parametrize("case", [LARGE, MANY, LINES], ids=["rows", "weights", "lines"])
def test_sums_are_the_references_for_any_threads(case: Last, host: Target) -> None:
    assert check(case, host) == check(case, host, threads=4)


STRIPS = Conv(8, 256, (4, 4), 200, (3, 3), pad=(1, 1))  # 2 MB of weights
FEW = Conv(8, 32, (4, 4), 64, (3, 3), pad=(1, 1))


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
def test_strips_are_few_and_ask_where_a_far_cache_has_their_weights(kind: str) -> None:
    for cpu, case, asks in (
        ("emeraldrapids", STRIPS, True), ("emeraldrapids", FEW, False), ("znver5", STRIPS, False),
    ):
        target = _wide(cpu)
        c = case.kernel(kind).template
        assert isinstance(c, Convolution)
        plan = strips_plan(c, target.machine)[2]
        assert (plan.asks, plan.strips) == (asks, 1 if asks else 4)  # each has all weights come


def test_strips_cost_more_where_a_far_cache_has_their_weights() -> None:
    c = Conv(16, 512, (4, 4), 512, (3, 3), pad=(1, 1)).kernel("conv").template
    assert isinstance(c, Convolution)
    for cpu, kind in (("emeraldrapids", "places"), ("znver5", "strips")):
        (way,) = planned(c, _wide(cpu).machine) or ()
        assert way.kind == kind


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
def test_sums_by_strips_are_the_references_for_any_threads(
    kind: str, host: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cheapest(*args: Any) -> Any:
        found = strips_of(*args)
        return found and replaced(found, cost=-(1 << 60))

    monkeypatch.setattr(plan_convolution, "strips_of", cheapest)
    kernel = STRIPS.kernel(kind)
    names = template_libraries(kernel, host)
    asks = any(name.startswith("strip_tile_asking.") for name in names)
    assert asks is host.machine.tiling.channels.asks
    assert asks or any(name.startswith("strip_tile.") for name in names)
    results = [check_conv(STRIPS, kind, host, threads) for threads in (1, 4)]
    assert results[0].tobytes() == results[1].tobytes()
