"""A generator's state as torch's byte tensor, so that states go both ways.

u8[5056], 632 little-endian longs: the seed; words left before the next twist and a flag; the
place of the next word; 624 words; three doubles of which the second is the spare normal; whether
there is one; the spare float normal (never used).
"""

from __future__ import annotations

import numpy as np

from graphc.ir import dtypes, ops

from .dispatch import apply, constant
from .tensor import Tensor

SIZE = 5056
_WORDS = 624
_SEEDED = 1 << 32
_NO_SPARE = -1


def to_bytes(state: Tensor, seed: int) -> Tensor:
    """u8[5056] of a state i64[626] that started from `seed`."""
    words, place, spare = _part(state, 0, _WORDS), _part(state, _WORDS), _part(state, _WORDS + 1)
    # torch's engine says 0 of the next word's place when it was just seeded
    first = apply(ops.eq, _part(state, 0), _long([seed & 0xFFFFFFFF]))
    full = apply(ops.eq, place, _long([_WORDS]))
    place_shown = apply(ops.where, apply(ops.logical_and, first, full), _long([0]), place)
    left = apply(ops.sub, _long([_WORDS + 1 + _SEEDED]), place)
    none = apply(ops.eq, spare, _long([_NO_SPARE]))
    spare_shown = apply(ops.where, none, _long([0]), spare)
    valid = apply(ops.cast, apply(ops.logical_not, none), dtype=dtypes.i64)
    signed = seed - (1 << 64) if seed >= 1 << 63 else seed
    zero = _long([0])
    longs = apply(
        ops.concat, _long([signed]), left, place_shown, words, zero, spare_shown, zero, valid,
        zero, dim=0,
    )
    column = apply(ops.reshape, longs, shape=(SIZE // 8, 1))
    low = apply(ops.bitwise_and, apply(ops.shift_right, column, _shifts()), _long([255]))
    found: Tensor = apply(
        ops.reshape, apply(ops.cast, low, dtype=dtypes.u8), shape=(SIZE,)
    )
    return found


def from_bytes(data: Tensor) -> Tensor:
    """The state i64[626] of torch's bytes."""
    wide = apply(ops.cast, apply(ops.reshape, data, shape=(SIZE // 8, 8)), dtype=dtypes.i64)
    longs = apply(ops.sum, apply(ops.shift_left, wide, _shifts()), dims=(1,), keepdim=False)
    left = apply(ops.bitwise_and, _part(longs, 1), _long([0xFFFFFFFF]))
    place = apply(ops.sub, _long([_WORDS + 1]), left)
    valid = apply(ops.bitwise_and, _part(longs, _WORDS + 6), _long([0xFFFFFFFF]))
    spare = apply(
        ops.where, apply(ops.eq, valid, _long([0])), _long([_NO_SPARE]), _part(longs, _WORDS + 4)
    )
    found: Tensor = apply(ops.concat, _part(longs, 3, _WORDS), place, spare, dim=0)
    return found


def _part(x: Tensor, start: int, count: int = 1) -> Tensor:
    part: Tensor = apply(ops.slice, x, starts=(start,), stops=(start + count,), steps=(1,))
    return part


def _long(values: list[int]) -> Tensor:
    return constant(np.array(values, np.int64))


def _shifts() -> Tensor:
    return constant(np.arange(0, 64, 8, dtype=np.int64).reshape(1, 8))
