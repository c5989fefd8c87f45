"""Which coordinates of the input the taps of a convolution's positions read, as its plan sees it:
three dimensions, of which those that there are not have one of everything."""

from __future__ import annotations

import math

from ..record import record
from .blocking import quotient_up

Triple = tuple[int, int, int]  # depth, height, width


@record
class Window:
    """Position p of `out` and tap t read coordinate p * step - low + t * dilation of `input`."""

    input: Triple
    size: Triple
    out: Triple
    step: Triple
    low: Triple
    dilation: Triple

    @property
    def taps(self) -> int:
        return math.prod(self.size)

    @property
    def positions(self) -> int:
        return math.prod(self.out)

    @property
    def spans(self) -> list[int]:
        """How far the last tap is from the first one; a dilation may be negative."""
        return [(size - 1) * d for size, d in zip(self.size, self.dilation, strict=True)]

    @property
    def lows(self) -> list[int]:
        """Coordinates that a copy has before the input's first."""
        return [low - min(span, 0) for low, span in zip(self.low, self.spans, strict=True)]

    @property
    def plane(self) -> tuple[int, int]:
        """Lines of a copied plane's phase, and elements from line to line."""
        _, height, width = self._extents
        return height, width - self.shared

    @property
    def phases(self) -> int:
        """Of a copied plane: remainders of a coordinate by the step."""
        return math.prod(self.step)

    @property
    def _extents(self) -> list[int]:
        of = zip(self.out, self.spans, self.step, strict=True)
        return [out + abs(span) // step for out, span, step in of]

    @property
    def shared(self) -> int:
        """Elements of a copied line that are the next one's, too: the padding between them."""
        low, step, width = max(self.lows[2], 0), self.step[2], self._extents[2]
        high = width - quotient_up(self.input[2] + low, step)
        return int(min(low // step, width - self.out[2], max(high, 0)))

    @property
    def is_plain(self) -> bool:
        """At most two dimensions: a copy can be read by lines."""
        flat = (self.input[0], self.out[0], self.size[0], self.step[0])
        return flat == (1, 1, 1, 1) and self.lows[0] == 0


def phase_of(w: Window, phase: tuple[int, ...]) -> Window:
    """The window of the output's gradient that an input gradient's positions see, whose coordinates
    leave the remainder `phase` (backends/llvm/conv_phase.py)."""
    dims = zip(w.step, w.dilation, w.low, w.size, w.input, phase, strict=True)
    taps, grid, low, dilation = zip(*(_of_dimension(*dim) for dim in dims), strict=True)
    return Window(w.out, taps, grid, (1, 1, 1), low, dilation)


def _of_dimension(
    stride: int, dilation: int, pad: int, size: int, input_: int, phase: int
) -> tuple[int, int, int, int]:
    """(taps, positions, low, dilation) in one dimension."""
    spacing = next(t for t in range(1, stride + 1) if t * dilation % stride == 0)
    meets = (t for t in range(stride) if (phase + pad - t * dilation) % stride == 0)
    first = next(meets, stride)
    taps = (size - 1 - first) // spacing + 1 if first < min(spacing, size) else 0
    low = -((phase + pad - first * dilation) // stride)
    return taps, quotient_up(max(input_ - phase, 0), stride), low, -(spacing * dilation // stride)
