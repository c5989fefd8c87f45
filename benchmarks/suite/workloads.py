"""What is measured: each row is one piece of work, written once for every package shaped as torch.

`WORKLOADS` has the named rows, and with them `untuned`'s: shapes that nobody tuned on. A row of the
family "inference" or "kernel" may have a twin for JAX; those with a Module are given to ONNX
Runtime and OpenVINO by way of ONNX.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

FAMILIES = ("training", "inference", "kernel", "low precision")
BATCHES = 4  # different inputs, in turn: no call may live off the one before

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Work:
    """`function(*inputs)` is compiled and called. `module`: what is exported, if it can be."""

    function: Callable[..., Any]
    module: Any = None


@dataclass(frozen=True)
class Workload:
    """One row.

    make: from a package's space (`torch`, `nn`, `F`, `optim`) to the Work, seeded with 0.
    inputs: the arrays of call number n.
    jax: from (jax, state) to a function of the arrays; `state` has the parameters by torch's names.
    flops, bytes: the least that one call takes; 0: not said.
    convolves: engines that have channels-last variants are measured with them, too.
    dtype: what float32 inputs are turned into, once, before any call.
    """

    name: str
    family: str
    make: Callable[[SimpleNamespace], Work]
    inputs: Callable[[int], Arrays]
    jax: Callable[..., Any] | None = None
    flops: float = 0.0
    bytes: float = 0.0
    convolves: bool = False
    exports: bool = False
    untuned: bool = False
    dtype: str = "float32"


def space(package: str) -> SimpleNamespace:
    """The modules of `torch` or `graphc` that workloads are written with."""
    names = {"nn": "nn", "F": "nn.functional", "optim": "optim"}
    return SimpleNamespace(
        torch=importlib.import_module(package),
        **{key: importlib.import_module(f"{package}.{name}") for key, name in names.items()},
    )


def numbers(*shapes: tuple[int, ...], scale: float = 1.0) -> Callable[[int], Arrays]:
    """Standard normal float32 arrays of these shapes, others for each call."""

    def draw(call: int) -> Arrays:
        rng = np.random.default_rng(call % BATCHES)
        return tuple(scale * rng.standard_normal(shape, np.float32) for shape in shapes)

    return draw


def every() -> dict[str, Workload]:
    """All rows by name."""
    import inference
    import kernels
    import training
    import untuned

    rows = [*training.ROWS, *inference.ROWS, *kernels.ROWS, *untuned.ROWS]
    found = {row.name: row for row in rows}
    assert len(found) == len(rows), "two workloads of one name"
    return found
