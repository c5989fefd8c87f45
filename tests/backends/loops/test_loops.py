"""The smallest Backend passes the operator table, by the protocol alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import backends, config, nn
from graphc.backends.host.memory import HOST
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.numpy.ops import TABLE
from graphc.config import Config
from graphc.engine import pipeline
from graphc.engine.built import Built
from graphc.inspect.explain import explain
from graphc.ir import dtypes, interpret, ops
from graphc.ir.graph import Graph
from graphc.ir.kernel import Launch, Routine, leaves
from tests import opinfo
from tests.opinfo import OPINFOS

from ...ir import kernel_cases as cases
from ...ir.test_fuse_all_ops import TOLERANCE, graphs
from .backend import LACKING, LoopsBackend
from .memory import FarMemory

QUIET = Config()._replace(debug=0, check=1, dump=None, cache_dir=None, threads=1)


class LoopsOnTheCpu(LlvmBackend):
    """Native code without templates."""

    def renders(self, template: Any) -> bool:
        return False


FAR = FarMemory()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three backends more, by the public line."""
    for table in ("_entries", "_loaded"):
        monkeypatch.setattr(backends, table, dict(getattr(backends, table)))
    backends.register("far", lambda: LoopsBackend(FAR), ("debug",))
    backends.register("loops", lambda: LoopsBackend(HOST), ("debug",))
    backends.register("native loops", LoopsOnTheCpu, ("debug",))
    yield


def run(graph: Graph, inputs: list[np.ndarray], backend: str) -> Built:
    """Compare a graph's results with what its operators mean."""
    want = interpret.evaluate(graph, [x.copy() for x in inputs], TABLE)
    config = QUIET._replace(check=2)  # each step against the interpreter
    built = pipeline.build(graph, config=config, backend=backend, example=inputs)
    memory = built.backend.memory
    given = [memory.allocate(x.shape, x.dtype) for x in inputs]
    for buffer, array in zip(given, inputs, strict=True):
        memory.write(buffer, array)
    made = [memory.allocate(np.shape(x), x.dtype) for x in want]
    built.run(given, made)
    for buffer, expected, node in zip(made, want, graph.outputs, strict=True):
        got = memory.read(buffer)
        if node.dtype.is_float:
            t = TOLERANCE[node.dtype.name]
            np.testing.assert_allclose(
                got.astype(np.float64), expected.astype(np.float64), rtol=t, atol=t
            )
        else:
            np.testing.assert_array_equal(got, expected)
    return built


@pytest.mark.parametrize("backend", ["far", "native loops"])
@pytest.mark.parametrize("name", sorted(OPINFOS))
def test_operator(name: str, backend: str) -> None:
    info = OPINFOS[name]
    wanted = (dtypes.f32, dtypes.i64)
    for dtype in [d for d in info.dtypes if d in wanted] or info.dtypes[:1]:
        for sample in opinfo.samples(info, dtype)[:2]:
            for graph in graphs(name, sample):
                built = run(graph, list(sample.arrays), backend)
                steps = leaves(built.program.steps)
                assert all(s.kernel.template is None for s in steps if isinstance(s, Launch))


def routines(built: Built) -> dict[str, bool]:
    """The steps that are no kernels, and whether the backend runs them."""
    return {s.op: s.claimed for s in leaves(built.program.steps) if isinstance(s, Routine)}


def test_claims_see_attributes_dtypes_and_masks() -> None:
    def softmax(dim: int, dtype: dtypes.DType = dtypes.f32) -> Graph:
        return cases.build(lambda x: ops.softmax(x * 2.0, dim=dim) + 1.0, (dtype, (3, 4)))

    def attention(*masks: tuple[int, int]) -> Graph:
        shapes = (2, 3, 4), (2, 5, 4), (2, 5, 4), *masks
        return cases.build(lambda *x: ops.attention(*x, causal=False, scale=0.5)[0], *shapes)

    for graph, claimed in (
        (softmax(1), {"softmax": True}), (softmax(0), {}), (softmax(1, dtypes.f64), {}),
        (attention(), {"attention": True}),
    ):
        assert routines(run(graph, cases.arrays(graph), "far")) == claimed
    masked = attention((3, 5))
    assert "attention" not in routines(run(masked, cases.arrays(masked), "far"))


