"""Winograd's convolutions: which are made, the same values, and kernels for any machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.ir import autodiff, dtypes, interpret, ops
from graphc.ir.dim import DimEnv, Size
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.machine import Machine, Transform
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.plan import plan
from graphc.ir.passes.winograd import Choice, bound_of, choose, winograd
from graphc.ir.record import replaced
from graphc.ir.text import parse_graph, print_graph
from graphc.ir.types import TensorType
from graphc.ir.verify import verify

from .kernel_cases import kernels
from .machines import TINY, WIDE

NEVER = replaced(CPU, transform=None)
FREE = Transform(number=0, beside=0, turned=0)
EASY = replaced(CPU, tiling=None, transform=FREE)  # tiles are worth it for few channels
Pair = tuple[int, int]


def claimed(node: Any) -> bool:
    return False


def convolution(
    shape: tuple[Size, ...], outputs: int, window: Pair = (3, 3), *, env: DimEnv | None = None,
    dtype: DType = dtypes.f32, stride: Pair = (1, 1), pad: Pair = (1, 1), high: Pair | None = None,
    dilation: Pair = (1, 1), groups: int = 1, backward: bool = False,
) -> Graph:
    """relu(conv(x, w) + bias) + conv(x, w), and the gradient of x."""
    builder = Builder(env or DimEnv())
    x = Expr(builder, builder.input(TensorType(dtype, shape), "x"))
    filters = (outputs, int(shape[1]) // groups, *window)  # type: ignore[arg-type]
    w = Expr(builder, builder.input(TensorType(dtype, filters), "w"))
    bias = Expr(builder, builder.input(TensorType(dtype, (outputs, 1, 1)), "bias"))
    y = ops.conv(
        x, w, stride=stride, pad_low=pad, pad_high=high or pad, dilation=dilation, groups=groups
    )
    graph = builder.build([(ops.relu(y + bias) + y).node])
    return autodiff.joint_graph(graph) if backward else graph


def tiled(graph: Graph, machine: Machine = EASY, limit: float = 0.1) -> Graph:
    made = winograd(graph, machine, limit, claimed)
    verify(made)
    return made


def inputs_of(graph: Graph, seed: int, dims: dict[str, int] | None = None) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal([s if isinstance(s, int) else (dims or {})[str(s)]
                             for s in node.shape]).astype(node.dtype.numpy)
        for node in graph.inputs
    ]


def close(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * float(np.abs(b).max(initial=1.0)))


# --- which -----------------------------------------------------------------------------------


def choice(graph: Graph, machine: Machine = EASY, limit: float = 0.1) -> Choice:
    found = [choose(node, machine, limit, graph.env.hint, True) for node in graph.nodes]
    (only,) = [each for each in found if each is not None]
    return only


@pytest.mark.parametrize(("options", "reason"), [
    ({"dtype": dtypes.f64}, "it is of f64"),
    ({"dtype": dtypes.bf16}, "it is of bf16"),
    ({"stride": (2, 1)}, "stride, dilation or groups"),
    ({"dilation": (1, 2)}, "stride, dilation or groups"),
    ({"groups": 2}, "stride, dilation or groups"),
    ({"window": (3, 5)}, "filters are 3x5"),
    ({"window": (1, 1)}, "filters are 1x1"),
    ({"window": (2, 2)}, "filters are 2x2"),
])
def test_what_stays_says_why(options: dict[str, Any], reason: str) -> None:
    graph = convolution((2, 16, 12, 12), 16, **options)
    found = choice(graph)
    assert not found.tile and reason in found.reason
    assert tiled(graph) is graph


def test_a_machine_that_does_not_gain_keeps_its_own() -> None:
    graph = convolution((2, 64, 56, 56), 64)
    assert "cpu is not known to gain" in choice(graph, NEVER).reason
    assert "gpu" in choice(graph, WIDE).reason
    assert choice(graph, CPU).tile == 4
    few = convolution((1, 3, 20, 20), 8)
    assert choice(few, CPU).reason == "it is faster without"
    assert winograd(graph, EASY, 0.1, lambda node: node.op.name == "conv") is graph


def test_the_limit_says_which_tile() -> None:
    graph = convolution((1, 64, 24, 24), 64)
    small, large = bound_of(2, 3, 64), bound_of(4, 3, 64)
    assert choice(graph, limit=large).tile == 4
    assert choice(graph, limit=large * 0.99).tile == 2
    assert choice(graph, limit=small) == Choice(2, small, "")
    found = choice(graph, limit=small * 0.99)
    assert not found.tile and "may be off by" in found.reason
    assert tiled(graph, limit=small * 0.99) is graph
    assert tiled(graph, limit=0.0) is graph


# --- values ----------------------------------------------------------------------------------

NETS: list[Callable[[], Graph]] = [
    lambda: convolution((1, 5, 7, 9), 6, backward=True),
    lambda: convolution((2, 17, 6, 5), 18, pad=(0, 0), backward=True),
    lambda: convolution((2, 8, 9, 8), 7, pad=(2, 2), backward=True),
    lambda: convolution((3, 16, 4, 4), 16, backward=True),
    lambda: convolution((2, 6, 10, 3), 5, pad=(1, 0), high=(0, 2), backward=True),
    lambda: convolution((1, 9, 8, 13), 8, (5, 5), pad=(2, 2), backward=True),
    lambda: convolution((1, 5, 6, 6), 4, (5, 5), pad=(0, 4), high=(1, 4), backward=True),
]


def is_tiled(graph: Graph) -> bool:
    return any(node.op.name == "winograd_output" for node in graph.nodes)


@pytest.mark.parametrize("number", range(len(NETS)))
@pytest.mark.parametrize("limit", [1.0, bound_of(2, 5, 64)])
def test_values_and_gradients_stay(number: int, limit: float) -> None:
    graph = NETS[number]()
    made = tiled(graph, limit=limit)
    assert is_tiled(made)
    inputs = inputs_of(graph, number)
    close(interpret.evaluate(made, inputs, TABLE), interpret.evaluate(graph, inputs, TABLE))


def runs_on(machine: Machine, net: Graph, seed: int) -> None:
    """Hold a net's kernels for a machine to its graph."""
    graph = tiled(net, machine)
    assert is_tiled(graph)
    fused = fuse(graph, machine)
    made = lower(fused, machine)
    for each in made.values():
        verify_kernel(each.kernel)
    inputs = inputs_of(graph, seed)
    got = run_program(plan(fused, made, machine), inputs, TABLE)
    close(got, interpret.evaluate(graph, inputs, TABLE))


