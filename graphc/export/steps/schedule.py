"""Learning-rate schedules as tables: what each call of a step finds, made ahead.

A schedule's step is Python, which a file does not hold. So it is run as often as the file is to be
called; all that it changes is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.engine.capture.recording import Recording
from graphc.export.errors import ExportError
from graphc.export.steps.names import StepNames
from graphc.frontend.late import LateSource
from graphc.frontend.tensor import Tensor


def is_late(source: Any) -> bool:
    """Whether a number is one that a schedule's step has made in the same call."""
    return type(source) is LateSource


def tables(
    recording: Recording, names: StepNames, found: Sequence[Any], calls: int,
    name: Callable[[Any], str],
) -> dict[str, np.ndarray]:
    """By name, those of the numbers that schedules change: row k for call k. Raises ExportError for
    schedules that a table cannot stand for."""
    late = recording.trace.late
    if not late.steps:
        return {}
    for optimizer in names.optimizers.values():
        if any(isinstance(group["lr"], Tensor) for group in optimizer.param_groups):
            raise ExportError(
                "the step steps a schedule that writes to a learning rate which is a tensor. Cure: "
                "give the optimizer its rate as a float"
            )
    rows: dict[Any, list[Any]] = {source: [] for source in found if hasattr(source, "fetch")}
    before = [source for source in rows if not is_late(source)]
    with late.taken_back():
        for call in range(calls + 1):
            for source in before:
                rows[source].append(source.fetch())
            if call < calls:
                for step in late.steps:
                    step()
                    for source in rows:
                        if is_late(source) and source.step == step:
                            rows[source].append(source.fetch())
    made: dict[str, np.ndarray] = {}
    for source, values in rows.items():
        if is_late(source) or any(value != values[0] for value in values):
            made[name(source)] = _column(values, name(source))
    return made


def _column(values: list[Any], name: str) -> np.ndarray:
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {int, float}:
        raise ExportError(
            f"a schedule makes {name} a {' or a '.join(sorted(k.__name__ for k in kinds))}; a file "
            "holds floats, or ints"
        )
    return np.array(values, np.float64 if kinds == {float} else np.int64)
