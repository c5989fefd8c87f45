"""Eager mode on few numbers: what takes several of NumPy's functions is one call of native code,
which runs NumPy's inner loops in the same steps (backends/host/small_rows_text.py; what goes number
by number is followed: backends/numpy/recorded.py, backends/host/steps_text.py).

The bits are NumPy's, so when the code is loaded does not matter: once so many calls have asked for
it that this pays. The first calls of each signature are held against NumPy, which serves on where
they differ.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from ..backends.numpy.bound import SORTED_WHOLE
from ..backends.numpy.common import plain
from ..backends.numpy.ops import TABLE
from ..frontend.values import Link
from ..ir import forks
from ..ir.dtypes import from_numpy, rounded
from ..ir.graph import attrs_key
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from .eager_form import LARGE

Types = Sequence[TensorType]
Ready = Callable[..., Any]
MOST = 4096  # numbers
_ENOUGH = 4000  # calls that NumPy serves before the code is loaded, which takes as long as these
MUCH = _ENOUGH  # that a call counts for which is to be native from the first time on
_HELD = 2  # calls of a signature that are held against NumPy
# of each number by itself: about how many calls of the others take as long, by NumPy
_STEPPED = {
    **dict.fromkeys("silu softplus gelu erf where sign rsqrt clamp".split(), 1),
    **dict.fromkeys("erfc lgamma digamma i0 i0e i1 i1e erfcx log_ndtr".split(), 5),
    **dict.fromkeys("erfinv ndtri".split(), 50),
}
# numbers up to which that is quicker, where NumPy does less on many: it ends series early
_UP_TO = {**dict.fromkeys("i0 i0e i1 i1e".split(), 1024), "lgamma": 2048}


# of each array that a function is given: its dtype's character, whether it is one number
Kinds = tuple[tuple[str, bool], ...]


class Native:
    """The code, loaded when it pays; one of a process."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._asked = 0
        self._code: Any = None
        self._steps: Any = None
        self._programs: Any = None

    def function(
        self, name: str, char: str, words: Sequence[int], calls: int = 1
    ) -> Ready | None:
        """A function of arrays with a record (without its first two words); None: not yet, or
        never. `calls`: how many it counts for."""
        if self._code is None:
            self._asked += calls
            if self._asked < _ENOUGH:
                return None
            with self._lock:
                if self._code is None:
                    found = importlib.import_module(".rows_code", __package__)
                    self._code = found.Code(MOST)
        return cast("Ready | None", self._code.function(name, char, words))

    def steps(
        self, key: Any, function: Ready, given: Kinds, count: int, calls: int
    ) -> Ready | None:
        """The same of a function of so many numbers, each by itself: see steps_code.Code."""
        if self._steps is None:
            self._asked += calls
            if self._asked < _ENOUGH:
                return None
            with self._lock:
                if self._steps is None:
                    found = importlib.import_module(".steps_code", __package__)
                    self._steps = found.Code()
        return cast("Ready | None", self._steps.function(key, function, given, count))

    def program(self, calls: int) -> Any:
        """What links programs (program_code.Code); None: not yet, or never."""
        if self._programs is None:
            self._asked += calls
            if self._asked < _ENOUGH:
                return None
            with self._lock:
                if self._programs is None:
                    found = importlib.import_module(".program_code", __package__)
                    self._programs = found.Code()
        return self._programs or None


native = Native()


# what a native function is given and what it comes to: (inputs, new results) -> arrays
Given = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


class Plan(NamedTuple):
    """How an operator on inputs of known types is spelled: see small_rows_text.py."""

    name: str
    sizes: tuple[int, int, int]  # parts, rows, numbers in a row
    own: Sequence[int]
    given: Given
    calls: int = 1  # of few numbers that take NumPy as long


def prepare(op: Op, types: Types, attrs: Attrs, results: Types, ready: Ready) -> Ready | None:
    """`ready` with fewer calls of NumPy's; None: there is no such code."""
    make = _PLANS.get(op.name)
    made = [(t.shape, t.dtype.numpy) for t in results]
    if make is None:
        kinds = _stepped(op.name, types, results)
        if kinds is None:
            return None
        key, function = (op.name, attrs_key(attrs)), partial(plain(TABLE[op.name]), **attrs)
        count, calls = _count(results[0]), _STEPPED[op.name]
        return _held(
            lambda: native.steps(key, function, kinds, count, calls), _SIMPLE, made, ready,
            len(types),
        )
    moves = op.name in _MOVES
    most = LARGE if op.name in ("max_pool", "topk") else MOST
    if not (_is_moved if moves else _is_small)(types, most):
        return None
    plan = make(types, **attrs)
    if plan is None:
        return None
    words, dtype = [*plan.sizes, *plan.own], types[0].dtype.numpy
    char = _WIDE[dtype.itemsize] if moves else dtype.char
    return _held(
        lambda: native.function(plan.name, char, words, plan.calls), plan.given, made, ready,
        len(types),
    )


