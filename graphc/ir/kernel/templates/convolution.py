"""Convolutions and their two gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ... import tf32
from ...dim import Dim, Size, evaluate, floordiv, mod, product, substitute, unwrap
from ...dtypes import DType
from ...record import record
from ..lanes import Array
from ..nest import Stmt
from .operand import Operand, acc_text, read_acc
from .term import Term, ravelled, unravelled

if TYPE_CHECKING:
    from ..text import Reader
    from ..verify import Verifier


@record
class ConvGeometry:
    """Sizes of a convolution: x [N, C, *input], w [O, C/groups, *window], y [N, O, *output]."""

    batch: Size
    in_channels: int
    out_channels: int
    input: tuple[Size, ...]
    window: tuple[int, ...]
    output: tuple[Size, ...]
    stride: tuple[int, ...]
    pad_low: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def shape(self, tensor: str) -> tuple[Size, Size, Size]:
        """(images, channels, positions) of "x" or "y"; (filters, channels of a group, taps) of
        "w"."""
        if tensor == "w":
            return self.out_channels, self.in_channels // self.groups, product(self.window)
        channels = self.in_channels if tensor == "x" else self.out_channels
        return self.batch, channels, product(self.input if tensor == "x" else self.output)

    def last(self, columns: int, group: int = 1) -> tuple[Size, Size]:
        """The indices of x with its channels last, and of w in panels so many columns wide, of
        words of `group` channels each."""
        _, channels, positions = self.shape("x")
        _, inner, taps = self.shape("w")
        image, channel, position = (Dim.var(name) for name in VARIABLES)
        word = (floordiv(image, columns) * taps + position) * (inner // group)
        if group == 1:
            at = (word + channel) * columns + mod(image, columns)
        else:
            word = (word + floordiv(channel, group)) * columns + mod(image, columns)
            at = word * group + mod(channel, group)
        return unwrap((image * positions + position) * channels + channel), unwrap(at)

    def planes(self, tensor: str) -> Size:
        """The index of a tensor that lies in memory as torch has it, channel after channel."""
        _, channels, positions = self.shape(tensor)
        image, channel, position = (Dim.var(name) for name in VARIABLES)
        return unwrap((image * channels + channel) * positions + position)


# of an operand's index: the image or filter, the channel, the flat position or tap
VARIABLES = ("image", "channel", "position")


@record
class Convolution:
    """A sum over a window, by `kind`:

    - "conv": left = w, right = x; b = image, m = output channel, n = flat output position
    - "conv_input_grad": left = w, right = gy; b = image, m = input channel, n = flat input position
    - "conv_weight_grad": left = gy, right = x; b = 0, m = output channel, n = (input channel of
      the group, tap), flat
    - "conv_last": left = x, right = w; b = image, m = flat output position, n = output channel

    The operands' indices are over image (of w: filter), channel (of w: within the group) and
    position (of w: tap): layouts are index expressions, blocks of channels by division and modulo.
    Sums are made in `acc_dtype`, as in a Product; so is `tf32`.
    """

    keywords: ClassVar = ("conv", "conv_input_grad", "conv_weight_grad", "conv_last")

    kind: str
    geometry: ConvGeometry
    left: Operand
    right: Operand
    acc_dtype: DType
    epilogue: tuple[Stmt, ...]
    tf32: bool = False

    @property
    def tensors(self) -> tuple[str, str, str]:
        """Which of x, w and y (or their gradients) are left, right and result."""
        return OPERANDS[self.kind]

    @property
    def batch(self) -> Size:
        return 1 if self.kind == "conv_weight_grad" else self.geometry.batch

    @property
    def m(self) -> Size:
        g = self.geometry
        if self.kind == "conv_last":
            return product(g.output)
        return g.in_channels if self.kind == "conv_input_grad" else g.out_channels

    @property
    def n(self) -> Size:
        if self.kind == "conv_last":
            return self.geometry.out_channels
        _, channels, positions = self.geometry.shape(self.tensors[2])
        return unwrap(channels * positions) if self.kind == "conv_weight_grad" else positions

    @property
    def k(self) -> Size:
        """Terms of one sum, those that fall into the padding included."""
        g = self.geometry
        if self.kind == "conv_weight_grad":
            return unwrap(g.batch * product(g.output))
        channels = g.out_channels if self.kind == "conv_input_grad" else g.in_channels
        return unwrap(channels // g.groups * product(g.window))

    @property
    def operands(self) -> tuple[Operand, Operand]:
        """What is read."""
        return self.left, self.right

    @property
    def place(self) -> tuple[Size, Size] | None:
        """The rows and columns that the sums lie in, for Partials: pixels, and channels."""
        apart = self.kind in ("conv_weight_grad", "conv_last")
        return None if apart else (product((self.batch, self.n)), self.m)

    def as_rows(self, values: Array) -> Array:
        """Values for every b, m and n, in their rows and columns."""
        return values.transpose(0, 2, 1).reshape(-1, values.shape[1])

    @property
    def sizes(self) -> tuple[Size, ...]:
        """All that may be symbolic."""
        g = self.geometry
        return (g.batch, *g.input, *g.output)

    @property
    def multiplications(self) -> Size:
        """Of the convolution; its two gradients have as many."""
        g = self.geometry
        terms = product((g.in_channels // g.groups, *g.window))
        return product((g.batch, g.out_channels, *g.output, terms))

    def in_planes(self) -> bool:
        """Whether both operands lie in memory as torch has them."""
        if self.kind == "conv_last":
            return False
        left, right, _ = self.tensors
        g = self.geometry
        return self.left.index == g.planes(left) and self.right.index == g.planes(right)

    def lines(self) -> list[str]:
        """The text of all but the epilogue."""
        g = self.geometry
        parts = [
            f"{name} [{_joined(sizes)}]"
            for name, sizes in (
                ("batch", (g.batch,)), ("channels", (g.in_channels, g.out_channels)),
                ("input", g.input), ("window", g.window), ("output", g.output),
                ("stride", g.stride), ("pad", g.pad_low), ("dilation", g.dilation),
                ("groups", (g.groups,)),
            )
        ]
        return [
            f"{self.kind} {' '.join(parts)} acc {acc_text(self.acc_dtype, self.tf32)} {{",
            f"  left {self.left.text()}",
            f"  right {self.right.text()}",
        ]

    @classmethod
    def read(cls, reader: Reader, word: str) -> Convolution:
        """The template whose keyword has just been read."""
        geometry = _read_geometry(reader)
        reader.expect("acc")
        acc, narrow = read_acc(reader)
        reader.expect("{", "left")
        left = Operand.read(reader)
        reader.expect("right")
        right = Operand.read(reader)
        return cls(word, geometry, left, right, acc, reader.epilogue(acc), narrow)

    @property
    def padded(self) -> bool:
        """See Term."""
        return self.kind != "conv_input_grad"

    def term(self) -> Term:
        """What is summed."""
        return _TERMS[self.kind](self)

    def verify(self, verifier: Verifier) -> None:
        for side, operand, tensor in zip(
            ("left", "right"), (self.left, self.right), self.tensors, strict=False
        ):
            extents = dict(zip(VARIABLES, self.geometry.shape(tensor), strict=True))
            operand.verify(side, extents, verifier)

    def sums(self, memory: Mapping[str, Array], env: Mapping[str, int]) -> Iterator[Array]:
        """acc[m, n] for every b."""
        numbers = _Numbers(self.geometry, env)
        acc = self.acc_dtype.numpy
        left, right = (
            numbers.tensor(operand, tensor, memory, acc)
            for operand, tensor in zip((self.left, self.right), self.tensors, strict=False)
        )
        if self.tf32:
            left, right = tf32.rounded(left), tf32.rounded(right)
        yield from _MEANING[self.kind](numbers, left, right, acc)


OPERANDS = {
    "conv": ("w", "x", "y"), "conv_input_grad": ("w", "y", "x"),
    "conv_weight_grad": ("y", "x", "w"), "conv_last": ("x", "w", "y"),
}


# --- text -------------------------------------------------------------------------------------


def _joined(sizes: Iterable[Size]) -> str:
    return "; ".join(str(size) for size in sizes)


def _read_geometry(reader: Reader) -> ConvGeometry:
    sizes: dict[str, tuple[Size, ...]] = {}
    plain: dict[str, tuple[int, ...]] = {}
    for name in ("batch", "channels", "input", "window", "output", "stride", "pad", "dilation",
                 "groups"):
        reader.expect(name)
        if name in ("batch", "input", "output"):
            sizes[name] = reader.sizes()
        else:
            plain[name] = reader.ints()
    return ConvGeometry(
        sizes["batch"][0], plain["channels"][0], plain["channels"][1], sizes["input"],
        plain["window"], sizes["output"], plain["stride"], plain["pad"], plain["dilation"],
        plain["groups"][0],
    )


# --- one term of each sum ---------------------------------------------------------------------

_B, _M, _N, _CHANNEL = (Dim.var(name) for name in ("b", "m", "n", "channel"))
_TAPS = ("tap0", "tap1", "tap2")


def _at(operand: Operand, image: Size, channel: Size, position: Size) -> Size:
    """The index of an element of an operand."""
    return substitute(operand.index, dict(zip(VARIABLES, (image, channel, position), strict=True)))


def _windows(g: ConvGeometry) -> Iterator[tuple[int, int, int, Size, Size]]:
    """(stride, padding, dilation, input size, output size) of each spatial dim."""
    yield from zip(g.stride, g.pad_low, g.dilation, g.input, g.output, strict=True)


def _forward_term(c: Convolution) -> Term:
    """w[m, channel, tap] * x[b, channel of m's group, where n's window has the tap]."""
    g = c.geometry
    channels = g.in_channels // g.groups
    taps: list[Size] = [Dim.var(name) for name in _TAPS[: len(g.window)]]
    places = _read_at(g, unravelled(_N, g.output), taps)
    first = floordiv(_M, g.out_channels // g.groups) * channels  # channel of m's group
    return Term(
        (("channel", channels), *zip(_TAPS, g.window, strict=False)),
        _at(c.left, _M, _CHANNEL, ravelled(taps, g.window)),
        _at(c.right, _B, unwrap(first + _CHANNEL), ravelled(places, g.input)),
        tuple(zip(places, g.input, strict=True)),
    )


def _read_at(g: ConvGeometry, output: list[Size], taps: list[Size]) -> list[Size]:
    """The input's coordinates that an output position reads with a tap."""
    return [
        unwrap(o * stride + tap * dilation - pad)
        for o, tap, (stride, pad, dilation, _, _) in zip(output, taps, _windows(g), strict=True)
    ]


