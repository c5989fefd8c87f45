"""A direction of a recurrent layer as one graph where eager mode has much to do.

A loop of compiled code goes over its steps, and another over their gradients; one graph serves
sequences and batches of any size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from graphc.ir.dtypes import f32, f64

from ... import config
from ...engine.marks import DEFAULT, Compilers
from ...frontend.context import local
from ...frontend.near import is_near
from ...frontend.saved_hooks import hooks
from ...frontend.tensor import Parameter, Tensor
from ...frontend.values import Eager
from .recurrence import Packing, State, Weights, direction

# numbers in the gates of all steps: each meets a function and several operators, forward and back
_LEAST = 1 << 14
_TENSORS = frozenset({Tensor, Parameter})
_DTYPES = frozenset({f32, f64})


def run_direction(
    mode: str, input: Tensor, state: State, weights: Weights, backwards: bool,
    packing: Packing | None,
) -> tuple[Tensor, State]:
    """See recurrence.direction()."""
    if packing is None and _gains(input, state, weights):
        sizes = tuple([w._graphc_array.shape for w in weights.values()])
        run = _whole(mode, backwards, tuple(weights), sizes, input.dtype, len(state))
        output, *end = run(input, *state, *weights.values())
        return output, tuple(end)
    return direction(mode, input, state, weights, backwards, packing)


def _gains(input: Tensor, state: State, weights: Weights) -> bool:
    """Whether it is done as one graph: types alone say, where nobody records, counts or watches
    operators."""
    if local.trace is not None or local.counted is not None or local.autocast is not None or (
        Eager.prepare is None or Eager.whole is None or local.instead or hooks.stack
        or config.current().eager_kernels == "0" or Compilers.stance is not DEFAULT
    ):
        return False
    for x in (input, *state, *weights.values()):
        if type(x) not in _TENSORS or x._graphc_trace is not None or not is_near(x):
            return False
        if x.dtype is not input.dtype:
            return False
    steps, batch, _ = input._graphc_array.shape
    gates = weights["weight_hh"]._graphc_array.shape[0]
    return input.dtype in _DTYPES and steps > 1 and bool(steps * batch * gates >= _LEAST)


@functools.lru_cache(maxsize=64)
def _whole(
    mode: str, backwards: bool, names: tuple[str, ...], sizes: Any, dtype: Any, states: int
) -> Callable[..., Any]:
    """The graph for weights of some sizes: of the input, the states and the weights."""

    def layer(input: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        weights = dict(zip(names, others[states:], strict=True))
        output, end = direction(mode, input, others[:states], weights, backwards, None)
        return output, *end

    assert Eager.whole is not None
    dims = {0: {0: "L", 1: "N"}} | {1 + i: {0: "N"} for i in range(states)}
    return Eager.whole(layer, dims)
