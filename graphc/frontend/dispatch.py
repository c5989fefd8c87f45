"""The single entry of every operation: `apply` (eager.py), and the in-place protocol: `inplace`.

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

from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import DimEnv
from graphc.ir.memory import overwrite, write
from graphc.ir.op import Op

from . import views
from .context import local
from .eager import apply as apply
from .errors import INFERENCE_WRITE, located
from .history import edge, requires_grad
from .nodes import OpNode
from .placement import TWO_DEVICES, TWO_DTYPES, beside, place_at
from .storage import LOOSE, readers
from .tensor import Tensor, current, from_array
from .transfer import moved
from .values import Eager, Prepare, PrepareChain, PrepareRule, Runner
from .write_nodes import CopyBackwards, CopySlices


def set_runner(
    run: Runner, prepare: Prepare | None = None, rule: PrepareRule | None = None,
    chain: PrepareChain | None = None,
) -> None:
    """Inject the backend that runs one operator: run(op, arrays, attrs) -> array or tuple;
    prepare(op, types, attrs, result types): the same as a function of arrays of these types;
    rule(op, types, attrs, needs, given): a gradient rule whole, or None;
    chain(types, constants, links): several operators as one function, or None."""
    Eager.run = staticmethod(run)
    Eager.chain = None if chain is None else staticmethod(chain)
    Eager.rule = None if rule is None else staticmethod(rule)
    Eager.prepare = None if prepare is None else staticmethod(prepare)


def create(op: Op, **attrs: Any) -> Any:
    """Apply an operator without inputs: full, iota."""
    return apply(op, **attrs)


@beside
def filled_beside(tensor: Tensor, shape: Any, value: Any, dtype: dtypes.DType) -> Tensor:
    """`full` where a tensor lies."""
    result: Tensor = apply(ops.full, shape=shape, value=value, dtype=dtype)
    return result


def constant(array: Any, dtype: dtypes.DType | None = None, fresh: bool = False) -> Tensor:
    """A new tensor of data that is known now: a graph constant under a trace. `fresh`: an array
    that nobody else has, of which no copy is made."""
    copied = array if fresh else np.array(array, None if dtype is None else dtype.numpy)
    if local.trace is not None:
        return local.trace.constant(copied)
    place = local.making and local.making[0]
    result = from_array(place.put(copied) if place else copied)
    result._graphc_storage.away |= LOOSE
    return result


def fixed(array: np.ndarray) -> Tensor:
    """constant() of what a function's other arguments and its tensors' types say: calls that are
    done again (replayed.py) keep it."""
    kept = np.array(array)
    kept.flags.writeable = False
    return constant(kept, fresh=True)


_STATIC = DimEnv()

# --- in place ----------------------------------------------------------------------------------


def inplace(target: Tensor, value: Tensor, overwrite: bool = False) -> Tensor:
    """Write `value` (cast and broadcast to the target) into `target`'s memory; gives `target`.

    `overwrite`: the value does not depend on what was there. Raises RuntimeError on a leaf that
    requires a gradient (unless gradients are off), on a value that does not fit, and on a target
    whose elements share memory.
    """
    if local.trace is not None and local.trace.is_mixed(target, write=True):
        with local.trace.eager(TWO_DTYPES):
            return inplace(target, value, overwrite)
    state = current(target)
    if local.counted is not None:
        local.counted.wrote()
    if state._graphc_storage.inference and not local.inference:
        raise RuntimeError(located(INFERENCE_WRITE))
    tracks = local.grad and (requires_grad(state) or requires_grad(current(value)))
    if tracks and local.trace is not None and local.trace.writes_outside(state):
        with local.trace.eager("an in-place write with a history to a tensor from before"):
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
    if tracks and state._graphc_type.dtype.differentiable:
        _rebase(state, current(value), overwrite)
    if local.trace is not None and local.trace.picks:
        for pick in tuple(local.trace.picks):
            pick.follow(local.trace, state)
    return target


def _keep_former(target: Tensor, value: Tensor) -> None:
    """Where the rule of the operation that made `value` reads the target's former contents
    (y.mul_(w)), let it keep a copy, as torch does."""
    node, storage = value._graphc_node, target._graphc_storage
    if node is not None and not isinstance(node, OpNode):
        node = node.keep_former(storage, value._graphc_output)
    if not isinstance(node, OpNode) or node.saved_in is None:
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
    node = target._graphc_node
    if node is None:
        what = "A view was created in no_grad mode and is being modified inplace with grad mode " \
            "enabled."
    else:
        made = f"Output {target._graphc_output} of {node.name().removesuffix('Backward0')}"
        what = f"{target._graphc_several or made} is a view and is being modified inplace."
    return f"{what} This view is the output of a function that returns multiple views. Such " \
        "functions do not allow the output views to be modified inplace. You should replace the " \
        "inplace operation by an out-of-place one."


def check_history(target: Tensor) -> None:
    """Raise RuntimeError where autograd cannot follow a write to `target`."""
    base = views.base_of(target)
    if target._graphc_several is not None and base is not None:
        raise RuntimeError(located(_several(target)))
    if base is not None and target._graphc_no_grad_view:
        raise RuntimeError(located(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Cure: make the view, or write to it, in the same mode"
        ))
    if not requires_grad(target):
        return
    if base is None:
        if target._graphc_node is None:
            raise RuntimeError(located(
                "a leaf Variable that requires grad is being used in an in-place operation. "
                "Cure: use an out-of-place operation, or write under torch.no_grad()"
            ))
    elif base._graphc_node is None or (
        target._graphc_node is None and target._graphc_requires_grad
    ):
        raise RuntimeError(located(
            "a view of a leaf Variable that requires grad is being used in an in-place operation. "
            "Cure: clone() the leaf first, or write under torch.no_grad()"
        ))


def _fit(target: Tensor, value: Tensor) -> Tensor:
    """`value` with the target's dtype and shape, keeping its history."""
    have, want = value._graphc_type, target._graphc_type
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
    array = target._graphc_array
    if 0 in array.strides and views.may_overlap(array.shape, array.strides, _STATIC):
        raise RuntimeError(located(views.OVERLAP))
    if not array.flags.writeable:
        raise RuntimeError(located(
            "the tensor's memory is read-only (it came from a NumPy array that is not writeable). "
            "Cure: clone() it before the in-place operation"
        ))
    if readers:
        target._graphc_storage.before_write()
    if Eager.elsewhere is None:
        overwrite(array, value._graphc_array)
    else:
        write(array, value._graphc_array)
    target._graphc_storage.version += 1


def _rebase(target: Tensor, value: Tensor, overwrite: bool) -> None:
    """Give `target`, or the base that it is a view of, the history of the value written."""
    value_edge = edge(value) if requires_grad(value) else None
    type_ = target._graphc_type
    base = views.base_of(target)
    if base is not None:
        base_edge = edge(base) if requires_grad(base) else None
        retained = _lets_go(base)
        base._graphc_node = CopySlices(
            target._graphc_chain, (base_edge, value_edge), base._graphc_type, type_
        )
        base._graphc_output = 0
        if retained:
            base.retain_grad()
        return
    retained = _lets_go(target)
    if value_edge is None or overwrite or value._graphc_node is None:
        target_edge = edge(target) if requires_grad(target) else None
        target._graphc_node = CopyBackwards((target_edge, value_edge), (type_,))
        target._graphc_output = 0
    else:
        target._graphc_node, target._graphc_output = value_edge
    if retained:
        target.retain_grad()


def _lets_go(tensor: Tensor) -> bool:
    """Whether a tensor retains its gradient, which from now on is that of what is written."""
    if tensor._graphc_node is None:
        return False
    node, output = tensor._graphc_node.place(tensor._graphc_output)
    return node.retained is not None and node.retained.pop(output, None) is not None
