"""Recurrent layers: one GEMM projects the inputs of all steps; a loop of compiled code runs over
them under a trace, and where there is much to do, else Python does."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...frontend import functions as T
from ...frontend.ahead import made_ahead
from ...frontend.autocast import listed
from ...frontend.context import Uncounted, local
from ...frontend.tensor import Parameter, Tensor
from .. import functional as F
from .. import init
from ..utils.packing import check_rows, rows_and_places
from ..utils.rnn import PackedSequence, count_of
from .module import Module
from .recurrence import GATES, Packing, Padding, State, Weights
from .recurrence_whole import run_cell, run_direction


class RNNBase(Module):
    """What RNN, LSTM and GRU share: weights, checks, layers and directions."""

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_sizes(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        if mode not in GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(2 if bidirectional else 1):
                self._add_weights(layer, direction, device, dtype)
        self.reset_parameters()

    @property
    def _output_size(self) -> int:
        return self.proj_size or self.hidden_size

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _add_weights(self, layer: int, direction: int, device: Any, dtype: Any) -> None:
        gates = GATES[self.mode] * self.hidden_size
        inputs = self._output_size * self._directions if layer else self.input_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (gates, inputs), "weight_hh": (gates, self._output_size)
        }
        if self.bias:
            shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        suffix = f"_l{layer}" + ("_reverse" if direction else "")
        for name, shape in shapes.items():
            setattr(self, name + suffix, Parameter(T.empty(shape, dtype=dtype, device=device)))
        self._all_weights.append([name + suffix for name in shapes])

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: weights need no particular layout."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _check_input(self, input: Tensor, packed: bool = False) -> None:
        if packed and input.dim() != 2:
            raise RuntimeError(f"input must have 2 dimensions, got {input.dim()}")
        if input.dim() not in (2, 3):
            name = "RNN" if self.mode.startswith("RNN") else self.mode
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        weight = self.weight_ih_l0
        if input.dtype is not weight.dtype and local.autocast is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: "
                f"model.to({input.dtype})"
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.shape[-1]}"
            )

    def _initial(
        self, batch: Any, dtype: Any, given: State | None, batched: bool = True
    ) -> State:
        """The initial states, each [layers * directions, N, size]."""
        count = self.num_layers * self._directions
        sizes = [self._output_size, self.hidden_size][: 2 if self.mode == "LSTM" else 1]
        wanted = [(count, batch, size) for size in sizes]
        if given is None:
            return tuple(T.zeros(shape, dtype=dtype) for shape in wanted)
        if any(state.dim() != (3 if batched else 2) for state in given):
            dims = ", ".join(f"{state.dim()}-D" for state in given)
            hidden = "hx and cx" if len(given) > 1 else "hx"
            kind = "batched 3-D" if batched else "unbatched 2-D"
            raise RuntimeError(
                f"For {kind} input, {hidden} should also be {3 if batched else 2}-D but got "
                f"({dims}) tensors"
            )
        states = given if batched else tuple(state.unsqueeze(1) for state in given)
        for i, (state, shape) in enumerate(zip(states, wanted, strict=True)):
            if any(a != b for a, b in zip(state.shape, shape, strict=True)):
                which = f"hidden[{i}]" if len(states) > 1 else "hidden"
                raise RuntimeError(
                    f"Expected {which} size {shape}, got {list(state.shape)}"
                )
        return states

    def _run(self, input: Any, given: State | None) -> tuple[Any, State]:
        """Outputs and last states; input and outputs in the user's layout."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, given)
        self._check_input(input)
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(1)
        elif self.batch_first:
            input = input.transpose(0, 1)
        if input.shape[0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        initial = self._initial(input.shape[1], input.dtype, given, batched)
        plain = self.mode == "LSTM" and not self.proj_size
        layers = self.lstm_layers if plain else self.recurrent_layers
        input, states = layers(input, initial, None, self._weights(), self._rate())
        if not batched:
            return input.squeeze(1), tuple(state.squeeze(1) for state in states)
        return (input.transpose(0, 1) if self.batch_first else input), states

    def _run_packed(
        self, packed: PackedSequence, given: State | None
    ) -> tuple[PackedSequence, State]:
        data, sizes, order, back = packed
        self._check_input(data, packed=True)
        packing: Packing
        if local.trace is None:
            with Uncounted():
                check_rows(sizes.numpy(), data.shape[0])
                packing = sizes.tolist()
            count = packing[0]
        else:
            count, rows = count_of(packed), data.shape[0]
            packing = Padding(*made_ahead(
                rows_and_places, [sizes], [rows], [[sizes.shape[0], count], [rows]], kept=True
            ))
        if given is not None and order is not None:
            given = tuple(state.index_select(1, order) for state in given)
        initial = self._initial(count, data.dtype, given)
        output, states = self.recurrent_layers(
            data, initial, packing, self._weights(), self._rate()
        )
        if back is not None:
            states = tuple(state.index_select(1, back) for state in states)
        return PackedSequence(output, sizes, order, back), states

    def _weights(self) -> list[Weights]:
        return [
            {name.rsplit("_l", 1)[0]: getattr(self, name) for name in names}
            for names in self._all_weights
        ]

    def _rate(self) -> float:
        """How much is dropped between layers now: what a recording does not see the layers ask."""
        return self.dropout if self.training else 0.0

    @listed
    def lstm_layers(
        self, input: Tensor, initial: State, packing: Packing | None, weights: list[Weights],
        dropout: float,
    ) -> tuple[Tensor, State]:
        """What torch has one function for on the CPU, which autocast lists there."""
        return self.recurrent_layers(input, initial, packing, weights, dropout)

    @listed
    def recurrent_layers(
        self, input: Tensor, initial: State, packing: Packing | None, weights: list[Weights],
        dropout: float,
    ) -> tuple[Tensor, State]:
        """All layers over [L, N, inputs], or over packed steps."""
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self._directions):
                number = layer * self._directions + direction
                start = tuple(state[number] for state in initial)
                output, end = run_direction(
                    self.mode, input, start, weights[number], bool(direction), packing
                )
                outputs.append(output)
                last.append(end)
            input = outputs[0] if len(outputs) == 1 else T.cat(outputs, -1)
            if dropout and layer < self.num_layers - 1:
                input = F.dropout(input, dropout)
        return input, tuple(T.stack(list(parts)) for parts in zip(*last, strict=True))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False),
            ("dropout", 0), ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text


