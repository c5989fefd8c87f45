"""Convolutions of groups of few channels (depthwise ones above all), without a product: a thread
has one result, neighbours neighbouring channels. What there is to do is to read.

A weight's gradient is summed in pieces of pixels, each by threads of its own; a second stage adds
them in order. How many there are follows from sizes alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.source import Source, Stage
from graphc.backends.cuda.templates.convolution_operand import DIVISOR
from graphc.backends.cuda.templates.convolution_parts import Parts, over, pixelwise
from graphc.backends.cuda.templates.epilogue import epilogue as epilogue_text
from graphc.ir.dim import Dim, Size, ceil_div, product, unwrap
from graphc.ir.kernel import Kernel

_THREADS = 256
_WORKERS = 1 << 18  # threads that a sum over all pixels is shared out to
_LEAST, _MOST = 256, 4096  # pixels of a piece
_UNKNOWN = 32  # pieces of so many pixels as a call has

# Where the window of a position, or what reaches one, lies: three spatial dims, some of size 1.
_GEOMETRY = """
struct Geometry {
  Divisor pixels[3];  // positions that threads have
  int other[3];  // positions of the tensor that is read
  int window[3], stride[3], low[3], dilation[3];
  // The coordinates of a pixel; n is left with its image.
  void coordinates(i64* n, int* p) const {
    #pragma unroll
    for (int d = 2; d >= 0; d--) p[d] = pixels[d].digit(n);
  }
  // The position of x that output p reads with a tap; whether there is one.
  bool reads(const int* p, const int* tap, i64* place) const {
    bool inside = true;
    i64 found = 0;
    #pragma unroll
    for (int d = 0; d < 3; d++) {
      const int i = p[d] * stride[d] - low[d] + tap[d] * dilation[d];
      inside = inside && (unsigned)i < (unsigned)other[d];
      found = found * other[d] + i;
    }
    *place = found;
    return inside;
  }
  // The output that reads position p of x with a tap; whether there is one.
  bool reached(const int* p, const int* tap, i64* place) const {
    bool inside = true;
    i64 found = 0;
    #pragma unroll
    for (int d = 0; d < 3; d++) {
      const int reach = p[d] + low[d] - tap[d] * dilation[d], o = reach / stride[d];
      inside = inside && reach >= 0 && reach % stride[d] == 0 && o < other[d];
      found = found * other[d] + o;
    }
    *place = found;
    return inside;
  }
};
"""
_ELEMENTS = """
template <class T> struct Elements {
  const T* x;
  i64 image, channel, position;
  T at(i64 of, i64 c, i64 place) const { return x[of * image + c * channel + place * position]; }
};
"""
_HEAD = """
extern "C" __global__ void __launch_bounds__(256) NAME_STAGE(PARAMETERS) {
  using namespace NAME_parts;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < TOTAL;
       i += (i64)gridDim.x * blockDim.x) {
"""
_TAPS = """    int tap[3];
    i64 flat = 0;
    for (tap[0] = 0; tap[0] < geometry.window[0]; tap[0]++)
    for (tap[1] = 0; tap[1] < geometry.window[1]; tap[1]++)
    for (tap[2] = 0; tap[2] < geometry.window[2]; tap[2]++, flat++) {
      i64 place;
"""
_FORWARD = """    const i64 n = i % COLUMNS, m = i / COLUMNS;
    int p[3];
    i64 of = m;
    geometry.coordinates(&of, p);
    const i64 first = n / FILTERS * CHANNELS;
    ACC acc = 0;
TAPS      const bool inside = geometry.reads(p, tap, &place);
      for (i64 c = 0; c < CHANNELS; c++) {
        const ACC value = inside ? (ACC)right.at(of, first + c, place) : (ACC)0;
        acc += (ACC)left.at(n, c, flat) * value;
      }
    }
FINISH
  }
}
"""
_INPUT_GRAD = """    const i64 n = i % COLUMNS, m = i / COLUMNS;
    int p[3];
    i64 of = m;
    geometry.coordinates(&of, p);
    const i64 first = n / CHANNELS * FILTERS, inner = n % CHANNELS;
    ACC acc = 0;
TAPS      if (!geometry.reached(p, tap, &place)) continue;
      for (i64 f = first; f < first + FILTERS; f++)
        acc += (ACC)left.at(f, inner, flat) * (ACC)right.at(of, f, place);
    }
FINISH
  }
}
"""
# Results go filter by filter within a tap of a channel.
_WEIGHT_GRAD = """    const i64 filter = i % COLUMNS, element = i / COLUMNS % ELEMENTS;
    const i64 piece = i / COLUMNS / ELEMENTS;
    const i64 channel = filter / FILTERS * CHANNELS + element / TAP_COUNT;
    i64 rest = element % TAP_COUNT;
    int tap[3];
    for (int d = 2; d >= 0; d--) {
      tap[d] = (int)(rest % geometry.window[d]);
      rest /= geometry.window[d];
    }
    const i64 end = take_min<i64>((piece + 1) * PIECE, PIXELS);
    ACC acc = 0;
    for (i64 pixel = piece * PIECE; pixel < end; pixel++) {
      int p[3];
      i64 of = pixel, place;
      geometry.coordinates(&of, p);
      const bool inside = geometry.reads(p, tap, &place);
      const ACC value = inside ? (ACC)right.at(of, channel, place) : (ACC)0;
      acc += (ACC)left.at(of, filter, pixel - of * POSITIONS) * value;
    }
    ((ACC*)scratch)[i] = acc;
  }
}
"""
_COMBINE = """    const i64 filter = i % COLUMNS, element = i / COLUMNS;
    ACC acc = ((const ACC*)scratch)[i];
    for (i64 piece = 1; piece < PIECES; piece++) acc += ((const ACC*)scratch)[piece * TOTAL + i];
