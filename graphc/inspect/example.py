"""The inputs of a trace as arrays: what GRAPHC_CHECK=2 runs the graph on."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.frontend.captured import TensorInput, TracedGraph
from graphc.ir.dim import evaluate
from graphc.ir.memory import Buffer, on_host

Array = np.ndarray[Any, Any]


def example_inputs(traced: TracedGraph) -> list[Array]:
    """A copy of each input as the trace saw it; gradients that come from outside are drawn."""
    rng = np.random.default_rng(0)
    arrays: list[Array] = []
    for source in traced.inputs:
        dtype = source.type.dtype.numpy
        if not isinstance(source, TensorInput):
            arrays.append(np.asarray(source.value, dtype))
            continue
        shape = [evaluate(size, traced.graph.env.hints) for size in source.type.shape]
        if source.kind == "tangent":
            arrays.append(rng.standard_normal(shape).astype(dtype))
        elif source.kind == "grad" and getattr(source.tensor, "_grad", None) is None:
            arrays.append(np.zeros(shape, dtype))  # cleared since: counts as zeros
        else:
            arrays.append(np.array(on_host(_array(source))))
    return arrays


def _array(source: TensorInput) -> Buffer:
    tensor = source.tensor
    assert tensor is not None
    if source.kind == "grad":
        return tensor._grad._graphc_array
    if source.kind == "storage":
        return tensor._graphc_storage.root.flat()
    return tensor._graphc_array
