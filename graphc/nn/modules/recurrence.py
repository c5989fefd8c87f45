"""Recurrence: one time step of each network, and the run of steps over a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...frontend import functions as T
from ...frontend.context import local
from ...frontend.control import scan
from ...frontend.eager_count import iterations
from ...frontend.replayed import by_any_name, replayed
from ...frontend.tensor import Tensor
from .. import functional as F
from ..utils.rnn import unpacked

# One time step. `projected`: the input through weight_ih, with its biases [N, gates * hidden];
# the state is (hidden,) or (hidden, cell).
State = tuple[Tensor, ...]
# by their names without the layer: weight_ih, bias_hh, ...
Weights = dict[str, Tensor]
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
Step = Callable[[Tensor, State, Tensor, Any, Any], State]


def _plain(activation: Callable[[Tensor], Tensor]) -> Step:
    @replayed
    def step(projected: Tensor, state: State, weight: Tensor, bias: Any, out: Any) -> State:
        return (activation(projected + F.linear(state[0], weight, bias)),)

    return step


def _lstm(projected: Tensor, state: State, weight: Tensor, bias: Any, out: Any) -> State:
    hidden, cell = state
    enter, forget, new, show = (projected + F.linear(hidden, weight, bias)).chunk(4, -1)
    cell = T.sigmoid(forget) * cell + T.sigmoid(enter) * T.tanh(new)
    hidden = T.sigmoid(show) * T.tanh(cell)
    return (hidden if out is None else F.linear(hidden, out), cell)


@replayed
def _gru(projected: Tensor, state: State, weight: Tensor, bias: Any, out: Any) -> State:
    (hidden,) = state
    reset_in, update_in, new_in = projected.chunk(3, -1)
    reset, update, new = F.linear(hidden, weight, bias).chunk(3, -1)
    candidate = T.tanh(new_in + T.sigmoid(reset_in + reset) * new)
    return ((hidden - candidate) * T.sigmoid(update_in + update) + candidate,)


STEPS: dict[str, Step] = {
    "RNN_TANH": _plain(T.tanh), "RNN_RELU": _plain(T.relu), "LSTM": replayed(_lstm), "GRU": _gru,
}


@replayed
@by_any_name
def _lstm_between(
    projected: Tensor, state: State, weight: Tensor, bias: Any, out: Any
) -> State:
    """A step of a layer, whose states are stacked before anybody sees them."""
    return _lstm(projected, state, weight, bias, out)


_OF_LAYERS: dict[str, Step] = {**STEPS, "LSTM": _lstm_between}


class Padding(NamedTuple):
    """Where the rows of a packed batch are among its padded steps, for a loop over these."""

    places: Tensor  # which row each sequence has at each step [steps, sequences], or -1
    rows: Tensor  # of each row the place


# of packed steps: their padding, or how many sequences each moves
Packing = Padding | list[int]


def direction(
    mode: str, input: Tensor, state: State, weights: Weights, backwards: bool,
    packing: Packing | None,
) -> tuple[Tensor, State]:
    """One layer in one direction, over [L, N, inputs] or over packed steps."""
    bias, hidden_bias = weights.get("bias_ih"), weights.get("bias_hh")
    if bias is not None and mode != "GRU":
        bias, hidden_bias = bias + hidden_bias, None  # GRU's is inside the reset gate
    projected = F.linear(input, weights["weight_ih"], bias)
    recurrent, shown = weights["weight_hh"], weights.get("weight_hr")

    def step(projected: Tensor, state: State) -> State:
        return _OF_LAYERS[mode](projected, state, recurrent, hidden_bias, shown)

    return run_steps(step, projected, state, backwards, packing)


def cell(mode: str, input: Tensor, state: State, weights: Weights) -> State:
    """One step of a cell, over [N, inputs]."""
    projected = F.linear(input, weights["weight_ih"], weights.get("bias_ih"))
    return STEPS[mode](projected, state, weights["weight_hh"], weights.get("bias_hh"), None)


def run_steps(
    step: Callable[[Tensor, State], State], projected: Tensor, state: State, backwards: bool,
    packing: Packing | None,
) -> tuple[Tensor, State]:
    """All outputs, and the last state, of step(projected[time], state)."""
    if isinstance(packing, Padding):
        return _looped_packed(step, projected, state, packing, backwards)
    if packing is not None:
        return _packed_steps(step, projected, state, packing, backwards)
    if local.trace is not None:
        return _looped(step, projected, state, backwards)
    outputs = []
    times = range(projected.shape[0])
    for time in iterations(reversed(times) if backwards else times):
        state = step(projected[time], state)
        outputs.append(state[0])
    return T.stack(outputs[::-1] if backwards else outputs), state


def _looped(
    step: Callable[[Tensor, State], State], projected: Tensor, state: State, backwards: bool
) -> tuple[Tensor, State]:
    """The steps under a trace: one loop, whatever the length."""

    def shown(state: State, projected: Tensor) -> tuple[State, Tensor]:
        state = step(projected, state)
        return state, state[0]

    end, outputs = scan(shown, state, projected, reverse=backwards)
    return outputs, end


def _looped_packed(
    step: Callable[[Tensor, State], State], projected: Tensor, state: State, packing: Padding,
    backwards: bool,
) -> tuple[Tensor, State]:
    """Packed steps under a trace: one loop, in which sequences that are not running keep their
    state. Padding is zeros: what it is made of must not reach a gradient."""
    padded, inside = unpacked(projected, packing.places)

    def shown(state: State, at: tuple[Tensor, Tensor]) -> tuple[State, Tensor]:
        projected, runs = at
        state = tuple(
            T.where(runs.unsqueeze(1), new, old)
            for new, old in zip(step(projected, state), state, strict=True)
        )
        return state, state[0]

    end, outputs = scan(shown, state, (padded, inside), reverse=backwards)
    return outputs.flatten(0, 1).index_select(0, packing.rows), end


def _packed_steps(
    step: Callable[[Tensor, State], State], projected: Tensor, state: State, counts: list[int],
    backwards: bool,
) -> tuple[Tensor, State]:
    """Steps of which each moves only the first `count` sequences; the others keep their state."""
    starts = [sum(counts[:time]) for time in range(len(counts))]
    outputs: list[Tensor] = []
    times = range(len(counts))
    for time in iterations(reversed(times) if backwards else times):
        start, count = starts[time], counts[time]
        now = step(projected[start : start + count], tuple(part[:count] for part in state))
        outputs.append(now[0])
        if count < counts[0]:
            now = tuple(
                T.cat([new, old[count:]]) for new, old in zip(now, state, strict=True)
            )
        state = now
    return T.cat(outputs[::-1] if backwards else outputs), state
