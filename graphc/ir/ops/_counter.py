"""Random bits from a counter: the hash, and a draw's place in the counters.

The hash is "squares" (B. Widynski, Squares: A Fast Counter-Based RNG, arXiv:2004.06278): element i
of a draw hashes (word << 32) + i under an odd key. Key and word are read from the generator's
state (words 621, 622 and 623); a draw leaves the state with that word + 1, modulo 2**32. Draws of
more than 2**32 elements would share numbers with the next draw.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..dim import product
from ..types import Shape, TensorType
from ._rules import filled, ops, reshape

_KEY_HIGH, _KEY_LOW, _WORD = 621, 622, 623  # late words: seeding has mixed them well
_LOW32 = 2**32 - 1
KEY_MIX = 0x1E3779B97F4A7C15  # so that a state of zeros has a usable key, too
_SMALL = 2.0**-8  # a probability from which 32 bits give it 24 significant ones
# What a drawn choice is made from where it is needed: (key, counter of its first element)
DRAW = TensorType(dtypes.i64, (2,))


def upper32(x: Any) -> Any:
    """The upper 32 bits as a number: i64's shift is arithmetic."""
    return ops.bitwise_and(ops.shift_right(x, 32), _LOW32)


def lower32(x: Any) -> Any:
    """The lower 32 bits as a number."""
    return ops.bitwise_and(x, _LOW32)


def top(bits: Any, count: int) -> Any:
    """The upper `count` bits as a number."""
    return ops.bitwise_and(ops.shift_right(bits, 64 - count), 2**count - 1)


def _swapped(x: Any) -> Any:
    """The 32-bit halves exchanged."""
    return ops.bitwise_or(ops.shift_left(x, 32), upper32(x))


def _squares(counter: Any, key: Any, bits: int) -> Any:
    """Random bits: 32 by four rounds of squaring, 64 by five."""
    x = y = counter * key
    z = y + key
    for weyl in (y, z, y):
        x = _swapped(x * x + weyl)
    last = x * x + z
    if bits == 32:
        return upper32(last)
    x = _swapped(last)
    return ops.bitwise_xor(last, upper32(x * x + y))


def squares32(counter: np.ndarray[Any, Any], key: np.uint64) -> np.ndarray[Any, Any]:
    """32 random bits of each uint64 counter, in NumPy."""
    x = y = counter * key
    z = y + key
    half = np.uint64(32)
    for weyl in (y, z, y):
        x = x * x + weyl
        x = (x >> half) | (x << half)
    found: np.ndarray[Any, Any] = (x * x + z) >> half
    return found


def _positions(like: Any, shape: Shape) -> Any:
    """Each element's number in row-major order, without a reshape: it fuses anywhere."""
    total: Any = None
    for dim, size in enumerate(shape):
        if size == 1 and (total is not None or dim + 1 < len(shape)):
            continue
        index = ops.iota.like(like, shape=shape, dim=dim, dtype=dtypes.i64)
        stride = product(shape[dim + 1 :])
        if stride != 1:
            if not isinstance(stride, int):
                stride = filled(like, (), stride, dtypes.i64)
            index = index * stride
        total = index if total is None else total + index
    return total


class Source:
    """The bits of one draw of `shape`, `draws` draws after a state."""

    def __init__(self, state: Any, draws: int, shape: Shape) -> None:
        self.state, self.shape = state, shape
        word = self._state_word(_WORD)
        self.word = word + draws if draws else word
        self.first = ops.shift_left(self.word, 32)

    def _state_word(self, index: int) -> Any:
        word = ops.slice(self.state, starts=(index,), stops=(index + 1,), steps=(1,))
        return reshape(word, ())

    def _key(self, mix: int = KEY_MIX) -> Any:
        upper, lower = self._state_word(_KEY_HIGH), self._state_word(_KEY_LOW)
        key = ops.bitwise_or(ops.shift_left(upper, 32), lower)
        return ops.bitwise_or(ops.bitwise_xor(key, mix), 1)

    def bits(self, count: int = 64, mix: int = KEY_MIX) -> Any:
        """32 or 64 random bits for each element; another `mix` gives others."""
        counter = self.first + _positions(self.state, self.shape) if self.shape else self.first
        return _squares(counter, self._key(mix), count)

    def draw(self) -> Any:
        """See DRAW."""
        return ops.concat(reshape(self._key(), (1,)), reshape(self.first, (1,)), dim=0)

    def after(self) -> Any:
        """The state after the draw."""
        word = reshape(lower32(self.word + 1), (1,))
        return ops.slice_update(
            self.state, word, starts=(_WORD,), stops=(_WORD + 1,), steps=(1,)
        )


def in_32_bits(p: float) -> bool:
    """Whether a choice of probability p is made by 32 bits: a small p needs finer steps."""
    return p == 0.0 or p >= _SMALL


def threshold(p: float, bits: int = 32) -> int:
    """A choice is made where its bits, as a number, are below this."""
    return math.ceil(p * 2.0**bits)


def chosen(source: Source, p: float) -> Any:
    """bool, True with probability p: u < p compared as integers."""
    if in_32_bits(p):
        return ops.lt(source.bits(32), threshold(p))
    return ops.lt(top(source.bits(), 53), threshold(p, 53))


def chosen_of(draw: Any, shape: Shape, p: float) -> Any:
    """What `chosen` gives, from its DRAW and its shape, for a p that is in_32_bits."""
    key, first = (
        reshape(ops.slice(draw, starts=(i,), stops=(i + 1,), steps=(1,)), ()) for i in (0, 1)
    )
    return ops.lt(_squares(first + _positions(draw, shape), key, 32), threshold(p))
