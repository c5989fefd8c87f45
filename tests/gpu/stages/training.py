"""Losses of small training steps on the device, compiled and eager, beside those of the CPU, whose
convolutions know no TF32."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import graphc
from benchmarks import large, models
from graphc.backends import cudnn

from ..bed import Bed
from ..results import Record, tried

STEPS = 20


def run(bed: Bed, record: Record) -> None:
    """A line for each model and way to run it: how far the losses are apart, relatively."""
    names = (*models.NAMES, *large.WORKS) if bed.large else ("mlp", "bert")
    steps = STEPS if bed.large else 3
    with bed.device(), cudnn.flags(enabled=True, allow_tf32=False):
        for name in names:
            want = losses(name, "cpu", True, steps)
            for compiled in (True, False):
                way = f"{name} {'compiled' if compiled else 'eager'}"
                with tried(record, way):
                    record(way, **_beside(want, name, compiled, steps))


def _beside(want: np.ndarray, name: str, compiled: bool, steps: int) -> dict[str, Any]:
    began = time.perf_counter()
    found = losses(name, "cuda", compiled, steps)
    seconds = time.perf_counter() - began
    off = np.abs(found - want) / np.maximum(np.abs(want), 1e-3)
    return {
        "first": float(off[0]), "worst": float(off.max()), "last_here": float(found[-1]),
        "last_cpu": float(want[-1]), "seconds": seconds, "finite": bool(np.isfinite(found).all()),
    }


def losses(name: str, device: str, compiled: bool, steps: int) -> np.ndarray:
    """One number of each call."""
    graphc.manual_seed(0)
    if name in large.WORKS:
        step, inputs = large.WORKS[name].make(large.load("graphc"), device, True)
    else:
        space = models.load("graphc")
        model, optimizer = models.make(space, name)
        step = models.training_step(space, model.to(device), optimizer)
        inputs = tuple(graphc.from_numpy(each).to(device) for each in models.batch(name))
    call: Any = graphc.compile(step, fullgraph=True) if compiled else step
    return np.array([float(call(*inputs).detach().float().sum()) for _ in range(steps)])