FINISH
  }
}
"""




def source(kernel: Kernel, p: Parts) -> Source:
    """The code of a convolution."""
    if p.c.kind == "conv_weight_grad":
        return _summed(kernel, p)
    g, forward = p.geometry, p.c.kind == "conv"
    tensor, columns = ("y", g.out_channels) if forward else ("x", g.in_channels)
    pixels, other = (g.output, g.input) if forward else (g.input, g.output)
    total = unwrap(p.pixels(tensor) * columns)
    place, epilogue = pixelwise(p, tensor, "n")
    finish = "\n".join((place, epilogue_text(epilogue, p.write.sizes)))
    text = _HEAD + _made(p, pixels, other) + (_FORWARD if forward else _INPUT_GRAD)
    words = {"STAGE": "sum", "TOTAL": p.write.number(total), "COLUMNS": p.write.number(columns)}
    return _source(kernel, p, _filled(text, words, p, finish), {"sum": total}, 0)


def _summed(kernel: Kernel, p: Parts) -> Source:
    """A weight's gradient."""
    g, number = p.geometry, p.write.number
    pixels, taps = p.pixels("y"), math.prod(g.window)
    elements = p.channels * taps
    results = g.out_channels * elements
    pieces = _pieces(pixels, results)
    words = {
        "COLUMNS": number(g.out_channels), "ELEMENTS": number(elements), "TAP_COUNT": number(taps),
        "PIECES": number(pieces), "PIECE": number(ceil_div(pixels, pieces)),
        "PIXELS": number(pixels), "POSITIONS": number(product(g.output)),
    }
    epilogue = over(p.c.epilogue, {"b": 0, "m": Dim.var("filter"), "n": Dim.var("element")})
    finish = epilogue_text(epilogue, p.write.sizes)
    stages: dict[str, tuple[Size, str]] = {
        "sum": (results * pieces, _made(p, g.output, g.input) + _WEIGHT_GRAD),
        "combine": (results, _COMBINE),
    }
    text = "".join(
        _filled(_HEAD + code, {**words, "STAGE": stage, "TOTAL": number(total)}, p, finish)
        for stage, (total, code) in stages.items()
    )
    totals = {stage: total for stage, (total, _) in stages.items()}
    return _source(kernel, p, text, totals, results * pieces * p.c.acc_dtype.itemsize)


def _pieces(pixels: Size, results: int) -> int:
    if not isinstance(pixels, int):
        return _UNKNOWN
    return max(min(_WORKERS // results, pixels // _LEAST), pixels // _MOST, 1)


def _made(p: Parts, pixels: Sequence[Size], other: Sequence[Size]) -> str:
    """The geometry, in three dims, and both operands."""
    g, write = p.geometry, p.write

    def three(values: Sequence[Size], missing: int) -> list[Size]:
        return [*(missing,) * (3 - p.rank), *values]

    members = ", ".join((
        write.divisors(three(pixels, 1)), write.each(three(other, 1)),
        write.each(three(g.window, 1)), write.each(three(g.stride, 1)),
        write.each(three(g.pad_low, 0)), write.each(three(g.dilation, 1)),
    ))
    lines = [f"    const Geometry geometry = {{{members}}};\n"]
    for side, s in (("left", p.left), ("right", p.right)):
        start = f"{s.operand.buffer} + {write.number(s.start)}"
        steps = ", ".join(map(write.number, (s.image, s.channel, s.position)))
        kind = c_type(s.operand.dtype)
        lines.append(f"    const Elements<{kind}> {side} = {{{start}, {steps}}};\n")
    return "".join(lines)


def _filled(text: str, words: Mapping[str, str], p: Parts, finish: str) -> str:
    """The text with its words replaced; longer ones first, one may be the beginning of another."""
    number = p.write.number
    words = {
        **words, "ACC": c_type(p.c.acc_dtype), "FINISH": finish, "FILTERS": number(p.filters),
        "CHANNELS": number(p.channels),
    }
    text = text.replace("TAPS", _TAPS)
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    return text


def _source(
    kernel: Kernel, p: Parts, functions: str, totals: Mapping[str, Size], scratch: int
) -> Source:
    parameters = [f"{c_type(each.dtype)}* {each.name}" for each in kernel.params]
    parameters += [f"i64 {name}" for name in (*kernel.dims, *p.write.sizes.names())]
    parameters += ["i64* status", *(["unsigned char* scratch"] if scratch else [])]
    text = "".join((
        "namespace NAME_parts {\n", DIVISOR, _GEOMETRY, _ELEMENTS, "}\n",
        functions.replace("PARAMETERS", ", ".join(parameters)),
    ))
    name = "convolution_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    stages = tuple(
        Stage(f"{name}_{stage}", ceil_div(total, _THREADS), _THREADS, 0)
        for stage, total in totals.items()
    )
    text = PRELUDE + text.replace("NAME_", f"{name}_")
    return Source(text, stages, scratch, tuple(p.write.sizes.values))
