"""Functions of several operators, views and products among them, are one step of history: to the
bit what their operators give one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_rows
from graphc.frontend import programs, replayed, replayed_steps, sequenced
from graphc.nn import functional as F
from graphc.nn.modules.recurrence import STEPS

LAYERS: dict[str, Callable[[Any], Any]] = {
    "lstm": lambda t: t.nn.LSTM(4, 3), "gru": lambda t: t.nn.GRU(4, 3, bidirectional=True),
    "rnn": lambda t: t.nn.RNN(4, 3), "rnn of relu": lambda t: t.nn.RNN(4, 3, nonlinearity="relu"),
    "projected": lambda t: t.nn.LSTM(4, 3, proj_size=2),
    "without bias": lambda t: t.nn.GRU(4, 3, bias=False),
}


def _layer(name: str) -> Callable[[Any, Any], Any]:
    def call(x: Any, y: Any) -> Any:
        layer = LAYERS[name](torch)
        with torch.no_grad():
            for i, p in enumerate(layer.parameters()):
                p.copy_(torch.arange(float(p.numel())).reshape(p.shape).sin() * (i + 1) / 3)
        layer = layer.to(x.dtype)
        for i, p in enumerate(layer.parameters()):  # what is learned is looked at with x and y
            p.requires_grad_(bool(i % 2) or not x.requires_grad)
        output, _ = layer(x.reshape(4, 1, 4) + 0)
        return output * y[:, :1, None]

    return call


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda x, y: F.linear(x, y, y[0] * 2),
    "rows": lambda x, y: F.linear(x[None], y, y[1]),
    "its own": lambda x, y: F.linear(x, x, x[0]), "vector": lambda x, y: F.linear(x[0], y, y[0]),
    "conv": lambda x, y: F.conv2d(
        x[None, None], y[:2, :2][None, None] * 1, y[0, :1] * 1, padding=1
    ),
    "groups": lambda x, y: F.conv1d(x[None], y[:, None, :2] * 1, y[0] * 1, stride=2, groups=4),
    "turned conv": lambda x, y: F.conv_transpose2d(
        x[None, None], y.reshape(1, 4, 2, 2) * 1, y[0] * 1, stride=2, padding=1, output_padding=1
    ),
    "turned conv1d": lambda x, y: F.conv_transpose1d(x[None], y.reshape(4, 2, 2) * 1, y[0, :2] * 1),
    "batch norm": lambda x, y: F.batch_norm(
        x[None], y[0].detach(), y[1].detach().exp(), y[2] * 1, y[3] * 1
    ),
    "batch norm of a batch": lambda x, y: F.batch_norm(x[None] * y, None, None, y[0], y[1], True),
    "batch norm of rows": lambda x, y: F.batch_norm(x, None, None, y[0], y[1], True),
    "batch norm of x": lambda x, y: F.batch_norm(x, y[0], y[1].exp(), y[2], y[3]),
    "group norm": lambda x, y: F.group_norm(x[None], 2, y[0] * 1, y[1] * 1),
    "instance norm": lambda x, y: F.instance_norm(x[None], None, None, y[0] * 1, y[1] * 1),
    "prelu": lambda x, y: F.prelu(x, y[0] * 1), "bilinear": lambda x, y: F.interpolate(
        x[None, None], size=(3, 7), mode="bilinear"
    ),
    "cell": lambda x, y: STEPS["GRU"](
        x.repeat(1, 3), (y * 1,), torch.cat([x, y, x * y]), None, None
    )[0],
    "lstm cell": lambda x, y: torch.cat(STEPS["LSTM"](
        x.repeat(1, 4), (y * 1, x * y), torch.cat([x, y, x * y, x]), x.repeat(1, 4)[0], None
    )),
    "attention": lambda x, y: F.scaled_dot_product_attention(x, y, x),
    "cosine": lambda x, y: F.cosine_similarity(x[:, None], y[None], dim=-1),
    "normalize": lambda x, y: F.normalize(x * y), "glu": lambda x, y: F.glu(x) * F.glu(y),
    "probabilities": lambda x, y: F.binary_cross_entropy(
        x.sigmoid().nan_to_num(0.5), y.sigmoid().nan_to_num(0.25)
    ),
    "conv alone": lambda x, y: F.conv2d(x[None, None], y[:2, :2][None, None] * 1, padding=1),
    "logsumexp": lambda x, y: (x + y).logsumexp(0), "padded": lambda x, y: F.pad(x * y, (1, 2)),
    "softmax": lambda x, y: F.softmax(x * y, 0), "extrema": lambda x, y: x.max(1).values * y[0],
    "product": lambda x, y: x @ y @ x, "leaky": lambda x, y: F.leaky_relu(x, 0.3) - y.relu(),
    "entropy": lambda x, y: F.cross_entropy(x * y, torch.arange(4)),
    "smooth": lambda x, y: F.cross_entropy(x * y, torch.arange(4), label_smoothing=0.2),
    "weights": lambda x, y: F.cross_entropy(
        x * 1, torch.tensor([3, -100, 0, 1]), y[0].detach().exp(), reduction="sum"
    ),
    "planes": lambda x, y: F.nll_loss(x[None] * 1, torch.tensor([[0, 3, 1, 1]])),
    "causal": lambda x, y: F.scaled_dot_product_attention(x, y, y, is_causal=True),
    "masked": lambda x, y: F.scaled_dot_product_attention(x * 1, y, x, y > 0),
    "averages": lambda x, y: F.avg_pool2d(x[None] * y, 2), "spread": lambda x, y: (x * y).var(1),
    "euler": lambda x, y: torch.einsum("ij,jk,kl->il", x, y, x),
    **{name: _layer(name) for name in LAYERS},
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda v: v, "turned": lambda v: v.t(), "steps": lambda v: v.repeat(2, 2)[::2, ::2],
}
LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda z, x, y: z.sum(),
    "used again": lambda z, x, y: (x * 3).sum() + (z * z * 0.7).sum() + (x * y).sum(),
}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    monkeypatch.setattr(eager_rows, "native", eager_rows.Native())
    monkeypatch.setattr(programs, "_OFTEN", 1)
    monkeypatch.setattr(replayed_steps, "_OFTEN", 2)
    monkeypatch.setattr(sequenced, "_OFTEN", 5)
    monkeypatch.setattr(replayed, "_known", {})


def outcomes(call: Any, loss: Any, layout: Any, dtype: Any) -> list[Any]:
    """Bits, strides, the name of the node and the gradients, of several calls."""
    found: list[Any] = []
    for seed in range(7):
        numbers = np.random.default_rng(seed).standard_normal((2, 4, 4)) * 2
        numbers[0, 0] = [0, 3, -0.0, 1]
        if seed > 4:
            numbers[:, 1, :3] = [np.nan, np.inf, -np.inf]
        x, y = (
            layout(torch.tensor(v, dtype=dtype)).detach().requires_grad_(seed != 3 or i == 0)
            for i, v in enumerate(numbers)
        )
        for _ in range(2):
            result = call(x, y)
            array = result.detach().numpy()
            found += [array.tobytes(), array.strides, result.grad_fn.name()]
            loss(result, x, y).backward()
        for leaf in (x, y):
            if leaf.grad is not None:
                found += [leaf.grad.numpy().tobytes(), leaf.grad.stride()]
    return found


@pytest.mark.usefixtures("only_the_cpu", "soon")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["rows f32", "rows f64", "turned f32", "steps f32"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CALLS)
def test_bits(name: str, loss: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, _, bits = kind.partition(" f")
    dtype = torch.float32 if bits == "32" else torch.float64
    given = CALLS[name], LOSSES[loss], LAYOUTS[layout], dtype
    as_one = outcomes(*given)
    monkeypatch.setattr(replayed, "_known", {})
    monkeypatch.setattr(replayed, "sequenced", lambda *_: None)
    monkeypatch.setattr(replayed, "alone", lambda *_: None)
    monkeypatch.setattr(programs.Eager, "gradient", staticmethod(lambda _: None))
    assert as_one == outcomes(*given)


def node_of(call: Callable[[], Any]) -> Any:
    """What made the result of a call that was made before."""
    for _ in range(3):
        found = call()
    node = found.grad_fn
    assert getattr(getattr(node, "op", None), "name", "").startswith("sequence_")
    return node


@pytest.mark.usefixtures("only_the_cpu")
def test_a_layer_is_one_node_with_torchs_edges() -> None:
    layer, x = torch.nn.Linear(3, 5), torch.rand(2, 3, requires_grad=True) * 1
    node = node_of(lambda: layer(x))
    assert node.name() == "AddmmBackward0"
    bias, first, weight = (edge[0] for edge in node.next_functions)
    assert bias.variable is layer.bias and first is x.grad_fn and weight.variable is layer.weight
    conv = torch.nn.ConvTranspose2d(2, 3, 2)
    node = node_of(lambda: conv(torch.ones(1, 2, 3, 3)))
    assert node.name() == "ConvolutionBackward0"
    assert [e[0] and e[0].variable for e in node.next_functions] == [None, conv.weight, conv.bias]


@pytest.mark.usefixtures("only_the_cpu")
def test_each_result_has_the_name_of_what_made_it() -> None:
    cell, x = torch.nn.LSTMCell(3, 2), torch.rand(4, 3)
    found = []
    for _ in range(4):
        hidden, state = cell(x)
        found.append((hidden.grad_fn.name(), state.grad_fn.name()))
        cell.weight_hh.grad = None
        (state * 2).sum().backward()
        found.append(cell.weight_hh.grad.tolist())
    assert found == found[:2] * 4 and found[0] == ("MulBackward0", "AddBackward0")


@pytest.mark.usefixtures("only_the_cpu")
def test_what_is_saved_notices_writes() -> None:
    layer = torch.nn.Linear(3, 5)
    for _ in range(4):
        x = torch.rand(2, 3, requires_grad=True) * 1
        loss = layer(x).sum()
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    cell = torch.nn.RNNCell(3, 3)
    for _ in range(4):
        hidden = cell(torch.rand(2, 3))
        loss = hidden.sum()
        hidden.detach().zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.usefixtures("only_the_cpu", "soon")
def test_what_torch_does_not_save_may_be_written_to() -> None:
    classes, x = torch.arange(4), torch.arange(16.0).reshape(4, 4).sin()
    found = []
    for _ in range(9):
        w = x.clone().requires_grad_()
        scores = w * 1
        loss = F.cross_entropy(scores, classes)
        scores.zero_()
        loss.backward()
        found.append(w.grad.tolist())
        q = x.clone().requires_grad_()
        rows = q * 1
        result = F.scaled_dot_product_attention(rows, x, x)
        rows.zero_()
        result.detach().zero_()
        result.sum().backward()
        found.append(q.grad.tolist())
    assert found == found[:2] * 9


@pytest.mark.usefixtures("only_the_cpu", "soon")
def test_what_learns_may_change() -> None:
    """Of few calls and of many: what is frozen, views, views whose base was written to."""
    w, b = torch.rand(3, 3, requires_grad=True), torch.rand(3)
    for again in range(9):
        x = torch.rand(2, 3)
        with torch.no_grad():
            view = (x * 1).requires_grad_(again % 2 == 0)[:1] if again % 3 else x[:1]
        with torch.autograd.set_detect_anomaly(again == 7):
            result = F.linear(view, w, b)
        assert result.requires_grad
        result.sum().backward()
        base = torch.rand(2, 3, requires_grad=True) * 1
        row = base[:1]
        base.mul_(2)  # whose history is row's from now on
        F.linear(row, w, b).sum().backward()
        assert w.grad is not None
        w.grad = None
    w.requires_grad_(False)
    assert not F.linear(x, w, b).requires_grad
    x.requires_grad_()
    assert F.linear(x, w, b).requires_grad


@pytest.mark.usefixtures("only_the_cpu")
def test_what_no_operator_has_kept_may_be_written_to() -> None:
    norm = torch.nn.BatchNorm2d(2).eval()
    found = []
    for again in range(4):
        x = torch.arange(16.0).reshape(1, 2, 2, 4).requires_grad_()
        with torch.no_grad():
            norm.running_var.fill_(2.0)
        z = x * 1
        result = norm(z)
        with torch.no_grad():
            norm.running_var.fill_(9.0)
            z.zero_()
        result.square().sum().backward()
        found.append((x.grad.tolist(), norm.weight.grad.tolist()))
        norm.weight.grad = None
        assert again == 0 or result.grad_fn.op.name.startswith("sequence_")
    assert found == found[:1] * 4


@pytest.mark.parametrize("name", ["linear", "conv", "turned conv", "batch norm", "cell", "prelu"])
def test_gradients_of_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(7).standard_normal((2, 4, 4))

    def second() -> list[Any]:
        x, y = (torch.tensor(v).requires_grad_() for v in numbers)
        first = torch.autograd.grad(CALLS[name](x, y).square().sum(), [x, y], create_graph=True)
        found = torch.autograd.grad(sum((g * g).sum() for g in first), [x, y])
        return [g.detach().numpy() for g in (*first, *found)]

    as_one = [second() for _ in range(3)][-1]
    monkeypatch.setattr(replayed, "_known", {})
    monkeypatch.setattr(replayed, "sequenced", lambda *_: None)
    for ours, theirs in zip(as_one, second(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.usefixtures("only_the_cpu")
def test_hooks_see_what_each_operator_saves() -> None:
    layer, x = torch.nn.Linear(3, 5), torch.rand(2, 3)
    node_of(lambda: layer(x))
    seen: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda v: seen.append(v) or v, lambda v: v):
        loss = layer(x).sum()
    loss.backward()
    assert any(v is x or v.shape == x.shape for v in seen)


@pytest.mark.usefixtures("only_the_cpu")
def test_numbers_of_inference_mode() -> None:
    norm = torch.nn.BatchNorm1d(3).eval()
    with torch.inference_mode():
        mean = torch.zeros(3)
    x = torch.rand(2, 3, requires_grad=True)
    for _ in range(4):  # no operator saves the mean
        F.batch_norm(x, mean, norm.running_var, norm.weight, norm.bias).sum().backward()


@pytest.mark.usefixtures("only_the_cpu")
def test_many_numbers_are_not_computed_again() -> None:
    norm, x = torch.nn.BatchNorm2d(4).eval(), torch.rand(2, 4, 24, 24)
    for _ in range(3):
        result = norm(x)
    assert not result.grad_fn.op.name.startswith("sequence_")
