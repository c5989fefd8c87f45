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
        self, name: str, struct: str, s: Strides, along: Along, offset: str, channels: Size,
        members: Sequence[str],
    ) -> TileSource:
        """An operand whose first element is `offset` behind the first of its buffer's view, of so
        many channels."""
        dtype = s.operand.dtype
        kind = f"{struct}<{c_type(dtype)}, {str(s.channel == 1).lower()}, {self.rank}>"
        spaced = ", ".join((
            f"{s.operand.buffer} + {self.number(s.start)} + {offset}",
            *map(self.number, (s.image, s.position, s.channel, channels)),
        ))
        make = f"const {kind} {name} = {{{', '.join((f'{{{spaced}}}', *members))}}};"
        line = 8 + -(-4 * self.rank // 8) * 8 if struct == "Windows" else 8
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

# What all of them have.
_SPACED = """
template <class T, bool DENSE> struct Spaced {
  static const bool dense = DENSE;
  const T* x;
  i64 image_step, position_step, step, channels;
  bool wide() const {
    const u64 steps = (u64)image_step * sizeof(T) | (u64)position_step * sizeof(T);
    return DENSE && ((u64)x | steps) % 16 == 0;
  }
  const T* at(i64 image, i64 position) const {
    return x + image * image_step + position * position_step;
  }
};
// Lines of one position each, along which go channels.
template <class T, bool DENSE> struct Channels : Spaced<T, DENSE> {
  typedef Start<T> Line;
  typedef Offset Along;
  Along along(i64 along) const {
    return {along * this->step, in_piece<T>(this->channels - along)};
  }
  const T* at(const Line& line, const Along& along, int* count) const {
    return joined(this->x, line, along, count);
  }
};
"""

# Lines are positions of one tensor, along them go taps and channels of what their windows meet of
# another one: a result's patches of the input; or, of an input's gradient, what its positions reach
# in the result's. A line begins at coordinates, some of which may be outside (`first`); a tap is so
# far from there: by coordinates, and by elements.
_WINDOWS = """
const int OUTSIDE = -(1 << 30);
template <class T, int RANK> struct Corner { const T* x; int first[RANK]; };
template <int RANK> struct Reach { i64 offset; int count; int by[RANK]; };
template <class T, bool DENSE, int RANK> struct Windows : Spaced<T, DENSE> {
  typedef Corner<T, RANK> Line;
  typedef Reach<RANK> Along;
  i64 lines;
  Divisor filled;  // channels in whole pieces
  Divisor positions[RANK], taps[RANK];
  int sizes[RANK];  // of the tensor that is read
  int stride[RANK], low[RANK], dilation[RANK];
  int there[RANK];  // taps, of those that are counted
  Line line(i64 line) const {
    Line found;
    i64 image = line, place = 0, plane = 1;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      found.first[d] = positions[d].digit(&image) * stride[d] - low[d];
      place += plane * found.first[d];
      plane *= sizes[d];
    }
    found.x = Spaced<T, DENSE>::at(image, place);
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
      const int n = taps[d].digit(&tap);
      found.by[d] = n * dilation[d];
      inside = inside && n < there[d];
      place += plane * found.by[d];
      plane *= sizes[d];
    }
    found.offset = place * this->position_step + channel * this->step;
    found.count = inside && tap == 0 ? in_piece<T>(this->channels - channel) : 0;
    return found;
  }
  const T* at(const Line& line, const Along& along, int* count) const {
    bool inside = true;
    #pragma unroll
    for (int d = 0; d < RANK; d++)
      inside = inside && (unsigned)(line.first[d] + along.by[d]) < (unsigned)sizes[d];
    *count = inside ? along.count : 0;
    return *count ? line.x + along.offset : this->x;
  }
};
"""

# Of an input's gradient, the positions whose coordinates have one rest by the strides.
_PHASES = """
template <int RANK> struct Phase {
  int first[RANK], tap[RANK], low[RANK], there[RANK];
};
// The phase of a number: the first input position, the first tap that meets a position of the
// result (the window's size: none does), how far in front of the result that is, and how many such
// taps there are.
template <int RANK> __device__ inline Phase<RANK> phase_of(
    i64 number, const int (&stride)[RANK], const int (&low)[RANK], const int (&dilation)[RANK],
    const int (&between)[RANK], const int (&window)[RANK]) {
  Phase<RANK> p;
  #pragma unroll
  for (int d = RANK - 1; d >= 0; d--) {
    p.first[d] = (int)(number % stride[d]);
    number /= stride[d];
    p.tap[d] = window[d];
    p.low[d] = 0;
    for (int t = 0; t < between[d] && t < window[d]; t++) {
      const int reach = p.first[d] + low[d] - t * dilation[d];
      if (reach % stride[d] == 0 && p.tap[d] == window[d]) {
        p.tap[d] = t;
        p.low[d] = -(reach / stride[d]);
      }
    }
    p.there[d] = (window[d] - p.tap[d] + between[d] - 1) / between[d];
  }
  return p;
}
// The weights of a phase: lines are its taps, each with the filters; along them go channels.
template <class T, bool DENSE, int RANK> struct PhaseWeights : Channels<T, DENSE> {
  i64 filters;
  Divisor filled;  // filters in whole pieces
  Divisor taps[RANK];
  int window[RANK], between[RANK];
  Phase<RANK> phase;
  Start<T> line(i64 line) const {
    i64 tap = line, place = 0, plane = 1;
    const int filter = filled.digit(&tap);
    bool inside = filter < filters;
    #pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
      const int n = taps[d].digit(&tap);
      inside = inside && n < phase.there[d];
      place += plane * (phase.tap[d] + n * between[d]);
      plane *= window[d];
    }
    return {inside && tap == 0 ? Spaced<T, DENSE>::at(filter, place) : 0};
  }
};
"""

# Lines are filters, along them go taps and channels.
_FILTERS = """
template <class T, bool DENSE, int RANK> struct Filters : Spaced<T, DENSE> {
  typedef Start<T> Line;
  typedef Offset Along;
  i64 lines, taps;
  Divisor filled;
  Line line(i64 line) const { return {line < lines ? Spaced<T, DENSE>::at(line, 0) : 0}; }
  Along along(i64 along) const {
    i64 tap = along;
    const int channel = filled.digit(&tap);
    const int count = tap < taps ? in_piece<T>(this->channels - channel) : 0;
    return {tap * this->position_step + channel * this->step, count};
  }
  const T* at(const Line& line, const Along& along, int* count) const {
    return joined(this->x, line, along, count);
  }
};
"""

# Lines are pixels, along them go channels.
_PIXELS = """
template <class T, bool DENSE, int RANK> struct Pixels : Channels<T, DENSE> {
  i64 lines;
  Divisor positions;
  Start<T> line(i64 line) const {
    i64 image = line;
    const int position = positions.digit(&image);
    return {line < lines ? Spaced<T, DENSE>::at(image, position) : 0};
  }
};
"""

DECLARATIONS = "".join((DIVISOR, _SPACED, _WINDOWS, _PHASES, _FILTERS, _PIXELS))
