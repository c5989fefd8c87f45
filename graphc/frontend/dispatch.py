"""The single entry of every operation: `apply`, and the in-place protocol: `inplace`.

To write a torch function (functions/*.py), on top of promote.py:

    def exp(input: Tensor) -> Tensor:                       # one operator
        return promote.unary("exp", input)                  # ints become the default float
    def add(input, other, *, alpha=1):                      # torch promotion of numbers, 0-d
        return promote.binary("add", input, other)
    def softmax(input, dim):                                # attributes are keywords
        return apply(ops.softmax, input, dim=dim % input.ndim)

    register_methods({"exp": exp, "add": add, "__add__": add})      # from tensor.py

An in-place variant computes the value, then writes it:

    def exp_(self): return inplace(self, exp(self))
    def zero_(self): return inplace(self, zeros_like(self), overwrite=True)

`overwrite=True` says that the value does not depend on the target's old contents (copy_, fill_,
zero_, setitem): the target's former history then gets zero gradients, as in torch. Writing to a
view (setitem: `inplace(view, value, overwrite=True)`) reaches the base and its history.

Creation: `create(ops.full, shape=(2,), value=0.0, dtype=dtypes.f32)`; `constant(array)` for data
known now; `from_array(array)` (tensor.py) shares an array's memory. Data-dependent results need
`concrete(tensor, "nonzero()", cure)` (tensor.py): an array in eager, a TraceError under a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import DimEnv
from graphc.ir.graph import attr_key
from graphc.ir.memory import write
from graphc.ir.op import Attrs, Op, OpError
from graphc.ir.types import TensorType, TupleType

from . import views
from .anomaly import Anomaly
from .context import local
from .errors import INFERENCE_SAVED, INFERENCE_WRITE, located, raise_op_error, user_location
from .history import edge, requires_grad
from .nodes import OpNode, class_of
from .placement import ON_CPU, TWO_DEVICES, beside, gathered, place_at, stays
from .programs import GradientPlan
from .saved_hooks import hooks, pack_node
from .storage import LOOSE, Storage, readers
from .tensor import Tensor, current, from_array
from .transfer import moved
from .values import Eager, Prepare, Runner
from .write_nodes import CopyBackwards, CopySlices


def set_runner(run: Runner, prepare: Prepare | None = None) -> None:
    """Inject the backend that runs one operator: run(op, arrays, attrs) -> array or tuple;
    prepare(op, types, attrs, result types): the same as a function of arrays of these types."""
    Eager.run = staticmethod(run)
    Eager.prepare = None if prepare is None else staticmethod(prepare)


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
    if local.trace is None and local.counted is None and (
        Eager.elsewhere is None and Eager.prepare is not None
    ):
        try:
            a = x._array
        except AttributeError:
            explain_inputs(op, (x,))
            raise
        signature = _signatures.get((op, a.dtype, a.shape))
        if signature is not None and signature.ready is not None:
            out = signature.ready(a)
            result: Tensor = _new(Tensor)
            result._array = out
            result._storage = Storage(out)
            if (
                x._node is not None or x._requires_grad or x._base is not None
            ) and local.grad and signature.records and requires_grad(x):
                _record(op, (x,), [a], {}, signature, (result,))
            return result
    return apply(op, x)


def apply_two(op: Op, x: Tensor, y: Tensor) -> Any:
    """apply() of an operator with two inputs, no attributes and one result."""
    if local.trace is None and local.counted is None and (
        Eager.elsewhere is None and Eager.prepare is not None
    ):
        try:
            a, b = x._array, y._array
        except AttributeError:
            explain_inputs(op, (x, y))
            raise
        signature = _signatures.get((op, a.dtype, a.shape, b.dtype, b.shape))
        if signature is not None and signature.ready is not None:
            out = signature.ready(a, b)
            result: Tensor = _new(Tensor)
            result._array = out
            result._storage = Storage(out)
            if (
                x._node is not None or y._node is not None or x._requires_grad
                or y._requires_grad or x._base is not None or y._base is not None
            ) and local.grad and signature.records and (requires_grad(x) or requires_grad(y)):
                _record(op, (x, y), [a, b], {}, signature, (result,))
            return result
    return apply(op, x, y)


def write_two(op: Op, x: Tensor, y: Tensor) -> bool:
    """x = op(x, y) in x's memory; whether that was done: where nobody records, counts or watches,
    the signature is known, and neither history nor memory that others see is in question."""
    if local.trace is not None or local.counted is not None or Eager.elsewhere is not None or (
        Eager.prepare is None or readers
    ):
        return False
    try:
        a, b = x._array, y._array
    except AttributeError:
        return False
    signature = _signatures.get((op, a.dtype, a.shape, b.dtype, b.shape))
    if signature is None or signature.into is None or not is_writable(x):
        return False
    if local.grad and (requires_grad(x) or requires_grad(y)):
        return False
    if x is not y and b.ndim and np.may_share_memory(a, b):
        return False
    signature.into(a, b, a)
    x._storage.version += 1
    return True


def is_writable(x: Tensor) -> bool:
    """Whether a tensor is plain memory, each element by itself, that may be written to."""
    flags = x._array.flags
    return flags.c_contiguous and flags.writeable and not x._storage.inference


def create(op: Op, **attrs: Any) -> Any:
    """Apply an operator without inputs: full, iota."""
    return apply(op, **attrs)


@beside
def filled_beside(tensor: Tensor, shape: Any, value: Any, dtype: dtypes.DType) -> Tensor:
    """`full` where a tensor lies."""
    result: Tensor = apply(ops.full, shape=shape, value=value, dtype=dtype)
    return result


def constant(array: Any, dtype: dtypes.DType | None = None) -> Tensor:
    """A new tensor of data that is known now (copied): a graph constant under a trace."""
    copied = np.array(array, None if dtype is None else dtype.numpy)
    if local.trace is not None:
        return local.trace.constant(copied)
    place = local.making and local.making[0]
    result = from_array(place.put(copied) if place else copied)
    result._storage.away |= LOOSE
    return result


# --- eager -------------------------------------------------------------------------------------


class Signature:
    """What is known of an operator on inputs of these types with these attributes."""

    __slots__ = ("inputs", "into", "plans", "ready", "records", "results")

    def __init__(self, op: Op, inputs: tuple[TensorType, ...], attrs: Attrs) -> None:
        self.inputs = inputs
        result = op.infer(inputs, attrs, _STATIC)
        self.results = result.elements if isinstance(result, TupleType) else (result,)
        # whether a tape is worth keeping: some result can carry a gradient
        self.records = bool(inputs) and any(t.dtype.differentiable for t in self.results) and not (
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
        arrays = [t._array for t in inputs]
        if Eager.elsewhere is None:
            run = Eager.run
        else:
            away = 0
            for t in inputs:
                away |= t._storage.away
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
        explain_inputs(op, inputs)
        raise
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
            result._storage.away |= LOOSE
    if counted is not None:
        counted.gave(op, inputs, attrs, signature, results)
    return results if type(out) is tuple else results[0]


def apply_known(op: Op, inputs: tuple[Tensor, ...], attrs: Attrs, signature: Signature) -> Any:
    """apply() of an operator on inputs of a known signature, on the CPU, where nobody records,
    counts or watches operators."""
    arrays = [t._array for t in inputs]
    if op.view:
        view = views.ARRAYS[op.name](arrays[0], attrs)
        if view is not None:
            return _wrap_view(op, inputs[0], view, attrs, signature)
    ready = signature.ready
    if ready is None:
        assert Eager.prepare is not None
        ready = signature.prepare(op, attrs, Eager.prepare)
    out = ready(*arrays)
    results = _results(op, inputs, arrays, attrs, signature, out)
    return results if type(out) is tuple else results[0]


def _results(
    op: Op, inputs: tuple[Tensor, ...], arrays: list[np.ndarray], attrs: Attrs,
    signature: Signature, out: Any,
) -> tuple[Tensor, ...]:
    """What an operator gave as tensors, with a history where there is to be one."""
    results = tuple([_wrap(a) for a in out]) if type(out) is tuple else (_wrap(out),)
    if signature.records and local.grad:
        for t in inputs:
            if t._node is not None or t._requires_grad or (
                t._base is not None and requires_grad(t)
            ):
                _record(op, inputs, arrays, attrs, signature, results)
                break
    return results


_new: Any = object.__new__


def _wrap(array: np.ndarray) -> Tensor:
    result: Tensor = _new(Tensor)
    result._array = array
    result._storage = Storage(array)
    return result


def _wrap_view(
    op: Op, source: Tensor, array: np.ndarray, attrs: Attrs, signature: Signature
) -> Tensor:
    result: Tensor = object.__new__(Tensor)
    result._array = array
    result._storage = source._storage
    join_view(result, source, op, attrs)
    if local.grad and signature.records and requires_grad(source):
        _record(op, (source,), [source._array], attrs, signature, (result,))
    return result


def join_view(result: Tensor, source: Tensor, op: Op, attrs: Attrs) -> None:
    """Note that `result` is the view `op` of `source`, for writes that change its history."""
    base = views.base_of(source)
    result._base = source if base is None else base
    result._chain = (*source._chain, (op, attrs))
    result._seen = source._storage.version
    if not local.grad or source._no_grad_view:
        result._no_grad_view = True
    if source._several is not None:
        result._several = ""


def _record(
    op: Op,
    inputs: tuple[Tensor, ...],
    arrays: list[np.ndarray],
    attrs: Attrs,
    signature: Signature,
    results: tuple[Tensor, ...],
) -> None:
    edges = tuple([
        edge(t, type_)
        if (requires_grad(t) if t._base is not None else t._node is not None or t._requires_grad)
        else None
        for t, type_ in zip(inputs, signature.inputs, strict=True)
    ])
    needs = tuple([e is not None for e in edges])
    plan = signature.plans.get(needs)
    if plan is None:
        plan = GradientPlan(op, signature.inputs, signature.results, attrs, needs)
        signature.plans[needs] = plan
    node = class_of(op)(op, attrs, edges, signature.inputs, signature.results)
    node.plan = plan
    node.saved_in, node.saved_out = plan.no_inputs, plan.no_outputs
    if plan.inputs or plan.outputs:
        _save(node, plan, inputs, arrays, results)
        if hooks.stack and not hooks.busy:
            pack_node(node, from_array)
    if Anomaly.enabled:
        node.loc = user_location()
    for i, type_ in enumerate(signature.results):
        if type_.dtype.differentiable:
            result = results[i]
            result._node = node
            if i:
                result._output = i


def _save(
    node: OpNode,
    plan: GradientPlan,
    inputs: tuple[Tensor, ...],
    arrays: list[np.ndarray],
    results: tuple[Tensor, ...],
) -> None:
    """Keep what the gradient rule reads, stamped with the version of its memory."""
    stamps: list[Any] = []
    if plan.inputs:
        saved: list[Any] = list(plan.no_inputs)
        for i in plan.inputs:
            saved[i] = arrays[i]
            storage = inputs[i]._storage
            if storage.inference:
                raise RuntimeError(located(INFERENCE_SAVED))
            stamps.append((storage, storage.version, i))
        node.saved_in = tuple(saved)
    if plan.outputs:
        saved = list(plan.no_outputs)
        for i in plan.outputs:
            saved[i] = results[i]._array
            storage = results[i]._storage
            stamps.append((storage, storage.version, ~i))
        node.saved_out = tuple(saved)
    node.stamps = tuple(stamps)


def explain_inputs(op: Op, inputs: tuple[Any, ...]) -> None:
    """Raise what is wrong with inputs that have no array."""
    for i, value in enumerate(inputs):
        if not isinstance(value, Tensor):
            raise TypeError(located(
                f"{op.name}(): argument {i + 1} must be Tensor, not {type(value).__name__}"
            ))
        current(value)  # raises for a tensor of a trace that is over


# --- in place ----------------------------------------------------------------------------------


def inplace(target: Tensor, value: Tensor, overwrite: bool = False) -> Tensor:
    """Write `value` (cast and broadcast to the target) into `target`'s memory; gives `target`.

    `overwrite`: the value does not depend on what was there. Raises RuntimeError on a leaf that
    requires a gradient (unless gradients are off), on a value that does not fit, and on a target
    whose elements share memory.
    """
    state = current(target)
    if local.counted is not None:
        local.counted.wrote()
    if state._storage.inference and not local.inference:
        raise RuntimeError(located(INFERENCE_WRITE))
    tracks = local.grad and (requires_grad(state) or requires_grad(current(value)))
    if tracks and local.trace is not None and local.trace.writes_outside(state):
        with local.trace.eager("an in-place write to an earlier segment's tensor"):
            return inplace(target, value, overwrite)
    if tracks:
        check_history(state)
        if not overwrite:
            _keep_former(state, current(value))
    value = _fit(state, value)
    if Eager.elsewhere is not None and (place := place_at(state)) is not place_at(value):
        if local.trace is not None:
            with local.trace.eager(TWO_DEVICES):
                return inplace(target, value, overwrite)
        value = moved(value, place)
    if local.trace is not None:
        local.trace.write(state, value)
    else:
        _write_array(state, value)
    if tracks and state._type.dtype.differentiable:
        _rebase(state, current(value), overwrite)
    return target


def _keep_former(target: Tensor, value: Tensor) -> None:
    """Where the rule of the operation that made `value` reads the target's former contents
    (y.mul_(w)), let it keep a copy, as torch does."""
    node, storage = value._node, target._storage
    if not isinstance(node, OpNode) or node.saved_in is None:
        if node is not None:
            node.keep_former(storage)
        return
    read = [which for owner, _, which in node.stamps if owner is storage and which >= 0]
    if not read:
        return
    saved = list(node.saved_in)
    for which in read:
        # a trace keeps where the value was; now it keeps the value itself
        saved[which] = saved[which].copy() if local.trace is None else (saved[which][0],)
    node.saved_in = tuple(saved)
    node.stamps = tuple([s for s in node.stamps if s[0] is not storage or s[2] < 0])


def _several(target: Tensor) -> str:
    node = target._node
    if node is None:
        what = "A view was created in no_grad mode and is being modified inplace with grad mode " \
            "enabled."
    else:
        made = f"Output {target._output} of {node.name().removesuffix('Backward0')}"
        what = f"{target._several or made} is a view and is being modified inplace."
    return f"{what} This view is the output of a function that returns multiple views. Such " \
        "functions do not allow the output views to be modified inplace. You should replace the " \
        "inplace operation by an out-of-place one."


def check_history(target: Tensor) -> None:
    """Raise RuntimeError where autograd cannot follow a write to `target`."""
    base = views.base_of(target)
    if target._several is not None and base is not None:
        raise RuntimeError(located(_several(target)))
    if base is not None and target._no_grad_view:
        raise RuntimeError(located(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Cure: make the view, or write to it, in the same mode"
        ))
    if not requires_grad(target):
        return
    if base is None:
        if target._node is None:
            raise RuntimeError(located(
                "a leaf Variable that requires grad is being used in an in-place operation. "
                "Cure: use an out-of-place operation, or write under torch.no_grad()"
            ))
    elif (target._node is None) if target._requires_grad else (
        base._node is None and requires_grad(base)
    ):
        raise RuntimeError(located(
            "a view of a leaf Variable that requires grad is being used in an in-place operation. "
            "Cure: clone() the leaf first, or write under torch.no_grad()"
        ))


def _fit(target: Tensor, value: Tensor) -> Tensor:
    """`value` with the target's dtype and shape, keeping its history."""
    have, want = value._type, target._type
    if have.dtype is not want.dtype:
        value = apply(ops.cast, value, dtype=want.dtype)
    if have.shape != want.shape:
        extra = len(have.shape) - len(want.shape)
        if extra > 0 and all(size == 1 for size in have.shape[:extra]):
            value = apply(ops.reshape, value, shape=have.shape[extra:])
        try:
            value = apply(ops.expand, value, shape=want.shape)
        except RuntimeError:
            raise RuntimeError(located(
                f"output with shape {list(want.shape)} doesn't match the broadcast shape "
                f"{list(have.shape)}"
            )) from None
    return value


