"""Tiles of a convolution's operands, gathered where they lie (gemm_operand says what a tile is).

What is multiplied is a matrix that nobody makes: lines are pixels of a tensor, and along a line go
taps of the window, each with its channels, which are filled up to whole pieces of 16 bytes. So a
piece has one tap, and what is behind its channels, or outside the image, is 0. All sizes and
strides are members, filled from arguments of the kernel; the number of spatial dims is in the type.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.cuda.indices import index_text
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.templates.gemm_operand import TileSource
from graphc.backends.cuda.templates.gemm_plan import Along
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.ir.dim import Size, ceil_div
from graphc.ir.kernel import Operand
from graphc.ir.kernel.templates.convolution import VARIABLES
from graphc.ir.kernel.templates.operand import strides_of

_BITS = 62  # of a Divisor's magic number


class Strides:
    """Where an operand's elements lie: `start`, then steps of image (of w: filter), channel and
    position (tap)."""

    def __init__(self, operand: Operand) -> None:
        found = strides_of(operand.index, VARIABLES)
        assert found is not None
        self.operand = operand
        self.start, self.image, self.channel, self.position = found


class Writer:
    """Members of structs, from arguments of one kernel."""

    def __init__(self, sizes: Sizes, rank: int) -> None:
        self.sizes, self.rank = sizes, rank

    def number(self, value: Size) -> str:
        """A number; 0 and 1 stay in the text."""
        if isinstance(value, int) and value in (0, 1):
            return str(value)
        return index_text(self.sizes.argument(value))

    def each(self, values: Sequence[Size]) -> str:
        """One for each spatial dim."""
        return f"{{{', '.join(f'(int){self.number(value)}' for value in values)}}}"

    def divisor(self, value: Size) -> str:
        """See Divisor."""
        magic = index_text(self.sizes.argument(ceil_div(1 << _BITS, value)))
        return f"{{{index_text(self.sizes.argument(value))}, {magic}}}"

    def divisors(self, values: Sequence[Size]) -> str:
        """One for each spatial dim."""
        return f"{{{', '.join(map(self.divisor, values))}}}"

    def gathered(
        self, name: str, struct: str, s: Strides, along: Along, offset: str, members: Sequence[str]
    ) -> TileSource:
        """An operand whose first element is `offset` behind the first of its buffer's view."""
        dtype = s.operand.dtype
        kind = f"{struct}<{c_type(dtype)}, {str(s.channel == 1).lower()}, {self.rank}>"
        origin = ", ".join((
            f"{s.operand.buffer} + {self.number(s.start)} + {offset}", self.number(s.image),
            self.number(s.position),
        ))
        fields = ", ".join((f"{{{origin}}}", self.number(s.channel), *members))
        make = f"const {kind} {name} = {{{fields}}};"
        return TileSource(dtype, along, kind, make, DECLARATIONS)


# Quotients of what is below 2^31 by a multiplication: magic is 2^62 / by, rounded up, so that the
# error of the product is below 2^31 / 2^62, and less than 1 / by.
DIVISOR = """
struct Divisor {
  i64 by, magic;
  i64 quotient(i64 n) const {
    if (n >> 31) return n / by;
    const u64 high = (u64)n * ((u64)magic >> 32), low = (u64)n * ((u64)magic & 0xffffffffu) >> 32;
    return (i64)((high + low) >> 30);
  }
  // The digit of n in this place; n is left with the places above.
  int digit(i64* n) const {
    const i64 above = quotient(*n), found = *n - above * by;
    *n = above;
    return (int)found;
  }
};
"""

_SPACED = """
template <class T> struct Spaced {
  const T* x;
  i64 image_step, position_step;
  bool aligned() const {
    return ((u64)x | (u64)image_step * sizeof(T) | (u64)position_step * sizeof(T)) % 16 == 0;
  }
};
// How many of a piece's channels there are.
template <class T> __device__ inline int in_piece(i64 left) {
  return left < 16 / (int)sizeof(T) ? (left < 0 ? 0 : (int)left) : 16 / (int)sizeof(T);
}
"""

# Lines are positions of the result, along them go taps and channels of what their windows read.
_PATCHES = """
template <class T, bool DENSE, int RANK> struct Patches {
  Spaced<T> origin;
  i64 step;
  i64 lines, channels;
  Divisor filled;  // channels in whole pieces
  Divisor output[RANK], window[RANK];
  int input[RANK], stride[RANK], low[RANK], dilation[RANK];
  bool wide() const { return DENSE && origin.aligned(); }
  const T* at(i64 line, i64 along, int* count) const {
    i64 image = line, tap = along, place = 0, plane = 1;
    const int channel = filled.digit(&tap);
    bool inside = line < lines;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      const int position = output[d].digit(&image), t = window[d].digit(&tap);
      const int i = position * stride[d] - low[d] + t * dilation[d];
      inside = inside && (unsigned)i < (unsigned)input[d];
      place += plane * i;
      plane *= input[d];
    }
    *count = inside && tap == 0 ? in_piece<T>(channels - channel) : 0;
    if (*count == 0) return origin.x;
    return origin.x + image * origin.image_step + place * origin.position_step + channel * step;
  }
};
"""

