"""Every operator, every sample and dtype: fused, planned and run by the kernel interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret
from graphc.ir.graph import Builder, Graph
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.machine import Machine
from graphc.ir.op import get
from graphc.ir.passes.decompose import decompose
from graphc.ir.types import TensorType, TupleType
from tests import opinfo
from tests.opinfo import OPINFOS, Sample

from . import kernel_cases as cases
from .machines import TINY, WIDE

TOLERANCE = {"bf16": 0.06, "f16": 0.01, "f32": 3e-4, "f64": 1e-9}


def graphs(name: str, sample: Sample) -> Iterator[Graph]:
    """The operator by itself, and between pointwise operators."""
    for wrap in (False, True):
        builder = Builder()
        nodes = [
            builder.input(TensorType(dtypes.from_numpy(a.dtype), a.shape)) for a in sample.arrays
        ]
        inputs = [
            builder.emit(get("neg"), builder.emit(get("neg"), n))
            if wrap and n.dtype.is_float else n
            for n in nodes
        ]
        node = builder.emit(get(name), *inputs, **sample.attrs)
        if isinstance(node.type, TupleType) and not node.type.elements:
            return
        results = builder.results(node)
        if wrap:
            results = tuple(
                builder.emit(get("abs"), r) if r.dtype.is_float else r for r in results
            )
        yield builder.build(results, name)


def run(graph: Graph, inputs: list[np.ndarray], machine: Machine) -> None:
    want = interpret.evaluate(graph, [x.copy() for x in inputs], TABLE)
    program = cases.compiled(decompose(graph), machine=machine)
    for kernel in cases.kernels(program):
        verify_kernel(kernel)
    got = run_program(program, [x.copy() for x in inputs], TABLE)
    for g, w, node in zip(got, want, graph.outputs, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        if node.dtype.is_float:
            t = TOLERANCE[node.dtype.name]
            np.testing.assert_allclose(
                g.astype(np.float64), w.astype(np.float64), rtol=t, atol=t, equal_nan=True
            )
        else:
            np.testing.assert_array_equal(g, w)


def check_operator(
    name: str, wanted: tuple[dtypes.DType, ...], count: int, machine: Machine = CPU
) -> None:
    info = OPINFOS[name]
    for dtype in [d for d in info.dtypes if d in wanted] or info.dtypes[:1]:
        for sample in opinfo.samples(info, dtype)[:count]:
            for graph in graphs(name, sample):
                try:
                    run(graph, list(sample.arrays), machine)
                except AssertionError as error:
                    raise AssertionError(f"{name} {dtype.name} {sample.attrs}: {error}") from None


@pytest.mark.parametrize("name", sorted(OPINFOS))
def test_operator(name: str) -> None:
    check_operator(name, (dtypes.f32, dtypes.bf16, dtypes.i64), 3)


@pytest.mark.parametrize("machine", [TINY, WIDE], ids=["tiny", "wide"])
@pytest.mark.parametrize("name", sorted(OPINFOS))
def test_operator_on_another_machine(name: str, machine: Machine) -> None:
    check_operator(name, (dtypes.f32,), 2, machine)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OPINFOS))
def test_operator_all_dtypes(name: str) -> None:
    check_operator(name, dtypes.ALL, 50)
