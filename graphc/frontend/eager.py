"""apply(): every operation; and how eager mode runs it on the CPU.

What follows from an operator, its attributes and the types of its inputs is a Signature, found by
these. dispatch.py says how functions are written on top of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import DimEnv
from graphc.ir.graph import attr_key
from graphc.ir.memory import takes_results
from graphc.ir.numpy_calls import may_share_memory
from graphc.ir.op import Attrs, Op, OpError
from graphc.ir.types import TensorType, TupleType

from . import views
from .context import local
from .errors import located, raise_op_error
from .history import requires_grad
from .near import are_near, is_near, stays
from .nodes import OpNode
from .placement import ON_CPU, gathered
from .programs import GradientPlan
from .record_eager import record
from .storage import LOOSE, THERE, Storage, readers
from .tensor import Tensor, current
from .values import Eager, Prepare


def apply(op: Op, *inputs: Tensor, **attrs: Any) -> Any:
    """Apply an operator: a Tensor, or a tuple of them. dtypes must already agree (promote.py).

    Raises what the operator's type rule finds wrong, with the user's line.
    """
    trace = local.trace
    if trace is not None:
        return trace.apply(op, inputs, attrs)
    return _apply_eager(op, inputs, attrs)


# The same for the shapes of operators that are most used, where nobody records or watches, and the
# signature is known: what is looked at is all that such a call hangs on.


def apply_one(op: Op, x: Tensor) -> Any:
    """apply() of an operator with one input, no attributes and one result."""
    if local.trace is None and local.counted is None and Eager.prepare is not None:
        try:
            a = x._graphc_array
        except AttributeError:
            return otherwise(op, (x,), {})
        signature = _signatures.get((op, a.dtype, a.shape))
        if signature is not None and signature.ready is not None and (
            Eager.elsewhere is None or is_near(x)
        ):
            out = signature.ready(a)
            result: Tensor = _new(Tensor)
            result._graphc_array = out
            result._graphc_storage = Storage(out)
            if (
                x._graphc_node is not None or x._graphc_requires_grad or x._base is not None
            ) and local.grad and signature.records:
                record(op, (x,), [a], {}, signature, (result,))
            return result
    return apply(op, x)


def apply_two(op: Op, x: Tensor, y: Tensor) -> Any:
    """apply() of an operator with two inputs, no attributes and one result."""
    if local.trace is None and local.counted is None and Eager.prepare is not None:
        try:
            a, b = x._graphc_array, y._graphc_array
        except AttributeError:
            return otherwise(op, (x, y), {})
        signature = _signatures.get((op, a.dtype, a.shape, b.dtype, b.shape))
        if signature is not None and signature.ready is not None and (
            Eager.elsewhere is None or are_near(x, y)
        ):
            out = signature.ready(a, b)
            result: Tensor = _new(Tensor)
            result._graphc_array = out
            result._graphc_storage = Storage(out)
            if (
                x._graphc_node is not None or y._graphc_node is not None or x._graphc_requires_grad
                or y._graphc_requires_grad or x._base is not None or y._base is not None
            ) and local.grad and signature.records:
                record(op, (x, y), [a, b], {}, signature, (result,))
            return result
    return apply(op, x, y)


def added(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of two arrays of the CPU, where there is no other device."""
    assert Eager.prepare is not None
    signature = _signatures.get((ops.add, a.dtype, a.shape, b.dtype, b.shape))
    if signature is None:
        signature = _signature(ops.add, [a, b], {})
    run = signature.ready or signature.prepare(ops.add, {}, Eager.prepare)
    found: np.ndarray = run(a, b)
    return found


def apply_cast(op: Op, x: Tensor, dtype: dtypes.DType) -> Any:
    """apply() of the cast to a dtype."""
    if local.trace is None and local.counted is None and (
        Eager.prepare is not None and x._graphc_trace is None and is_near(x)
    ):
        try:
            a = x._graphc_array
        except AttributeError:
            return otherwise(op, (x,), {"dtype": dtype})
        signature = _signatures.get((op, (dtype,), (a.dtype, a.shape)))
        if signature is not None and signature.ready is not None:
            return apply_known(op, (x,), {"dtype": dtype}, signature)
    return apply(op, x, dtype=dtype)


def write_two(op: Op, x: Tensor, y: Tensor) -> bool:
    """x = op(x, y) in x's memory; whether that was done: where nobody records, counts or watches,
    the signature is known, and neither history nor memory that others see is in question."""
    if local.trace is not None or local.counted is not None or Eager.prepare is None:
        return False
    try:
        a, b = x._graphc_array, y._graphc_array
    except AttributeError:
        return False
    if (x._graphc_storage.away | y._graphc_storage.away) & THERE:
        return False
    signature = _signatures.get((op, a.dtype, a.shape, b.dtype, b.shape))
    if signature is None or x._graphc_storage.inference or not takes_results(a):
        return False
    if signature.ready is None:  # beside other devices a number may be anywhere: not yet asked
        signature.prepare(op, {}, Eager.prepare)
    if signature.into is None:
        return False
    if (
        local.grad
        and (
            x._graphc_node is not None
            or y._graphc_node is not None
            or x._graphc_requires_grad
            or y._graphc_requires_grad
            or x._base is not None
            or y._base is not None
        )
        and (requires_grad(x) or requires_grad(y))
    ):
        return False
    if x is not y and b.ndim and not (a.flags.owndata and b.flags.owndata) and (
        may_share_memory(a, b)
    ):
        return False
    if readers:
        x._graphc_storage.before_write()
    signature.into(a, b, a)
    x._graphc_storage.version += 1
    return True


