"""Batches of sequences of different lengths."""

from __future__ import annotations

from collections.abc import Iterable

from ...frontend import functions as T
from ...frontend.tensor import Tensor
from ..functional.padding import pad


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
