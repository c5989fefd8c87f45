"""Scratch memory of libraries whose free sizes have more values than could be planned each."""

from __future__ import annotations

import ctypes
import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc import backends
from graphc.export import Dim, ExportedProgram, ExportError, aot, export
from graphc.export.aot import compiled, intervals, scratch
from graphc.ir.kernel.blocking import Request, tiled

from . import client
from .client import Library
from .libraries import arrays, at_the_end, expected

MACHINE = backends.get(backends.DEFAULT).machine


def _request(draw: random.Random, batch: Any, m: Any, n: Any, k: Any) -> Request:
    flags = [draw.random() < 0.5 for _ in range(5)]
    return Request(
        batch, m, n, k, terms=k, left_direct=flags[0], right_direct=flags[1], segment=k,
        quantum=draw.choice([1, 8]), most_steps=draw.choice([64, 256]), dense=flags[2],
        panels=flags[3], window=flags[4], pack_scratch=draw.choice([0, 192]),
        pack_scratch_column=draw.choice([0, 80]), heads=draw.choice([0, 2]),
    )


def test_plans_on_intervals_hold_those_of_their_values() -> None:
    draw = random.Random(7)
    for _ in range(250):
        ends = [
            sorted(max(1, round(2 ** draw.uniform(0, 13))) for _ in range(2)) for _ in range(4)
        ]
        state = draw.getstate()
        bounded = tiled(_request(draw, *(intervals.interval(*each) for each in ends)), MACHINE, 4)
        for _ in range(4):
            point = [draw.choice([low, high, draw.randint(low, high)]) for low, high in ends]
            after, _ = draw.getstate(), draw.setstate(state)
            plan = tiled(_request(draw, *point), MACHINE, 4)
            draw.setstate(after)
            for name in type(plan).__match_args__:
                one, all_ = getattr(plan, name), getattr(bounded, name)
                if isinstance(all_, (bool, intervals.Either)):
                    assert all_ is intervals.EITHER or all_ == one, name
                else:
                    assert intervals.low(all_) <= one <= intervals.high(all_), name


def test_what_hangs_on_the_number_is_not_decided() -> None:
    some = intervals.interval(2, 5)
    assert intervals.interval(3, 3) == 3 and (some > 1) is True and (some == 6) is False
    for undecided in (lambda: bool(some > 3), lambda: 7 // (some - 2), lambda: range(some)):
        with pytest.raises(intervals.Undecided):
            undecided()
    assert repr(some % 3) == "0..2" and repr(some % 8) == "2..5" and repr(10 - some) == "5..8"


class _Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 40), nn.Linear(40, 16)

    def forward(self, x: Any) -> Any:
        x = self.down(self.up(x).relu())
        return x @ x.transpose(1, 2)


@functools.cache
def _program() -> ExportedProgram:
    torch.manual_seed(0)
    return export(_Perceptron().eval(), (torch.randn(2, 2, 16),), dynamic_shapes={
        "x": {0: Dim("batch", min=1), 1: Dim("length", min=1)},
    })


def test_many_values(tmp_path: Path) -> None:
    """Four million of them: calls stay in the memory that the library says it needs."""
    program, many = _program(), {"batch": 2000, "length": 2000}
    library = Library(aot(program, tmp_path, name="many", sizes=many).library, "many")
    sizes = (ctypes.c_int64 * 2)(40, 300)
    for threads in (1, 2):
        options = client.Options(abi=1, threads=threads, sizes=sizes)
        needed = library.bytes(ctypes.byref(options))
        room, kept = at_the_end(np.full(-(-needed // 64) * 64, 0xFF, np.uint8))
        context = library.context(
            threads=threads, sizes=(40, 300), memory=room.ctypes.data, memory_bytes=room.nbytes
        )
        for size in ((1, 1), (2, 300), (40, 5), (1, 257)):
            x = torch.randn(*size, 16)
            found, = context(*arrays((x,)))
            np.testing.assert_allclose(found, expected(program(x))[0], rtol=1e-4, atol=1e-4)
        context.close()
        del room, kept


@pytest.mark.parametrize("ranges", [(3, 250), (250, 3), (17, 30)])
def test_near_to_what_is_needed(
    ranges: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[Any, Any]] = []

    def both(*given: Any) -> Any:
        several = []
        for few in (0, 1 << 20):
            monkeypatch.setattr(scratch, "FEW", few)
            several.append(scratch.scratch(*given))
        found.append(tuple(several))
        return several[0]

    monkeypatch.setattr(compiled, "scratch", both)
    aot(_program(), tmp_path, name="m", sizes=dict(zip(("batch", "length"), ranges, strict=True)))
    assert len(found) == 4  # sizes of 1 have programs of their own
    for bounded, exact in found:
        assert all(needed <= most for needed, most in zip(exact, bounded, strict=True))
        assert bounded[0] <= exact[0] * scratch.NEAR and bounded[-1] <= exact[-1] * 2.5


def test_too_many_to_find_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_covered", lambda *_: None)
    with pytest.raises(ExportError, match=r"too many values.*dot_general.*Cure: aot\(..., sizes"):
        aot(_program(), tmp_path, name="m", sizes={"batch": 2000, "length": 2000})
    assert not list(tmp_path.iterdir())
