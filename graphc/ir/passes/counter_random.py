"""counter_random: draws as arithmetic on a counter, which fuses, in place of mt19937's stream.

The hash is "squares" (B. Widynski, Squares: A Fast Counter-Based RNG, arXiv:2004.06278): element i
of a draw hashes (word << 32) + i under an odd key. Key and word are read from the generator's
state (words 621, 622 and 623); a draw leaves the state with that word + 1, modulo 2**32. Draws of
more than 2**32 elements would share numbers with the next draw. The other random operators stay
on the stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import dtypes
from ..dim import product
from ..dtypes import DType
from ..graph import Builder, Expr, Graph, Node, get_
from ..ops._rules import cast, filled, ops, reshape, select
from ..rewrite import everywhere, rebuilt, with_inputs
from ..types import Shape

_KEY_HIGH, _KEY_LOW, _WORD = 621, 622, 623  # late words: seeding has mixed them well
_LOW32 = 2**32 - 1
_KEY_MIX = 0x1E3779B97F4A7C15  # so that a state of zeros has a usable key, too
_SECOND = 0x5851F42D4C957F2C  # even: an odd key stays odd
_SMALL = 2.0**-8  # a probability from which 32 bits give it 24 significant ones


def counter_random(graph: Graph) -> Graph:
    """The graph with its plain draws computed from a counter; others, and the graph of one
    without draws, are as they were."""
    return everywhere(graph, _one)


class _Place(NamedTuple):
    """A generator's state as a state that exists, and how many draws came after it."""

    base: Node
    draws: int


def _one(graph: Graph) -> Graph:
    if not any(node.op.name in _DRAWS for node in graph.nodes):
        return graph
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    results: dict[Node, tuple[Node, Node]] = {}
    places: dict[Node, _Place] = {}
    for node in graph.nodes:
        if node.op is get_ and node.inputs[0] in results:
            new[node] = results[node.inputs[0]][node.attrs["index"]]
        elif node.op.name in _DRAWS:
            state = new[node.inputs[0]]
            place = places.get(state, _Place(state, 0))
            with builder.at(node.loc, node.backward):
                source = _Source(Expr(builder, place.base), place.draws, node.attrs["shape"])
                values = _DRAWS[node.op.name](source, **node.attrs)
                after = source.after()
            results[node] = values.node, after.node
            places[after.node] = place._replace(draws=place.draws + 1)
        else:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    return rebuilt(graph, new)


# --- bits ------------------------------------------------------------------------------------


def _signed(value: int) -> int:
    """64 bits as i64 spells them."""
    return (value + 2**63) % 2**64 - 2**63


def _high(x: Any) -> Any:
    """The upper 32 bits as a number: i64's shift is arithmetic."""
    return ops.bitwise_and(ops.shift_right(x, 32), _LOW32)


def _low(x: Any) -> Any:
    return ops.bitwise_and(x, _LOW32)


def _swapped(x: Any) -> Any:
    """The 32-bit halves exchanged."""
    return ops.bitwise_or(ops.shift_left(x, 32), _high(x))


def _squares(counter: Any, key: Any, bits: int) -> Any:
    """Random bits: 32 by four rounds of squaring, 64 by five."""
    x = y = counter * key
    z = y + key
    for weyl in (y, z, y):
        x = _swapped(x * x + weyl)
    last = x * x + z
    if bits == 32:
        return _high(last)
    x = _swapped(last)
    return ops.bitwise_xor(last, _high(x * x + y))


