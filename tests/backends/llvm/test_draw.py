"""Draws as steps of a program: the NumPy backend's bits, without NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc import backends
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.draw import draw_of, draw_text
from graphc.backends.llvm.target import host_target
from graphc.backends.numpy import random as reference
from graphc.backends.numpy.ops import TABLE
from graphc.config import current
from graphc.engine import pipeline
from graphc.engine.built import Engine
from graphc.ir import dtypes
from graphc.ir.dim import DimEnv
from graphc.ir.graph import Builder, Graph
from graphc.ir.kernel import Routine, leaves
from graphc.ir.op import get
from graphc.ir.types import TensorType

from .native import function_of

# around vectors, blocks of normal numbers, the words of a state, and what lies on the stack
COUNTS = (0, 1, 3, 15, 16, 17, 33, 623, 625, 1023, 1025, 4099)


def cases(name: str) -> list[dict[str, Any]]:
    if name == "rng_permutation":
        return [{"n": count} for count in COUNTS]
    shapes = [{"shape": (count,)} for count in COUNTS]
    if name in ("rng_words", "rng_normal_pairs"):
        return shapes
    if name == "rng_randint":
        return [{**shape, "low": low, "high": high, "dtype": dtypes.i64} for shape in shapes
                for low, high in ((0, 10), (-5, 2**40), (-(2**63), 2**63 - 1))]
    if name == "rng_bernoulli":
        kinds = (dtypes.bool_, dtypes.f32, dtypes.f64, dtypes.bf16, dtypes.f16, dtypes.i32)
        return [{**shape, "p": (0.0, 0.9, 0.5, 1.0)[i % 4], "dtype": kind}
                for shape in shapes for i, kind in enumerate(kinds)]
    return [{**shape, "dtype": kind} for shape in shapes for kind in (dtypes.f32, dtypes.f64)]


NAMES = (
    "rng_uniform", "rng_normal", "rng_exponential", "rng_bernoulli", "rng_randint",
    "rng_permutation", "rng_words", "rng_normal_pairs",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_code_draws_the_same_bits(name: str) -> None:
    """One text for all sizes, called as a program calls it."""
    functions: dict[str, Any] = {}
    state = reference.seed_state(20261123)
    for case in cases(name):
        draw = draw_of(name, case)
        assert draw is not None
        if draw.kind not in functions:
            code = ObjectCache().compile(draw_text(draw.kind), host_target())
            symbol = f"graphc_draw_{draw.kind.replace('.', '_')}"
            functions[draw.kind] = function_of([code], symbol, host_target())
        values, after = TABLE[name](state, **case)
        out = np.full(values.size * values.itemsize + 16, 0xAB, np.uint8)
        mine = np.zeros(626, np.int64)
        first, second = (*draw.numbers, 0, 0)[:2]
        functions[draw.kind](
            state.ctypes.data, out.ctypes.data, mine.ctypes.data, values.size,
            first % 2**64, second % 2**64,
        )
        assert out[: values.nbytes].tobytes() == values.tobytes(), case
        assert (out[values.nbytes :] == 0xAB).all(), "nothing behind the values is written"
        assert mine.tobytes() == after.tobytes(), case
        state = after  # another position each time


def graph_of(name: str, attrs: dict[str, Any], env: DimEnv | None = None) -> Graph:
    builder = Builder(env or DimEnv())
    state = builder.input(TensorType(dtypes.i64, (626,)), "state")
    node = builder.emit(get(name), state, **attrs)
    values, after = builder.results(node)
    return Graph("drawn", (state,), (values, after), builder.env)


def test_a_program_that_draws_calls_nobody() -> None:
    graph = graph_of("rng_bernoulli", {"shape": (5, 7), "p": 0.9, "dtype": dtypes.f32})
    built = pipeline.build(graph, config=current(), mutated={1: 0})
    (step,) = [s for s in leaves(built.program.steps) if isinstance(s, Routine)]
    assert step.claimed
    state = reference.seed_state(3)
    values, after = TABLE["rng_bernoulli"](state, shape=(5, 7), p=0.9, dtype=dtypes.f32)
    _, (found, written) = Engine.of(built, {1: 0}).call([state], {})
    assert found.tobytes() == values.tobytes() and found.shape == (5, 7)
    assert written is state and state.tobytes() == after.tobytes()


def test_symbolic_sizes() -> None:
    env = DimEnv()
    rows = env.new("rows", 3)
    builder = Builder(env)
    state = builder.input(TensorType(dtypes.i64, (626,)), "state")
    like = builder.input(TensorType(dtypes.f32, (rows, 5)), "like")
    node = builder.emit(get("rng_normal"), state, shape=(rows, 5), dtype=dtypes.f32)
    values, _ = builder.results(node)
    graph = Graph("drawn", (state, like), (builder.emit(get("add"), values, like),), env)
    engine = Engine.of(pipeline.build(graph, config=current()))
    for count in (2, 3, 40):
        given = reference.seed_state(count)
        _, (found,) = engine.call(
            [given, np.zeros((count, 5), np.float32)], {"rows": count}
        )
        right, _ = TABLE["rng_normal"](given, shape=(count, 5), dtype=dtypes.f32)
        assert found.tobytes() == (right + np.float32(0)).tobytes()


@pytest.mark.parametrize("position", [625, -1, 2**40])
def test_a_position_outside_of_the_words_is_not_followed(position: int) -> None:
    graph = graph_of("rng_uniform", {"shape": (4,), "dtype": dtypes.f32})
    state = reference.seed_state(1)
    right, _ = TABLE["rng_uniform"](state, shape=(4,), dtype=dtypes.f32)
    state[624] = position
    _, (found, after) = Engine.of(pipeline.build(graph, config=current())).call([state], {})
    assert found.tobytes() == right.tobytes() and 0 <= after[624] <= 624


def test_what_has_no_code_is_the_hosts() -> None:
    """A half draws as NumPy does; a step of the program says so."""
    graph = graph_of("rng_uniform", {"shape": (40,), "dtype": dtypes.bf16})
    built = pipeline.build(graph, config=current())
    assert [s.claimed for s in leaves(built.program.steps) if isinstance(s, Routine)] == [False]
    state = reference.seed_state(1)
    right, _ = TABLE["rng_uniform"](state, shape=(40,), dtype=dtypes.bf16)
    _, (found, _) = Engine.of(built).call([state], {})
    assert found.tobytes() == right.tobytes()


def test_programs_that_draw_are_kept(tmp_path: Any) -> None:
    """An earlier process's code, linked for any address, draws the same."""
    graph = graph_of("rng_normal", {"shape": (50,), "dtype": dtypes.f64})
    settings = current()._replace(cache_dir=tmp_path)
    state = reference.seed_state(9)
    right, _ = TABLE["rng_normal"](state, shape=(50,), dtype=dtypes.f64)
    for kept in (False, True):
        built = pipeline.build(graph, config=settings)
        assert ("kept" in built.times) is kept or not _keeps()
        _, (found, _) = Engine.of(built).call([state], {})
        assert found.tobytes() == right.tobytes()


def _keeps() -> bool:
    return getattr(backends.get("llvm"), "keeper", lambda host: None)(
        pipeline.host(current())
    ) is not None
