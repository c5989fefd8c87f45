"""Every operator's graph, with its gradient, through the text form, the verifier and the passes."""

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import autodiff, dtypes, interpret, verify
from graphc.ir.decomposition import decomposition_graph
from graphc.ir.graph import Builder, Graph
from graphc.ir.op import REGISTRY, get
from graphc.ir.passes.cse import cse
from graphc.ir.passes.dce import dce
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.fold import fold
from graphc.ir.passes.partition import split
from graphc.ir.passes.simplify import simplify
from graphc.ir.text import parse_graph, print_graph
from graphc.ir.types import TensorType
from tests import opinfo
from tests.opinfo import OPINFOS, Sample

COMPOSITE = sorted(name for name, op in REGISTRY.items() if op.decompose is not None)


def forward_graph(name: str, sample: Sample) -> Graph:
    builder = Builder()
    nodes = [builder.input(TensorType(dtypes.from_numpy(a.dtype), a.shape)) for a in sample.arrays]
    node = builder.emit(get(name), *nodes, **sample.attrs)
    return builder.build(builder.results(node), name)


def graph_of(name: str, sample: Sample) -> Graph:
    graph = forward_graph(name, sample)
    if OPINFOS[name].gradient or not sample.gradient:
        return graph
    wrt = [i for i, a in enumerate(graph.inputs) if a.dtype.is_float]
    if name in ("cross_entropy", "nll_loss"):
        wrt = [0]
    return autodiff.joint_graph(graph, wrt)


def values_for(graph: Graph, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    cotangents = graph.inputs[len(arrays) :]
    return [*arrays, *(np.asarray(rng.uniform(-1, 1, n.tensor_type.static_shape), n.dtype.numpy)
                       for n in cotangents)]


def assert_close(name: str, old: list[Any], new: list[Any], tolerance: float) -> None:
    for a, b in zip(old, new, strict=True):
        opinfo.assert_close(b, a, dtypes.from_numpy(b.dtype), tolerance, name)


@pytest.mark.parametrize("name", sorted(OPINFOS))
def test_text_and_passes(name: str) -> None:
    info = OPINFOS[name]
    dtype = dtypes.f64 if dtypes.f64 in info.dtypes else info.dtypes[-1]
    for sample in opinfo.samples(info, dtype)[:6]:
        graph = graph_of(name, sample)
        verify.verify(graph)
        text = print_graph(graph)
        parsed = parse_graph(text)
        assert print_graph(parsed) == text
        arrays = values_for(graph, sample.arrays)
        old = interpret.evaluate(graph, arrays, TABLE)
        assert_close(name, old, interpret.evaluate(parsed, arrays, TABLE), 0.0)
        result = graph
        for one in (decompose, lambda g: fold(g, TABLE), simplify, cse, dce):
            result = one(result)
            verify.verify(result, getattr(one, "__name__", "fold"))
        new = interpret.evaluate(result, arrays, TABLE)
        assert_close(name, old, new, 64.0 * info.tolerance)
        count = len(sample.arrays)
        parts = split(result, count, len(forward_graph(name, sample).outputs))
        first = interpret.evaluate(parts.forward, arrays[:count], TABLE)
        saved = [arrays[i] if kind == "input" else first[i] for kind, i in parts.saved]
        second = interpret.evaluate(parts.backward, [*saved, *arrays[count:]], TABLE)
        outputs = len(old) - len(second)
        assert_close(name, new, [*first[:outputs], *second], 64.0)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
@pytest.mark.parametrize("name", COMPOSITE)
def test_decompositions_match_torch(name: str, dtype: str) -> None:
    info = OPINFOS[name]
    for sample in opinfo.samples(info, dtypes.by_name(dtype)):
        types = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in sample.arrays]
        graph = decomposition_graph(get(name), types, sample.attrs)
        found = interpret.evaluate(graph, sample.arrays, TABLE)
        for array, want in zip(found, opinfo.expected(info, sample), strict=True):
            kind = dtypes.from_numpy(array.dtype)
            opinfo.assert_close(array, want, kind, info.tolerance, f"{name}{sample}")
