"""Graphs lowered for the GPU's Machine: their kernels on the emulator mean what the graph means."""

from __future__ import annotations

import random

import pytest

from graphc.config import Config
from graphc.engine import pipeline

from ...fuzz import check
from ...fuzz.generate import generate, is_unrolled
from .emulated import NAME, SCHEDULES, EmulatedBackend


def check_seeds(seeds: range, emulated: EmulatedBackend) -> None:
    """Cases of the fuzzer, under every schedule. All kernels are compiled at once."""
    built = []
    for seed in seeds:
        if not is_unrolled(seed):
            case = generate(seed)
            built.append((case, pipeline.build(
                case.graph, config=Config(), mutated=dict(case.mutated), backend=NAME
            )))
    for case, executable in built:
        for schedule in SCHEDULES:
            emulated.schedule = schedule
            rng = random.Random(case.seed)
            failure = check._runs(case, executable, "native", rng, check.Tally())
            assert failure is None, f"seed {case.seed}, {schedule}: {failure}"


def test_random_graphs(emulated: EmulatedBackend) -> None:
    check_seeds(range(30), emulated)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 200))
def test_many_random_graphs(first: int, emulated: EmulatedBackend) -> None:
    check_seeds(range(first, first + 200), emulated)
