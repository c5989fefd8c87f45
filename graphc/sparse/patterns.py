"""Where the entries of a sparse tensor are: COO's list of places, and the compressed layouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..frontend.context import Suspended
from ..frontend.errors import located
from ..frontend.layouts import (
    layout,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
)
from ..frontend.tensor import Tensor, from_array

_MOST_PLACES = 2**63
BY_ROWS = (sparse_csr, sparse_bsr)
BLOCKED = (sparse_bsr, sparse_bsc)
_TURNED = {
    sparse_csr: sparse_csc, sparse_csc: sparse_csr, sparse_bsr: sparse_bsc, sparse_bsc: sparse_bsr
}


class Pattern:
    """COO: `indices` int64 [sparse dims, entries], the sizes of all dims, and whether the places
    are all different and in row-major order. Nobody changes a pattern: one object means the same
    places in the same order."""

    __slots__ = ("_turned", "_walks", "coalesced", "indices", "size")
    layout = sparse_coo

    def __init__(self, indices: Tensor, size: tuple[int, ...], coalesced: bool) -> None:
        self.indices, self.size = indices, size
        self.coalesced = coalesced or indices._graphc_array.shape[1] < 2
        self._walks: dict[bool, tuple[Tensor, ...]] = {}
        self._turned: Pattern | None = None

    @classmethod
    def at(cls, indices: np.ndarray, size: tuple[int, ...], coalesced: bool) -> Pattern:
        """Of an array of places."""
        rows = np.ascontiguousarray(indices, np.int64)
        return cls(from_array(rows), size, coalesced)

    @classmethod
    def of_keys(
        cls, keys: np.ndarray, size: tuple[int, ...], dims: int, coalesced: bool
    ) -> Pattern:
        """Of places numbered in row-major order."""
        return cls.at(places_of(keys, size[:dims]), size, coalesced)

    @property
    def array(self) -> np.ndarray:
        """The places."""
        return self.indices._graphc_array

    @property
    def sparse_dim(self) -> int:
        """How many dims, the first ones, the places name."""
        return int(self.array.shape[0])

    @property
    def dense_dim(self) -> int:
        """How many dims, the last ones, an entry has itself."""
        return len(self.size) - self.sparse_dim

    @property
    def count(self) -> int:
        """How many entries there are."""
        return int(self.array.shape[1])

    @property
    def sparse_size(self) -> tuple[int, ...]:
        return self.size[: self.sparse_dim]

    @property
    def dense_size(self) -> tuple[int, ...]:
        return self.size[self.sparse_dim :]

    @property
    def places(self) -> int:
        """How many places there are. Raises RuntimeError for more than can be numbered."""
        found = math.prod(self.sparse_size)
        if found >= _MOST_PLACES:
            raise RuntimeError(located(
                f"a sparse tensor of size {list(self.size)} has more places than int64 can number"
            ))
        return found

    def keys(self) -> np.ndarray:
        """The places, numbered in row-major order."""
        assert self.places >= 0  # there are not too many
        return keys_of(self.array, self.sparse_size)

    def coo(self) -> Pattern:
        """As COO: itself."""
        return self

    def turned(self) -> Pattern:
        """The same entries of the transposed matrix."""
        if self._turned is None:
            places = self.array[::-1]
            self._turned = Pattern.at(places, self.size[::-1], False)
        return self._turned

    def walks(self, turned: bool) -> tuple[Tensor, ...]:
        """The places of a matrix as its products take them (`ir/ops/sparse.py`): rows and columns
        of the entries, how rows are walked, and, for who walks it `turned`, columns."""
        found = self._walks.get(turned)
        if found is None:
            with Suspended():  # they outlive a recording
                if turned:
                    found = (*self.walks(False), *_walk(self.array[1], self.size[1]))
                else:
                    lines = [from_array(line.copy()) for line in self.array]
                    found = (*lines, *_walk(self.array[0], self.size[0]))
            self._walks[turned] = found
        return found


def _walk(lines: np.ndarray, count: int) -> tuple[Tensor, Tensor]:
    """Of each line how many entries there are up to its last one; the entries, line by line."""
    ends = np.cumsum(np.bincount(lines, minlength=count))
    return from_array(ends), from_array(_in_order(lines, count))


def _in_order(lines: np.ndarray, count: int) -> np.ndarray:
    """A stable argsort. NumPy counts numbers of 16 bits, and compares wider ones."""
    if (lines[1:] >= lines[:-1]).all():
        return np.arange(lines.size)
    if count > 1 << 32:
        return lines.argsort(kind="stable")
    order = lines.astype(np.uint16).argsort(kind="stable")
    if count > 1 << 16:
        order = order[(lines >> 16)[order].astype(np.uint16).argsort(kind="stable")]
    return order


def keys_of(places: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Numbers of places [dims, entries] in row-major order."""
    keys = np.zeros(places.shape[1], np.int64)
    for row, count in zip(places, size, strict=True):
        keys = keys * count + row
    return keys


