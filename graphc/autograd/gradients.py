"""torch.autograd.grad, with gradients batched, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..frontend import autograd as _autograd
from ..frontend.context import local
from ..frontend.functions.joining import stack
from ..frontend.nodes import GradientEdge
from ..frontend.tensor import Tensor
from ..frontend.vmap import vmap


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
    is_grads_batched: bool = False, materialize_grads: bool = False,
) -> Any:
    """The gradients of `outputs` with regard to `inputs`, not accumulated in `.grad`; those of a
    dict of inputs by its keys.

    `grad_outputs`: what each output is multiplied by (a scalar's may be None); with
    `is_grads_batched` these have one more dimension in front, and so have the results.
    Raises RuntimeError for an input that the outputs do not depend on, unless `allow_unused`
    (None then) or `materialize_grads` (zeros).
    """
    if isinstance(inputs, Mapping):
        if type(inputs) is not dict:
            raise TypeError(
                f"`inputs` argument to `grad()` must be a dict, not {type(inputs).__name__}. Other "
                "Mapping types are not supported."
            )
        found = grad(
            outputs, tuple(inputs.values()), grad_outputs, retain_graph, create_graph, only_inputs,
            allow_unused, is_grads_batched, materialize_grads,
        )
        return dict(zip(inputs, found, strict=True))
    if not is_grads_batched:
        return _autograd.grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused,
            False, materialize_grads,
        )
    single = isinstance(grad_outputs, Tensor)
    given = (grad_outputs,) if single else tuple(grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    wanted = (inputs,) if isinstance(inputs, (Tensor, GradientEdge)) else tuple(inputs)
    trace, first = local.trace, next((g for g in given if g is not None), None)
    if trace is not None and first is not None and _autograd.leaves(trace, outputs, wanted):
        # what ran in a segment has a backward of its own, which no map goes through
        count = len(first)
        found = [
            _autograd.grad(
                outputs, wanted, [None if g is None else g[i] for g in given],
                keep or i + 1 < count, create_graph, only_inputs, allow_unused, False,
                materialize_grads,
            )
            for i in range(count)
        ]
        return tuple(
            None if column[0] is None else stack(column)
            for column in zip(*found, strict=True)
        )
    unused: list[int] = []

    def one(*rows: Any) -> tuple[Any, ...]:
        found = _autograd.grad(
            outputs, wanted, rows, keep, create_graph, only_inputs, allow_unused, False,
            materialize_grads,
        )
        unused.extend(i for i, g in enumerate(found) if g is None)
        return tuple(g for g in found if g is not None)

    dims = tuple(None if g is None else 0 for g in given)
    results = list(vmap(one, in_dims=dims, randomness="different")(*given))
    return tuple(None if i in unused else results.pop(0) for i in range(len(wanted)))
