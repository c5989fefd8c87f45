"""Batches of sequences of different lengths: packed, padded, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...frontend import functions as T
from ...frontend.tensor import Tensor
from ..functional.padding import pad

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]


class PackedSequence_(NamedTuple):
    """The fields of a PackedSequence."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Sequences step by step: data [sum of lengths, *], and how many sequences reach each step."""

    __slots__ = ()

    def __new__(
        cls, data: Tensor, batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None, unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a tuple of length 2")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the data is in pinned memory."""
        return bool(self.data.is_pinned())

    def pin_memory(self) -> PackedSequence:
        """The same with pinned data."""
        return self._replaced(self.data.pin_memory())

    def _replaced(self, data: Tensor) -> PackedSequence:
        if data is self.data:
            return self
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with converted data."""
        return self._replaced(self.data.to(*args, **kwargs))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a GPU."""
        return self._replaced(self.data.cuda(*args, **kwargs))

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on the CPU."""
        return self.to(*args, device="cpu", **kwargs)

    def double(self) -> PackedSequence:
        """The same in float64."""
        return self.to(dtype=T.float64)

    def float(self) -> PackedSequence:
        """The same in float32."""
        return self.to(dtype=T.float32)

    def half(self) -> PackedSequence:
        """The same in float16."""
        return self.to(dtype=T.float16)

    def long(self) -> PackedSequence:
        """The same in int64."""
        return self.to(dtype=T.int64)

    def int(self) -> PackedSequence:
        """The same in int32."""
        return self.to(dtype=T.int32)

    def short(self) -> PackedSequence:
        """The same in int16."""
        return self.to(dtype=T.int16)

    def char(self) -> PackedSequence:
        """The same in int8."""
        return self.to(dtype=T.int8)

    def byte(self) -> PackedSequence:
        """The same in uint8."""
        return self.to(dtype=T.uint8)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that takes back the given one."""
    if permutation is None:
        return None
    places = T.arange(0, permutation.numel())
    return T.empty_like(permutation).scatter_(0, permutation, places)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack [L, N, *] (or [N, L, *]) whose sequences have the given lengths."""
    counts = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    order = None
    if not enforce_sorted:
        given = T.tensor(counts)
        sorted_lengths, order = T.sort(given, descending=True)
        counts = [int(n) for n in sorted_lengths.tolist()]
        input = input.index_select(0 if batch_first else 1, order)
    x = input.transpose(0, 1) if batch_first else input
    if x.dim() < 2 or int(x.shape[1]) != len(counts):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} "
            f"(batch_size={x.shape[1] if x.dim() > 1 else 0})"
        )
    if not counts or min(counts) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(a < b for a, b in itertools.pairwise(counts)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    sizes = [sum(1 for n in counts if n > time) for time in range(counts[0])]
    data = T.cat([x[time, :size] for time, size in enumerate(sizes)])
    return PackedSequence(data, T.tensor(sizes), order, None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch and the lengths of a PackedSequence, in the order before packing."""
    sizes = [int(n) for n in sequence.batch_sizes.tolist()]
    longest = len(sizes)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being "
                f"{longest}"
            )
        longest = total_length
    rows, start = [], 0
    for size in sizes:
        step = sequence.data[start : start + size]
        missing = (0, 0) * (step.dim() - 1) + (0, sizes[0] - size)
        rows.append(pad(step, missing, value=padding_value) if size < sizes[0] else step)
        start += size
    padded = T.stack(rows)
    if longest > len(sizes):
        more = (0, 0) * (padded.dim() - 1) + (0, longest - len(sizes))
        padded = pad(padded, more, value=padding_value)
    lengths = T.tensor([sum(1 for size in sizes if size > i) for i in range(sizes[0])])
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Tensor | Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors [L_i, *] as one [max L, N, *] (or [N, max L, *]), short ones filled up."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    given = list(sequences)
    if not given:
        raise RuntimeError("Received an empty list of sequences")
    longest = max(sequence.shape[0] for sequence in given)
    rows = []
    for sequence in given:
        amount = longest - sequence.shape[0]
        sides = (amount, 0) if padding_side == "left" else (0, amount)
        rows.append(pad(sequence, (0, 0) * (sequence.dim() - 1) + sides, value=padding_value))
    return T.stack(rows, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of given lengths that pad_sequence put together."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors [L_i, *]."""
    lengths = [int(sequence.shape[0]) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
