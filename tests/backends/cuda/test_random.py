"""Random graphs on the emulator: what their kernels become means what the graph means, however
loops are shared out to threads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphc.backends.cuda.emulator import Schedule
from graphc.backends.cuda.loops import mapping
from graphc.backends.numpy import TABLE
from graphc.doubt.case import Case
from graphc.engine import pipeline
from graphc.engine.built import Built
from graphc.ir import interpret, ops
from tests.fuzz.__main__ import config
from tests.fuzz.check import Tally, run_built
from tests.fuzz.generate import generate
from tests.ir.kernel_cases import build

from .emulated import NAME, EmulatedBackend

SCHEDULES = (Schedule(watch=True), Schedule(ahead=True, direction="descending"))
# small graphs have none of these by themselves: several columns of a thread, rows of a whole block,
# few threads, tiles in shared memory
WAYS = {
    "as it is": {},
    "wide": {"_COLUMNS": 0, "_ELEMENTS": 0, "_WIDE_ELEMENTS": 1, "_KEPT": 0},
    "few": {"_THREADS": 1, "_COLUMNS": 0},
}


@pytest.fixture(autouse=True)
def _numbers_may_overflow() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def built(seed: int) -> tuple[Case, Built]:
    case = generate(seed)
    mutated = dict(case.mutated)
    return case, pipeline.build(case.graph, config=config(1), mutated=mutated, backend=NAME)


def run(seeds: range, emulated: EmulatedBackend) -> None:
    """All are compiled at once."""
    for case, executable in [built(seed) for seed in seeds]:
        for schedule in SCHEDULES:
            emulated.schedule = schedule
            failure = run_built(case, executable, str(schedule), random.Random(case.seed), Tally())
            assert failure is None, f"seed {case.seed}: {failure}"


def test_a_few_random_graphs(emulated: EmulatedBackend) -> None:
    run(range(8), emulated)


@pytest.mark.parametrize("groups", [1, 3])
def test_convolutions_in_the_order_of_a_cpu(groups: int, emulated: EmulatedBackend) -> None:
    """Channels last, of panels of weights: what has code here reads and writes another order."""

    def function(x: Any, w: Any) -> Any:
        return ops.conv_last(
            x, w, outputs=15, stride=(2,), pad_low=(1,), pad_high=(1,), dilation=(1,),
            groups=groups, group=1,
        )

    emulated.schedule = SCHEDULES[0]
    graph = build(function, (2, 3, 9), (15, 1, 9 // groups, 1))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(node.shape).astype(np.float32) for node in graph.inputs]
    (want,) = interpret.evaluate(graph, inputs, TABLE)
    got = np.full(want.shape, np.nan, np.float32)
    pipeline.build(graph, config=config(1), backend=NAME).run(inputs, [got])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("start", range(1000, 1500, 20))
def test_random_graphs(
    start: int, way: str, emulated: EmulatedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that were met before are not emitted again, so ways have seeds of their own."""
    for name, value in WAYS[way].items():
        monkeypatch.setattr(mapping, name, value)
    offset = 1000 * list(WAYS).index(way)
    run(range(start + offset, start + offset + 20), emulated)
