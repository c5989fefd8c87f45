"""A failing case as text: the Graph, which outputs are written back, the inputs."""

from __future__ import annotations

import numpy as np

from graphc.doubt.case import Case

_MOST = 40  # elements of an input that are printed


def report(case: Case, title: str) -> str:
    """The case for a person to read, and to paste into a test."""
    dims = dict(case.graph.env.hints)
    lines = [title, "", str(case.graph)]
    if case.mutated:
        lines.append("written back: " + ", ".join(f"output {o} to input {i}"
                                                  for o, i in case.mutated.items()))
    lines.append(f"inputs (seed {case.seed}):")
    for node, array in zip(case.graph.inputs, case.arrays(dims), strict=True):
        name = node.attrs["name"]
        if array.size <= _MOST:
            text = np.array2string(array, separator=", ", max_line_width=10_000)
            lines.append(f"  {name} = np.array({' '.join(text.split())}, {array.dtype})")
        else:
            lines.append(f"  {name}: {array.dtype}{list(array.shape)}, {_summary(array)}")
    lines.append(f"again: python -m tests.fuzz --seed {case.seed} --count 1")
    return "\n".join(lines)


def _summary(array: np.ndarray) -> str:
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        return f"from {np.nanmin(wide):.4g} to {np.nanmax(wide):.4g}"