# Lines are positions of the input whose coordinates have one rest by the strides (`phase`), along
# them go those taps that meet a position of the result, and channels of its gradient there.
_REACHES = """
template <int RANK> struct Phase {
  int first[RANK], tap[RANK], base[RANK];
};
// The phase of a number: the first input position, the first tap that meets a position of the
// result (the window's size: none does), and which position that is.
template <int RANK> __device__ inline Phase<RANK> phase_of(
    i64 number, const int (&stride)[RANK], const int (&low)[RANK], const int (&dilation)[RANK],
    const int (&between)[RANK], const int (&window)[RANK]) {
  Phase<RANK> p;
  #pragma unroll
  for (int d = RANK - 1; d >= 0; d--) {
    p.first[d] = (int)(number % stride[d]);
    number /= stride[d];
    p.tap[d] = window[d];
    p.base[d] = 0;
    for (int t = 0; t < between[d] && t < window[d]; t++) {
      const int reach = p.first[d] + low[d] - t * dilation[d];
      if (reach % stride[d] == 0 && p.tap[d] == window[d]) {
        p.tap[d] = t;
        p.base[d] = reach / stride[d];
      }
    }
  }
  return p;
}
template <class T, bool DENSE, int RANK> struct Reaches {
  Spaced<T> origin;
  i64 step;
  i64 lines, channels;
  Divisor filled;
  Divisor places[RANK], taps[RANK];  // of one phase
  int output[RANK], window[RANK], between[RANK], back[RANK];
  Phase<RANK> phase;
  bool wide() const { return DENSE && origin.aligned(); }
  const T* at(i64 line, i64 along, int* count) const {
    i64 image = line, tap = along, place = 0, plane = 1;
    const int channel = filled.digit(&tap);
    bool inside = line < lines;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      const int i = places[d].digit(&image), j = taps[d].digit(&tap);
      const int o = phase.base[d] + i - j * back[d];
      inside = inside && (unsigned)o < (unsigned)output[d];
      inside = inside && phase.tap[d] + j * between[d] < window[d];
      place += plane * o;
      plane *= output[d];
    }
    *count = inside && tap == 0 ? in_piece<T>(channels - channel) : 0;
    if (*count == 0) return origin.x;
    return origin.x + image * origin.image_step + place * origin.position_step + channel * step;
  }
};
// The weights of a phase: lines are its taps, each with the filters; along them go channels.
template <class T, bool DENSE, int RANK> struct PhaseWeights {
  Spaced<T> origin;
  i64 step;
  i64 filters, channels;
  Divisor filled;  // filters in whole pieces
  Divisor taps[RANK];
  int window[RANK], between[RANK];
  Phase<RANK> phase;
  bool wide() const { return DENSE && origin.aligned(); }
  const T* at(i64 line, i64 along, int* count) const {
    i64 tap = line, place = 0, plane = 1;
    const int filter = filled.digit(&tap);
    bool inside = filter < filters;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      const int t = phase.tap[d] + taps[d].digit(&tap) * between[d];
      inside = inside && t < window[d];
      place += plane * t;
      plane *= window[d];
    }
    *count = inside && tap == 0 ? in_piece<T>(channels - along) : 0;
    if (*count == 0) return origin.x;
    return origin.x + filter * origin.image_step + place * origin.position_step + along * step;
  }
};
"""

# Lines are filters, along them go taps and channels.
_FILTERS = """
template <class T, bool DENSE, int RANK> struct Filters {
  Spaced<T> origin;
  i64 step;
  i64 lines, channels, taps;
  Divisor filled;
  bool wide() const { return DENSE && origin.aligned(); }
  const T* at(i64 line, i64 along, int* count) const {
    i64 tap = along;
    const int channel = filled.digit(&tap);
    *count = line < lines && tap < taps ? in_piece<T>(channels - channel) : 0;
    if (*count == 0) return origin.x;
    return origin.x + line * origin.image_step + tap * origin.position_step + channel * step;
  }
};
"""

# Lines are pixels, along them go channels.
_PIXELS = """
template <class T, bool DENSE, int RANK> struct Pixels {
  Spaced<T> origin;
  i64 step;
  i64 lines, channels;
  Divisor positions;
  bool wide() const { return DENSE && origin.aligned(); }
  const T* at(i64 line, i64 along, int* count) const {
    i64 image = line;
    const int position = positions.digit(&image);
    *count = line < lines ? in_piece<T>(channels - along) : 0;
    if (*count == 0) return origin.x;
    return origin.x + image * origin.image_step + position * origin.position_step + along * step;
  }
};
"""

DECLARATIONS = "".join((DIVISOR, _SPACED, _PATCHES, _REACHES, _FILTERS, _PIXELS))
