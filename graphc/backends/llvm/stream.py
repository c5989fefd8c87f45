"""Draws from torch's generator in native code: the NumPy backend's functions, to the same bits."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.backends.host import allocator
from graphc.backends.llvm import stream_few
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.linked import linked
from graphc.ir.dtypes import DType
from graphc.ir.memory import Array

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 1 << 15  # numbers at a time: their words stay in the cache
_U32, I64 = np.dtype(np.uint32), np.dtype(np.int64)

_Native = Callable[..., None]
# name -> (result and arguments after it): all are void functions of pointers and i64
SIGNATURES = {
    "words": "ptr %state, ptr %out, i64 %count",
    "unit32": "ptr %words, ptr %out, i64 %count",
    "unit64": "ptr %words, ptr %out, i64 %count",
    "between32": "ptr %words, ptr %out, i64 %count, i64 %width, i64 %low",
    "below": "ptr %words, ptr %out, i64 %count, i64 %limit",
    "modulo32": "ptr %words, ptr %out, i64 %count, i64 %span, i64 %low",
    "modulo64": "ptr %words, ptr %out, i64 %count, i64 %span, i64 %low",
    "permute": "ptr %words, ptr %order, i64 %first, i64 %count, i64 %size",
    "exponential": "ptr %words, ptr %out, i64 %count",
    "normal32": "ptr %values, i64 %count",
    "normal64": "ptr %values, i64 %count",
}


# What Modules' parameters begin with: many processes draw nothing else outside of graphs.
FIRST = ("words", "between32")
# The others, each a library that is linked when something of it is first wanted.
LIBRARIES = {
    "uniform": ("unit32", "unit64"), "normal": ("normal32", "normal64"), "chances": ("below",),
    "integers": ("modulo32", "modulo64", "permute"), "exponential": ("exponential",),
}


class _Code:
    """The functions of stream_text.py, called with arrays and integers: those of FIRST at once,
    with what draws few numbers by any of them (stream_few.py)."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        symbols = stream_few.addresses()
        self.first = linked("stream of parameters", _first_text, symbols, directory, opt_level=2)
        self._linked = {"": self.first}
        self._bind(FIRST, self.first)

    def _library(self, name: str) -> Library:
        found = self._linked.get(name)
        if found is None:
            called = stream_few.CALLED.get(name, ())
            symbols = {f"graphc_stream_{each}": self.address(each) for each in called}
            made = linked(
                f"stream, {name}", functools.partial(_text, name), symbols, self._directory,
                opt_level=2,
            )
            found = self._linked.setdefault(name, made)  # another thread's, if that was first
        return found

    def address(self, name: str) -> int:
        """Of a function, which this object keeps."""
        return self._library(_HOME[name]).address(f"graphc_stream_{name}")

    def __getattr__(self, name: str) -> _Native:
        if name not in SIGNATURES:
            raise AttributeError(name)
        self._bind(LIBRARIES[_HOME[name]], self._library(_HOME[name]))
        found: _Native = vars(self)[name]
        return found

    def _bind(self, names: Iterable[str], library: Library) -> None:
        """The library's memory, which this object keeps, holds the functions."""
        for name in names:
            kinds = [_KINDS[part.split()[0]] for part in SIGNATURES[name].split(",")]
            prototype = ctypes.CFUNCTYPE(None, *kinds)
            setattr(self, name, prototype(library.address(f"graphc_stream_{name}")))


_HOME = dict.fromkeys(FIRST, "") | {
    name: library for each in (LIBRARIES, stream_few.FUNCTIONS)
    for library, names in each.items() for name in names
}
_KINDS = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}


class Stream:
    """See numpy.random.Stream: the words that follow a state, whose copy moves on."""

    def __init__(self, code: _Code, state: Array) -> None:
        self._code = code
        self._state = np.array(state, I64)  # row-major

    def words(self, count: int) -> Array:
        """The next words, u32."""
        found = np.empty(count, _U32)
        self._code.words(self._state.ctypes.data, found.ctypes.data, count)
        return found

    def state(self) -> Array:
        """After all that was drawn."""
        return self._state

    def filled(self, name: str, out: Array, words: int, *numbers: int) -> Array:
        """`out`, flat, filled by a function that takes so many words for each number."""
        function = getattr(self._code, name)
        for start in range(0, len(out), _CHUNK):
            part = out[start : start + _CHUNK]
            given = self.words(words * len(part))
            function(given.ctypes.data, part.ctypes.data, len(part), *numbers)
        return out

    def uniforms(self, count: int, dtype: DType) -> Array:
        """In [0, 1): f64, or f32 for every other dtype."""
        if dtype.name == "f64":
            return self.filled("unit64", _memory(count, np.float64), 2)
        return self.filled("unit32", _memory(count, np.float32), 1)


def _memory(count: int, kind: Any) -> Array:
    """Flat; much of it where registers lie in one line of the caches each."""
    dtype = np.dtype(kind)
    if count * dtype.itemsize < allocator.LARGE:
        return np.empty(count, dtype)
    return allocator.empty((count,), dtype)


def _uniform(stream: Stream, *, shape: Sequence[int], dtype: DType) -> Array:
    values = stream.uniforms(math.prod(shape), dtype).astype(dtype.numpy, copy=False)
    if dtype.bits == 16:  # what rounds up to 1 becomes 0, as in torch
        values[values == 1] = 0
    return values


def limit(p: float) -> int:
    """k 2^-53 < p where k < p 2^53, which is exact."""
    return 0 if math.isnan(p) else math.ceil(math.ldexp(min(max(p, 0.0), 1.0), 53))


