"""The layout of convolutions: the same values and gradients, and few permutes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import backends, nn
from graphc.backends.cuda.machine import GPU
from graphc.backends.host.machine import CPU
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.numpy import TABLE
from graphc.ir import autodiff, dtypes, interpret, ops
from graphc.ir.graph import Graph
from graphc.ir.kernel import Convolution, Operand
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.templates.convolution import VARIABLES
from graphc.ir.kernel.templates.operand import strides_of
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.machine import Machine
from graphc.ir.passes.cse import cse
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.layout import layout
from graphc.ir.passes.lower import lower
from graphc.ir.passes.partition import split
from graphc.ir.passes.plan import plan
from graphc.ir.passes.simplify import simplify
from graphc.ir.record import replaced
from graphc.ir.verify import verify
from graphc.nn import functional as F

from .conv_nets import ConvMaker
from .kernel_cases import arrays, build, kernels

LAST = replaced(CPU, channels_last=2)


def close(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        assert (np.asarray(a).dtype, np.asarray(a).shape) == (b.dtype, b.shape)
        scale = float(np.max(np.abs(b), initial=1e-3))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * scale)


def joint(seed: int, layers: int) -> Graph:
    """A network with its gradients."""
    return cse(simplify(decompose(autodiff.joint_graph(ConvMaker(seed, dtypes.f64).grow(layers)))))


@pytest.mark.parametrize("seed", range(60))
def test_values_and_gradients_stay(seed: int) -> None:
    graph = joint(seed, 9)
    moved = layout(graph, LAST)
    verify(moved)
    inputs = arrays(graph, seed)
    close(interpret.evaluate(moved, inputs, TABLE), interpret.evaluate(graph, inputs, TABLE))


@pytest.mark.parametrize("seed", range(60, 66))
@pytest.mark.parametrize("machine", [LAST, replaced(GPU, channels_last=2)], ids=["cpu", "gpu"])
def test_kernels_of_moved_networks(seed: int, machine: Machine) -> None:
    graph = joint(seed, 5)
    inputs = arrays(graph, seed)
    fused = fuse(layout(graph, machine), machine)
    program = plan(fused, lower(fused, machine), machine)
    for kernel in kernels(program):
        verify_kernel(kernel)
    close(run_program(program, inputs, TABLE), interpret.evaluate(graph, inputs, TABLE))


def block(x: Any, w: Any, w2: Any, scale: Any) -> Any:
    """Of a residual network: two convolutions with their norms, what was before added."""
    attrs = {"stride": (1, 1), "pad_high": (1, 1), "dilation": (1, 1), "groups": 1}
    y, *_ = ops.batch_norm(ops.conv(x, w, pad_low=(1, 1), **attrs), scale, scale, eps=1e-5)
    z, *_ = ops.batch_norm(
        ops.conv(ops.relu(y), w2, pad_low=(1, 1), **attrs), scale, scale, eps=1e-5
    )
    return ops.sum(ops.relu(z + y), dims=(2, 3), keepdim=False)


SHAPES = ((2, 3, 6, 6), (16, 3, 3, 3), (16, 16, 3, 3), (16,))


def test_a_step_of_a_residual_network_permutes_weights_alone() -> None:
    """Results are stored as they are read; operands are read as they lie, channels along rows."""
    graph = cse(simplify(decompose(autodiff.joint_graph(build(block, *SHAPES)))))
    moved = layout(graph, GPU)
    fused = fuse(moved, GPU)
    permuting = Counter(
        tuple(x.shape for x in node.inputs) for node in fused.nodes if node.op.name == "fusion"
        and node.attrs["kind"] == "loop"
        and any(inner.op.name == "permute" for inner in node.graphs[0].nodes)
    )
    assert permuting == {((16, 16, 3, 3),): 1}
    found = [k.template for k in kernels(plan(fused, lower(fused, GPU, lambda t: True), GPU))]
    convolutions = [t for t in found if isinstance(t, Convolution)]
    few, first = (0, 108, 36, 1), (0, 27, 9, 1)  # few channels stay where they are
    last, weight = (0, 576, 1, 16), (0, 144, 1, 16)
    assert Counter((c.kind, strides(c.left), strides(c.right)) for c in convolutions) == Counter([
        ("conv", first, few), ("conv", weight, last), ("conv_weight_grad", last, few),
        ("conv_weight_grad", last, last), ("conv_input_grad", first, last),
        ("conv_input_grad", weight, last),
    ])


def strides(operand: Operand) -> Any:
    """Offset, strides of image, channel and position."""
    return strides_of(operand.index, VARIABLES)


def test_what_the_backward_keeps_has_its_channels_last() -> None:
    graph = cse(simplify(decompose(autodiff.joint_graph(build(block, *SHAPES)))))
    saved = split(layout(graph, GPU), len(SHAPES), 1).forward.outputs[1:]
    shapes = {node.shape for node in saved if len(node.shape) == 4 and 1 not in node.shape}
    assert shapes and all(shape[-1] in (3, 16) and shape[1] != 16 for shape in shapes)


def test_nothing_moves_where_the_machine_does_not_ask() -> None:
    graph = build(block, *SHAPES)
    assert layout(graph, CPU) is graph
    plain = build(lambda x: ops.permute(x, dims=(0, 3, 1, 2)) * 2.0, SHAPES[0])
    assert layout(plain, GPU) is plain


class ChannelsLast(LlvmBackend):
    """The CPU's, on a machine that wants channels last."""

    machine = LAST


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.narrow = nn.Conv2d(8, 8, 3, 2, 1, groups=4)
        self.skip = nn.Conv2d(8, 8, 1, 2)
        self.wide = nn.ConvTranspose2d(8, 4, 2, 2)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        y = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = F.relu(self.narrow(y)) + self.skip(y)
        return self.head(F.avg_pool2d(self.wide(y), 2).mean((2, 3)))


@pytest.fixture(scope="module")
def backend() -> str:
    backends.register("channels last", ChannelsLast, ("debug",))
    return "channels last"


@pytest.mark.parametrize("training", [True, False])
def test_a_module_trains_natively(training: bool, backend: str) -> None:
    graphc.manual_seed(0)
    net, x = Net().train(training), graphc.randn(2, 3, 13, 13)
    results = []
    for function in (net, graphc.compile(net, backend=backend)):
        net.zero_grad()
        y = function(x)
        (y * y).sum().backward()
        results.append([y.detach().numpy(), *(p.grad.numpy().copy() for p in net.parameters())])
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * float(np.abs(want).max()))