def _stepped(name: str, types: Types, results: Types) -> Kinds | None:
    """The operands of what goes number by number; None: it is no such operator, or not on these."""
    shape, count = results[0].shape, _count(results[0])
    if name not in _STEPPED or not 0 < count <= _UP_TO.get(name, MOST) or any(
        t.shape not in (shape, ()) or t.dtype.numpy.char not in _CHARS for t in (*types, *results)
    ):
        return None
    return tuple([(t.dtype.numpy.char, not t.shape and bool(shape)) for t in types])


def join(parts: int, width: int, size: int) -> Ready | None:
    """See Eager.join."""
    if size not in _WIDE:
        return None
    return native.function("join", _WIDE[size], (parts, 1, width))


Prepare = Callable[[Op, Types, Attrs, Types], Ready]


def linked(
    types: Types, constants: Sequence[np.ndarray], links: Sequence[Link], prepare: Prepare
) -> Callable[[Sequence[np.ndarray]], Any] | None:
    """See Eager.chain: of few numbers, with a history, which one node is in the place of several.
    """
    every = [*types, *[link.result for link in links]]
    if any(c.ndim for c in constants) or any(
        t.dtype.numpy.char not in _CHARS or not 0 < _count(t) <= MOST for t in every
    ) or not all(
        link.op.pointwise or link.op.name in ("full", "sum") for link in links
    ) or not links[-1].result.dtype.is_float:
        return None
    run = chain(types, constants, links, prepare)
    if run is None:
        ready = _in_order(types, constants, links, prepare)
        run = lambda arrays: ready(*arrays)  # noqa: E731
        run.__dict__["in_order"] = True
    run.__dict__["of_few"] = True
    return run


def chain(
    types: Types, constants: Sequence[np.ndarray], links: Sequence[Link], prepare: Prepare
) -> Callable[[Sequence[np.ndarray]], Any] | None:
    """See Eager.chain: of few numbers, without a history."""
    result = links[-1].result
    shape, count, every = result.shape, _count(result), [*types, *[link.result for link in links]]
    if not 0 < count <= MOST or any(c.ndim for c in constants) or any(
        t.shape not in (shape, ()) or t.dtype.numpy.char not in _CHARS for t in every
    ) or not all(link.op.pointwise or link.op.name == "full" for link in links):
        return None
    inputs, ready = len(types), _in_order(types, constants, links, prepare)

    def function(*arrays: Any) -> Any:
        values: list[Any] = [*arrays, *constants]
        for link in links:
            run, attrs = plain(TABLE[link.op.name]), link.attrs
            if link.op.name == "full":
                attrs = {**attrs, "shape": ()}  # one number stands for all
            values.append(run(*[values[s] for s in link.sources], **attrs))
        return values[-1]

    key = (
        tuple([(link.op.name, attrs_key(link.attrs), link.sources) for link in links]),
        tuple([(c.dtype.char, c.tobytes()) for c in constants]),
    )
    kinds = tuple([(t.dtype.numpy.char, not t.shape and bool(shape)) for t in types])
    held = _held(
        lambda: native.steps(key, function, kinds, count, 1), _SIMPLE,
        [(shape, result.dtype.numpy)], ready, inputs,
    )
    return lambda arrays: held(*arrays)


def _in_order(
    types: Types, constants: Sequence[np.ndarray], links: Sequence[Link], prepare: Prepare
) -> Ready:
    """One operator after the other."""
    known = [*types, *[TensorType(from_numpy(c.dtype), ()) for c in constants]]
    steps = []
    for link in links:
        given = [known[s] for s in link.sources]
        steps.append((prepare(link.op, given, link.attrs, (link.result,)), link.sources))
        known.append(link.result)

    def ready(*arrays: np.ndarray) -> Any:
        values = [*arrays, *constants]
        for run, sources in steps:
            values.append(run(*[values[s] for s in sources]))
        return values[-1]

    return ready


_CHARS = frozenset("?fdl")


def _is_small(types: Types, most: int) -> bool:
    """Whether all are of one float dtype, beside class numbers, and of a size for the code."""
    first = types[0]
    return first.dtype.name in ("f32", "f64") and 0 < _count(first) <= most and all(
        t.dtype is first.dtype or t.dtype.name == "i64" for t in types
    )