def is_plain(x: Tensor) -> bool:
    """Whether all that a write to a tensor means is new numbers and a higher version."""
    return is_plain_part(x) and x._graphc_array.flags.c_contiguous


def is_plain_part(x: Tensor) -> bool:
    """is_plain(), but for how the tensor lies in memory."""
    if local.trace is not None or local.counted is not None or x._graphc_trace is not None:
        return False
    storage, flags = x._graphc_storage, x._graphc_array.flags
    return (
        not (readers and storage.is_read) and (Eager.elsewhere is None or not storage.away)
        and flags.writeable and not storage.inference
        and not (
            (x._graphc_requires_grad or x._graphc_node is not None or x._base is not None)
            and local.grad and requires_grad(x)
        )
    )


def is_writable(x: Tensor) -> bool:
    """Whether a tensor is plain memory, each element by itself, that may be written to."""
    flags = x._graphc_array.flags
    return flags.c_contiguous and flags.writeable and not x._graphc_storage.inference


# --- signatures --------------------------------------------------------------------------------


class Signature:
    """What is known of an operator on inputs of these types with these attributes."""

    __slots__ = ("carrying", "inputs", "into", "plans", "ready", "records", "results")

    def __init__(self, op: Op, inputs: tuple[TensorType, ...], attrs: Attrs) -> None:
        self.inputs = inputs
        result = op.infer(inputs, attrs, _STATIC)
        self.results = result.elements if isinstance(result, TupleType) else (result,)
        # which results can carry a gradient; whether a tape is worth keeping
        self.carrying = tuple([i for i, t in enumerate(self.results) if t.dtype.differentiable])
        self.records = bool(inputs) and bool(self.carrying) and not (
            op.vjp is None and bool(op.nondifferentiable)
        )
        self.plans: dict[tuple[bool, ...], GradientPlan] = {}
        self.ready: Callable[..., Any] | None = None  # what runs it on the CPU, once it has run
        # the same into an array behind the operands, where results are like the first of these
        self.into: Callable[..., Any] | None = None

    def prepare(self, op: Op, attrs: Attrs, prepare: Prepare) -> Callable[..., Any]:
        """What runs it on the CPU."""
        found = self.ready = prepare(op, self.inputs, attrs, self.results)
        if self.inputs and self.results[0] == self.inputs[0]:
            self.into = getattr(found, "into", None)
        return found


_STATIC = DimEnv()
_signatures: dict[Any, Signature] = {}
_SIGNATURE_LIMIT = 20_000
# values of these types are told apart by == and hash alone; 1, 1.0, True and -0.0 are not
_PLAIN = frozenset({int, str, tuple, type(None), dtypes.DType})


def _signature(op: Op, arrays: list[np.ndarray], attrs: Attrs) -> Signature:
    key: Any
    if attrs:
        key = (
            op,
            tuple([v if type(v) in _PLAIN else attr_key(v) for v in attrs.values()]),
            *[(a.dtype, a.shape) for a in arrays],
        )
    elif len(arrays) == 2:
        a, b = arrays
        key = (op, a.dtype, a.shape, b.dtype, b.shape)
    elif len(arrays) == 1:
        key = (op, arrays[0].dtype, arrays[0].shape)
    else:
        key = (op, *[(a.dtype, a.shape) for a in arrays])
    found = _signatures.get(key)
    if found is None:
        types = tuple([TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays])
        if op.arity is not None and op.arity != len(types):
            raise TypeError(f"{op.name} takes {op.arity} inputs, got {len(types)}")
        found = Signature(op, types, attrs)
        if "graphs" not in attrs:
            if len(_signatures) >= _SIGNATURE_LIMIT:
                _signatures.clear()
            _signatures[key] = found
    return found


def _apply_eager(op: Op, inputs: tuple[Tensor, ...], attrs: Attrs) -> Any:
    prepare, loose = Eager.prepare, False
    try:
        arrays = [t._graphc_array for t in inputs]
        if Eager.elsewhere is None:
            run = Eager.run
        else:
            away = 0
            for t in inputs:
                away |= t._graphc_storage.away
            if (not away or (away == LOOSE and stays(inputs[0]))) if inputs else (
                local.making is ON_CPU
            ):
                run = Eager.run  # as nearly always
            else:
                prepare = None
                run, arrays, loose = gathered(op, inputs, arrays)
        signature = _signature(op, arrays, attrs)
    except OpError as error:
        raise_op_error(error)
    except AttributeError:
        return otherwise(op, inputs, attrs)
    counted = local.counted
    if counted is not None:
        counted.note(op, attrs, signature)
    if op.view:
        view = views.ARRAYS[op.name](arrays[0], attrs)
        if view is not None:
            result = _wrap_view(op, inputs[0], view, attrs, signature)
            if counted is not None:
                counted.gave(op, inputs, attrs, signature, (result,))
            return result
    if prepare is None:
        out = run(op, arrays, attrs)
    else:
        out = (signature.ready or signature.prepare(op, attrs, prepare))(*arrays)
    results = _results(op, inputs, arrays, attrs, signature, out)
    if loose:
        for result in results:
            result._graphc_storage.away |= LOOSE
    if counted is not None:
        counted.gave(op, inputs, attrs, signature, results)
    return results if type(out) is tuple else results[0]


