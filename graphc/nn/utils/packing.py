"""How sequences of different lengths lie in a packed batch, as positions: NumPy on lengths alone.

A packed batch has the rows of all sequences step by step, the longest sequence first, so that
those that a step moves are the first ones. These functions run as a call begins
(frontend/ahead.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

_UNSORTED = (
    "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
    "pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
    "requirement if you do not need ONNX exportability."
)
_EMPTY = (
    "Length of all samples has to be greater than 0, but found an element in 'lengths' that is "
    "<= 0"
)


def packed_in_order(lengths: Any, steps: int) -> tuple[np.ndarray, ...]:
    """Of sequences that are sorted by length: how many reach each step, and of each row the step
    and the sequence. Steps beyond those of the padded batch have no rows."""
    if lengths.size and lengths.min() <= 0:
        raise RuntimeError(_EMPTY)
    if (lengths[1:] > lengths[:-1]).any():
        raise RuntimeError(_UNSORTED)
    inside = np.arange(lengths.max(initial=0))[:, None] < lengths
    step, sequence = np.nonzero(inside[:steps])
    return inside.sum(1, dtype=np.int64), step.astype(np.int64), sequence.astype(np.int64)


def packed_in_any_order(lengths: Any, steps: int) -> tuple[np.ndarray, ...]:
    """The same of sequences in any order, and the order that sorts them."""
    order = np.argsort(-lengths, kind="stable").astype(np.int64)
    sizes, step, place = packed_in_order(lengths[order], steps)
    return sizes, step, order[place], order


def places_of_rows(sizes: Any, steps: int) -> tuple[np.ndarray, ...]:
    """Which row of the packed batch each sequence has at each step, -1 behind its end; and the
    sequences' lengths."""
    _check(sizes)
    places = np.full((steps, int(sizes[0])), -1, np.int64)
    inside = np.arange(places.shape[1]) < sizes[:, None]
    places[: len(sizes)][inside] = np.arange(sizes.sum())
    return places, inside.sum(0, dtype=np.int64)


def rows_and_places(sizes: Any, rows: int) -> tuple[np.ndarray, ...]:
    """The same places, and where each row is in the padded batch [steps * sequences]."""
    places, _ = places_of_rows(sizes, len(sizes))
    check_rows(sizes, rows)
    return places, np.flatnonzero(places >= 0)


def check_rows(sizes: Any, rows: int) -> None:
    """Raise RuntimeError unless a packed batch of so many rows can have these batch_sizes."""
    _check(sizes)
    ends = np.cumsum(sizes)
    if ends[-1] > rows:
        step = int(np.argmax(ends > rows))
        raise RuntimeError(
            f"start ({ends[step] - sizes[step]}) + length ({sizes[step]}) exceeds dimension size "
            f"({rows})."
        )


def count_of_sequences(sizes: Any) -> tuple[np.ndarray, ...]:
    """An empty array that is as long as there are sequences."""
    return (np.empty((int(sizes[0]), 0), np.int64),)


def _check(sizes: Any) -> None:
    """Raise RuntimeError unless these can be the batch_sizes of a packed batch."""
    if not sizes.size or sizes[-1] <= 0 or (sizes[1:] > sizes[:-1]).any():
        raise RuntimeError(
            f"batch_sizes must be positive and in decreasing order, got {sizes.tolist()}"
        )
