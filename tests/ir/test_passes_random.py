"""Random graphs and their gradients through the text form, every pass and the partition."""

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import autodiff, interpret, verify
from graphc.ir.graph import Graph
from graphc.ir.passes.cse import cse
from graphc.ir.passes.dce import dce
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.fold import fold
from graphc.ir.passes.partition import split
from graphc.ir.passes.simplify import simplify
from graphc.ir.text import parse_graph, print_graph
from tests.ir.random_graphs import Maker, random_graph


def joint_of(maker: Maker) -> tuple[Graph, int, int]:
    forward = maker.builder.build([v.node for v in maker.values[-4:]])
    return autodiff.joint_graph(forward), len(forward.inputs), len(forward.outputs)


def arrays_for(maker: Maker, graph: Graph, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = maker.arrays(seed)
    for node in graph.inputs[len(arrays) :]:
        shape = [graph.env.hint(size) for size in node.shape]
        arrays.append(np.asarray(rng.standard_normal(shape)).astype(node.dtype.numpy))
    return arrays


@pytest.mark.parametrize("seed", range(40))
def test_random_graph(seed: int) -> None:
    maker = random_graph(seed, 20, symbolic=seed % 3 == 0)
    graph, inputs, outputs = joint_of(maker)
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    arrays = arrays_for(maker, graph, seed)
    old = interpret.evaluate(graph, arrays, TABLE)
    result = graph
    for one in (decompose, lambda g: fold(g, TABLE), simplify, cse, dce):
        result = one(result)
        verify.verify(result, getattr(one, "__name__", "fold"))
    new = interpret.evaluate(result, arrays, TABLE)
    relative = 5e-2 if "f16[" in text else 1e-4
    for a, b in zip(old, new, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = a.astype(np.float64), b.astype(np.float64)
        scale = float(np.max(np.abs(a[np.isfinite(a)]), initial=1e-3))
        np.testing.assert_allclose(b, a, rtol=relative, atol=relative * scale, equal_nan=True)

    parts = split(result, inputs, outputs)
    verify.verify(parts.forward)
    verify.verify(parts.backward)
    first = interpret.evaluate(parts.forward, arrays[:inputs], TABLE)
    saved = [arrays[i] if kind == "input" else first[i] for kind, i in parts.saved]
    second = interpret.evaluate(
        parts.backward, [*saved, *arrays[inputs:]], TABLE, graph.env.hints
    )
    for a, b in zip(new, [*first[:outputs], *second], strict=True):
        np.testing.assert_array_equal(b.astype(np.float64), a.astype(np.float64))
