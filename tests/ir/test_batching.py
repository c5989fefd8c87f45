"""Every operator's batching rule, and its gradient's, against one sample at a time."""

import itertools

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import batching_control, batching_rules, dtypes, interpret
from graphc.ir.batching import Batch, BatchValue, batch_graph
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.op import REGISTRY, OpError
from graphc.ir.types import TensorType
from tests import opinfo
from tests.ir.test_passes_all_ops import graph_of, values_for
from tests.opinfo import OPINFOS

assert batching_rules and batching_control  # the rules are registered by their import

SIZE = 3
NAMES = sorted(name for name in OPINFOS if REGISTRY[name].family != "random")


def variants(array: np.ndarray) -> np.ndarray:
    """Three values that an operator takes where it takes `array`."""
    if array.dtype.kind in "biu":
        rolled = [np.roll(array.reshape(-1), k).reshape(array.shape) for k in range(SIZE)]
        return np.stack(rolled)
    return np.stack([(array * factor).astype(array.dtype) for factor in (1.0, 0.5, 0.75)])


def check(name: str, graph: Graph, arrays: list[np.ndarray], flags: tuple[bool, ...]) -> None:
    batch = Batch(SIZE, None)
    wide, batched = batch_graph(graph, batch, flags)
    stacks = [variants(a) if flag else a for a, flag in zip(arrays, flags, strict=True)]
    try:
        got = interpret.evaluate(wide, stacks, TABLE)
        want = [
            interpret.evaluate(
                graph, [s[i] if f else s for s, f in zip(stacks, flags, strict=True)], TABLE
            )
            for i in range(SIZE)
        ]
    except (IndexError, RuntimeError, ValueError, np.linalg.LinAlgError):
        return  # a variant that the operator does not take
    for o, (value, is_batched) in enumerate(zip(got, batched, strict=True)):
        expected = np.stack([row[o] for row in want])
        if not is_batched:
            value = np.broadcast_to(value, expected.shape)
        assert value.shape == expected.shape, (name, flags)
        if value.dtype.kind in "fc":
            np.testing.assert_allclose(
                value, expected, rtol=1e-6, atol=1e-8, err_msg=f"{name} {flags}"
            )
        else:
            np.testing.assert_array_equal(value, expected, err_msg=f"{name} {flags}")


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_its_samples(name: str) -> None:
    info = OPINFOS[name]
    dtype = dtypes.f64 if dtypes.f64 in info.dtypes else info.dtypes[-1]
    for sample in opinfo.samples(info, dtype)[:3]:
        graph = graph_of(name, sample)
        arrays = values_for(graph, sample.arrays)
        count = len(arrays)
        choices = list(itertools.product((False, True), repeat=count))[1:]
        if len(choices) > 7:
            choices = [*choices[:3], *choices[-4:]]
        for flags in choices:
            check(name, graph, arrays, flags)


@pytest.mark.parametrize("randomness", ["error", "same", "different"])
def test_random_operators(randomness: str) -> None:
    builder = Builder()
    state = builder.input(TensorType(dtypes.i64, (626,)))
    x = builder.input(TensorType(dtypes.f32, (2,)))
    rng = REGISTRY["rng_uniform"]
    values, after = rng(Expr(builder, state), shape=(2,), dtype=dtypes.f32)
    graph = builder.build([(values + Expr(builder, x)).node, after.node])
    batch = Batch(SIZE, None, randomness)
    if randomness == "error":
        with pytest.raises(OpError, match="randomness"):
            batch_graph(graph, batch, (False, True))
        return
    wide, batched = batch_graph(graph, batch, (False, True))
    assert batched == [True, False]
    words = np.arange(626) % 1000
    words[624] = 624
    drawn, _ = interpret.evaluate(wide, [words, np.zeros((SIZE, 2), np.float32)], TABLE)
    assert (drawn[0] == drawn[1]).all() == (randomness == "same")


def test_what_is_the_same_for_all_is_computed_once() -> None:
    builder = Builder()
    a = Expr(builder, builder.input(TensorType(dtypes.f64, (4,))))
    b = Expr(builder, builder.input(TensorType(dtypes.f64, (4,))))
    exp = REGISTRY["exp"]
    graph = builder.build([(exp(a) * b).node])
    wide, _ = batch_graph(graph, Batch(SIZE, None), (False, True))
    (node,) = [n for n in wide.nodes if n.op.name == "exp"]
    assert node.shape == (4,)


def test_a_batch_value_says_its_samples_type() -> None:
    builder = Builder()
    node = builder.input(TensorType(dtypes.f64, (SIZE, 2)))
    value = BatchValue(Batch(SIZE, None), Expr(builder, node), True)
    assert value.type == TensorType(dtypes.f64, (2,)) and value.shape == (2,)