def _bernoulli(stream: Stream, *, shape: Sequence[int], p: float, dtype: DType) -> Array:
    found = stream.filled("below", _memory(math.prod(shape), np.uint8), 2, limit(p))
    return found.view(bool).astype(dtype.numpy, copy=False)


def _exponential(stream: Stream, *, shape: Sequence[int], dtype: DType) -> Array:
    found = stream.filled("exponential", _memory(math.prod(shape), np.float64), 2)
    return found.astype(dtype.numpy, copy=False)


def _randint(
    stream: Stream, *, shape: Sequence[int], low: int, high: int, dtype: DType
) -> Array:
    name, words, numbers = between_integers(low, high)
    found = stream.filled(name, _memory(math.prod(shape), I64), words, *numbers)
    return found.astype(dtype.numpy, copy=False)


def between_integers(low: int, high: int) -> stream_few.Spelled:
    span = high - low
    return ("modulo32", 1, (span, low)) if span < 2**28 else ("modulo64", 2, (_signed(span), low))


def _signed(span: int) -> int:
    """A number below 2^64 as the i64 of the same bits; 2^64 as 0."""
    (found,) = struct.unpack("<q", struct.pack("<Q", span % 2**64))
    return int(found)


def _permutation(stream: Stream, *, n: int) -> Array:
    order = np.arange(n, dtype=I64)
    for start in range(0, n - 1, _CHUNK):
        count = min(_CHUNK, n - 1 - start)
        words = stream.words(count)
        stream._code.permute(words.ctypes.data, order.ctypes.data, start, count, n)
    return order


def _normal(stream: Stream, *, shape: Sequence[int], dtype: DType) -> Array:
    count = math.prod(shape)
    whole = count - count % 16
    half = dtype.bits == 16  # torch draws block by block there, so none for the ragged end
    transform = stream._code.normal64 if dtype.name == "f64" else stream._code.normal32
    values = stream.uniforms(whole if half else count, dtype)
    if len(values) < count:
        values = np.concatenate([values, np.empty(count - len(values), values.dtype)])
    transform(values.ctypes.data, whole)
    if count != whole:  # the last 16 values are drawn again
        last = stream.uniforms(16, dtype)
        transform(last.ctypes.data, 16)
        values[count - 16 :] = last
    return values.astype(dtype.numpy, copy=False)


def _spelled(name: str, attrs: Mapping[str, Any]) -> stream_few.Spelled | None:
    """What the code makes of a stretch of words, of the very dtype; None: not so simple."""
    bits = {"f32": 32, "f64": 64}.get(attrs["dtype"].name) if "dtype" in attrs else None
    if name == "rng_randint":
        simple = attrs["dtype"].name == "i64"
        return between_integers(attrs["low"], attrs["high"]) if simple else None
    if bits is None:
        return None
    if name == BETWEEN:
        width, low = struct.unpack("<2q", struct.pack("<2d", attrs["width"], attrs["low"]))
        return "between32", 1, (width, low)
    if name == "rng_uniform":
        return f"unit{bits}", bits // 32, ()
    if name == "rng_exponential":
        return "exponential32" if bits == 32 else "exponential", 2, ()
    if name not in ("rng_bernoulli", stream_few.KEPT):
        return None
    (number,) = struct.unpack("<q", struct.pack("<d", attrs.get("scale", 1.0)))
    return f"kept{bits}", 2, (limit(attrs["p"]), number)


DRAWER = "drawer"  # no operator: see stream_few.drawer
BETWEEN = "uniforms_between"  # no operator: what uniform_ does to a tensor's memory
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "rng_uniform": _uniform,
    "rng_normal": _normal,
    "rng_bernoulli": _bernoulli,
    "rng_randint": _randint,
    "rng_permutation": _permutation,
    "rng_exponential": _exponential,
}


def functions(directory: Path | None) -> dict[str, Callable[..., Any]]:
    """See Backend.draws: normal numbers by 16 at least, states whose position lies in their words.
    `directory`: where compiled code is kept."""
    code = _Code(directory)
    drawn = {name: functools.partial(_drawn, code, name) for name in FUNCTIONS}

    def drawer(name: str, attrs: Mapping[str, Any]) -> stream_few.Into | None:
        spelled = _spelled(name, attrs)
        return stream_few.drawer(code.first, code.address, name, attrs, spelled)

    return {**drawn, BETWEEN: functools.partial(_between, code), DRAWER: drawer}


def _first_text() -> str:
    from graphc.backends.llvm.stream_text import stream_text

    return stream_text(FIRST) + stream_few.DRAW


def _text(library: str) -> str:
    from graphc.backends.llvm.stream_text import stream_text

    made = stream_text(LIBRARIES[library])
    for name in stream_few.CALLED.get(library, ()):
        made += f"declare void @graphc_stream_{name}({SIGNATURES[name]})\n"
    return made + stream_few.text(library, made)


def _between(code: _Code, state: Array, out: Array, width: float, low: float) -> Array:
    """Fills f32 memory, flat, with u * width + low in f64, u being uniform in [0, 1) as f32; gives
    the state behind that."""
    stream = Stream(code, state)
    stream.filled("between32", out, 1, *struct.unpack("<2q", struct.pack("<2d", width, low)))
    return stream.state()


def _drawn(code: _Code, name: str, state: Array, **attrs: Any) -> tuple[Array, Array]:
    shape = (attrs["n"],) if "n" in attrs else tuple(attrs["shape"])
    stream = Stream(code, state)
    return FUNCTIONS[name](stream, **attrs).reshape(shape), stream.state()
