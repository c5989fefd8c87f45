"""Compiled functions do what the same script does in PyTorch (see scenario.py)."""

from __future__ import annotations

import pytest

import graphc
from tests.graphc import (
    scenarios_backward,
    scenarios_guards,
    scenarios_models,
    scenarios_picks,
    scenarios_state,
    scenarios_training,
    scenarios_values,
)
from tests.graphc.scenario import SCENARIOS, compare, identity, run
from tests.reference import torch

__all__ = [
    "scenarios_backward", "scenarios_guards", "scenarios_models", "scenarios_picks",
    "scenarios_state", "scenarios_training", "scenarios_values",
]


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_as_torch(name: str) -> None:
    function, tolerance = SCENARIOS[name]
    expected = run(function, torch, identity)
    compare(expected, run(function, graphc, identity), tolerance)
    compare(expected, run(function, graphc, graphc.compile), tolerance)