def places_of(keys: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """keys_of() the other way round."""
    found = np.empty((len(size), keys.size), np.int64)
    for dim in reversed(range(len(size))):
        if size[dim]:
            keys, found[dim] = np.divmod(keys, size[dim])
    return found


def ascends(keys: np.ndarray) -> bool:
    """Whether numbers grow from each to the next."""
    return bool((keys[1:] > keys[:-1]).all())


class Compressed:
    """CSR, CSC and their forms in blocks: of each row (column), where its entries begin in the
    list of their columns (rows). Entries are numbers, or blocks [rows, columns]."""

    __slots__ = ("_coo", "_turned", "block", "layout", "plain", "size", "starts")
    coalesced = True

    def __init__(
        self, layout: layout, starts: Tensor, plain: Tensor, size: tuple[int, int],
        block: tuple[int, int] = (1, 1),
    ) -> None:
        self.layout, self.starts, self.plain, self.size = layout, starts, plain, size
        self.block = block
        self._coo: Pattern | None = None
        self._turned: Compressed | None = None

    @property
    def count(self) -> int:
        """How many entries there are."""
        return int(self.plain._graphc_array.shape[0])

    @property
    def sparse_dim(self) -> int:
        return 2

    @property
    def dense_dim(self) -> int:
        return 0

    def lines(self) -> np.ndarray:
        """Of each entry, the compressed line that it is in."""
        starts = self.starts._graphc_array.astype(np.int64)
        return np.repeat(np.arange(starts.size - 1), np.diff(starts))

    def turned(self) -> Compressed:
        """The same entries of the transposed matrix, whose blocks are transposed, too."""
        if self._turned is None:
            self._turned = Compressed(
                _TURNED[self.layout], self.starts, self.plain, self.size[::-1], self.block[::-1]
            )
        return self._turned

    def coo(self) -> Pattern:
        """The same places, number by number, in the order of the entries."""
        if self._coo is None:
            self._coo = self._as_coo()
        return self._coo

    def _as_coo(self) -> Pattern:
        lines, plain = self.lines(), self.plain._graphc_array.astype(np.int64)
        rows, columns = (lines, plain) if self.layout in BY_ROWS else (plain, lines)
        if self.layout in BLOCKED:
            height, width = self.block
            inner = np.arange(height * width)
            rows = (rows[:, None] * height + inner // width).reshape(-1)
            columns = (columns[:, None] * width + inner % width).reshape(-1)
        found = np.stack([rows, columns])
        ordered = self.layout in BY_ROWS and ascends(keys_of(found, self.size))
        return Pattern.at(found, self.size, ordered)


def compressed(
    pattern: Pattern, kind: layout, block: tuple[int, int] = (1, 1), dtype: Any = np.int64
) -> tuple[Compressed, np.ndarray]:
    """A coalesced matrix's places in a compressed layout, and of each of its entries, where its
    number is among those of the entries (of a block, in row-major order)."""
    rows, columns = pattern.array
    height, width = block
    size: Any = pattern.size
    if kind in BLOCKED and (size[0] % height or size[1] % width):
        raise RuntimeError(located(
            f"tensor sparse size ({size[0]},{size[1]}) must be divisible by given blocksize "
            f"({height},{width})"
        ))
    at, inner = rows // height, (rows % height) * width + columns % width
    along = columns // width
    lines, plain = (at, along) if kind in BY_ROWS else (along, at)
    counts = (size[0] // height, size[1] // width)
    lengths = counts if kind in BY_ROWS else counts[::-1]
    keys = lines * max(lengths[1], 1) + plain
    known, entry = np.unique(keys, return_inverse=True)
    lines, plain = np.divmod(known, max(lengths[1], 1))
    starts = np.zeros(lengths[0] + 1, dtype)
    np.cumsum(np.bincount(lines, minlength=lengths[0]), out=starts[1:])
    found = Compressed(
        kind, from_array(starts), from_array(plain.astype(dtype)), size, block
    )
    return found, entry * (height * width) + inner