def _check_unknown(kind: str, unknown: dict[str, Any]) -> None:
    if "proj_size" in unknown:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    for name in unknown:
        raise TypeError(f"{kind}.__init__() got an unexpected keyword argument '{name}'")


def _check_sizes(
    input_size: Any, hidden_size: Any, num_layers: int, bias: Any, batch_first: Any,
    dropout: Any, proj_size: int,
) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not (
        0 <= dropout <= 1
    ):
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=4,
        )
    for name, value, kind in (
        ("bias", bias, bool), ("batch_first", batch_first, bool),
        ("input_size", input_size, int), ("hidden_size", hidden_size, int),
    ):
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
            )
    for name, value in (
        ("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)
    ):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNN(RNNBase):
    """Elman network: h' = tanh(x W_ih + h W_hh), or with relu."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Any = None, dtype: Any = None, **unknown: Any,
    ) -> None:
        _check_unknown("RNN", unknown)
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if nonlinearity not in modes:
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            modes[nonlinearity], input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, states = self._run(input, None if hx is None else (hx,))
        return output, states[0]


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), optionally projected."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, proj_size, device, dtype,
        )

    def forward(
        self, input: Any, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, ...]]:
        return self._run(input, hx)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014)."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Any = None, dtype: Any = None, **unknown: Any,
    ) -> None:
        _check_unknown("GRU", unknown)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, states = self._run(input, None if hx is None else (hx,))
        return output, states[0]


class RNNCellBase(Module):
    """What the cells share: weights and one step."""

    mode = "RNN_TANH"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = num_chunks * hidden_size

        def parameter(*shape: int) -> Parameter:
            made: Parameter = Parameter(T.empty(shape, dtype=dtype, device=device))
            return made

        self.weight_ih = parameter(gates, input_size)
        self.weight_hh = parameter(gates, hidden_size)
        if bias:
            self.bias_ih, self.bias_hh = parameter(gates), parameter(gates)
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, input: Tensor, given: State | None, count: int) -> State:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(
                f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead"
            )
        if int(input.shape[-1]) != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.shape[-1]} expected "
                f"{self.input_size}"
            )
        for i, state in enumerate(given or ()):
            if state.dim() not in (1, 2):
                which = "hidden" if count == 1 else f"hx[{i}]"
                raise ValueError(
                    f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead"
                )
            if input.dim() == state.dim() == 2 and input.shape[0] != state.shape[0]:
                raise RuntimeError(
                    f"Input batch size {input.shape[0]} doesn't match hidden{i} batch size "
                    f"{state.shape[0]}"
                )
            if int(state.shape[-1]) != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {state.shape[-1]}, expected "
                    f"{self.hidden_size}"
                )
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        if given is None:
            zeros = T.zeros((x.shape[0], self.hidden_size), dtype=x.dtype)
            given = (zeros,) * count
        elif not batched:
            given = tuple(state.unsqueeze(0) for state in given)
        found = recurrent_cell(
            self.mode, x, given, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        )
        return found if batched else tuple(state.squeeze(0) for state in found)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"


@listed
def recurrent_cell(
    mode: str, x: Tensor, state: State, weight: Tensor, recurrent: Tensor, bias: Tensor | None,
    recurrent_bias: Tensor | None,
) -> State:
    given = {
        "weight_ih": weight, "weight_hh": recurrent, "bias_ih": bias, "bias_hh": recurrent_bias
    }
    return run_cell(mode, x, state, {name: w for name, w in given.items() if w is not None})


class RNNCell(RNNCellBase):
    """One step of an Elman network."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    @property
    def mode(self) -> str:  # type: ignore[override]
        return f"RNN_{self.nonlinearity.upper()}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(input, None if hx is None else (hx,), 1)[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (hidden, cell)."""

    mode = "LSTM"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        return self._step(input, hx, 2)


class GRUCell(RNNCellBase):
    """One step of a GRU."""

    mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else (hx,), 1)[0]
