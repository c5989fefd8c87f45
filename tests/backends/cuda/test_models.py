"""Whole training steps: the kernels of the benchmark models compile, and steps of small ones run on
the emulator as they do on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest

import graphc
from benchmarks import models
from graphc import backends
from graphc.backends import Host
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import Schedule
from graphc.backends.cuda.loops import plan
from graphc.backends.cuda.source import Source, batch
from graphc.backends.host.memory import HOST
from graphc.ir.kernel import Kernel, Launch, Program, leaves
from graphc.ir.kernel.text import kernel_symbol

from . import needs
from .emulated import NAME, EmulatedBackend

SPACE = models.load("graphc")


class Collected(Exception):
    """Instead of code: the program is all that was wanted."""


class Collecting(CudaBackend):
    """Keeps the kernels of what it is given."""

    memory = HOST  # type: ignore[assignment]
    kernels: dict[str, Kernel]

    def build(self, program: Program, host: Host) -> NoReturn:
        launches = [step for step in leaves(program.steps) if isinstance(step, Launch)]
        self.kernels = {kernel_symbol(s.kernel): s.kernel for s in launches}
        raise Collected


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict[str, Kernel]]:
    """By model and symbol, of its whole training step."""
    collecting = Collecting()
    backends.register("collecting cuda", lambda: collecting, ("debug",))
    found = {}
    for name in models.NAMES:
        model, optimizer = models.make(SPACE, name)
        step = graphc.compile(
            models.training_step(SPACE, model, optimizer), backend="collecting cuda",
            fullgraph=True,
        )
        with pytest.raises(Collected):
            step(*map(graphc.tensor, models.batch(name)))
        found[name] = collecting.kernels
    return found


@pytest.fixture(scope="module")
def sources(kernels: dict[str, dict[str, Kernel]]) -> dict[str, dict[str, Source]]:
    """What is emitted for them."""
    return {
        model: {symbol: emit(kernel) for symbol, kernel in each.items()}
        for model, each in kernels.items()
    }


def test_how_the_kernels_are_shared_out_to_threads(
    kernels: dict[str, dict[str, Kernel]], golden: Callable[[str, str], None]
) -> None:
    """A kernel a line: each stage's mapping."""
    lines = []
    for model, each in kernels.items():
        lines.append(f"{model}\n")
        lines += [
            f"  {kernel.name}: {'; '.join(map(str, plan(kernel)))}\n"
            for kernel in each.values() if kernel.template is None
        ]
    golden("cuda/mappings.txt", "".join(lines))


@pytest.mark.parametrize("architecture", (pytest.param("sm_80", marks=pytest.mark.slow), "sm_90"))
def test_every_kernel_of_the_benchmark_models_compiles(
    architecture: str, sources: dict[str, dict[str, Source]], golden: Callable[[str, str], None],
) -> None:
    """What they use is recorded; a kernel that spills fails."""
    nvrtc = needs.compiler(12)
    distinct = {symbol: s for each in sources.values() for symbol, s in each.items()}
    uses = nvrtc.compile(batch(distinct.values()), architecture).uses
    lines = []
    for model, kernels in sources.items():
        functions = [stage.name for s in kernels.values() for stage in s.stages]
        registers = sorted(uses[name].registers for name in functions)
        stack = max(uses[name].stack for name in functions)
        assert [name for name in functions if uses[name].spilled] == []
        lines.append(
            f"{model}: {len(kernels)} kernels, {len(functions)} functions; registers at most "
            f"{registers[-1]}, half of them at most {registers[len(registers) // 2]}; "
            f"stack at most {stack} bytes; none spills\n"
        )
    if nvrtc.version == (12, 9):  # other releases give other numbers
        golden(f"cuda/models_{architecture}.txt", "".join(lines))


Trained = tuple[Any, Any, np.ndarray, np.ndarray]  # model, optimizer, inputs, targets


def gpt() -> Trained:
    model = SPACE.GPT(vocab=17, context=8, dim=16, heads=2, layers=1)
    tokens = np.random.default_rng(0).integers(0, 17, (2, 9))
    optimizer = graphc.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, tokens[:, :-1].copy(), tokens[:, 1:].copy()


def lenet() -> Trained:
    model = SPACE.LeNet()
    images, labels = models.batch("lenet")
    return model, graphc.optim.Adam(model.parameters(), lr=1e-3), images[:2], labels[:2]


class Residual(SPACE.nn.Module):
    """A convolution, batch norm, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SPACE.nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.norm = SPACE.nn.BatchNorm2d(8)
        self.linear = SPACE.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        y = y + SPACE.F.relu(self.norm(y))
        return self.linear(y.mean((2, 3)))


def residual() -> Trained:
    model = Residual()
    rng = np.random.default_rng(0)
    optimizer = graphc.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, rng.standard_normal((3, 3, 9, 9), "f4"), rng.integers(0, 5, 3)


def losses(make: Callable[[], Trained], backend: str) -> list[float]:
    """Of three steps."""
    graphc.manual_seed(0)
    model, optimizer, x, y = make()
    step = graphc.compile(
        models.training_step(SPACE, model, optimizer), backend=backend, fullgraph=True
    )
    inputs = graphc.tensor(x), graphc.tensor(y)
    return [step(*inputs).item() for _ in range(3)]


@pytest.mark.parametrize("make", (gpt, lenet, residual))
@pytest.mark.filterwarnings("ignore:compiled .* does not pay")
def test_training_steps_on_the_emulator(
    make: Callable[[], Trained], emulated: EmulatedBackend
) -> None:
    want = losses(make, "llvm")
    for schedule in (Schedule(ahead=True, direction="descending"), Schedule(watch=True)):
        emulated.schedule = schedule
        np.testing.assert_allclose(losses(make, NAME), want, rtol=1e-4)
    assert want[2] < want[0]