_MOVES = frozenset({"gather"})  # which compute nothing
_WIDE = {4: "f", 8: "d"}  # by how many bytes a number has


def _is_moved(types: Types, most: int) -> bool:
    """Whether numbers of any dtype of such a size are taken from places."""
    x, places = types
    return x.dtype.numpy.itemsize in _WIDE and places.dtype.name == "i64" and (
        0 < _count(places) <= most
    )


def _count(type_: TensorType) -> int:
    return math.prod(type_.shape)  # type: ignore[arg-type]


def _held(
    find: Callable[[], Ready | None], given: Given, made: list[tuple[Any, Any]],
    ready: Ready, inputs: int,
) -> Ready:
    """`ready`, until native code was right so often."""
    fill: Ready | None = None
    found: Ready | None = None
    right, wrong = 0, False
    empty, single = np.empty, len(made) == 1

    def early(*arrays: Any) -> Any:
        nonlocal fill, found, right, wrong
        expected = ready(*arrays)
        if wrong:
            return expected
        found = found or find()
        if found is None:
            return expected
        new = [empty(shape, dtype) for shape, dtype in made]
        if found(*given(arrays, new)) is not None:
            theirs = (expected,) if single else expected
            if all(a.tobytes() == b.tobytes() for a, b in zip(new, theirs, strict=True)):
                right += 1
                fill = found if right >= _HELD else None
            else:
                wrong = True
        return expected

    if single and given is _SIMPLE:
        ((shape, dtype),) = made
        if inputs == 1:

            def alone(x: Any) -> Any:
                if fill is None:
                    return early(x)
                out = fill(x, empty(shape, dtype))
                return ready(x) if out is None else out

            return alone

        def simple(*arrays: Any) -> Any:
            if fill is None:
                return early(*arrays)
            out = fill(*arrays, empty(shape, dtype))
            return ready(*arrays) if out is None else out

        return simple

    def several(*arrays: Any) -> Any:
        if fill is None:
            return early(*arrays)
        new = [empty(shape, dtype) for shape, dtype in made]
        if fill(*given(arrays, new)) is None:
            return ready(*arrays)
        return new[0] if single else tuple(new)

    return several


# --- operators -----------------------------------------------------------------------------------


