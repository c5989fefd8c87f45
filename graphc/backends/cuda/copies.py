"""Copies within the device, by strides: one kernel for each width of elements and of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from graphc.backends.cuda.driver import pack
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import Source, Stage
from graphc.backends.cuda.status import guarded

RANK = 8  # dims that one launch walks
THREADS = 256
EACH = 4  # elements of a thread
_WIDTHS = {
    1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "u64", 16: "struct pair_of_words",
}
_NAMES = tuple(
    (width, index, f"copy_{width}_{name}")
    for width in _WIDTHS for index, name in (("unsigned", "short"), ("u64", "long"))
)
# The last dim first; `wide` bytes from one element to the next, and of `from` likewise.
_TEXT = """\
extern "C" __global__ void NAME(unsigned char* to, const unsigned char* from, Walk walk, i64 n,
                                i64* status) {
  const INDEX step = (INDEX)gridDim.x * blockDim.x;
  for (INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; i < (INDEX)n; i += step) {
    INDEX rest = i;
    i64 target = 0, source = 0;
    for (int d = 0; d < (int)walk.rank; d++) {
      const INDEX size = (INDEX)walk.size[d], above = rest / size;
      const i64 at = (i64)(rest - above * size);
      target += at * walk.to[d];
      source += at * walk.from[d];
      rest = above;
    }
    *(TYPE*)(to + target) = *(const TYPE*)(from + source);
  }
}
"""
_WALK = f"""\
struct __align__(16) pair_of_words {{ u64 low, high; }};
struct Walk {{ i64 rank, size[{RANK}], to[{RANK}], from[{RANK}]; }};
"""


def source() -> Source:
    """All of them; `place` says which one is meant."""
    texts = [
        _TEXT.replace("NAME", name).replace("INDEX", index).replace("TYPE", _WIDTHS[width])
        for width, index, name in _NAMES
    ]
    stages = tuple(Stage(name, 1, THREADS, 0) for *_, name in _NAMES)
    return guarded(Source("\n".join((PRELUDE, _WALK, *texts)), stages))[0]


def number(width: int, elements: int) -> int:
    """Of the stage that copies so many elements."""
    return 2 * tuple(_WIDTHS).index(width) + (elements >= 1 << 31)


class Walk(NamedTuple):
    """How a copy goes: elements of `width` bytes, sizes, and strides in bytes of both sides."""

    width: int
    shape: tuple[int, ...]
    to: tuple[int, ...]
    source: tuple[int, ...]

    @property
    def blocks(self) -> int:
        """Of its launch."""
        return min(-(-math.prod(self.shape) // (THREADS * EACH)), 1 << 16)

    def arguments(self, to: int, source: int, status: int) -> bytes:
        """Packed, for at most RANK dims."""
        rest = [0] * (RANK - len(self.shape))
        sizes, steps, froms = (
            [*reversed(part), *rest] for part in (self.shape, self.to, self.source)
        )
        count = math.prod(self.shape)
        words = (to, source, len(self.shape), *sizes, *steps, *froms, count, status)
        return pack(f"{len(words)}q", words)


def walk(
    to: int, source: int, shape: Sequence[int], itemsize: int, to_strides: Sequence[int],
    source_strides: Sequence[int],
) -> Walk:
    """The fewest dims and the widest elements for a copy between two addresses."""
    sizes, steps, froms = _merged(
        (*shape, itemsize), (*to_strides, 1), (*source_strides, 1)
    )
    if not sizes or steps[-1] != 1 or froms[-1] != 1:
        return Walk(1, tuple(sizes), tuple(steps), tuple(froms))
    run = math.gcd(16, to, source, sizes[-1], *steps[:-1], *froms[:-1])
    if sizes[-1] == run:
        return Walk(run, tuple(sizes[:-1]), tuple(steps[:-1]), tuple(froms[:-1]))
    sizes[-1] //= run
    steps[-1] = froms[-1] = run
    return Walk(run, tuple(sizes), tuple(steps), tuple(froms))


def _merged(
    shape: Sequence[int], to: Sequence[int], source: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """The same elements in the same order by fewer dims: neighbours that both sides walk without
    a gap are one."""
    sizes: list[int] = []
    steps: list[int] = []
    froms: list[int] = []
    for size, a, b in zip(shape, to, source, strict=True):
        if size == 1:
            continue
        if sizes and steps[-1] == a * size and froms[-1] == b * size:
            sizes[-1] *= size
            steps[-1], froms[-1] = a, b
        else:
            sizes.append(size)
            steps.append(a)
            froms.append(b)
    return sizes, steps, froms
