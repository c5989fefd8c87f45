"""Gradients that cross a compiled function's border are those of PyTorch in eager mode."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import graphc
from tests.graphc.gradient_cases import CASES
from tests.graphc.scenario import compare, flat, identity

for _theme in ("functions", "inference", "outputs", "second", "twice", "views"):
    importlib.import_module(f"tests.graphc.gradient_cases_{_theme}")


def run(name: str, torch: Any, compile: Any) -> list[Any]:
    torch.manual_seed(0)
    return flat(CASES[name](torch, compile))


@pytest.mark.parametrize("name", sorted(CASES))
def test_as_in_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    want = run(name, torch, identity)
    compare(want, run(name, graphc, identity), 1e-10)
    compare(want, run(name, graphc, graphc.compile), 1e-10)