def _SIMPLE(inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
    return (*inputs, *results)


def _bits(value: float, types: Types) -> int:
    """A number of the operands' dtype, as the first bytes of a word."""
    return int.from_bytes(rounded(value, types[0].dtype).tobytes(), "little", signed=False)


def _signed(words: Sequence[int]) -> tuple[int, ...]:
    return tuple([word - 2**64 if word >= 2**63 else word for word in words])


def _rows(name: str, types: Types, *, dim: int) -> Plan | None:
    shape: Any = types[0].shape
    if len(shape) == 0 or dim != len(shape) - 1:
        return None
    return Plan(name, (1, _count(types[0]) // shape[dim], shape[dim]), (), _SIMPLE)


def _folded(name: str, types: Types, *, dims: Sequence[int], keepdim: bool) -> Plan | None:
    """Over all numbers, or over those of a row."""
    shape: Any = types[0].shape
    last = len(shape) - len(dims)
    if not dims or tuple(dims) != tuple(range(last, len(shape))):
        return None
    width = math.prod(shape[last:])
    return Plan(name, (1, _count(types[0]) // width, width), (), _SIMPLE)


def _sigmoid(types: Types) -> Plan | None:
    if len(types[0].shape) == 0:
        return None
    return Plan("sigmoid", (1, 1, _count(types[0])), _signed([_bits(1, types)]), _SIMPLE)


def _loss(
    name: str, types: Types, *, ignore_index: int, reduction: str, label_smoothing: float = 0.0
) -> Plan | None:
    shape: Any = types[0].shape
    if len(types) != 2 or len(shape) != 2 or label_smoothing:
        return None
    own = ["none", "sum", "mean"].index(reduction), ignore_index
    return Plan(name, (1, *shape), own, _SIMPLE)


def _norm_words(types: Types, count: int, eps: float, along: bool) -> tuple[int, ...]:
    numbers = [_bits(value, types) for value in (count, eps, 1)]
    return _signed([*numbers, int(len(types) > 1), int(len(types) > 2), int(along)])


def _layer_norm(types: Types, *, normalized_dims: Sequence[int], eps: float) -> Plan | None:
    shape: Any = types[0].shape
    if tuple(normalized_dims) != (len(shape) - 1,) or any(
        t.dtype is not types[0].dtype for t in types
    ):
        return None
    width, rows = shape[-1], _count(types[0]) // shape[-1]
    # nobody else has these while the code runs: it does not let the GIL go
    mean, variance = (np.empty(rows, types[0].dtype.numpy) for _ in range(2))
    missing = 3 - len(types)

    def given(inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        return (*inputs, *[mean] * missing, mean, variance, *results)

    return Plan("norm", (1, rows, width), _norm_words(types, width, eps, True), given)


_ALONE = 256  # numbers which, one by one, take no longer than NumPy's functions


def _batch_norm(types: Types, *, eps: float) -> Plan | None:
    shape: Any = types[0].shape
    if len(shape) < 2 or any(t.dtype is not types[0].dtype for t in types) or len(types) == 2:
        return None
    width = math.prod(shape[2:])
    if shape[1] < 2 or (width < 2 and len(shape) > 2):  # NumPy adds these in another order
        return None
    if len(shape) == 2 and _count(types[0]) > _ALONE:
        return None
    words = _norm_words(types, shape[0] * width, eps, False)

    def given(inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        y, mean, variance = results
        if len(inputs) == 1:
            inputs = (*inputs, mean, mean)
        return (*inputs, mean, variance, y)

    return Plan("norm", (shape[0], shape[1], width), words, given)


def _gather(types: Types, *, dim: int, subject: str = "") -> Plan | None:
    own: Any = types[0].shape
    shape: Any = types[1].shape
    if subject or not shape or len(own) != len(shape) or any(
        n != m for d, (n, m) in enumerate(zip(own, shape, strict=True)) if d != dim
    ):
        return None
    sizes = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    return Plan("gather", sizes, (own[dim],), _SIMPLE)


_COMPARED = 8192  # numbers, which takes as long as NumPy's functions
_SEEN = 1 << 17  # the same of more, of which most are compared with the last of the first alone


def _topk(types: Types, *, k: int, dim: int, largest: bool) -> Plan | None:
    shape, count = types[0].static_shape, _count(types[0])
    if not shape or dim != len(shape) - 1 or k == 0:
        return None
    if (count >= SORTED_WHOLE or count * k > _COMPARED) and not (
        k * k <= 4 * shape[-1] and count * k <= _SEEN and (k > 1 or count <= MOST)
    ):
        return None
    return Plan("topk", (1, count // shape[-1], shape[-1]), (k, int(largest)), _SIMPLE)


# cells of all windows together up to which sums, one by one, are quicker than NumPy's, which adds a
# cell of all windows at once
_SUMMED = 3072
_CELLS_OF_A_CALL = 1024  # that NumPy's functions look at in the time that they take for few


def _windows(
    name: str, types: Types, *, window: Sequence[int], stride: Sequence[int],
    pad_low: Sequence[int], pad_high: Sequence[int], dilation: Sequence[int],
) -> Plan | None:
    """Over a line, or a plane, whose cells may have several numbers: windows of one channel."""
    shape: Any = types[0].shape
    lead, cell = len(shape) - len(window), 1
    dims: list[Any] = [
        *zip(shape[lead:], window, stride, pad_low, pad_high, dilation, strict=True)
    ]
    if len(dims) == 3:
        cell, *last = dims.pop()
        if last != [1, 1, 0, 0, 1]:
            return None
    elif len(dims) == 1:
        dims.insert(0, (1, 1, 1, 0, 0, 1))
    if len(dims) != 2:
        return None
    out = []
    for n, w, s, low, high, d in dims:
        count = (n + low + high - (w - 1) * d - 1) // s + 1
        if count < 1 or not all(
            any(0 <= i * s - low + k * d < n for k in range(w)) for i in range(count)
        ):  # nothing, or windows of padding alone
            return None
        out.append(count)
    plane, windows, steps, before, _, apart = zip(*dims, strict=True)
    cells = math.prod((*shape[:lead], *out, *windows)) * cell
    if name == "window_sum" and cells > _SUMMED:
        return None
    own = (*out, *windows, *steps, *apart, *before, cell)
    sizes = math.prod(shape[:lead]), *plane
    return Plan(name, sizes, own, _SIMPLE, 1 + cells // _CELLS_OF_A_CALL)


_PLANS: dict[str, Callable[..., Plan | None]] = {
    **{
        name: partial(_rows, name)
        for name in ("softmax", "log_softmax", "cummax", "cummin")
    },
    **{name: partial(_folded, name) for name in ("sum", "amax", "amin")},
    **{name: partial(_loss, name) for name in ("cross_entropy", "nll_loss")},
    "sigmoid": _sigmoid, "layer_norm": _layer_norm,
    "batch_norm": _batch_norm, "gather": _gather, "topk": _topk,
    **{name: partial(_windows, name) for name in ("max_pool", "window_sum")},
}
