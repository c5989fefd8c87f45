"""What runs eager mode's operators on the CPU: NumPy, or, on many numbers, compiled code.

Which of the two follows from types alone, and, of memory that is not row-major, from that: a
result's bits hang neither on the time nor on what ran before.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import config
from ..backends import numpy as host
from ..frontend.values import Link
from ..ir import ops
from ..ir.chain import is_chain
from ..ir.dim import DimEnv
from ..ir.dtypes import from_numpy
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from . import eager_added, eager_last, eager_rows, eager_scattered
from .eager_form import LARGE, Types, elements, is_large, is_middling
from .eager_forms import FORMS
from .eager_layouts import along_memory, in_row_major, reduced_once, unexpanded
from .eager_products import anyhow, layer_of_links

# whose gradients are more than one pass of NumPy's over the numbers
_RULES = frozenset(
    "gelu silu softplus sigmoid tanh relu softmax log_softmax layer_norm batch_norm "
    "cross_entropy nll_loss attention conv conv_input_grad sparse_product sparse_sampled".split()
)


@functools.cache
def _kernels() -> Any:
    """The compiler's side, imported when it is first asked for."""
    return importlib.import_module(".eager_kernels", __package__)


@functools.cache
def _chains() -> Any:
    return importlib.import_module(".eager_chains", __package__)


_COPIES = frozenset({"reshape", "cast"})  # of the same dtype


@functools.cache
def _copies() -> Any:
    return importlib.import_module(".eager_copies", __package__)


@functools.cache
def _cuts() -> Any:
    return importlib.import_module(".eager_cuts", __package__)


def _may_be_copied(op: Op, types: Types, attrs: Attrs) -> bool:
    """Whether it is a copy of much memory; what else there is need not load the compiler's side."""
    if op.name not in _COPIES or elements(types[0]) < LARGE or types[0].dtype.is_complex:
        return False
    return op.name != "cast" or attrs["dtype"] is types[0].dtype


def _wanted(op: Op, types: Types, attrs: Attrs) -> bool:
    return (op.name in FORMS or is_chain(op)) and is_large(op, types, attrs) and (
        config.current().eager_kernels != "0"
    )


def prepare(op: Op, types: Types, attrs: Attrs, results: Types) -> Callable[..., Any]:
    """See Eager.prepare."""
    ready = _prepare(op, types, attrs, results)
    if not op.keeps_channels or len(results[0].shape) not in (4, 5):
        return ready
    return eager_last.kept(
        op, types, attrs, results, ready, _prepare, _wanted(op, types, attrs)
    )


def _prepare(op: Op, types: Types, attrs: Attrs, results: Types) -> Callable[..., Any]:
    ready = host.prepare(op, types, attrs, results)
    if _may_be_copied(op, types, attrs) and config.current().eager_kernels != "0":
        copied = _copies().prepare(op, types, attrs, results, ready)
        if copied is not None:
            return copied
    if not _wanted(op, types, attrs):
        small = None
        if types and config.current().eager_kernels != "0":
            small = eager_rows.prepare(op, types, attrs, results, ready)
            if small is None and hasattr(ready, "into"):
                small = eager_added.copied(op, types, attrs, ready) or ready
                by_rows = eager_added.into(op, types, attrs, ready.into)
                small.__dict__["into"] = eager_scattered.into(op, types, attrs, by_rows)
        return ready if small is None else small
    code = _kernels().Operator.of(op, types, attrs, results)
    if code is None:
        return ready
    call, shape = code.call, code.shapes[0]
    if op.name == "dot_general":
        return anyhow(op, types, attrs, results, call, prepare)
    if op.family == "index" or (op.divides and types[0].dtype.is_integer):
        call = _refusing(call, ready)
    if op.name == "pow" and not types[1].shape:
        call = _cubes_apart(call, ready, types[0])

    cuts: Any = None
    if op.pointwise and not is_chain(op) and op.name != "pow" and not op.divides:
        cuts = _cuts().of_operator(op, types, attrs, shape)

    reduced: Any = None
    if op.family == "reduce":
        reduced = _cuts().Reduced(op, types, attrs, shape)

    smaller: dict[Any, Callable[..., Any]] = {}  # by the shapes of operands without repeats

    def known(parts: Sequence[np.ndarray], order: Sequence[int]) -> Callable[..., Any]:
        """What runs it on such parts of the operands, the result's dims being in this order."""
        key = tuple([part.shape for part in parts])
        run = smaller.get(key)
        if run is None:
            found = [TensorType(t.dtype, s) for t, s in zip(types, key, strict=True)]
            made = [TensorType(t.dtype, tuple([t.shape[d] for d in order])) for t in results]
            run = smaller[key] = prepare(op, found, attrs, made)
        return run

    def chosen(*arrays: np.ndarray) -> Any:
        for array in arrays:
            if not array.flags.c_contiguous:
                break
        else:
            return call(arrays)
        if op.family == "reduce" and 0 in arrays[0].strides:
            found = reduced_once(
                op, arrays[0], attrs, results[0].shape, lambda part: run(op, [part], attrs)
            )
            if found is not None:
                return found
        several = len(arrays) > 1 and op.pointwise
        if several:
            parts = unexpanded(shape, arrays)
            if parts is not None:
                return known(parts, range(len(shape)))(*parts)
        result = None
        if cuts is not None:
            result = cuts.run(arrays)
        elif reduced is not None:
            result = reduced.run(arrays[0])
        if result is not None:
            return result
        if several:
            turned = along_memory(op, shape, arrays)
            if turned is not None:
                order, parts = turned
                return known(parts, order)(*parts).transpose(np.argsort(order))
        return in_row_major(op, shape, arrays, call, ready)

    if hasattr(ready, "into"):
        adds = op.name == "index_put" and attrs["accumulate"]
        code_in_place = None
        if adds:
            code_in_place = eager_added.of_many(op, types, attrs, ready.into)
            code_in_place = code_in_place or _kernels().in_place(op, types, attrs)
        chosen.__dict__["into"] = ready.into if code_in_place is None else code_in_place
    return chosen