MACHINES = {
    "cpu": EASY, "tiny": replaced(TINY, transform=FREE),
    "wide": replaced(WIDE, transform=FREE, tf32=False),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_for_any_machine(machine: str) -> None:
    runs_on(MACHINES[machine], convolution((2, 17, 6, 5), 18, pad=(0, 2)), 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(NETS)))
@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_gradients_for_any_machine(machine: str, number: int) -> None:
    runs_on(MACHINES[machine], NETS[number](), number)


def test_what_follows_is_computed_with_it() -> None:
    graph = tiled(convolution((2, 8, 9, 9), 8))
    kinds = [n.attrs["kind"] for n in fuse(graph, EASY).nodes if n.op.name == "fusion"]
    assert sorted(kinds) == [
        "contraction", "loop", "loop", "winograd", "winograd", "winograd_output"
    ]  # the loops turn the image and the result around


def test_any_number_of_images() -> None:
    env = DimEnv()
    n = env.new("n", 4)
    graph = convolution((n, 16, 12, 12), 16, env=env)
    made = tiled(graph)
    assert is_tiled(made)
    fused = fuse(made, EASY)
    program = plan(fused, lower(fused, EASY), EASY)
    for count in (2, 5):
        inputs = inputs_of(graph, count, {"n": count})
        got = run_program(program, inputs, TABLE)
        close(got, interpret.evaluate(graph, inputs, TABLE))


def test_the_text_of_a_small_graph(golden: Callable[[str, str], None]) -> None:
    graph = tiled(convolution((1, 3, 6, 6), 2, backward=True))
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    golden("passes/winograd.txt", text)
    fused = fuse(tiled(convolution((1, 3, 6, 5), 2)), EASY)
    assert len(kernels(plan(fused, lower(fused, EASY), EASY))) == 6
