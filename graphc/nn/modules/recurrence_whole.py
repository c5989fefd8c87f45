"""A direction of a recurrent layer, or a cell's step, as one graph where eager mode has much to do.

A loop of compiled code goes over its steps, and another over their gradients; one graph serves
sequences and batches of any size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.dtypes import f32, f64

from ...frontend.tensor import Tensor, from_array
from ..as_one import AsOne, may_be_one
from ..utils.packing import rows_and_places
from .recurrence import Packing, Padding, State, Weights, cell, direction

# numbers in the gates of all steps: each meets a function and several operators, forward and back
_LEAST = 1 << 13
_STEPS = 8  # each is ten operators, and thirty with their gradients, however few the numbers
_KEPT = 64  # graphs of a kind
_DTYPES = frozenset({f32, f64})


def run_direction(
    mode: str, input: Tensor, state: State, weights: Weights, backwards: bool,
    packing: Packing | None,
) -> tuple[Tensor, State]:
    """See recurrence.direction()."""
    if isinstance(packing, Padding) or not _gains(
        input, state, weights, None if packing is None else len(packing)
    ) or (
        packing is not None and 2 * sum(packing) < len(packing) * packing[0]  # mostly padding
    ):
        return direction(mode, input, state, weights, backwards, packing)
    known = _known(mode, input, state, weights)
    if packing is None:
        output, *end = _layer(known, backwards)(input, *state, *weights.values())
    else:
        padding = _padding(tuple(packing), input._graphc_array.shape[0])
        output, *end = _packed(known, backwards)(input, *padding, *state, *weights.values())
    return output, tuple(end)


def run_cell(mode: str, input: Tensor, state: State, weights: Weights) -> State:
    """See recurrence.cell()."""
    if input.dim() != 2 or any(part.shape[:1] != input.shape[:1] for part in state) or (
        not _gains(input, state, weights, 1)
    ):
        return cell(mode, input, state, weights)
    found: State = _cell(_known(mode, input, state, weights))(input, *state, *weights.values())
    return found


def _gains(input: Tensor, state: State, weights: Weights, steps: int | None) -> bool:
    """Whether it is done as one graph: types alone say, where nobody records, counts or watches
    operators. `steps`: None: as the input has."""
    tensors = [input, *state, *weights.values()]
    if not may_be_one(*tensors) or any(x.dtype is not input.dtype for x in tensors):
        return False
    rows = math.prod(input._graphc_array.shape[:-1])
    gates = weights["weight_hh"]._graphc_array.shape[0]
    if steps is None:
        steps = input._graphc_array.shape[0]
    return input.dtype in _DTYPES and bool(
        rows * gates >= _LEAST or (steps >= _STEPS and rows * gates > 0)
    )


class _Known(NamedTuple):
    """What there is one graph for."""

    mode: str
    states: int
    names: tuple[str, ...]  # of the weights
    sizes: tuple[tuple[int, ...], ...]
    dtype: Any


def _known(mode: str, input: Tensor, state: State, weights: Weights) -> _Known:
    sizes = tuple([w._graphc_array.shape for w in weights.values()])
    return _Known(mode, len(state), tuple(weights), sizes, input.dtype)


@functools.lru_cache(maxsize=1)  # it is the same for all layers of a call
def _padding(counts: tuple[int, ...], rows: int) -> Padding:
    return Padding(*map(from_array, rows_and_places(np.array(counts), rows)))


def _whole(
    known: _Known, function: Callable[[Tensor, Any, State, Weights], Any],
    input: dict[int, str], between: Sequence[dict[int, str]] = (),
) -> Callable[..., Any]:
    """A graph of the input, what is behind it, the states and the weights; with the names of dims
    of the first two."""
    first, states = 1 + len(between), known.states

    def layer(input: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        weights = dict(zip(known.names, others[first - 1 + states :], strict=True))
        found: tuple[Tensor, ...] = function(
            input, others[: first - 1], others[first - 1 : first - 1 + states], weights
        )
        return found

    return AsOne(layer, dict(enumerate([input, *between, *[{0: "N"}] * states])))


@functools.lru_cache(maxsize=_KEPT)
def _layer(known: _Known, backwards: bool) -> Callable[..., Any]:
    def layer(input: Tensor, _: Any, state: State, weights: Weights) -> Any:
        output, end = direction(known.mode, input, state, weights, backwards, None)
        return output, *end

    return _whole(known, layer, {0: "L", 1: "N"})


@functools.lru_cache(maxsize=_KEPT)
def _packed(known: _Known, backwards: bool) -> Callable[..., Any]:
    def layer(input: Tensor, padding: Any, state: State, weights: Weights) -> Any:
        output, end = direction(known.mode, input, state, weights, backwards, Padding(*padding))
        return output, *end

    return _whole(known, layer, {0: "R"}, [{0: "L", 1: "N"}, {0: "R"}])


@functools.lru_cache(maxsize=_KEPT)
def _cell(known: _Known) -> Callable[..., Any]:
    def step(input: Tensor, _: Any, state: State, weights: Weights) -> Any:
        return cell(known.mode, input, state, weights)

    return _whole(known, step, {0: "N"})