def _input_grad_term(c: Convolution) -> Term:
    """w[channel, m, tap] * gy[b, channel, which output reads n with the tap], if there is one."""
    g = c.geometry
    channels, outputs = g.in_channels // g.groups, g.out_channels // g.groups
    taps: list[Size] = [Dim.var(name) for name in _TAPS[: len(g.window)]]
    first = floordiv(_M, channels) * outputs  # filter of m's group
    places: list[Size] = []
    inside: list[tuple[Size, Size]] = []
    for at, tap, (stride, pad, dilation, _, size) in zip(
        unravelled(_N, g.input), taps, _windows(g), strict=True
    ):
        reach = unwrap(at + pad - tap * dilation)
        places.append(unwrap(floordiv(reach, stride)))
        inside.append((places[-1], size))
        if stride > 1:
            inside.append((unwrap(mod(reach, stride)), 1))
    filters = unwrap(first + _CHANNEL)
    return Term(
        (("channel", outputs), *zip(_TAPS, g.window, strict=False)),
        _at(c.left, filters, unwrap(mod(_M, channels)), ravelled(taps, g.window)),
        _at(c.right, _B, filters, ravelled(places, g.output)),
        tuple(inside), padded=c.padded,
    )


def _weight_grad_term(c: Convolution) -> Term:
    """gy[image, m, output] * x[image, channel of n, what the output reads with n's tap]."""
    g = c.geometry
    channels, taps = g.in_channels // g.groups, int(np.prod(g.window))
    image, output = Dim.var("image"), Dim.var("output")
    places = _read_at(g, unravelled(output, g.output), unravelled(unwrap(mod(_N, taps)), g.window))
    channel = floordiv(_M, g.out_channels // g.groups) * channels + floordiv(_N, taps)
    return Term(
        (("image", g.batch), ("output", product(g.output))),
        _at(c.left, image, _M, output),
        _at(c.right, image, unwrap(channel), ravelled(places, g.input)),
        tuple(zip(places, g.input, strict=True)),
    )


def _last_term(c: Convolution) -> Term:
    """x[b, channel of n's group, where m's window has the tap] * w[n, channel, tap]."""
    g = c.geometry
    channels = g.in_channels // g.groups
    taps: list[Size] = [Dim.var(name) for name in _TAPS[: len(g.window)]]
    places = _read_at(g, unravelled(_M, g.output), taps)
    first = floordiv(_N, g.out_channels // g.groups) * channels  # channel of n's group
    return Term(
        (("channel", channels), *zip(_TAPS, g.window, strict=False)),
        _at(c.left, _B, unwrap(first + _CHANNEL), ravelled(places, g.input)),
        _at(c.right, _N, _CHANNEL, ravelled(taps, g.window)),
        tuple(zip(places, g.input, strict=True)),
    )


_TERMS = {
    "conv": _forward_term, "conv_input_grad": _input_grad_term,
    "conv_weight_grad": _weight_grad_term, "conv_last": _last_term,
}


# --- meaning ----------------------------------------------------------------------------------


def _inner(where: tuple[Any, ...]) -> Any:
    """An index of the trailing dims."""
    return (..., *where)


class _Numbers:
    """A ConvGeometry with numbers for sizes, and its three tensors' shapes."""

    def __init__(self, g: ConvGeometry, env: Mapping[str, int]) -> None:
        self.g = g
        self.env = env
        batch = evaluate(g.batch, env)
        self.input = tuple(evaluate(s, env) for s in g.input)
        self.output = tuple(evaluate(s, env) for s in g.output)
        self.shapes = {
            "x": (batch, g.in_channels, *self.input),
            "w": (g.out_channels, g.in_channels // g.groups, *g.window),
            "y": (batch, g.out_channels, *self.output),
        }

    def tensor(
        self, operand: Operand, name: str, memory: Mapping[str, Array], acc: np.dtype[Any]
    ) -> Array:
        """An operand as an array of its tensor's shape, whatever its layout in memory."""
        shape = self.shapes[name]
        flat = (shape[0], shape[1], int(np.prod(shape[2:])))
        places = np.ogrid[tuple(slice(size) for size in flat)]
        env = {**self.env, **dict(zip(VARIABLES, places, strict=True))}
        return operand.gather(memory, env, flat, acc).reshape(shape)

    def padded(self) -> tuple[int, ...]:
        """Spatial sizes that hold every tap of every output position."""
        g = self.g
        return tuple(
            max(low + n, (o - 1) * s + (k - 1) * d + 1)
            for n, low, o, s, k, d in zip(
                self.input, g.pad_low, self.output, g.stride, g.window, g.dilation, strict=True
            )
        )

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each window position, and the slices of the padded input that it meets."""
        g = self.g
        for tap in itertools.product(*(range(k) for k in g.window)):
            yield tap, tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, g.dilation, self.output, g.stride, strict=True)
            )

    def inside(self) -> tuple[slice, ...]:
        return tuple(slice(p, p + n) for p, n in zip(self.g.pad_low, self.input, strict=True))

    def pad(self, x: Array) -> Array:
        result = np.zeros((*x.shape[:2], *self.padded()), x.dtype)
        result[_inner(self.inside())] = x
        return result

    def grouped(self, x: Array, axis: int) -> Array:
        """x with `axis` split into (groups, channels of a group)."""
        groups = self.g.groups
        shape = (*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
        return x.reshape(shape)


def _conv(s: _Numbers, w: Array, x: Array, acc: np.dtype[Any]) -> Iterator[Array]:
    filters = s.grouped(w, 0)
    for image in s.grouped(s.pad(x), 1):
        y = np.zeros((*filters.shape[:2], *s.output), acc)
        for tap, window in s.taps():
            y += np.einsum("goc,gc...->go...", filters[_inner(tap)], image[_inner(window)])
        yield y


def _conv_input_grad(s: _Numbers, w: Array, gy: Array, acc: np.dtype[Any]) -> Iterator[Array]:
    filters = s.grouped(w, 0)
    for image in s.grouped(gy, 1):
        gx = np.zeros((s.g.groups, w.shape[1], *s.padded()), acc)
        for tap, window in s.taps():
            gx[_inner(window)] += np.einsum("goc,go...->gc...", filters[_inner(tap)], image)
        yield gx[_inner(s.inside())].reshape(s.g.in_channels, -1)


def _conv_weight_grad(s: _Numbers, gy: Array, x: Array, acc: np.dtype[Any]) -> Iterator[Array]:
    gradients, images = s.grouped(gy, 1), s.grouped(s.pad(x), 1)
    filters, channels, *window_sizes = s.shapes["w"]
    gw = np.zeros((s.g.groups, filters // s.g.groups, channels, *window_sizes), acc)
    letters = "xyz"[: len(s.output)]
    for tap, window in s.taps():
        gw[_inner(tap)] = np.einsum(
            f"ngo{letters},ngc{letters}->goc", gradients, images[_inner(window)], optimize=True
        )
    yield gw


def _conv_last(s: _Numbers, x: Array, w: Array, acc: np.dtype[Any]) -> Iterator[Array]:
    for y in _conv(s, w, x, acc):
        yield y.reshape(s.g.out_channels, -1).T


_MEANING = {
    "conv": _conv, "conv_input_grad": _conv_input_grad, "conv_weight_grad": _conv_weight_grad,
    "conv_last": _conv_last,
}
