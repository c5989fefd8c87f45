"""Products by cuBLASLt: alone, between CUDA graphs, and captured in them; losses of small steps
beside the CPU's, and what a call of the large ones takes."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc
from benchmarks import large
from graphc import config
from graphc.backends.cuda import libraries
from graphc.backends.cuda.libraries import MissingLibrary

from ..bed import Bed
from ..results import Record, tried
from ..timing import Timed
from .training import losses

GRAPHS = ("0", "auto", "1")  # 1 captures what the library begins
NAMES = ("gpt2", "bert")


def run(bed: Bed, record: Record) -> None:
    """A line for each workload and choice of GRAPHC_CUDA_GRAPHS."""
    try:
        libraries.find(libraries.CUBLASLT)
    except MissingLibrary as missing:
        record("libraries", missing=str(missing))
        return
    with bed.device(), config.override(cuda_libraries="1"):
        for name in NAMES:
            want = losses(name, "cpu", True, 5)
            for graphs in GRAPHS:
                way = f"{name} small, graphs {graphs}"
                with tried(record, way), config.override(cuda_graphs=graphs):
                    found = losses(name, "cuda", True, 5)
                    off = np.abs(found - want) / np.maximum(np.abs(want), 1e-3)
                    record(way, worst=float(off.max()))
        for name in NAMES:
            for graphs in GRAPHS:
                way = f"{name}, graphs {graphs}"
                with tried(record, way), config.override(cuda_graphs=graphs):
                    record(way, **_timed(bed, name))


def _timed(bed: Bed, name: str) -> dict[str, Any]:
    function, inputs = large.WORKS[name].make(large.load("graphc"), "cuda", not bed.large)
    call = graphc.compile(function)
    ms = Timed(bed).median(call, inputs, compiled=False)
    said = graphc.explain(call, *inputs).parts[0].built.executable.stats.remarks
    return {"ms": ms, "said": said[0]}
