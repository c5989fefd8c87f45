"""torch.quasirandom: Sobol sequences, plain and scrambled."""

from __future__ import annotations

import base64
import functools
from typing import Any

import numpy as np

from .frontend import functions as T
from .frontend.errors import located
from .frontend.promote import get_default_dtype
from .frontend.random_state import Generator
from .frontend.tensor import Tensor
from .quasirandom_table import BITS, COUNTS

__all__ = ["SobolEngine"]

_KNOWN = 1 + sum(COUNTS)  # dimensions


class SobolEngine:
    """Points of a Sobol sequence in [0, 1), in up to 1111 dimensions (torch: 21201).

    pytorch.org/docs/stable/generated/torch.quasirandom.SobolEngine.html; scrambled as by J.
    Matousek, On the L2-discrepancy for anchored boxes (1998). Raises ValueError for dimensions
    outside of that range.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        if dimension > _KNOWN:
            raise ValueError(
                f"SobolEngine: graphc has direction numbers for {_KNOWN} dimensions, not for "
                f"{dimension}. Cure: torch.rand(), or scipy.stats.qmc.Sobol"
            )
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.sobolstate = T.tensor(_directions(self.MAXBIT)[:dimension])
        self.shift = T.zeros(dimension, dtype=T.long)
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next n points, of shape (n, dimension)."""
        dtype = get_default_dtype() if dtype is None else dtype
        begin = self.num_generated
        if n < (begin == 0):
            raise RuntimeError(located(
                f"Trying to create tensor with negative dimension {n - (begin == 0)}: a sequence "
                f"is drawn from by 1 point or more, not by {n}"
            ))
        states = self._states(max(begin - 1, 0), n - (begin == 0))
        if len(states):
            self.quasi = T.tensor(states[-1])
        result = T.tensor(states).to(dtype) * 2.0**-self.MAXBIT
        if begin == 0:
            result = T.cat((self._first_point.to(dtype), result), dim=-2)
        self.num_generated += n
        if out is not None:
            out.resize_as_(result).copy_(result)
            return out
        return result

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2**m points. Raises ValueError where all so far would be no power of two."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out n points."""
        begin = self.num_generated
        done, more = max(begin - 1, 0), n - (begin == 0)
        # the state after k steps is made of the directions at the ones of k's Gray code
        changed = (done ^ done >> 1) ^ (done + more ^ (done + more) >> 1)
        columns = [k for k in range(self.MAXBIT) if changed >> k & 1]
        moved = np.bitwise_xor.reduce(self.sobolstate.numpy()[:, columns], axis=1)
        self.quasi = self.quasi ^ T.tensor(moved)
        self.num_generated += n
        return self

    def _states(self, done: int, n: int) -> np.ndarray:
        """The n states after the one that `done` steps have led to."""
        steps = np.arange(done + 1, done + n + 1)
        lowest = np.log2(steps & -steps).astype(np.int64)  # of each step the one column that counts
        rows = np.concatenate([self.quasi.numpy()[None], self.sobolstate.numpy().T[lowest]])
        return np.bitwise_xor.accumulate(rows, axis=0)[1:]

    def _scramble(self) -> None:
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        bits = T.randint(2, (self.dimension, self.MAXBIT), generator=generator)
        self.shift = T.mv(bits, T.pow(2, T.arange(0, self.MAXBIT)))
        size = (self.dimension, self.MAXBIT, self.MAXBIT)
        lower = T.randint(2, size, generator=generator).tril().numpy().copy()
        each = np.arange(self.MAXBIT)
        lower[:, each, each] = 1
        given = self.sobolstate.numpy()[:, :, None] >> each[::-1] & 1  # bits from the highest
        made = given @ lower.transpose(0, 2, 1) & 1
        self.sobolstate = T.tensor((made << each[::-1]).sum(-1))

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"


@functools.cache
def _directions(count: int) -> np.ndarray:
    """The direction numbers of each dimension, as integers of `count` bits."""
    bits = iter(np.unpackbits(
        np.frombuffer(base64.b85decode(BITS), np.uint8), bitorder="little"
    ).tolist())
    rows = [[1] * count]
    for degree, many in enumerate(COUNTS, 1):
        for _ in range(many):
            polynomial = [next(bits) for _ in range(degree - 1)][::-1]
            first = [1 + sum(next(bits) << k for k in range(1, i + 1)) for i in range(degree)]
            rows.append(_recurrence(polynomial, first, count))
    shifts = np.arange(count - 1, -1, -1)
    return np.array(rows, np.int64) << shifts


def _recurrence(polynomial: list[int], first: list[int], count: int) -> list[int]:
    """m[i] = 2 a[1] m[i - 1] ^ ... ^ 2^s m[i - s] ^ m[i - s] (Bratley and Fox, 1988)."""
    degree, found = len(first), list(first)
    for i in range(degree, count):
        value = found[i - degree] ^ found[i - degree] << degree
        for k, coefficient in enumerate(polynomial, 1):
            value ^= coefficient * (found[i - k] << k)
        found.append(value)
    return found
