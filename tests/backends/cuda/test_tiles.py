"""What is walked across goes through tiles in shared memory: every order of axes, element size and
length gives what NumPy gives; no thread meets another in a bank, and none races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.cuda.emulator import Schedule
from graphc.backends.cuda.loops import plan
from graphc.backends.cuda.loops.tiles import Tile
from graphc.ir.kernel.text import parse_kernel

from .emulated import NAME, EmulatedBackend

Function = Callable[..., Any]
SCHEDULES = (Schedule(ahead=True, direction="descending"), Schedule(watch=True))


def tensor(shape: tuple[int, ...], dtype: str, seed: int = 0) -> graphc.Tensor:
    made = np.random.default_rng(seed).integers(-9, 9, shape)
    return graphc.tensor(made.astype("float64")).to(getattr(graphc, dtype))


def held(
    emulated: EmulatedBackend, function: Function, *inputs: graphc.Tensor
) -> dict[str, str]:
    """Holds the compiled function to the eager one; how its stages are shared out, by the names
    and sizes of their kernels."""
    want = function(*inputs)
    compiled = graphc.compile(function, backend=NAME, fullgraph=True)
    emulated.worst = 0
    known = set(emulated.kernels)
    for schedule in SCHEDULES:
        emulated.schedule = schedule
        for found, wanted in zip(compiled(*inputs), want, strict=True):
            np.testing.assert_array_equal(_array(found), _array(wanted))
    assert emulated.worst <= 1
    new = [kernel for symbol, kernel in emulated.kernels.items() if symbol not in known]
    return {f"{k.name} {k.params[0].size}": "; ".join(map(str, plan(k))) for k in new}


def _array(x: graphc.Tensor) -> np.ndarray:
    return (x.float() if x.dtype == graphc.bfloat16 else x).numpy()


ORDERS = (
    ((70, 45), (1, 0)),
    ((64, 128), (1, 0)),  # whole tiles
    ((3, 33, 65), (0, 2, 1)),
    ((20, 18, 40), (2, 1, 0)),
    ((2, 24, 7, 9), (0, 2, 3, 1)),
    ((2, 9, 9, 24), (0, 3, 1, 2)),
    ((1100, 20), (1, 0)),  # rows that several blocks share
    ((2, 1050, 20), (0, 2, 1)),
)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float64", "int8"))
def test_permuted_copies(dtype: str, emulated: EmulatedBackend) -> None:
    orders = ORDERS if dtype == "float32" else ORDERS[:3]

    def turned(*inputs: graphc.Tensor) -> tuple[graphc.Tensor, ...]:
        pairs = zip(inputs, orders, strict=True)
        return tuple(x.permute(dims).contiguous() for x, (_, dims) in pairs)

    inputs = [tensor(shape, dtype, n) for n, (shape, _) in enumerate(orders)]
    ways = held(emulated, turned, *inputs)
    assert len(ways) == len(orders) and all("tiles of" in way for way in ways.values()), ways
    side = {"float32": 32, "float64": 32, "bfloat16": 64, "int8": 128}[dtype]
    assert f"tiles of {side} x {side} along" in ways["permute 8192"]


FUSED: tuple[tuple[Function, tuple[tuple[int, ...], ...]], ...] = (
    (lambda x, y: x.transpose(0, 1) + y, ((40, 70), (70, 40))),
    (lambda x, y: (x * y).transpose(0, 1).contiguous(), ((41, 70), (41, 70))),
    (lambda x, y: (x.transpose(0, 1) * 2 + y).contiguous(), ((42, 70), (42,))),
    (lambda x, y: (x.transpose(0, 1) * 2 + y).contiguous(), ((43, 70), (70, 1))),
    (lambda x, y: x.t().contiguous().to(graphc.bfloat16) * y[0, 0], ((64, 66), (1, 1))),
    (lambda x, y: x.permute(2, 0, 1) + y.permute(1, 2, 0), ((20, 30, 40), (30, 40, 20))),
    (lambda x, y: graphc.nn.functional.pad(x.t() + 1, (3, 2)) + y, ((45, 33), (33, 50))),
    (lambda x, y: (x[3:, 1::2].t() * y).contiguous(), ((46, 81), (40, 43))),
    (lambda x, y: (x > y).t().contiguous(), ((128, 132), (128, 132))),
)


def test_what_is_computed_between(emulated: EmulatedBackend) -> None:
    def computed(*inputs: graphc.Tensor) -> tuple[graphc.Tensor, ...]:
        pairs = zip(inputs[::2], inputs[1::2], strict=True)
        return tuple(f(x, y) for (f, _), (x, y) in zip(FUSED, pairs, strict=True))

    shapes = [shape for _, each in FUSED for shape in each]
    ways = held(emulated, computed, *(tensor(s, "float32", n) for n, s in enumerate(shapes)))
    assert [name for name, way in ways.items() if "tiles of" not in way] == []


def test_symbolic_sizes(emulated: EmulatedBackend) -> None:
    """One kernel for every size."""

    def turned(x: graphc.Tensor) -> graphc.Tensor:
        return x.transpose(1, 2).contiguous() * 2

    compiled = graphc.compile(turned, backend=NAME, fullgraph=True, dynamic=True)
    for shape in ((2, 40, 50), (3, 17, 65), (1, 2, 3), (2, 33, 1100), (2, 1, 40)):
        x = tensor(shape, "float32")
        for emulated.schedule in SCHEDULES:
            np.testing.assert_array_equal(compiled(x).numpy(), turned(x).numpy())
    assert any("tiles of" in str(m) for k in emulated.kernels.values() for m in plan(k) if k.dims)


def tile_of(text: str) -> Tile | None:
    (mapping,) = plan(parse_kernel(text))
    return mapping.tile


COPY = """kernel copy(a: f32[4096] in, i: i64[64] in, o: f32[4096] inout) dims () {{
  stage {{ parallel p in [64] chunk [1] {{ vector v in [64] {{ {} }} }} }} }}"""


def test_what_is_no_tile() -> None:
    """Where to load has to be known before anything is loaded, or stored."""
    assert tile_of(COPY.format("store o[64*p + v] = a[p + 64*v]")) is not None
    for body in (
        "store o[64*p + v] = a[64*p + v]",
        "store o[p + 64*v] = add.f32(o[p + 64*v], 1.0:f32)\n store o[p + 64*v] = 2.0:f32",
        "t = i[v]\n store o[64*p + v] = a[p + 64*t]",
        "store o[64*p + v] = o[p + 64*v]",
        "store o[p + 64*v] add= a[64*p + v]",
    ):
        assert tile_of(COPY.format(body)) is None, body
