"""Convolutions rendered as CUDA C: on the emulator as they are meant, their cubins."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Schedule
from graphc.backends.cuda.machine import GPU
from graphc.backends.cuda.source import Target
from graphc.backends.cuda.templates import renders
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.dim import evaluate
from graphc.ir.graph import Builder, Expr
from graphc.ir.kernel import Convolution, Kernel
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.layout import layout
from graphc.ir.passes.lower import lower
from graphc.ir.passes.plan import plan
from graphc.ir.types import TensorType
from tests.ir.kernel_cases import kernels

from . import needs
from .emulated import EmulatedBackend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
SCHEDULES = (ALL[-2], Schedule(watch=True))  # test_product has them all for the frame
TOLERANCE = {"bf16": 1.6e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-13}


class Case(NamedTuple):
    """A convolution and its gradients. `sizes` of the input; one entry of the others for each."""

    dtype: str
    channels: int
    filters: int
    sizes: tuple[int, ...]
    window: tuple[int, ...]
    stride: int = 1
    low: int = 0
    high: int = 0
    dilation: int = 1
    groups: int = 1
    batch: Any = 2
    tf32: bool = False

    def kernels(self) -> list[Kernel]:
        """As they are lowered, with what a network has around them."""
        builder, dtype = Builder(), getattr(dtypes, self.dtype)
        batch = builder.env.new("batch", 2) if self.batch is None else self.batch
        rank = len(self.sizes)

        def value(*shape: Any) -> Expr:
            return Expr(builder, builder.input(TensorType(dtype, shape)))

        x = value(batch, self.channels, *self.sizes)
        w = value(self.filters, self.channels // self.groups, *self.window)
        attrs = {
            "stride": (self.stride,) * rank, "pad_low": (self.low,) * rank,
            "pad_high": (self.high,) * rank, "dilation": (self.dilation,) * rank,
            "groups": self.groups, **({"tf32": True} if self.tf32 else {}),
        }
        y = ops.conv(ops.relu(x), w, **attrs)
        bias = ops.reshape(value(self.filters), shape=(1, self.filters, *(1,) * rank))
        g = ops.relu(value(*y.shape))
        outputs = [
            ops.relu(y + bias),
            ops.conv_input_grad(g, w, input_shape=x.shape, **attrs) * x,
            ops.conv_weight_grad(ops.relu(x), g, weight_shape=w.shape, **attrs),
        ]
        graph = fuse(layout(builder.build([o.node for o in outputs]), GPU), GPU)
        found = kernels(plan(graph, lower(graph, GPU, renders), GPU))
        return [k for k in found if isinstance(k.template, Convolution)]


def check(
    kernel: Kernel, emulated: EmulatedBackend, schedule: Schedule, dims: dict[str, int],
    infinite: Sequence[int] = (),
) -> None:
    """A kernel's results on the emulator are those of its meaning. `infinite`: places of its left
    operand."""
    memory = {}
    for p in kernel.params:
        size = max(evaluate(p.size, dims), 1)
        values = RNG.standard_normal(size) if p.access == "in" else np.full(size, np.nan)
        memory[p.name] = values.astype(p.dtype.numpy)
    t = kernel.template
    assert isinstance(t, Convolution)
    memory[t.left.buffer][list(infinite)] = np.inf
    emulated.schedule = schedule
    got = {name: array.copy() for name, array in memory.items()}
    emulated.launch(kernel, list(got.values()), list(dims.values()))
    run_kernel(kernel, list(memory.values()), list(dims.values()), TABLE)
    scale = np.sqrt(max(evaluate(t.k, dims), 1))
    for p in kernel.params:
        if p.access != "in":
            error = TOLERANCE[t.left.dtype.name] * scale
            np.testing.assert_allclose(
                got[p.name].astype("f8"), memory[p.name].astype("f8"), rtol=error, atol=error,
                err_msg=f"{t.kind} {schedule}",
            )


CASES = [
    Case("f32", 8, 16, (7, 6), (3, 3), low=1, high=1, batch=5),
    Case("f32", 3, 16, (9, 9), (5, 5), stride=2, low=2, high=2),
    Case("f32", 10, 12, (8, 7), (3, 2), stride=2, low=1, dilation=2, batch=3),
    Case("f32", 16, 24, (6, 5), (1, 1)),
    Case("f32", 16, 24, (7, 5), (1, 1), stride=2),
    Case("f32", 16, 32, (6, 6), (3, 3), low=1, high=1, groups=2),
    Case("f32", 9, 8, (20,), (4,), stride=3, low=2, high=1),
    Case("f32", 8, 8, (4, 5, 3), (2, 3, 2), stride=2, low=1, high=1),
    Case("f32", 8, 8, (5, 5), (3, 3), low=1, high=1, batch=None),
    Case("bf16", 16, 24, (7, 6), (3, 3), stride=2, low=1, high=1),
    Case("bf16", 12, 70, (5, 5), (3, 3), low=1, high=1),
    Case("bf16", 16, 32, (6, 5), (1, 1), groups=2),
    Case("f16", 3, 8, (9, 9), (3, 3), stride=2),
    Case("f64", 8, 9, (5, 4), (3, 3), stride=2, low=1, high=1),
    Case("f32", 8, 8, (9, 9), (3, 3), stride=4, low=1, high=1, dilation=2),
    Case("f32", 16, 16, (13, 12), (3, 3), stride=2, low=1, high=1, groups=16, batch=9),
    Case("f32", 8, 16, (7,), (3,), low=1, high=1, groups=8, batch=None),
    Case("bf16", 12, 24, (4, 5, 3), (2, 2, 1), low=1, dilation=2, groups=4),
    Case("f32", 10, 12, (8, 7), (3, 2), stride=2, low=1, dilation=2, batch=3, tf32=True),
    Case("f32", 16, 24, (6, 5), (1, 1), groups=2, batch=None, tf32=True),
]


@pytest.fixture(scope="module")
def rendered(emulated: EmulatedBackend) -> dict[Case, list[Kernel]]:
    """All cases' kernels, to be compiled together."""
    found = {case: case.kernels() for case in CASES}
    for each in found.values():
        for kernel in each:
            emulated.add(kernel)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_convolution_and_its_gradients(
    case: Case, rendered: dict[Case, list[Kernel]], emulated: EmulatedBackend
) -> None:
    kinds = sorted(k.template.kind for k in rendered[case])
    assert kinds == ["conv", "conv_input_grad", "conv_weight_grad"]
    for kernel in rendered[case]:
        dims = dict.fromkeys(kernel.dims, 3)
        for schedule in SCHEDULES:
            check(kernel, emulated, schedule, dims)


