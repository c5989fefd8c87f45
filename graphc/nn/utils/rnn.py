"""Batches of sequences of different lengths: packed, padded, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...frontend import functions as T
from ...frontend.ahead import made_ahead, size_made
from ...frontend.tensor import Tensor
from ..functional.padding import pad
from .packing import (
    count_of_sequences,
    packed_in_any_order,
    packed_in_order,
    places_of_rows,
)

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
    places = T.arange(0, permutation.numel(), device=permutation.device)
    return T.empty_like(permutation).scatter(0, permutation, places)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack [L, N, *] (or [N, L, *]) whose sequences have the given lengths."""
    lengths = T.as_tensor(lengths, dtype=T.int64, device="cpu")
    if lengths.dim() != 1:
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D cpu "
            "Long tensor"
        )
    batch, steps = input.shape[not batch_first], input.shape[bool(batch_first)]
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    count = lengths.shape[0]
    if count > batch or (enforce_sorted and count != batch):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {count} "
            f"(batch_size={batch})"
        )
    make = packed_in_order if enforce_sorted else packed_in_any_order
    shapes = [["steps"], ["rows"], ["rows"], [count]][: 3 if enforce_sorted else 4]
    sizes, step, sequence, *order = made_ahead(
        make, [lengths], [steps], shapes, sequences=count
    )
    data = input[sequence, step] if batch_first else input[step, sequence]
    return PackedSequence(data, sizes, order[0].to(input.device) if order else None, None)


def count_of(sequence: PackedSequence) -> Any:
    """How many sequences are in a PackedSequence."""
    sizes = sequence.batch_sizes
    if sequence.sorted_indices is not None:
        return sequence.sorted_indices.shape[0]
    count = size_made(sizes, "sequences")
    if count is None:
        count = made_ahead(
            count_of_sequences, [sizes], [], [["sequences", 0]], kept=True
        )[0].shape[0]
    return count


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch and the lengths of a PackedSequence, in the order before packing."""
    data, sizes, _, back = sequence
    longest = sizes.shape[0]
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being "
                f"{longest}"
            )
        longest = total_length
    count = count_of(sequence)
    places, lengths = made_ahead(
        places_of_rows, [sizes], [longest], [[longest, count], [count]]
    )
    padded, _ = unpacked(data, places, padding_value)
    if batch_first:
        padded = padded.transpose(0, 1)
    if back is not None:  # what is selected lies in order, as PyTorch's does
        padded = padded.index_select(0 if batch_first else 1, back)
        lengths = lengths[back.cpu()]
    return padded, lengths


def unpacked(data: Tensor, places: Tensor, padding: float = 0.0) -> tuple[Tensor, Tensor]:
    """The rows of packed data at their places [steps, sequences], which are -1 where there is
    padding, and where there is none."""
    inside = places >= 0
    rows = data[places.clamp_min(0)]
    filler = T.full((), padding, dtype=data.dtype, device=data.device)
    return T.where(inside.reshape(inside.shape + (1,) * (data.dim() - 1)), rows, filler), inside


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
    for i, sequence in enumerate(given):
        if not isinstance(sequence, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got "
                            f"{type(sequence).__name__}")
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
    return [
        row[:length].clone(memory_format=T.contiguous_format)
        for row, length in zip(rows, lengths.tolist(), strict=True)
    ]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors [L_i, *]."""
    lengths = [int(sequence.shape[0]) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
