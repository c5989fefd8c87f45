"""torch.lstm_cell and its kin: one step of a recurrent network with its weights as arguments."""

from __future__ import annotations

from typing import Any

from ..frontend.errors import located
from ..frontend.tensor import Tensor
from .modules.rnn import recurrent_cell


def _step(
    name: str, mode: str, input: Tensor, state: tuple[Tensor, ...], weight: Tensor,
    recurrent: Tensor, bias: Tensor | None, recurrent_bias: Tensor | None,
) -> Any:
    if input.dim() != 2 or any(tensor.dim() != 2 for tensor in state):
        raise RuntimeError(located(
            f"{name}() takes an input of [batch, features] and states of [batch, hidden], not "
            f"{list(input.shape)} and {[list(tensor.shape) for tensor in state]}"
        ))
    return recurrent_cell(mode, input, state, weight, recurrent, bias, recurrent_bias)


def lstm_cell(
    input: Tensor, hx: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor,
    b_ih: Tensor | None = None, b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(hidden, cell) after a step: input [N, I], hx ([N, H], [N, H]), w_ih [4H, I], w_hh [4H, H],
    gates in the order input, forget, cell, output."""
    found = _step("lstm_cell", "LSTM", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return found[0], found[1]


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """The hidden state after a step: input [N, I], hx [N, H], w_ih [3H, I], w_hh [3H, H], gates in
    the order reset, update, new."""
    found: Tensor = _step("gru_cell", "GRU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
    return found


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """tanh(input w_ih' + b_ih + hx w_hh' + b_hh): input [N, I], hx [N, H]."""
    found: Tensor = _step("rnn_tanh_cell", "RNN_TANH", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
    return found


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """relu(input w_ih' + b_ih + hx w_hh' + b_hh): input [N, I], hx [N, H]."""
    found: Tensor = _step("rnn_relu_cell", "RNN_RELU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
    return found
