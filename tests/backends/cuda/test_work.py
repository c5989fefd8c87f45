"""How the loop kernels of real models share out their work on a GPU, without running one: nothing
is done in series for long, what is large has blocks for every multiprocessor, and memory is read
about once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pytest

import graphc
from benchmarks import large, models
from graphc import backends
from graphc.backends import Host
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.machine import GPU
from graphc.backends.host.memory import HOST
from graphc.ir.kernel import Kernel, Program, Template
from tests.ir.work import Work, least, of_program

SPACE = models.load("graphc")
LARGE = large.load("graphc")

# Elements that one thread goes along, at most.
DEEPEST = GPU.lane_steps
# What is left to the kernels of positions that data decide.
ELSEWHERE = ("index_put", "scatter", "max_pool_grad")


class Collected(Exception):
    """Instead of code: the program is all that was wanted."""


class Collecting(CudaBackend):
    """Keeps the program. Templates stay: they are no loops."""

    memory = HOST  # type: ignore[assignment]
    program: Program

    def renders(self, template: Template) -> bool:
        return True

    def build(self, program: Program, host: Host) -> NoReturn:
        self.program = program
        raise Collected


COLLECTING = Collecting()
backends.register("programs for cuda", lambda: COLLECTING, ("debug",))


def program_of(step: Callable[..., Any], inputs: tuple[Any, ...]) -> Program:
    with pytest.raises(Collected):
        graphc.compile(step, backend="programs for cuda", fullgraph=True)(*inputs)
    return COLLECTING.program


def trained(model: Any, optimizer: Any, *inputs: np.ndarray) -> Program:
    """A step of a model that returns its loss, under autocast, on tensors of these sizes."""

    def step(*inputs: Any) -> Any:
        optimizer.zero_grad()
        with graphc.autocast("cpu", dtype=graphc.bfloat16):
            loss = model(*inputs)
        loss.backward()
        optimizer.step()
        return loss

    return program_of(step, tuple(map(graphc.tensor, inputs)))


def benchmark(name: str) -> Program:
    model, optimizer = models.make(SPACE, name)
    inputs = tuple(map(graphc.tensor, models.batch(name)))
    return program_of(models.training_step(SPACE, model, optimizer), inputs)


def gpt2_block() -> Program:
    """GPT-2's sizes, but for the number of layers and words."""
    model = LARGE.GPT2(vocab=8192, layers=1)
    tokens = np.zeros((8, 1024), np.int64)
    return trained(model, graphc.optim.AdamW(model.parameters()), tokens, tokens)


def resnet_blocks() -> Program:
    """A block of each width of ResNet-50."""
    model = LARGE.ResNet50(classes=10, layers=(1, 1, 1, 1))
    images, labels = np.zeros((64, 3, 224, 224), np.float32), np.zeros(64, np.int64)
    return trained(model, graphc.optim.SGD(model.parameters(), 0.1), images, labels)


def whole(name: str) -> Program:
    step, inputs = large.WORKS[name].make(LARGE, "cpu", False)
    return program_of(step, inputs)


PROGRAMS: Mapping[str, Callable[[], Program]] = {
    **{name: partial(benchmark, name) for name in models.NAMES},
    "gpt2 block": gpt2_block, "resnet blocks": resnet_blocks,
}


def loops(program: Program) -> list[tuple[Kernel, dict[str, int], list[Work]]]:
    return [found for found in of_program(program) if found[0].template is None]


def line(kernel: Kernel, works: list[Work]) -> str:
    stages = " | ".join(f"{w.blocks} x {w.lanes}, deep {w.depth}" for w in works)
    return f"{kernel.name}: {stages}"


def table(program: Program) -> str:
    """Launches and bytes, and the kernels that walk furthest: for people (pytest -s)."""
    found = loops(program)
    moved = sum(w.moved for _, _, works in found for w in works)
    once = sum(least(kernel, dims) for kernel, dims, _ in found)
    launches = sum(len(works) for _, _, works in found)
    counted = Counter(line(kernel, works) for kernel, _, works in found)
    deepest = sorted(found, key=lambda f: -max(w.depth for w in f[2]))
    rows = dict.fromkeys(line(kernel, works) for kernel, _, works in deepest)
    head = f"{len(found)} kernels, {launches} launches, {moved >> 20} MiB, {once >> 20} at least"
    return "\n".join((head, *(f"  {counted[row]} of {row}" for row in list(rows)[:8])))


def held(program: Program) -> None:
    """Raise where a kernel walks too far, or leaves multiprocessors idle."""
    for kernel, _, works in loops(program):
        if kernel.name.endswith(ELSEWHERE):
            continue
        for work in works:
            assert work.depth <= DEEPEST, line(kernel, works)
            if work.depth > GPU.piece_steps and work.moved >= 1 << 22:
                assert work.blocks >= GPU.parallelism // 2, line(kernel, works)


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_is_shared_out(name: str) -> None:
    program = PROGRAMS[name]()
    print(name, table(program))
    held(program)


@pytest.mark.slow
@pytest.mark.parametrize("name", large.WORKS)
def test_work_of_large_models_is_shared_out(name: str) -> None:
    program = whole(name)
    print(name, table(program))
    held(program)
