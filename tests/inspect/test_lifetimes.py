"""Who lives in an arena: from the step that writes a value to the last that reads it."""

from __future__ import annotations

from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.inspect.lifetimes import lifetimes, live
from graphc.inspect.memory import fullest
from graphc.ir import dtypes
from graphc.ir.dim import Size, parse
from graphc.ir.kernel import BufferRef, Launch, Program, Repeat, Routine, leaves
from graphc.ir.types import TensorType

F32 = TensorType(dtypes.f32, (16,))  # 64 bytes


def step(name: str, reads: list[Size], writes: list[Size]) -> Routine:
    def at(offset: Size) -> BufferRef:
        return BufferRef("arena", offset=offset)

    return Routine(
        name, (), tuple(map(at, reads)), (F32,) * len(reads), tuple(map(at, writes)),
        (F32,) * len(writes),
    )


def program(*steps: Any, size: int = 1024) -> Program:
    return Program("p", (), (), (), (), tuple(steps), size)


def spans(found: Any) -> list[tuple[int, int, int]]:
    return [(each.start, each.first, each.last) for each in found]


def test_from_the_first_write_to_the_last_read() -> None:
    found = lifetimes(program(
        step("a", [], [0]), step("b", [0], [64]), step("c", [0], [128]), step("d", [128], [0]),
        step("e", [0, 64], []),
    ), {})
    assert spans(found) == [(0, 0, 2), (64, 1, 4), (128, 2, 3), (0, 3, 4)]
    assert live(found, 5) == [64, 128, 192, 192, 128]


def test_what_a_loop_reads_lives_as_long_as_it() -> None:
    i = parse("i")
    found = lifetimes(program(
        step("before", [], [0]),
        Repeat("i", (step("x", [0], [64]), step("y", [64], [128 + 64 * i])), 4),
        step("after", [192], []),
    ), {})
    rows = next(each for each in found if each.start == 128)
    assert (rows.size, rows.first, rows.last) == (256, 1, 3)  # all rows, for the whole loop
    assert spans(found)[0] == (0, 0, 2)
    assert (64, 1, 2) in spans(found)


def test_what_one_iteration_leaves_to_the_next_lives_as_long_as_the_loop() -> None:
    found = lifetimes(program(
        Repeat("i", (step("use", [0], []), step("idle", [], []), step("make", [], [0])), 3),
    ), {})
    assert spans(found)[0] == (0, 0, 2)


@pytest.mark.parametrize("kind", ["training", "lstm"])
def test_real_programs(kind: str) -> None:
    if kind == "lstm":
        with torch.no_grad():
            part = torch.explain(nn.LSTM(5, 5, 2), torch.ones(6, 2, 5)).parts[0]
    else:
        model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])

        def train(x: Any) -> Any:
            model.zero_grad()
            F.mse_loss(model(x), x).backward()

        part = torch.explain(train, torch.ones(64, 32)).parts[0]
    count = sum(1 for _ in leaves(part.built.program.steps))
    for each in part.lifetimes:
        assert 0 <= each.first <= each.last < count
        assert 0 <= each.start < each.stop <= part.arena
    in_use = part.in_use()
    assert 0 < max(in_use) <= part.arena
    if kind == "training":  # without loops both ways to look at it agree
        most = fullest(part.built.program, {})
        assert isinstance(most.step, Launch)
        steps = list(leaves(part.built.program.steps))
        number = next(i for i, each in enumerate(steps) if each is most.step)
        assert in_use[number] == max(in_use)
