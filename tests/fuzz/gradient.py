"""Gradients against central differences, in float64 along one random direction."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from graphc.doubt.case import Case
from graphc.doubt.evaluate import Evaluator
from graphc.ir.graph import Graph

Array = np.ndarray[Any, Any]
_ROOM = {"f16": 1e-2, "bf16": 5e-2}
_STEPS = (1e-4, 3e-5, 1e-5)


def check_gradient(case: Case, events: Counter[str]) -> str:
    """What is wrong with a differentiated case's gradients; "" where they are right, or where
    the differences do not settle (a kink, a jump, overflow)."""
    forward = case.forward
    assert forward is not None
    dims = dict(case.graph.env.hints)
    rng = np.random.default_rng(case.seed)
    # drawn anew: halves and 16-bit floats tie, and a tie has no gradient
    arrays = [
        np.asarray(a + 1e-3 * rng.uniform(-1, 1, a.shape)) if n.dtype.is_float else a
        for a, n in zip(
            (np.asarray(x, np.float64) if node.dtype.is_float else x
             for x, node in zip(case.arrays(dims), case.graph.inputs, strict=True)),
            case.graph.inputs, strict=True,
        )
    ]
    count = len(forward.inputs)
    wrt = [i for i, n in enumerate(forward.inputs) if n.dtype.is_float]
    outputs = [i for i, n in enumerate(forward.outputs) if n.dtype.is_float]
    cotangents = arrays[count:]
    try:
        results = Evaluator(dims, wide=True).outputs(case.graph, arrays)
    except (RuntimeError, IndexError):
        return ""
    if _misleads(forward, arrays[:count], dims):
        events["differences would mislead"] += 1
        return ""
    gradients = results[len(forward.outputs) :]
    direction = {i: rng.uniform(-1, 1, arrays[i].shape) for i in wrt}
    parts = [np.sum(g * direction[i]) for i, g in zip(wrt, gradients, strict=True)]
    have = float(np.sum(parts))
    sizes = [np.sum(np.abs(g * direction[i])) for i, g in zip(wrt, gradients, strict=True)]
    scale = float(np.sum(sizes))

    def along(step: float) -> float:
        moved = [a + step * direction[i] if i in direction else a
                 for i, a in enumerate(arrays[:count])]
        values = Evaluator(dims, wide=True).outputs(forward, moved)
        weighted = [np.sum(values[o] * c) for o, c in zip(outputs, cotangents, strict=True)]
        return float(np.sum(weighted))

    try:
        slopes = [(along(h) - along(-h)) / (2 * h) for h in _STEPS]
    except (RuntimeError, IndexError):
        return ""
    return _judge(have, scale, slopes, events, forward)


def _misleads(forward: Graph, arrays: list[Array], dims: dict[str, int]) -> bool:
    """Whether a clamp's bounds are equal somewhere (its gradient is then 0, as torch's, even where
    the bounds can only move together), or steps are so fine that they look like a slope."""
    evaluator = Evaluator(dims, wide=True)
    evaluator.outputs(forward, arrays)
    with np.errstate(all="ignore"):
        for node in forward.nodes:
            if node.op.name == "clamp":
                low, high = (evaluator.value(x) for x in node.inputs[1:])
                if np.any(low == high):
                    return True
            elif node.op.name in ("floor_divide", "trunc_divide") and np.any(
                np.abs(evaluator.value(node)) > 1e4
            ):
                return True
    return False


def _judge(
    have: float, scale: float, slopes: list[float], events: Counter[str], forward: Graph
) -> str:
    scale = max(scale, max(abs(s) for s in slopes), 1e-3)
    if not np.isfinite([have, scale, *slopes]).all():
        events["gradient not finite"] += 1
        return ""
    if max(slopes) - min(slopes) > 1e-4 * scale:
        events["differences do not settle"] += 1
        return ""
    events["gradients checked"] += 1
    # constants in rules have the dtype of their operand: log(2) in bfloat16
    room = max(_ROOM.get(n.dtype.name, 1e-3) for n in forward.inputs)
    if abs(have - slopes[-1]) <= room * scale:
        return ""
    return (
        f"along a random direction the derivative is {slopes[-1]:.6g} by differences "
        f"({', '.join(f'{s:.6g}' for s in slopes)}), {have:.6g} by the gradient rules; forward:\n"
        f"{forward}"
    )
