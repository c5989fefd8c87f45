"""Partials of an epilogue as CUDA C: sums over some rows of a tile, column by column.

Threads walk through a tile in the order of memory, so that each has columns of its own, in every
so many rows. It adds up what it meets in slots of shared memory, one for each column and each row
modulo 16, and then a thread for each column adds up its slots. So the order of a sum is the same
for every tile, engine and number of lanes. Squares are summed by a second walk, around the mean
that the first one found, over values that are kept in the place of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphc.backends.cuda.scalar import c_type
from graphc.ir.kernel import Let, Partial, Scalar, Stmt, SumTemplate

SLOTS = 16  # rows that a column's sum is spread over
WIDE = 128  # columns of a tile where nobody multiplies
FUNCTIONS = """
template <int LANES, class T> __device__ __forceinline__ void tally(T* slot, const T* x) {
  Pack<T, LANES> sum = *(const Pack<T, LANES>*)slot;
  #pragma unroll
  for (int lane = 0; lane < LANES; lane++) sum.x[lane] += x[lane];
  *(Pack<T, LANES>*)slot = sum;
}
template <int LANES, class T> __device__ __forceinline__ void keep(T* to, const T* x) {
  Pack<T, LANES> kept;
  #pragma unroll
  for (int lane = 0; lane < LANES; lane++) kept.x[lane] = x[lane];
  *(Pack<T, LANES>*)to = kept;
}
__device__ inline float multiplied_and_added(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiplied_and_added(double a, double b, double c) {
  return fma(a, b, c);
}
template <int LANES, class T> __device__ __forceinline__ void tally_squares(
    T* slot, const T* x, const T* mean) {
  const Pack<T, LANES> value = *(const Pack<T, LANES>*)x, around = *(const Pack<T, LANES>*)mean;
  Pack<T, LANES> sum = *(const Pack<T, LANES>*)slot;
  #pragma unroll
  for (int lane = 0; lane < LANES; lane++) {
    const T left = value.x[lane] - around.x[lane];
    sum.x[lane] = multiplied_and_added(left, left, sum.x[lane]);
  }
  *(Pack<T, LANES>*)slot = sum;
}
template <int WIDE, class T> __device__ __forceinline__ T tallied(const T* slots) {
  T sum = slots[0];
  #pragma unroll
  for (int row = 1; row < 16; row++) sum += slots[row * WIDE];
  return sum;
}
"""
_WALK = """
    for (int top = 0; top < TILE_TALL; top += TILE_ROWS) {
      const i64 row0 = m0 + top;
      DECLARE
      for (int i = threadIdx.x * LANES; i < 16 * TILE_WIDE; i += WORKERS * LANES) {
        #pragma unroll
        for (int lane = 0; lane < LANES; lane++) { CLEAR }
      }
      for (int i = threadIdx.x * LANES; i < TILE_ROWS * TILE_WIDE; i += WORKERS * LANES) {
        const int line_ = i / TILE_WIDE, column_ = i % TILE_WIDE;
        const i64 m = row0 + line_, n = n0 + column_;
        if (m < TOTAL_M && n < TOTAL_N) {
          TAKE
          FINISH
        }
      }
      __syncthreads();
      const i64 rows_ = take_min<i64>(TOTAL_M - row0, TILE_ROWS);
      for (int column_ = threadIdx.x; column_ < TILE_WIDE; column_ += WORKERS) {
        const i64 n = n0 + column_;
        if (rows_ <= 0 || n >= TOTAL_N) continue;
        const i64 place_ = row0 / PARTIAL_ROWS * COLUMNS + COLUMN;
        SUMS
      }
      __syncthreads();
      SQUARES
    }
"""
_SQUARES = """
      for (int i = threadIdx.x * LANES; i < TILE_ROWS * TILE_WIDE; i += WORKERS * LANES) {
        const int line_ = i / TILE_WIDE, column_ = i % TILE_WIDE;
        if (row0 + line_ < TOTAL_M && n0 + column_ < TOTAL_N) {
          tally_squares<LANES>(
              squares_ + line_ % 16 * TILE_WIDE + column_, KEPT, mean_ + column_);
        }
      }
      __syncthreads();
      for (int column_ = threadIdx.x; column_ < TILE_WIDE; column_ += WORKERS) {
        const i64 n = n0 + column_;
        if (rows_ <= 0 || n >= TOTAL_N) continue;
        BUFFER[row0 / PARTIAL_ROWS * COLUMNS + COLUMN] = tallied<TILE_WIDE>(squares_ + column_);
      }
      __syncthreads();
"""


@dataclass(frozen=True)
class Walk:
    """Who walks through which tile: so many threads, through shared memory that is free from
    `free` bytes on; `kept`: CUDA C of where a value may be kept, of the place (line_, column_)."""

    tall: int
    wide: int
    threads: int
    free: int
    kept: str


class Tallies:
    """The Partials of an epilogue; false without any. `values` are what they sum, by names."""

    def __init__(self, body: Sequence[Stmt]) -> None:
        self.partials = [stmt for stmt in body if isinstance(stmt, Partial)]
        self.values: dict[str, Scalar] = {}
        self._names: dict[Scalar, str] = {}
        for stmt in self.partials:
            if stmt.value not in self._names:
                name = self._names[stmt.value] = f"tally_{len(self._names)}"
                self.values[name] = stmt.value
        self.squares = next((s for s in self.partials if s.kind == "squares"), None)

    def __bool__(self) -> bool:
        return bool(self.partials)

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.partials[0].rows

    def without(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The epilogue with names for what is summed in the place of the Partials."""
        kept = [stmt for stmt in body if not isinstance(stmt, Partial)]
        return (*kept, *(Let(name, value) for name, value in self.values.items()))

    def lines(self, lanes: int) -> list[str]:
        """What a thread does with arrays of its lanes' values, called as these are."""
        found = [
            f"tally<{lanes}>(slots_{name} + line_ % {SLOTS} * wide_ + column_, {name});"
            for name in self.values
        ]
        if self.squares is not None:
            found.append(f"keep<{lanes}>(kept_, {self._names[self.squares.value]});")
        return found

    def fits(self, tall: int, rows: object) -> bool:
        """Whether tiles so tall, of so many rows in all, hold whole blocks."""
        if not self or tall % self.rows == 0:
            return True
        return isinstance(rows, int) and rows <= tall

    def lanes(self, lanes: int, threads: int, wide: int) -> int:
        """At most so many that no two threads share a slot."""
        while self and lanes > 1 and threads * lanes > SLOTS * wide:
            lanes //= 2
        return lanes

    def shared_bytes(self, wide: int) -> int:
        """Of the slots, and of a row of means."""
        rows = sum(SLOTS * v.dtype.itemsize for v in self.values.values())
        if self.squares is not None:
            rows += (SLOTS + 1) * self.squares.value.dtype.itemsize
        return rows * wide

    def walk(self, walk: Walk) -> str:
        """CUDA C that goes through a tile whose first row and column are m0 and n0. Left open:
        TAKE and FINISH, for what is `found` at m and n, and what becomes of it; COLUMN, COLUMNS:
        the number of a column, and how many there are; LANES and the words for sizes."""
        declared, cleared, at = [f"const int wide_ = {walk.wide};"], [], walk.free
        for name, value in self.values.items():
            declared.append(_array(f"slots_{name}", value, at))
            cleared.append(f"slots_{name}[i + lane] = 0;")
            at += SLOTS * walk.wide * value.dtype.itemsize
        if self.squares is not None:
            size = walk.wide * self.squares.value.dtype.itemsize
            declared += [
                _array("squares_", self.squares.value, at),
                _array("mean_", self.squares.value, at + SLOTS * size),
            ]
            cleared.append("squares_[i + lane] = 0;")
        squares = "" if self.squares is None else _SQUARES.replace("KEPT", walk.kept).replace(
            "BUFFER", self.squares.buffer
        )
        kept = "" if self.squares is None else (
            f"{c_type(self.squares.value.dtype)}* const kept_ = {walk.kept};"
        )
        text = _WALK.replace("SQUARES", squares).replace("TAKE", f"{kept}\n          TAKE")
        words = {
            "DECLARE": "\n      ".join(declared), "CLEAR": " ".join(cleared),
            "SUMS": "\n        ".join(self._sums()), "TILE_TALL": str(walk.tall),
            "TILE_ROWS": str(min(self.rows, walk.tall)), "TILE_WIDE": str(walk.wide),
            "WORKERS": str(walk.threads), "PARTIAL_ROWS": str(self.rows),
        }
        for word, written in words.items():
            text = text.replace(word, written)
        return text

    def _sums(self) -> list[str]:
        """What is stored of a column, and what is kept of it for its squares."""
        lines = []
        for name, value in self.values.items():
            kind = c_type(value.dtype)
            lines.append(f"const {kind} sum_{name} = tallied<wide_>(slots_{name} + column_);")
        for stmt in self.partials:
            name, kind = self._names[stmt.value], c_type(stmt.value.dtype)
            if stmt.kind == "sum":
                lines.append(f"{stmt.buffer}[place_] = sum_{name};")
            elif stmt.kind == "mean":
                lines.append(f"{stmt.buffer}[place_] = sum_{name} / ({kind})rows_;")
        if self.squares is not None:
            name, kind = self._names[self.squares.value], c_type(self.squares.value.dtype)
            lines.append(f"mean_[column_] = sum_{name} / ({kind})rows_;")
        return lines


def _array(name: str, value: Scalar, at: int) -> str:
    kind = c_type(value.dtype)
    return f"{kind}* const {name} = ({kind}*)(shared + {at});"


def takes_partials(template: SumTemplate) -> bool:
    """Whether there is code for a template's Partials: of equal blocks, and squares of one value
    alone, of the type that is summed in."""
    partials = [stmt for stmt in template.epilogue if isinstance(stmt, Partial)]
    squares = [stmt.value for stmt in partials if stmt.kind == "squares"]
    return (
        len({stmt.rows for stmt in partials}) <= 1 and len(squares) <= 1
        and all(rows % SLOTS == 0 for rows in {stmt.rows for stmt in partials})
        and all(value.dtype is template.acc_dtype for value in squares)
    )