def _cubes_apart(
    call: Callable[..., Any], ready: Callable[..., Any], base: TensorType
) -> Callable[..., Any]:
    """x ** n, where NumPy's backend makes a product of the smallest powers, as torch does: in one
    loop where nothing is rounded between them."""
    square = Link(ops.square, {}, (0,), base)
    cube = square, Link(ops.mul, {}, (1, 0), base)
    products: dict[int, Any] = {}
    if base.dtype.is_float and base.dtype.bits > 16:
        products = {
            2: _chains().chain((base,), (), (square,)), 3: _chains().chain((base,), (), cube)
        }

    def power(arrays: Sequence[np.ndarray]) -> Any:
        if arrays[1] not in (2, 3):
            return call(arrays)
        product = products.get(int(arrays[1]))
        return ready(*arrays) if product is None else product(arrays[:1])

    return power


def _refusing(call: Callable[..., Any], ready: Callable[..., Any]) -> Callable[..., Any]:
    """Of what code refuses (a position out of range, a division by 0), NumPy's backend says what is
    wrong."""

    def tried(arrays: Sequence[np.ndarray]) -> Any:
        try:
            return call(arrays)
        except (IndexError, RuntimeError, ArithmeticError):
            return ready(*arrays)

    return tried


def run(op: Op, arrays: list[np.ndarray], attrs: Attrs) -> Any:
    """See Eager.run: the same for who knows no types."""
    if op.name in FORMS:
        types = tuple([TensorType(from_numpy(a.dtype), a.shape) for a in arrays])
        if _wanted(op, types, attrs):
            result = op.infer(types, attrs, DimEnv())
            results = (result,) if isinstance(result, TensorType) else result.elements
            return prepare(op, types, attrs, results)(*arrays)
    return host.run(op, arrays, attrs)


def rule(
    op: Op, types: Types, attrs: Attrs, needs: tuple[bool, ...], given: tuple[bool, ...]
) -> Any:
    """See Eager.rule."""
    if not (op.name in _RULES or is_chain(op)) or not _wanted(op, types, attrs):
        return None
    return _kernels().rule(op, types, attrs, needs, given)


def whole(
    function: Callable[..., Any], dims: dict[int, dict[int, str]]
) -> Callable[..., Any]:
    """See Eager.whole."""
    compiler = importlib.import_module("..compile", __package__)
    made: Callable[..., Any] = compiler.CompiledFunction(function, dynamic=dims, fullgraph=True)
    return made


def program(*given: Any) -> Any:
    """See Eager.program."""
    if config.current().eager_kernels == "0":
        return None
    return importlib.import_module(".program_asked", __package__).program(*given)


def gradient(program: Any) -> Any:
    """See Eager.gradient."""
    if config.current().eager_kernels == "0":
        return None
    return importlib.import_module(".program_gradient", __package__).Gradient(program)


def apart(op: Op, types: Types, attrs: Attrs) -> bool:
    """See Eager.apart."""
    return _wanted(op, types, attrs)


def join(parts: int, width: int, size: int) -> Any:
    """See Eager.join."""
    if config.current().eager_kernels == "0":
        return None
    return eager_rows.join(parts, width, size)


def chain(
    types: Types, constants: Sequence[np.ndarray], links: Sequence[Link], in_place: bool,
    recorded: bool,
) -> Any:
    """See Eager.chain."""
    if any(c.ndim for c in constants):
        return None
    if not any(is_middling(link.result) for link in links) and (
        layer_of_links(types, links) is None
    ):
        if in_place or config.current().eager_kernels == "0":
            return None
        if recorded:
            return eager_rows.linked(types, constants, links, prepare)
        return eager_rows.chain(types, constants, links, prepare)
    if recorded and not links[-1].result.dtype.differentiable:
        return None  # of which there is no history
    return _chains().chain(types, constants, links, in_place)
