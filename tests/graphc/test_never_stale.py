"""Compiled functions are never stale and never silent: whatever changes between their calls."""

from __future__ import annotations

import pytest

import graphc
from tests.graphc import (
    scenarios_stale_classes,
    scenarios_stale_code,
    scenarios_stale_copies,
    scenarios_stale_counted,
    scenarios_stale_effects,
    scenarios_stale_fields,
    scenarios_stale_given,
    scenarios_stale_groups,
    scenarios_stale_hooks,
    scenarios_stale_later,
    scenarios_stale_layout,
    scenarios_stale_memory,
    scenarios_stale_numbers,
    scenarios_stale_opaque,
    scenarios_stale_packages,
    scenarios_stale_repeated,
    scenarios_stale_results,
    scenarios_stale_same,
    scenarios_stale_state,
    scenarios_stale_tensors,
    scenarios_stale_unseen,
    scenarios_strides,
)
from tests.graphc.scenario import compare, identity, run
from tests.graphc.stale_scenario import STALE
from tests.reference import torch

__all__ = [
    "scenarios_stale_classes", "scenarios_stale_code", "scenarios_stale_copies",
    "scenarios_stale_counted", "scenarios_stale_effects", "scenarios_stale_fields",
    "scenarios_stale_given", "scenarios_stale_groups", "scenarios_stale_hooks",
    "scenarios_stale_later", "scenarios_stale_layout", "scenarios_stale_memory",
    "scenarios_stale_numbers", "scenarios_stale_opaque", "scenarios_stale_packages",
    "scenarios_stale_repeated", "scenarios_stale_results", "scenarios_stale_same",
    "scenarios_stale_state", "scenarios_stale_tensors", "scenarios_stale_unseen",
    "scenarios_strides",
]

# What is known to be wrong; an entry that passes fails the suite, and goes.
KNOWN: set[str] = set()

OPEN = pytest.mark.xfail(reason="not guarded or not seen yet", strict=True)


@pytest.mark.parametrize("name", [pytest.param(n, marks=OPEN) if n in KNOWN else n for n in STALE])
def test_same_as_torch(name: str) -> None:
    function, tolerance = STALE[name]
    expected = run(function, torch, identity)
    compare(expected, run(function, graphc, identity), tolerance)
    compare(expected, run(function, graphc, graphc.compile), tolerance)


def test_the_known_ones_exist() -> None:
    assert not KNOWN - STALE.keys()
