"""Layers that are one operator of ONNX: recurrent ones, and attention."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from tests.onnx.test_writing_models import compare, export

LAYERS: dict[str, Any] = {
    "LSTM": lambda: nn.LSTM(5, 7, batch_first=True),
    "LSTM without bias": lambda: nn.LSTM(5, 7, bias=False, batch_first=True),
    "GRU": lambda: nn.GRU(5, 7, batch_first=True),
    "GRU without bias": lambda: nn.GRU(5, 7, bias=False, batch_first=True),
    "RNN": lambda: nn.RNN(5, 7, batch_first=True),
    "RNN of relu": lambda: nn.RNN(5, 7, nonlinearity="relu", batch_first=True),
    "GRU in both directions": lambda: nn.GRU(5, 7, 2, batch_first=True, bidirectional=True),
    "LSTM in both directions": lambda: nn.LSTM(5, 7, 2, batch_first=True, bidirectional=True),
}


def kinds(program: Any) -> Counter[str]:
    """How many nodes there are of each operator."""
    return Counter(node.op_type for node in program.model_proto.graph.node)


class Whole(nn.Module):
    """A recurrent layer's output and last states, one after another."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        found, state = self.layer(x)
        return (found, *state) if isinstance(state, tuple) else (found, state)


@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer(name: str) -> None:
    torch.manual_seed(0)
    model = Whole(LAYERS[name]()).eval()
    program = export(model, (torch.randn(3, 6, 5),), dynamic_shapes=({0: "batch", 1: "length"},))
    found = kinds(program)
    count = 4 if "both" in name else 1
    assert found[name.split()[0]] == count and not found["Scan"] and not found["MatMul"], found
    for batch, length in ((1, 1), (2, 9), (5, 4)):
        compare(program, model, torch.randn(batch, length, 5))
    assert {"layer.weight_ih_l0", "layer.weight_hh_l0"} <= {
        each.name for each in program.model_proto.graph.initializer
    }


def test_states_that_are_given() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(5, 7)

    def model(x: Any, h: Any, c: Any) -> Any:
        y, (h, c) = layer(x, (h, c))
        return y, h, c

    args = torch.randn(4, 2, 5), torch.randn(1, 2, 7), torch.randn(1, 2, 7)
    program = export(model, args)
    assert kinds(program)["LSTM"] == 1
    compare(program, model, *args)


def test_other_recurrences_stay_loops() -> None:
    """Steps that only look like a layer's: gates in another order, a projection, float64."""
    torch.manual_seed(0)
    projected = nn.LSTM(5, 7, proj_size=3)
    double = nn.LSTM(5, 7).double()
    weight, hidden = torch.randn(28, 5), torch.randn(28, 7)

    def other(x: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            h, c = state
            forget, enter, new, show = (row + F.linear(h, hidden)).chunk(4, -1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
            h = torch.sigmoid(show) * torch.tanh(c)
            return (h, c), h

        begin = torch.zeros(2, 7), torch.zeros(2, 7)
        return torch._higher_order_ops.scan(step, begin, F.linear(x, weight))[1]

    for model, x in (
        (lambda x: projected(x)[0], torch.randn(4, 2, 5)),
        (lambda x: double(x)[0], torch.randn(4, 2, 5, dtype=torch.float64)),
        (other, torch.randn(4, 2, 5)),
    ):
        program = export(model, (x,))
        assert kinds(program)["Scan"] == 1 and not kinds(program)["LSTM"]
        compare(program, model, x)


@pytest.mark.parametrize("how", ["plain", "causal", "bool mask", "float mask", "three dims"])
def test_attention(how: str) -> None:
    torch.manual_seed(0)
    mask = torch.rand(6, 6) > 0.4
    mask[2] = False  # a query that sees nothing
    given: dict[str, Any] = {
        "causal": {"is_causal": True}, "bool mask": {"attn_mask": mask},
        "float mask": {"attn_mask": torch.where(mask, torch.randn(6, 6), -math.inf)},
    }.get(how, {})

    def model(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, **given)

    heads = () if how == "three dims" else (3,)
    args = [torch.randn(2, *heads, 6, 8) for _ in range(3)]
    free = None if given.get("attn_mask") is not None else {x: {0: "n"} for x in "qkv"}
    program = export(model, tuple(args), opset_version=23, dynamic_shapes=free)
    assert kinds(program)["Attention"] == 1 and not kinds(program)["Softmax"]
    compare(program, model, *args)
    if free is not None:
        compare(program, model, *[torch.randn(5, *heads, 6, 8) for _ in range(3)])
    older = export(model, tuple(args), opset_version=20, dynamic_shapes=free)
    assert kinds(older)["Softmax"] == ("mask" not in how)
    compare(older, model, *args)
    if free is not None:
        compare(older, model, *[torch.randn(5, *heads, 6, 8) for _ in range(3)])


def test_attention_of_any_length() -> None:
    """Where its sizes are free, an encoder has one node for each layer."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    program = export(
        layer, (torch.randn(3, 7, 16),), opset_version=23,
        dynamic_shapes=({0: "batch", 1: "length"},),
    )
    assert kinds(program)["Attention"] == 1
    for batch, length in ((1, 1), (2, 9), (5, 4)):
        compare(program, layer, torch.randn(batch, length, 16))
