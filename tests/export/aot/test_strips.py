"""Training steps with convolutions strip by strip in a library: it has the code that they share."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import backends, config
from graphc.backends.llvm import microkernel
from graphc.backends.llvm import target as targets
from graphc.backends.llvm.conv_reach import conv_reach, is_by_strips
from graphc.backends.llvm.target import host_target
from graphc.export import aot, export_step
from graphc.ir.kernel import plan_convolution
from graphc.ir.kernel.plan_strips import strips_of
from graphc.ir.record import replaced

from .step_client import StepLibrary
from .steps import Case


class Strips(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(20, 5, 3, 3) / 4)
        self.second = torch.nn.Parameter(torch.randn(10, 20, 5, 5) / 9)

    def forward(self, x: Any) -> Any:
        x = F.conv2d(x, self.first, padding=1).relu()
        x = F.conv2d(x, self.second, stride=2, padding=2)
        return x.mean((2, 3))


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Strips cost nothing, and all CPUs with AVX-512 may do them; whether there was such a plan,
    time after time."""
    found = list[bool]()

    def cheapest(*args: Any) -> Any:
        plan = strips_of(*args)
        found.append(plan is not None)
        return plan and replaced(plan, cost=-(1 << 60))

    monkeypatch.setattr(plan_convolution, "strips_of", cheapest)
    monkeypatch.setattr(targets, "_SPLIT", {host_target().cpu, "x86-64-v4"})
    # code is known by its kernel, not by its plan: that of plans of before is none of these
    monkeypatch.setattr(backends.get(backends.DEFAULT), "_caches", {})
    kept = conv_reach, is_by_strips, targets._machine, microkernel._machine
    for each in kept:
        each.cache_clear()
    with config.override(cache_dir=None):
        yield found
    monkeypatch.undo()
    for each in kept:
        each.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are for Linux")
def test_strips(tmp_path: Path, chosen: list[bool]) -> None:
    if host_target().vector_bytes != 64:
        pytest.skip("such CPUs have AVX-512")
    case = Case(
        lambda: Strips(), lambda p: torch.optim.SGD(p, lr=0.1),
        lambda rng: rng.standard_normal((2, 5, 13, 14)).astype(np.float32),
        lambda rng: rng.integers(0, 10, 2),
    )
    step = case.step()[0]
    exported = export_step(step, case.batch(0))
    chosen.clear()
    library = StepLibrary(aot(exported, tmp_path, name="strips").library, "strips")
    assert chosen and all(chosen)
    context, compiled = library.context(threads=2), torch.compile(step)
    for k in range(3):
        batch = case.batch(k)
        (found,) = context(*(each.numpy() for each in batch))
        assert found.tobytes() == compiled(*batch).detach().numpy().tobytes()
    context.close()
