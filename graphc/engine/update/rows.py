"""What of an optimizer's parameters lies where: rows of the table that a native call reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...frontend.storage import Storage, readers
from ...frontend.tensor import Tensor
from ..capture.kinds import is_ours
from .rule import Rule

_MOST_PLACES = 64  # of one batch's gradients
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class Row:
    """A parameter with its state: memory that is written to, and from where it is."""

    __slots__ = (
        "addresses", "array", "counts", "items", "kind", "param", "spans", "state", "storages",
        "tensors", "watched",
    )

    def __init__(
        self, param: Tensor, state: Any, counts: Sequence[str], address: Callable[[Any], int],
        watched: type,
    ) -> None:
        """Raises Unfit for what the native code does not take."""
        self.param, self.state = param, state
        self.array = _flat(param)
        self.items = list(state.items())
        self.kind = self.array.dtype.char, tuple(state)
        self.watched = type(state) is watched
        self.tensors: list[tuple[Tensor, np.ndarray]] = []
        self.counts: list[tuple[np.ndarray, Storage]] = []
        self.storages = [param._graphc_storage, None]
        self.addresses = [address(self.array), 0]
        self.spans = [_span(self.addresses[0], self.array)]
        for name, value in self.items:
            array = _flat(value)
            place = address(array)
            self.spans.append(_span(place, array))
            self.tensors.append((value, array))
            if name in counts:
                if array.shape != () or array.dtype != np.float32:
                    raise Unfit
                self.counts.append((array, value._graphc_storage))
            elif array.shape != self.array.shape or array.dtype != self.array.dtype:
                raise Unfit
            self.storages.append(value._graphc_storage)
            self.addresses.append(place)

    def stands(self, states: Any) -> bool:
        """Whether all is where it was. `states`: None where no dictionary has changed."""
        if self.param._graphc_array is not self.array:
            return False
        if states is not None or not self.watched:
            state = self.state if states is None else states.get(self.param)
            if state is not self.state or len(state) != len(self.items):
                return False
            for name, value in self.items:
                if state.get(name) is not value:
                    return False
        for tensor, array in self.tensors:
            if tensor._graphc_array is not array:
                break
        else:
            return True
        return False

    def numbers(self) -> tuple[Any, ...]:
        """The counts now."""
        return tuple([array.item() for array, _ in self.counts])


class Unfit(Exception):
    """A parameter or a state that the native code does not take."""


def _flat(tensor: Any) -> np.ndarray:
    """The array of a tensor whose elements lie side by side."""
    array = getattr(tensor, "_graphc_array", None)
    if not (
        isinstance(tensor, Tensor) and type(array) is np.ndarray and array.dtype in _FLOATS
        and array.flags.c_contiguous and array.flags.writeable and tensor._graphc_trace is None
        and not tensor._graphc_storage.inference and is_ours(type(tensor))
    ):
        raise Unfit
    return array


def _span(address: int, array: np.ndarray) -> tuple[int, int]:
    return address, address + array.nbytes


class Spans:
    """Memory that is written to; nothing else may lie there."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Raises Unfit where two of them meet."""
        found = sorted(span for row in rows for span in row.spans if span[0] < span[1])
        self._starts = np.array([0, *[start for start, _ in found]], np.int64)
        self._ends = np.array([0, *[end for _, end in found]], np.int64)
        if (self._ends[:-1] > self._starts[1:]).any():
            raise Unfit

    def meet(self, starts: np.ndarray, sizes: np.ndarray) -> bool:
        """Whether any of so many bytes from so many addresses on meet any of it."""
        places = np.searchsorted(self._starts, starts + sizes, "left") - 1
        return bool(((self._ends[places] > starts) & (sizes > 0)).any())


class Batch:
    """The rows that one native call updates, with the numbers that they share."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._rows: list[Row] = []
        self._table = np.zeros((0, rule.rows.words), np.int64)
        # a number has eight bytes, whatever its dtype
        self._numbers = np.zeros(max(1, len(rule.dtypes)), np.float64)
        self._places = [
            self._numbers[i : i + 1].view(dtype)[:1] for i, dtype in enumerate(rule.dtypes)
        ]
        self._counts: list[Any] = []
        self._written: list[tuple[Storage, int]] = []
        self._sizes = np.zeros(0, np.int64)
        self._gradient = [i for i, column in enumerate(rule.columns) if column == 1]
        self._kept: list[np.ndarray] = []
        # gradients that were asked about, by their addresses, and what they are apart from
        self._apart: set[bytes] = set()
        self._spans: Spans | None = None

    def fill(
        self, rows: list[Row], gradients: Sequence[np.ndarray], spans: Spans,
        numbers: Sequence[Any], counts: Sequence[Any],
    ) -> None:
        """Make the table what the call is to do. Raises Unfit where a gradient lies in memory that
        is written to."""
        if rows != self._rows:
            self._lay_out(rows)
        addresses = np.array(list(map(self.rule.address, gradients)), np.int64)
        self._check_apart(addresses, spans)
        for column in self._gradient:
            self._table[:, column] = addresses
        for place, number in zip(self._places, numbers, strict=True):
            place[0] = number
        self._counts = list(counts)
        self._kept = list(gradients)

    def _check_apart(self, addresses: np.ndarray, spans: Spans) -> None:
        """Gradients tend to lie where some have lain before."""
        asked = addresses.tobytes()
        if spans is self._spans and asked in self._apart:
            return
        if spans.meet(addresses, self._sizes):
            raise Unfit
        if spans is not self._spans or len(self._apart) >= _MOST_PLACES:
            self._spans, self._apart = spans, set()
        self._apart.add(asked)

    def _lay_out(self, rows: list[Row]) -> None:
        rule = self.rule
        self._rows, self._spans = list(rows), None
        self._table = table = np.empty((len(rows), rule.rows.words), np.int64)
        places = np.array([row.addresses for row in rows], np.int64)
        numbers = rule.address(self._numbers)
        for i, column in enumerate(rule.columns):
            table[:, i] = numbers + 8 * ~column if column < 0 else places[:, column]
        table[:, len(rule.columns) :] = np.array([[row.array.size] for row in rows])
        self._sizes = np.array([row.array.nbytes for row in rows], np.int64)
        self._written = [
            (storages[index], versions)
            for row in rows for storages in (row.storages,) for index, versions in rule.writes
        ]
        self._written += [
            (storage, versions)
            for row in rows
            for (_, storage), versions in zip(row.counts, rule.count_writes, strict=True)
        ]

    def run(self) -> None:
        """The native call, and what else the step writes."""
        written, counts = self._written, self._counts
        if readers:
            for storage, versions in written:
                storage.before_write(versions > 0)
        self.rule.rows.run(self._table)
        for row in self._rows if counts else ():
            for (array, _), count in zip(row.counts, counts, strict=True):
                array.fill(count)
        for storage, versions in written:
            storage.version += versions
        self._kept = []