class _Source:
    """The bits of one draw of `shape`."""

    def __init__(self, state: Any, draws: int, shape: Shape) -> None:
        self.state = state
        self.shape = shape
        word = self._state_word(_WORD)
        self.word = word + draws if draws else word
        counter = ops.shift_left(self.word, 32)
        self.counter = counter + self._position() if shape else counter

    def _state_word(self, index: int) -> Any:
        word = ops.slice(self.state, starts=(index,), stops=(index + 1,), steps=(1,))
        return reshape(word, ())

    def _position(self) -> Any:
        """Each element's number in row-major order, without a reshape: it fuses anywhere."""
        total: Any = None
        for dim, size in enumerate(self.shape):
            if size == 1 and (total is not None or dim + 1 < len(self.shape)):
                continue
            index = ops.iota.like(self.state, shape=self.shape, dim=dim, dtype=dtypes.i64)
            stride = product(self.shape[dim + 1 :])
            if stride != 1:
                if not isinstance(stride, int):
                    stride = filled(self.state, (), stride, dtypes.i64)
                index = index * stride
            total = index if total is None else total + index
        return total

    def bits(self, count: int = 64, mix: int = _KEY_MIX) -> Any:
        """32 or 64 random bits for each element; another `mix` gives others."""
        high, low = self._state_word(_KEY_HIGH), self._state_word(_KEY_LOW)
        key = ops.bitwise_or(ops.shift_left(high, 32), low)
        key = ops.bitwise_or(ops.bitwise_xor(key, mix), 1)
        return _squares(self.counter, key, count)

    def after(self) -> Any:
        """The state after the draw."""
        word = reshape(_low(self.word + 1), (1,))
        return ops.slice_update(
            self.state, word, starts=(_WORD,), stops=(_WORD + 1,), steps=(1,)
        )


# --- distributions ---------------------------------------------------------------------------


def _top(bits: Any, count: int) -> Any:
    """The upper `count` bits as a number."""
    return ops.bitwise_and(ops.shift_right(bits, 64 - count), 2**count - 1)


def _between(bits: Any) -> Any:
    """f64 inside (0, 1), neither end included: 52 bits and a half."""
    return (cast(_top(bits, 52), dtypes.f64) + 0.5) * 2.0**-52


def _uniform(source: _Source, *, shape: Shape, dtype: DType) -> Any:
    if dtype is dtypes.f64:
        return cast(_top(source.bits(), 53), dtype) * 2.0**-53
    whole = ops.shift_right(source.bits(32), 8)  # f32 holds 24 bits
    values = cast(cast(whole, dtypes.f32) * 2.0**-24, dtype)
    if dtype.bits == 16:  # what rounds up to 1 becomes 0, as on the stream
        values = select(ops.eq(values, 1.0), 0.0, values)
    return values


def _normal(source: _Source, *, shape: Shape, dtype: DType = dtypes.f64) -> Any:
    """Box and Muller's cosine of two uniforms."""
    bits = source.bits()
    if dtype is dtypes.f64:
        first, second = _between(bits), _between(source.bits(mix=_KEY_MIX ^ _SECOND))
    else:
        first = (cast(_high(bits), dtypes.f32) + 0.5) * 2.0**-32
        second = cast(_low(bits), dtypes.f32) * 2.0**-32
    values = ops.sqrt(ops.log(first) * -2.0) * ops.cos(second * (2.0 * math.pi))
    return cast(values, dtype)


def _exponential(source: _Source, *, shape: Shape, dtype: DType) -> Any:
    # in f64: f32's 24 bits would give 0, by which multinomial divides, far too often
    return cast(-ops.log1p(-_between(source.bits())), dtype)


def _bernoulli(source: _Source, *, shape: Shape, p: float, dtype: DType) -> Any:
    # u < p compared as integers; a small p needs finer steps of u than 2**-32
    few = p == 0.0 or p >= _SMALL
    u = source.bits(32) if few else _top(source.bits(), 53)
    return cast(ops.lt(u, math.ceil(p * 2.0 ** (32 if few else 53))), dtype)


def _randint(source: _Source, *, shape: Shape, low: int, high: int, dtype: DType) -> Any:
    bits, span = source.bits(), high - low
    drawn = bits if span == 2**64 else _scaled(bits, span)
    return cast(drawn + _signed(low), dtype)


def _scaled(bits: Any, span: int) -> Any:
    """floor(bits * span / 2**64) of unsigned numbers, by 32-bit halves."""
    high, low = span >> 32, span & _LOW32
    a, b = _high(bits), _low(bits)
    middle = a * low + _high(b * low)
    if high == 0:
        return _high(middle)
    carried = b * high + _low(middle)
    return a * high + _high(middle) + _high(carried)


_DRAWS: dict[str, Callable[..., Any]] = {
    "rng_uniform": _uniform,
    "rng_normal": _normal,
    "rng_normal_pairs": _normal,
    "rng_exponential": _exponential,
    "rng_bernoulli": _bernoulli,
    "rng_randint": _randint,
}
