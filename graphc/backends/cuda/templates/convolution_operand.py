"""Tiles of a convolution's operands, gathered where they lie (gemm_operand says what a tile is).

What is multiplied is a matrix that nobody makes: lines are pixels of a tensor, and along a line go
taps of the window, each with its channels, which are filled up to whole pieces of 16 bytes. So a
piece has one tap, and what is behind its channels, or outside the image, is 0. All sizes and
strides are members, filled from arguments of the kernel; the number of spatial dims is in the type.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.statements.indices import index_text
from graphc.backends.cuda.templates.gemm_operand import TileSource
from graphc.backends.cuda.templates.gemm_plan import Along
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.ir.dim import Size, ceil_div
from graphc.ir.kernel import Operand
from graphc.ir.kernel.templates.convolution import VARIABLES
from graphc.ir.kernel.templates.operand import strides_of

_BITS = 62  # of a Divisor's magic number
_WITH_CORNERS = ("Patches", "Reaches")


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
        """One for each spatial dim: arguments, also strides of 1 and paddings of 0, as one text is
        to serve all; they count once for a line, and not for each of its pieces."""
        found = (index_text(self.sizes.argument(value)) for value in values)
        return f"{{{', '.join(f'(int){value}' for value in found)}}}"

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
        line = 8 + -(-4 * self.rank // 8) * 8 if struct in _WITH_CORNERS else 8
        return TileSource(dtype, along, kind, make, DECLARATIONS, line)


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
// A line that begins at coordinates, some of which may be outside, and how far a piece is from
// there: by coordinates, and by elements.
const int OUTSIDE = -(1 << 30);
template <class T, int RANK> struct Corner { const T* x; int first[RANK]; };
template <int RANK> struct Reach { i64 offset; int count; int by[RANK]; };
template <class T, int RANK> __device__ inline const T* met(
    const T* x, const Corner<T, RANK>& line, const Reach<RANK>& along, const int (&sizes)[RANK],
    int* count) {
  bool inside = true;
  #pragma unroll
  for (int d = 0; d < RANK; d++)
    inside = inside && (unsigned)(line.first[d] + along.by[d]) < (unsigned)sizes[d];
  *count = inside ? along.count : 0;
  return *count ? line.x + along.offset : x;
}
"""

