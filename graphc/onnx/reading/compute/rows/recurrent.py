"""RNN, GRU and LSTM: one loop whatever the length, as torch's layers here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....nn import functional as F
from .....nn.modules.recurrence import run_steps
from ..table import Node, operator

Activation = Callable[[Tensor], Tensor]
# by name, lower case: (function of x, alpha, beta), alpha, beta
_ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], float, float]] = {
    "relu": (lambda x, a, b: T.relu(x), 0, 0),
    "tanh": (lambda x, a, b: T.tanh(x), 0, 0),
    "sigmoid": (lambda x, a, b: T.sigmoid(x), 0, 0),
    "affine": (lambda x, a, b: a * x + b, 1, 0),
    "leakyrelu": (lambda x, a, b: F.leaky_relu(x, a), 0.01, 0),
    "thresholdedrelu": (lambda x, a, b: T.where(x > a, x, T.zeros_like(x)), 1, 0),
    "scaledtanh": (lambda x, a, b: a * T.tanh(b * x), 1, 1),
    "hardsigmoid": (lambda x, a, b: T.clamp(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: F.elu(x, a), 1, 0),
    "softsign": (lambda x, a, b: F.softsign(x), 0, 0),
    "softplus": (lambda x, a, b: F.softplus(x), 0, 0),
}


def _activations(node: Node, defaults: tuple[str, ...], directions: int) -> list[list[Activation]]:
    """The functions of each direction."""
    names = node.get("activations") or list(defaults) * directions
    alphas, betas = list(node.get("activation_alpha", ())), list(node.get("activation_beta", ()))
    if len(names) != len(defaults) * directions:
        node.refuse(
            f"it has {len(names)} activations", f"give {len(defaults)} for each direction"
        )
    found: list[Activation] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            node.refuse(f"its activation {name!r} is unknown", f"use {', '.join(_ACTIVATIONS)}")
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        if alpha or beta:  # the lists are for those that have parameters, in their order
            alpha = alphas.pop(0) if alpha and alphas else alpha
            beta = betas.pop(0) if beta and betas else beta
        found.append(_limited(function, alpha, beta, node.get("clip", 0.0)))
    each = len(defaults)
    return [found[i * each:(i + 1) * each] for i in range(directions)]


def _limited(function: Callable[..., Tensor], alpha: float, beta: float, clip: float) -> Activation:
    if not clip:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(T.clamp(x, -clip, clip), alpha, beta)


def _network(
    node: Node, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, lengths: Tensor | None,
    states: list[Tensor | None], gates: int, cell: Callable[..., Any],
) -> tuple[Tensor, ...]:
    """All directions: outputs [steps, directions, batch, hidden], and the last states."""
    way = node.one_of("direction", "forward", ("forward", "reverse", "bidirectional"))
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]
    last = node.get("layout", 0)
    if w.shape[0] != len(ways):
        node.refuse(f"direction is {way!r} for weights {list(w.shape)}", "the file is damaged")
    if last:
        x = x.transpose(0, 1)
        states = [None if s is None else s.transpose(0, 1) for s in states]
    hidden = r.shape[-1]
    outputs, ends = [], []
    for i, backwards in enumerate(ways):
        begin = tuple(
            T.zeros(x.shape[1], hidden, dtype=x.dtype) if s is None else s[i] for s in states
        )
        given = T.zeros(2 * gates * hidden, dtype=x.dtype) if bias is None else bias[i]
        step = cell(i, r[i], given[gates * hidden:])
        projected = F.linear(x, w[i], given[: gates * hidden])
        found, end = _run(step, projected, begin, backwards, lengths)
        outputs.append(found)
        ends.append(end)
    stacked = T.stack(outputs, 1)
    finals = [T.stack([end[k] for end in ends]) for k in range(len(states))]
    if last:
        stacked = stacked.permute(2, 0, 1, 3)
        finals = [final.transpose(0, 1) for final in finals]
    return (stacked, *finals)


def _run(
    step: Callable[..., Any], projected: Tensor, begin: tuple[Tensor, ...], backwards: bool,
    lengths: Tensor | None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The steps; with lengths, a sequence that has ended keeps its state, and gives zeros."""
    if lengths is None:
        return run_steps(step, projected, begin, backwards, None)
    steps = projected.shape[0]
    line = T.arange(steps).reshape(-1, 1, 1)
    inside = (line < lengths.long().reshape(1, -1, 1)).to(projected.dtype)
    width = projected.shape[-1]

    def masked(row: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        runs = row[:, width:] > 0
        made = step(row[:, :width], state)
        return tuple(T.where(runs, new, old) for new, old in zip(made, state, strict=True))

    found, end = run_steps(masked, T.cat([projected, inside], -1), begin, backwards, None)
    return T.where(inside > 0, found, T.zeros_like(found)), end


@operator("RNN", 1)
def rnn(
    node: Node, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, start: Tensor | None = None,
) -> Any:
    functions = _activations(node, ("Tanh",), int(w.shape[0]))

    def cell(way: int, weight: Tensor, more: Tensor) -> Any:
        (activation,) = functions[way]

        def step(row: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (activation(row + F.linear(state[0], weight, more)),)

        return step

    return _network(node, x, w, r, bias, lengths, [start], 1, cell)


@operator("GRU", 3)
def gru(
    node: Node, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, start: Tensor | None = None,
) -> Any:
    """Gates in the order update, reset, hidden."""
    functions = _activations(node, ("Sigmoid", "Tanh"), int(w.shape[0]))
    linear = node.get("linear_before_reset", 0)

    def cell(way: int, weight: Tensor, more: Tensor) -> Any:
        gate, new = functions[way]
        hidden = weight.shape[-1]
        first, last = weight[: 2 * hidden], weight[2 * hidden:]

        def step(row: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (h,) = state
            gates = gate(row[:, : 2 * hidden] + F.linear(h, first, more[: 2 * hidden]))
            update, reset = gates[:, :hidden], gates[:, hidden:]
            if linear:
                inner = reset * F.linear(h, last, more[2 * hidden:])
            else:
                inner = F.linear(reset * h, last, more[2 * hidden:])
            candidate = new(row[:, 2 * hidden:] + inner)
            return ((1 - update) * candidate + update * h,)

        return step

    return _network(node, x, w, r, bias, lengths, [start], 3, cell)


@operator("LSTM", 1)
def lstm(
    node: Node, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, start: Tensor | None = None, cells: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> Any:
    """Gates in the order input, output, forget, cell."""
    functions = _activations(node, ("Sigmoid", "Tanh", "Tanh"), int(w.shape[0]))
    coupled = node.get("input_forget", 0)

    def cell(way: int, weight: Tensor, more: Tensor) -> Any:
        gate, new, out = functions[way]
        peep = None if peepholes is None else peepholes[way].chunk(3)

        def step(row: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            h, c = state
            enter, show, forget, fresh = (row + F.linear(h, weight, more)).chunk(4, -1)
            if peep is not None:
                enter, forget = enter + peep[0] * c, forget + peep[2] * c
            enter = gate(enter)
            kept = 1 - enter if coupled else gate(forget)
            c = kept * c + enter * new(fresh)
            show = gate(show if peep is None else show + peep[1] * c)
            return (show * out(c), c)

        return step

    return _network(node, x, w, r, bias, lengths, [start, cells], 4, cell)
