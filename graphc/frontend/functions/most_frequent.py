"""What mode() finds in rows of an array, all at once."""

from __future__ import annotations

from typing import Any

import numpy as np


def last_of_most(rows: np.ndarray) -> np.ndarray:
    """Where the most frequent value of each row is last; 0 where that is NaN, each of which is a
    value of its own, behind the numbers."""
    if rows.size <= _FEW and rows.dtype.kind in "fiub":
        return np.array([_of_one(row) for row in rows.tolist()], np.int64)
    count, size = rows.shape
    values = np.sort(rows, axis=-1)
    places = np.arange(size)
    begins = np.zeros(values.shape, np.int64)  # where the equals of each value begin
    np.copyto(begins[:, 1:], places[1:], where=values[:, 1:] != values[:, :-1])
    np.maximum.accumulate(begins, -1, out=begins)
    ends = (places - begins).argmax(-1)  # the first, which is of the smallest value
    most = values[np.arange(count), ends]
    equal = rows == most[:, None]
    last: np.ndarray = size - 1 - equal[:, ::-1].argmax(-1)
    return np.where(most == most, last, 0)


_FEW = 64


def _of_one(row: list[Any]) -> int:
    """The same of few numbers."""
    counts: dict[Any, int] = {}
    for value in row:
        counts[value] = counts.get(value, 0) + 1
    most = max(counts.values())
    found = [value for value, count in counts.items() if count == most and value == value]
    return len(row) - 1 - row[::-1].index(min(found)) if found else 0