def test_what_a_backend_lacks_the_host_computes_and_explain_counts_it() -> None:
    graph = cases.build(
        lambda x: ops.sort(ops.lgamma(x * x + 1.0) + 1.0, dim=0, descending=False, stable=True)[0],
        (6, 3),
    )
    built = run(graph, cases.arrays(graph), "far")
    assert "lgamma" in LACKING and routines(built) == {"lgamma": False, "sort": False}
    buffers = [FAR.allocate((6, 3), np.dtype("f4")) for _ in range(2)]
    FAR.crossed.clear()
    built.run(buffers[:1], buffers[1:])
    assert FAR.crossed == {"read": 2, "written": 1 + 2}  # sort has two results
    compiled = torch.compile(lambda x: x.lgamma().softmax(1).sort(0)[0], backend="loops")
    text = str(explain(compiled, torch.ones(4, 3)))
    assert "(2 on the host)" in text and "routine     softmax" in text


def test_a_check_raises_what_it_names() -> None:
    graph = cases.build(
        lambda x, at: ops.index(x, at, dim=0) * 2.0, (4, 3), (dtypes.i64, (2,))
    )
    for backend in ("far", "loops", "native loops", "numpy", "llvm"):
        with pytest.raises(IndexError, match="9 is out of bounds"):
            built = pipeline.build(graph, config=QUIET, backend=backend)
            memory = built.backend.memory
            buffers = [memory.allocate(s, np.dtype(d)) for s, d in (((4, 3), "f4"), ((2,), "i8"))]
            memory.write(buffers[0], np.ones((4, 3), np.float32))
            memory.write(buffers[1], np.array([1, 9]))
            built.run(buffers, [memory.allocate((2, 3), np.dtype("f4"))])


def test_emitting_is_pure_text() -> None:
    graph = cases.build(lambda x: ops.exp(x) + 1.0, (5, 3))
    built = pipeline.build(graph, config=QUIET, backend="loops")
    (step,) = built.program.steps
    assert isinstance(step, Launch)
    for name in ("loops", "llvm", "cuda", "numpy"):
        backend = backends.get(name)
        assert backend.emit(step.kernel) == backend.emit(step.kernel) != ""


@pytest.mark.parametrize("backend", ["loops", "native loops", "numpy", "eager"])
def test_a_training_step(backend: str) -> None:
    """Module, loss, backward, optimizer: whole, and in segments."""
    torch.manual_seed(0)
    start = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(8, 3),
    )
    x, target = torch.randn(4, 1, 4, 4), torch.tensor([0, 2, 1, 1])

    def losses(compiled: bool, peek: bool) -> list[float]:
        model = copy.deepcopy(start)
        optimizer = torch.optim.Adam(model.parameters(), 0.05)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            out = model(x)
            if peek and out.sum() > 1e6:
                out = out * 2
            loss = nn.functional.cross_entropy(out, target)
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step, backend=backend) if compiled else step
        return [run(x).item() for _ in range(4)]

    want = losses(False, False)
    assert want[-1] < want[0]
    for peek in (False, True):
        np.testing.assert_allclose(losses(True, peek), want, rtol=2e-4)


@pytest.mark.parametrize("backend", ["loops", "native loops"])
def test_dropout_of_attention_is_drawn_by_loops(backend: str) -> None:
    """Without code for the template, the same choice is made in loops."""
    def step(*given: Any) -> Any:
        out = nn.functional.scaled_dot_product_attention(*given, dropout_p=0.4)
        return out, *torch.autograd.grad((out**2).sum(), given)

    found = []
    with config.override(random="counter"):
        given = [torch.randn(2, 7, 4, requires_grad=True) for _ in range(3)]
        for function in (step, torch.compile(step), torch.compile(step, backend=backend)):
            torch.manual_seed(5)
            found.append([x.detach().numpy() for x in function(*given)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_registry_names_what_there_is() -> None:
    assert {"far", "loops", "llvm", "inductor", "eager", "aot_eager"} <= set(backends.names())
    assert torch.compiler.list_backends() == ["inductor", "llvm"]
    with pytest.raises(ValueError, match="registered already"):
        backends.register("inductor", LoopsOnTheCpu)
    assert backends.get("aot_eager") is backends.get("eager")