def apply_known(op: Op, inputs: tuple[Tensor, ...], attrs: Attrs, signature: Signature) -> Any:
    """apply() of an operator on inputs of a known signature, on the CPU, where nobody records,
    counts or watches operators."""
    arrays = [t._graphc_array for t in inputs]
    if op.view:
        view = views.ARRAYS[op.name](arrays[0], attrs)
        if view is not None:
            return _wrap_view(op, inputs[0], view, attrs, signature)
    ready = signature.ready
    if ready is None:
        assert Eager.prepare is not None
        ready = signature.prepare(op, attrs, Eager.prepare)
    out = ready(*arrays)
    if type(out) is tuple:
        return _results(op, inputs, arrays, attrs, signature, out)
    result = _wrap(out)
    if signature.records and local.grad:
        for t in inputs:
            if t._graphc_node is not None or t._graphc_requires_grad or (
                t._base is not None and requires_grad(t)
            ):
                record(op, inputs, arrays, attrs, signature, (result,))
                break
    return result


def record_sequence(
    op: Op, inputs: tuple[Tensor, ...], attrs: Attrs, signature: Signature,
    results: list[Tensor], kind: type[OpNode],
) -> OpNode | None:
    """The history of what several operators as one gave (sequenced.py)."""
    if not local.grad:
        return None
    arrays = [t._graphc_array for t in inputs]
    record(op, inputs, arrays, attrs, signature, tuple(results))
    node: Any = results[signature.carrying[0]]._graphc_node
    if node is not None:
        node.__class__ = kind
    return node  # type: ignore[no-any-return]


def _results(
    op: Op, inputs: tuple[Tensor, ...], arrays: list[np.ndarray], attrs: Attrs,
    signature: Signature, out: Any,
) -> tuple[Tensor, ...]:
    """What an operator gave as tensors, with a history where there is to be one."""
    results = tuple([_wrap(a) for a in out]) if type(out) is tuple else (_wrap(out),)
    if signature.records and local.grad:
        for t in inputs:
            if t._graphc_node is not None or t._graphc_requires_grad or (
                t._base is not None and requires_grad(t)
            ):
                record(op, inputs, arrays, attrs, signature, results)
                break
    return results


_new: Any = object.__new__


def _wrap(array: np.ndarray) -> Tensor:
    result: Tensor = _new(Tensor)
    result._graphc_array = array
    result._graphc_storage = Storage(array)
    return result


def _wrap_view(
    op: Op, source: Tensor, array: np.ndarray, attrs: Attrs, signature: Signature
) -> Tensor:
    result: Tensor = object.__new__(Tensor)
    result._graphc_array = array
    result._graphc_storage = source._graphc_storage
    join_view(result, source, op, attrs)
    if local.grad and signature.records and requires_grad(source):
        record(op, (source,), [source._graphc_array], attrs, signature, (result,))
    return result


def join_view(result: Tensor, source: Tensor, op: Op, attrs: Attrs) -> None:
    """Note that `result` is the view `op` of `source`, for writes that change its history."""
    base = views.base_of(source)
    result._base = source if base is None else base
    result._graphc_chain = (*source._graphc_chain, (op, attrs))
    result._graphc_seen = source._graphc_storage.version
    if not local.grad or source._graphc_no_grad_view:
        result._graphc_no_grad_view = True
    if source._graphc_several is not None:
        result._graphc_several = ""


def otherwise(op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
    """What an operator gives whose inputs are not all arrays, where one of them knows what: the
    sparse tensors that NotDense tells of. Raises what is wrong with them elsewhere; called where
    their AttributeError is handled."""
    kinds = [getattr(x, "_graphc_operators", None) for x in inputs]
    rule = next((kind[op.name] for kind in kinds if kind and op.name in kind), None)
    if rule is None:
        explain_inputs(op, inputs)
        raise
    try:
        return rule(*inputs, **attrs)
    except Exception as error:  # that there is no array says nothing to the user
        raise error from None


def explain_inputs(op: Op, inputs: tuple[Any, ...]) -> None:
    """Raise what is wrong with inputs that have no array."""
    for i, value in enumerate(inputs):
        if not isinstance(value, Tensor):
            raise TypeError(located(
                f"{op.name}(): argument {i + 1} must be Tensor, not {type(value).__name__}"
            ))
        current(value)  # raises for a tensor of a trace that is over
