"""Every layer of the parity table compiled: the same outputs, gradients and buffers as eager."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import graphc
from tests.nn.both import array, backward, leaves, tensors
from tests.nn.test_layers_parity import LAYERS

CORE = (
    "Linear", "Conv2d", "MaxPool2d", "AvgPool2d", "BatchNorm2d", "LayerNorm", "Embedding", "LSTM",
    "MHA mask", "GELU()", "Softmax(1)", "TransformerEncoderLayer",
)
NAMES = [
    pytest.param(name, marks=() if name in CORE else pytest.mark.slow) for name in LAYERS
]


def check(eager: Any, compiled: Any, what: str) -> None:
    """Assert that nested tensors agree as far as float32 does."""
    if isinstance(eager, graphc.Tensor):
        np.testing.assert_allclose(
            array(compiled), array(eager), rtol=2e-4, atol=2e-5, err_msg=what
        )
    elif isinstance(eager, (tuple, list)):
        assert len(compiled) == len(eager), what
        for i, (a, b) in enumerate(zip(eager, compiled, strict=True)):
            check(a, b, f"{what}[{i}]")
    else:
        assert compiled == eager, what


@pytest.mark.parametrize("name", NAMES)
def test_layer(name: str) -> None:
    make, inputs = LAYERS[name]
    graphc.manual_seed(0)
    eager = make(graphc.nn)
    twin = copy.deepcopy(eager)
    compiled = graphc.compile(twin)
    for _ in range(2):
        given = [tensors(inputs, "float32", graphc) for _ in range(2)]
        found = [call(*x) for call, x in zip((eager, compiled), given, strict=True)]
        for outputs in found:
            backward(outputs, graphc)
        check(*found, "output")
        check(*[[t.grad for t in leaves(x, graphc)] for x in given], "gradient")
        check(*[[p.grad for p in m.parameters()] for m in (eager, twin)], "parameter gradient")
        check(*[list(m.buffers()) for m in (eager, twin)], "buffer")


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_are_loops_of_any_length(kind: str) -> None:
    """Under a trace a layer is a scan: one step's kernels, for every length."""
    graphc.manual_seed(0)
    net = getattr(graphc.nn, kind)(3, 4, num_layers=2, bidirectional=True)
    compiled = graphc.compile(net)
    steps = set()
    for length in (3, 7, 12, 5, 40):
        x = graphc.randn(length, 2, 3)
        check(net(x), compiled(x), f"length {length}")
        explanation = graphc.explain(compiled, x)
        assert not explanation.callbacks
        steps.add(len(explanation.steps))
    assert explanation.versions == 2 and len(steps) == 1


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_drop_by_what_holds_now(kind: str) -> None:
    """Between its layers, as its mode and rate are at the call, not when it was recorded."""
    graphc.manual_seed(0)
    layer = getattr(graphc.nn, kind)(4, 4, num_layers=2, dropout=0.5)
    compiled = graphc.compile(layer)
    x = graphc.randn(3, 2, 4)
    for _ in range(3):
        compiled(x)
    layer.eval()
    check(layer(x), compiled(x), "eval")
    layer.train()
    assert not graphc.equal(compiled(x)[0], compiled(x)[0])
    layer.dropout = 0.0
    check(layer(x), compiled(x), "without dropout")
