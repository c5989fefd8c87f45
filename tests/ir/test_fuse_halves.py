"""Products of floats that are widened halves read the halves, on a machine that has units for
them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from graphc.backends.cuda.machine import GPU
from graphc.backends.host.machine import CPU
from graphc.ir import dtypes, ops
from graphc.ir.kernel import Convolution, Product, Program
from graphc.ir.machine import Machine
from graphc.ir.passes.layout import layout
from graphc.ir.record import replaced

from . import kernel_cases as cases
from .kernel_cases import build, check, dot

bf16, f16, f32 = dtypes.bf16, dtypes.f16, dtypes.f32
HALVES = replaced(CPU, halves=True)


def wide(x: Any) -> Any:
    return ops.cast(x, dtype=f32)


def narrow(x: Any) -> Any:
    return ops.cast(x, dtype=bf16)


def linear(x: Any, w: Any, b: Any) -> Any:
    """As under autocast: rounded once, behind the bias."""
    return narrow(dot(wide(x), wide(w)) + wide(b))


def read(program: Program) -> list[tuple[str, str]]:
    """The types of each product's operands."""
    found = (k.template for k in cases.kernels(program))
    return [(t.left.dtype.name, t.right.dtype.name) for t in found if isinstance(t, Product)]


def mlp(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    return linear(ops.tanh(linear(x, w, b)), v, c)


MLP = ((bf16, (6, 8)), (bf16, (10, 8)), (bf16, (10,)), (bf16, (4, 10)), (bf16, (4,)))


@pytest.mark.parametrize("machine", (GPU, HALVES), ids=("gpu", "cpu with halves"))
def test_the_halves_are_read_and_nothing_else_is_kept(machine: Machine) -> None:
    program = check(build(mlp, *MLP), machine=machine)
    assert read(program) == [("bf16", "bf16")] * 2
    kept = {p.dtype.name for k in cases.kernels(program) for p in k.params}
    assert kept == {"bf16"} and len(program.steps) == 2


def test_where_a_machine_has_no_such_units_floats_are() -> None:
    assert set(read(check(build(mlp, *MLP)))) == {("f32", "f32")}


def test_an_operand_that_is_read_as_a_float_too() -> None:
    """Its cast goes into the epilogue that makes it, for the residual."""
    def residual(x, w, b, v, r):
        y = wide(linear(x, w, b))
        return y + r, dot(y, wide(v))

    shapes = ((bf16, (6, 8)), (bf16, (10, 8)), (bf16, (10,)), (bf16, (4, 10)), (6, 10))
    program = check(build(residual, *shapes), machine=GPU)
    assert read(program) == [("bf16", "bf16")] * 2
    first = cases.kernels(program)[0]
    assert [p.dtype.name for p in first.params if p.access == "out"] == ["bf16", "f32"]


@pytest.mark.parametrize("machine", (GPU, CPU), ids=("gpu", "cpu"))
def test_what_is_read_as_floats_elsewhere_is_stored_as_halves(machine: Machine) -> None:
    """A product's own result, and what a kernel of sums keeps for another one."""
    def normed(x, w, g):
        y = wide(narrow(dot(x, w)))
        centred = y - cases.total(y, (0,), keepdim=True) / 40.0
        scaled = wide(narrow(centred * g * ops.exp(y)))
        mean = cases.total(scaled, (0,), keepdim=True)
        return narrow(scaled - mean), narrow(centred * mean)

    program = check(build(normed, (40, 6), (8, 6), (1, 8)), machine=machine)
    large = [p for k in cases.kernels(program) for p in k.params if p.size == 320]
    assert len(large) > 3
    assert all(p.dtype is bf16 for p in large if p.access != "scratch")


@pytest.mark.parametrize(("left", "right"), [(bf16, f32), (f16, bf16), (f32, f16)])
def test_operands_of_two_types_are_floats(left: dtypes.DType, right: dtypes.DType) -> None:
    def mixed(x, w):
        return dot(*(x if x.dtype is f32 else wide(x) for x in (x, w)))

    program = check(build(mixed, (left, (6, 8)), (right, (10, 8))), machine=GPU)
    assert read(program) == [("f32", "f32")]


def test_what_has_to_be_copied_is_copied_as_halves() -> None:
    def over_time(x, g):
        return ops.dot_general(
            wide(x), wide(g), batch_a=(), batch_b=(), contract_a=(0, 2), contract_b=(0, 2)
        )

    program = check(build(over_time, (bf16, (3, 8, 5)), (bf16, (3, 4, 5))), machine=GPU)
    assert read(program) == [("bf16", "bf16")]
    assert {p.dtype.name for k in cases.kernels(program) for p in k.params[:-1]} == {"bf16"}


def test_convolutions_read_halves_where_their_channels_are_last() -> None:
    attrs = {"stride": (1,), "pad_low": (1,), "pad_high": (1,), "dilation": (1,), "groups": 1}

    def layer(x, w, b):
        y = ops.conv(wide(x), wide(w), **attrs)
        return ops.relu(narrow(y + ops.reshape(wide(b), shape=(1, w.shape[0], 1))))

    def two(x, w, b, v, c):
        return layer(layer(x, narrow(w), b), narrow(v), c)

    graph = build(two, (bf16, (2, 8, 7)), (16, 8, 3), (bf16, (16,)), (24, 16, 3), (bf16, (24,)))
    program = check(layout(graph, GPU), machine=GPU)
    found = [k.template for k in cases.kernels(program) if isinstance(k.template, Convolution)]
    assert [t.left.dtype.name + t.right.dtype.name for t in found] == ["bf16bf16"] * 2


def drawn(seed: int) -> tuple[Any, list[Any]]:
    """A function of products, casts, moves and sums in any order, and its inputs."""
    rng = random.Random(seed)
    kind = rng.choice((bf16, f16))
    steps = [(rng.choice("dddmcars"), rng.random(), rng.random()) for _ in range(8)]

    def function(*inputs: Any) -> Any:
        values = list(inputs)
        for step, first, second in steps:
            x, y = (values[int(each * len(values))] for each in (first, second))
            if step == "d":
                values.append(dot(wide(x) if x.dtype is not f32 else x,
                                  wide(y) if y.dtype is not f32 else y) * 0.125)
            elif step == "m":
                values.append(ops.permute(x, dims=(1, 0)))
            elif step == "c":
                values.append(ops.cast(x, dtype=kind if x.dtype is f32 else f32))
            elif step == "a":
                values.append(x + (y if y.dtype is x.dtype else ops.cast(y, dtype=x.dtype)))
            elif step == "r":
                values.append(ops.relu(x))
            else:
                total = ops.sum(x, dims=(1,), keepdim=True)
                values.append(ops.expand(total * 0.25, shape=x.shape))
        return tuple(values[-rng.randint(1, 3):])

    return function, [(kind, (6, 6)), (kind, (6, 6)), (6, 6)]


@pytest.mark.parametrize("seed", range(60))
def test_drawn_graphs(seed: int) -> None:
    function, inputs = drawn(seed)
    check(build(function, *inputs), machine=GPU if seed % 2 else HALVES)


@pytest.mark.parametrize("half", [f16, bf16], ids=lambda d: d.name)
def test_gradients_of_depthwise_weights_are_sums_of_floats_on_cpus(half: dtypes.DType) -> None:
    window = {"stride": (1, 1), "pad_low": (1, 1), "pad_high": (1, 1), "dilation": (1, 1)}

    def gradient(x: Any, g: Any) -> Any:
        return ops.conv_weight_grad(x, g, weight_shape=(6, 1, 3, 3), groups=6, **window)

    def found(machine: Machine) -> list[str]:
        graph = build(gradient, (half, (2, 6, 7, 8)), (half, (2, 6, 7, 8)))
        program = check(graph, machine=machine)
        made = [k.template for k in cases.kernels(program) if isinstance(k.template, Convolution)]
        return [t.left.dtype.name for t in made]

    assert found(HALVES) == found(CPU) == ["f32"]
    assert found(GPU) == [half.name]
