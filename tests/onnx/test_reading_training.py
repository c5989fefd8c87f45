"""Read models that are trained: batch norm and dropout as in torch.nn once train() is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from tests.onnx.test_reading import model_of

onnx = pytest.importorskip("onnx")


class Net(nn.Module):
    """What the file below says."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.fc = nn.Dropout(0.25), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.bn(self.conv(x))).mean((2, 3))
        return self.fc(self.drop(x))


def written(net: Net, mode: int, mask: bool = False) -> Any:
    """The net as a file: with batch norm and dropout of inference, or of training."""
    extra = ", mean, var" if mode else ""
    text = f"""net (float[n, 2, 6, 6] x) => (float[n, 3] y) {{
        a = Conv(x, conv__weight, conv__bias)
        b{extra} = BatchNormalization<training_mode = {mode}>(
            a, bn__weight, bn__bias, bn__running_mean, bn__running_var)
        c = Relu(b)
        d = ReduceMean<keepdims = 0>(c, dims)
        ratio = Constant<value = float {{0.25}}>()
        trains = Constant<value = bool {{{mode}}}>()
        e{", kept" if mask else ""} = Dropout(d, ratio, trains)
        y = Gemm<transB = 1>(e, fc__weight, fc__bias)
    }}"""
    arrays = {
        name.replace(".", "__"): tensor.numpy().copy()
        for name, tensor in net.state_dict().items() if tensor.dim()
    }
    model = model_of(text, dims=np.array([2, 3]), **arrays)
    for node in model.graph.node:
        node.input[:] = [name.replace("__", ".") for name in node.input]
    return model


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("mode", "mask"), [(0, False), (1, True)])
def test_losses_of_training(mode: int, mask: bool, compiled: bool) -> None:
    """Weights, running moments and random numbers are those of the same net in nn."""
    torch.manual_seed(0)
    net = Net()
    model = torch.onnx.load(written(net, mode, mask)).train()
    assert not model.get_buffer("bn.running_mean").requires_grad
    assert {name for name, _ in model.named_parameters()} == {
        name for name, _ in net.named_parameters()
    }
    x, target = torch.randn(8, 2, 6, 6), torch.randint(0, 3, (8,))
    losses = []
    for each in (net, model):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9)

        def step(each: Any = each, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(each(x), target)
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step) if compiled else step
        losses.append([run().item() for _ in range(4)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-5)
    for name in ("bn.running_mean", "bn.running_var"):
        np.testing.assert_allclose(model.get_buffer(name), net.get_buffer(name), rtol=1e-4)
    np.testing.assert_allclose(
        model.eval()(x).detach(), net.eval()(x).detach(), rtol=1e-3, atol=1e-4
    )


def test_until_somebody_says_the_file_does() -> None:
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(8, 2, 6, 6)
    model = torch.onnx.load(written(net, 1))
    assert not model.training
    before = model.get_buffer("bn.running_mean").clone()
    assert not torch.equal(model(x), model(x))  # dropout draws
    assert torch.equal(model.get_buffer("bn.running_mean"), before)
    assert torch.equal(model.eval()(x), model(x))
    np.testing.assert_allclose(model(x).detach(), net.eval()(x).detach(), rtol=1e-4, atol=1e-5)
    model = torch.onnx.load(written(net, 0))
    assert torch.equal(model(x), model(x))
    outer = nn.Sequential(model).train()
    assert model.training and not torch.equal(outer(x), outer(x))