def _write_array(target: Tensor, value: Tensor) -> None:
    array = target._array
    if 0 in array.strides and views.may_overlap(array.shape, array.strides, _STATIC):
        raise RuntimeError(located(views.OVERLAP))
    if not array.flags.writeable:
        raise RuntimeError(located(
            "the tensor's memory is read-only (it came from a NumPy array that is not writeable). "
            "Cure: clone() it before the in-place operation"
        ))
    if readers:
        target._storage.before_write()
    if Eager.elsewhere is None:
        np.copyto(array, value._array)
    else:
        write(array, value._array)
    target._storage.version += 1


def _rebase(target: Tensor, value: Tensor, overwrite: bool) -> None:
    """Give `target`, or the base that it is a view of, the history of the value written."""
    value_edge = edge(value) if requires_grad(value) else None
    type_ = target._type
    base = views.base_of(target)
    if base is not None:
        base_edge = edge(base) if requires_grad(base) else None
        retained = _lets_go(base)
        base._node = CopySlices(target._chain, (base_edge, value_edge), base._type, type_)
        base._output = 0
        if retained:
            base.retain_grad()
        return
    retained = _lets_go(target)
    if value_edge is None or overwrite or value._node is None:
        target_edge = edge(target) if requires_grad(target) else None
        target._node = CopyBackwards((target_edge, value_edge), (type_,))
        target._output = 0
    else:
        target._node, target._output = value_edge
    if retained:
        target.retain_grad()


def _lets_go(tensor: Tensor) -> bool:
    """Whether a tensor retains its gradient, which from now on is that of what is written."""
    if tensor._node is None:
        return False
    node, output = tensor._node.place(tensor._output)
    return node.retained is not None and node.retained.pop(output, None) is not None
