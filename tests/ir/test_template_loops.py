"""Templates as loops: the default lowering sums what the template's own meaning does."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim, evaluate
from graphc.ir.dtypes import DType
from graphc.ir.graph import Graph
from graphc.ir.kernel import Kernel, Launch
from graphc.ir.kernel.interpret import run_kernel, run_program
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.machine import Machine
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.lower.template_loops import as_loops
from graphc.ir.passes.plan import plan

from . import kernel_cases as cases
from .machines import TINY, WIDE
from .test_kernel_interpret import CONV, LAYOUTS

MACHINES = {"cpu": CPU, "tiny": TINY, "wide": WIDE}
TOLERANCE = {"bf16": 0.05, "f32": 1e-4, "f64": 1e-12}


def check(graph: Graph, machine: Machine, dims: tuple[int, ...] = ()) -> None:
    """Both forms of each template of a graph, on the same memory."""
    kernel = template(cases.compiled(graph, machine=machine))
    loops = as_loops(kernel, machine)
    assert loops.template is None and as_loops(kernel, machine) is loops
    compare(kernel, loops, dims)


def template(program: Any) -> Kernel:
    """The one template among a program's kernels: beside it casts, where halves are summed so."""
    (kernel,) = [each for each in cases.kernels(program) if each.template is not None]
    return kernel


def compare(
    kernel: Kernel, loops: Kernel, dims: tuple[int, ...] = (), infinities: int = 0
) -> None:
    """The kernels on the same memory."""
    verify_kernel(loops)
    rng = np.random.default_rng(0)
    env = dict(zip(kernel.dims, dims, strict=True))
    before = [
        rng.uniform(-1, 1, evaluate(p.size, env)).astype(p.dtype.numpy) for p in kernel.params
    ]
    for array in before[:infinities]:
        array[:: max(1, array.size // 3)] = np.inf  # times what is there, and what is not
    want, got = [x.copy() for x in before], [x.copy() for x in before]
    run_kernel(kernel, want, dims, TABLE)
    run_kernel(loops, got, dims, TABLE)
    for a, b, param in zip(want, got, kernel.params, strict=True):
        t = TOLERANCE[param.dtype.name]
        np.testing.assert_allclose(b.astype("f8"), a.astype("f8"), rtol=t, atol=t)


def convolution(seed: int) -> Graph:
    """One of the three sums, of a random geometry."""
    rng = random.Random(seed)
    rank, groups = rng.choice((1, 2, 3)), rng.choice((1, 1, 2, 3))
    window = [rng.choice((1, 2, 3)) for _ in range(rank)]
    dilation = [rng.choice((1, 2)) for _ in range(rank)]
    stride = [rng.choice((1, 2, 3)) for _ in range(rank)]
    low, high = ([rng.choice((0, 1, 2)) for _ in range(rank)] for _ in range(2))
    places = list(zip(window, dilation, stride, low, high, strict=True))
    image = [rng.choice((3, 4, 5, 7)) + (k - 1) * d for k, d, *_ in places]
    output = [
        (n + a + b - (k - 1) * d - 1) // s + 1
        for n, (k, d, s, a, b) in zip(image, places, strict=True)
    ]
    attrs = {
        "stride": tuple(stride), "pad_low": tuple(low), "pad_high": tuple(high),
        "dilation": tuple(dilation), "groups": groups,
    }
    channels, filters = groups * rng.choice((1, 2, 3)), groups * rng.choice((1, 2, 4))
    x = (rng.choice((1, 2)), channels, *image)
    w, y = (filters, channels // groups, *window), (x[0], filters, *output)
    dtype = rng.choice((dtypes.f32, dtypes.f64, dtypes.bf16))

    def build(function: Any, *shapes: tuple[int, ...]) -> Graph:
        return cases.build(lambda *v: ops.relu(function(*v)), *((dtype, s) for s in shapes))

    return rng.choice((
        lambda: build(lambda a, b: ops.conv(a, b, **attrs), x, w),
        lambda: build(lambda a, b: ops.conv_input_grad(a, b, input_shape=x, **attrs), y, w),
        lambda: build(lambda a, b: ops.conv_weight_grad(a, b, weight_shape=w, **attrs), x, y),
    ))()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", range(24))
def test_convolutions(seed: int, machine: str) -> None:
    check(convolution(seed), MACHINES[machine])


@pytest.mark.parametrize("seed", range(24))
def test_infinities_meet_the_same_elements(seed: int) -> None:
    kernel = template(cases.compiled(convolution(seed)))
    compare(kernel, as_loops(kernel, CPU), infinities=2)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.bf16], ids=lambda d: d.name)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 5, 7), (4, 3, 1), (6, 1, 9), (70, 5, 300)])
def test_products(sizes: tuple[int, int, int], dtype: DType, machine: str) -> None:
    m, k, n = sizes
    if machine == "tiny" and m == 70:  # there, half as many rows and fewer columns are as large
        m, n = 35, 75
    plain = cases.build(lambda a, b: ops.tanh(cases.dot(a, b)), (dtype, (m, k)), (dtype, (n, k)))
    heads = cases.build(
        lambda a, b: ops.dot_general(
            a, b, batch_a=(0, 2), batch_b=(0, 1), contract_a=(3,), contract_b=(3,)
        ), (dtype, (2, m, 3, k)), (dtype, (2, 3, n, k)),
    )
    for graph in (plain, heads):
        check(graph, MACHINES[machine])


def test_symbolic_sizes() -> None:
    graph = cases.build(
        cases.dot, (Dim.var("n"), 5), (Dim.var("m"), 5), dims={"n": 6, "m": 4}
    )
    check(graph, WIDE, (4, 6))  # in the order of their names


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_index_expressions(layout: str) -> None:
    index, _ = LAYOUTS[layout]
    kernel = parse_kernel(CONV.replace("(9*channel + 36*image + position)", index))
    compare(kernel, as_loops(kernel, CPU))


def test_only_what_a_backend_does_not_render_becomes_loops() -> None:
    graph = cases.build(lambda a, b: ops.relu(cases.dot(a, b)), (4, 3), (5, 3))
    fused = fuse(graph, CPU)
    inputs = cases.arrays(graph)
    results = []
    for renders in (True, False):
        kernels = lower(fused, CPU, lambda template, renders=renders: renders)
        program = plan(fused, kernels, CPU)
        (step,) = program.steps
        assert isinstance(step, Launch) and (step.kernel.template is not None) == renders
        results.append(run_program(program, inputs, TABLE)[0])
    np.testing.assert_allclose(*results, rtol=1e-6)