@pytest.mark.parametrize("case", [CASES[n] for n in (0, 2, 5, 9, 13, 16, 18)], ids=str)
def test_infinite_weights_meet_no_padding(
    case: Case, rendered: dict[Case, list[Kernel]], emulated: EmulatedBackend
) -> None:
    """An input's gradient has no terms outside of the result's, which would be NaN."""
    (kernel,) = (k for k in rendered[case] if k.template.kind == "conv_input_grad")
    check(kernel, emulated, SCHEDULES[0], dict.fromkeys(kernel.dims, 3), infinite=(0, 8, 17))


LARGE = (
    Case("bf16", 256, 256, (14, 14), (3, 3), low=1, high=1, batch=64),
    Case("bf16", 64, 64, (56, 56), (3, 3), low=1, high=1, groups=64, batch=64),
)


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES[::2])
def test_registers(architecture: str, golden: Callable[[str, str], None]) -> None:
    """What convolutions of 16-bit floats use is recorded; one that spills fails."""
    nvrtc = needs.compiler(12)
    lines = []
    for case in LARGE:
        for kernel in case.kernels():
            source = emit(kernel, Target(architecture))
            compiled = nvrtc.compile(source.text, architecture)
            assert not compiled.losses, (case, compiled.losses)
            uses = compiled.uses
            assert all(use.spilled == 0 for use in uses.values()), case
            registers = ", ".join(f"{uses[stage.name].registers}" for stage in source.stages)
            lines.append(
                f"{kernel.template.kind} {case.channels} to {case.filters}, "
                f"{'x'.join(map(str, case.window))}, groups {case.groups}: registers {registers}; "
                f"{source.stages[0].shared} bytes shared\n"
            )
    if nvrtc.version == (12, 9):
        golden(f"cuda/convolutions_{architecture}.txt", "".join(lines))


def drawn(seed: int) -> Case:
    """A random one, whose window fits its input."""
    rng = random.Random(seed)
    rank = rng.choice([1, 2, 2, 3])
    groups = rng.choice([1, 1, 1, 2, 3, 8])
    channels = groups * rng.choice([1, 2, 3, 8, 9, 20])
    filters = groups * rng.choice([1, 2, 5, 8, 17])
    window = tuple(rng.randint(1, 4) for _ in range(rank))
    dilation, low, high = rng.randint(1, 3), rng.randint(0, 2), rng.randint(0, 2)
    sizes = tuple(
        max((k - 1) * dilation + 1 - low - high, 1) + rng.randint(0, 5) for k in window
    )
    dtype = rng.choice(["f32", "f32", "bf16", "f16", "f64"])
    return Case(
        dtype, channels, filters, sizes, window, rng.randint(1, 4), low, high, dilation, groups,
        rng.choice([1, 2, 5, None]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_convolutions(seed: int, emulated: EmulatedBackend) -> None:
    for kernel in drawn(seed).kernels():
        infinite = (0, -1) if seed % 2 else ()
        check(kernel, emulated, ALL[-2], dict.fromkeys(kernel.dims, 3), infinite)