# Lines are positions of the result, along them go taps and channels of what their windows read.
_PATCHES = """
template <class T, bool DENSE, int RANK> struct Patches {
  typedef Corner<T, RANK> Line;
  typedef Reach<RANK> Along;
  static const bool dense = DENSE;
  Spaced<T> origin;
  i64 step;
  i64 lines, channels;
  Divisor filled;  // channels in whole pieces
  Divisor output[RANK], window[RANK];
  int input[RANK], stride[RANK], low[RANK], dilation[RANK];
  bool wide() const { return DENSE && origin.aligned(); }
  Line line(i64 line) const {
    Line found;
    i64 image = line, place = 0, plane = 1;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      found.first[d] = output[d].digit(&image) * stride[d] - low[d];
      place += plane * found.first[d];
      plane *= input[d];
    }
    found.x = origin.x + image * origin.image_step + place * origin.position_step;
    if (line >= lines) found.first[0] = OUTSIDE;
    return found;
  }
  Along along(i64 along) const {
    Along found;
    i64 tap = along, place = 0, plane = 1;
    const int channel = filled.digit(&tap);
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      found.by[d] = window[d].digit(&tap) * dilation[d];
      place += plane * found.by[d];
      plane *= input[d];
    }
    found.offset = place * origin.position_step + channel * step;
    found.count = tap == 0 ? in_piece<T>(channels - channel) : 0;
    return found;
  }
  const T* at(const Line& line, const Along& along, int* count) const {
    return met(origin.x, line, along, input, count);
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
  typedef Corner<T, RANK> Line;
  typedef Reach<RANK> Along;
  static const bool dense = DENSE;
  Spaced<T> origin;
  i64 step;
  i64 lines, channels;
  Divisor filled;
  Divisor places[RANK], taps[RANK];  // of one phase
  int output[RANK], window[RANK], between[RANK], back[RANK];
  Phase<RANK> phase;
  bool wide() const { return DENSE && origin.aligned(); }
  Line line(i64 line) const {
    Line found;
    i64 image = line, place = 0, plane = 1;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      found.first[d] = phase.base[d] + places[d].digit(&image);
      place += plane * found.first[d];
      plane *= output[d];
    }
    found.x = origin.x + image * origin.image_step + place * origin.position_step;
    if (line >= lines) found.first[0] = OUTSIDE;
    return found;
  }
  Along along(i64 along) const {
    Along found;
    i64 tap = along, place = 0, plane = 1;
    const int channel = filled.digit(&tap);
    bool inside = true;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      const int j = taps[d].digit(&tap);
      found.by[d] = -j * back[d];
      inside = inside && phase.tap[d] + j * between[d] < window[d];
      place += plane * found.by[d];
      plane *= output[d];
    }
    found.offset = place * origin.position_step + channel * step;
    found.count = inside && tap == 0 ? in_piece<T>(channels - channel) : 0;
    return found;
  }
  const T* at(const Line& line, const Along& along, int* count) const {
    return met(origin.x, line, along, output, count);
  }
};
// The weights of a phase: lines are its taps, each with the filters; along them go channels.
template <class T, bool DENSE, int RANK> struct PhaseWeights {
  typedef Start<T> Line;
  typedef Offset Along;
  static const bool dense = DENSE;
  Spaced<T> origin;
  i64 step;
  i64 filters, channels;
  Divisor filled;  // filters in whole pieces
  Divisor taps[RANK];
  int window[RANK], between[RANK];
  Phase<RANK> phase;
  bool wide() const { return DENSE && origin.aligned(); }
  Line line(i64 line) const {
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
    inside = inside && tap == 0;
    return {inside ? origin.x + filter * origin.image_step + place * origin.position_step : 0};
  }
  Along along(i64 along) const { return {along * step, in_piece<T>(channels - along)}; }
  const T* at(const Line& line, const Along& along, int* count) const {
    return joined(origin.x, line, along, count);
  }
};
"""

# Lines are filters, along them go taps and channels.
_FILTERS = """
template <class T, bool DENSE, int RANK> struct Filters {
  typedef Start<T> Line;
  typedef Offset Along;
  static const bool dense = DENSE;
  Spaced<T> origin;
  i64 step;
  i64 lines, channels, taps;
  Divisor filled;
  bool wide() const { return DENSE && origin.aligned(); }
  Line line(i64 line) const { return {line < lines ? origin.x + line * origin.image_step : 0}; }
  Along along(i64 along) const {
    i64 tap = along;
    const int channel = filled.digit(&tap);
    const int count = tap < taps ? in_piece<T>(channels - channel) : 0;
    return {tap * origin.position_step + channel * step, count};
  }
  const T* at(const Line& line, const Along& along, int* count) const {
    return joined(origin.x, line, along, count);
  }
};
"""

# Lines are pixels, along them go channels.
_PIXELS = """
template <class T, bool DENSE, int RANK> struct Pixels {
  typedef Start<T> Line;
  typedef Offset Along;
  static const bool dense = DENSE;
  Spaced<T> origin;
  i64 step;
  i64 lines, channels;
  Divisor positions;
  bool wide() const { return DENSE && origin.aligned(); }
  Line line(i64 line) const {
    i64 image = line;
    const int position = positions.digit(&image);
    const T* const x = origin.x + image * origin.image_step + position * origin.position_step;
    return {line < lines ? x : 0};
  }
  Along along(i64 along) const { return {along * step, in_piece<T>(channels - along)}; }
  const T* at(const Line& line, const Along& along, int* count) const {
    return joined(origin.x, line, along, count);
  }
};
"""

DECLARATIONS = "".join((DIVISOR, _SPACED, _PATCHES, _REACHES, _FILTERS, _PIXELS))
