"""Compiled functions that meet sparse tensors: eager where these are, and never wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend import placement
from graphc.frontend.values import Eager
from tests.sparse.compared import coo, dense

pytestmark = pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")


@pytest.fixture(autouse=True, params=["the only device", "one of several"])
def devices(request: Any, monkeypatch: Any) -> None:
    """Where there are other devices, a recording asks where tensors lie."""
    several = None if request.param == "the only device" else staticmethod(placement.anywhere)
    monkeypatch.setattr(Eager, "elsewhere", several)


def product(x: Any, w: Any) -> Any:
    return graphc.sparse.mm(x, w.relu() * 2).tanh() + 1


def test_an_argument() -> None:
    compiled = graphc.compile(product)
    for factor in (1, 2, 3):
        x, w = coo(graphc) * factor, dense(graphc, 5, 3)
        np.testing.assert_allclose(
            compiled(x, w).numpy(), product(x, w).numpy(), rtol=1e-6)
    other = graphc.eye(3, 5).to_sparse()  # of another size
    np.testing.assert_allclose(compiled(other, w).numpy(), product(other, w).numpy(), rtol=1e-6)


def test_captured_and_changed() -> None:
    graph = coo(graphc)

    @graphc.compile
    def step(w: Any) -> Any:
        return (graph @ w).sum() + graph.shape[0] * graph._nnz()

    w = dense(graphc, 5, 3)
    for _ in range(3):
        assert step(w).item() == pytest.approx(((graph @ w).sum() + 4 * graph._nnz()).item())
        graph.mul_(2)
    graph.sparse_resize_and_clear_((7, 5), 2, 0)
    assert step(w).item() == 0.0


def test_where_the_recording_has_written() -> None:
    """An operator asks whether what it reads was written as another dtype, of sparse ones too."""
    nets = []
    for _ in range(2):
        graphc.manual_seed(1)
        nets.append(graphc.nn.ModuleList([graphc.nn.BatchNorm1d(3), graphc.nn.Linear(3, 2)]))

    def step(net: Any, w: Any, graph: Any) -> Any:
        return net[1](graphc.sparse.mm(graph, net[0](w))).relu()

    compiled = graphc.compile(step)
    for _ in range(3):
        w = dense(graphc, 5, 3)
        found, expected = compiled(nets[0], w, coo(graphc)), step(nets[1], w, coo(graphc))
        np.testing.assert_allclose(
            found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert nets[0][0].num_batches_tracked == 3


def test_sizes_are_not_baked_in() -> None:
    held = {"x": coo(graphc)}

    @graphc.compile
    def sizes(y: Any) -> Any:
        return y * held["x"].shape[1] + held["x"].ndim

    assert sizes(graphc.ones(2)).tolist() == [7.0, 7.0]
    held["x"] = graphc.eye(9).to_sparse()
    assert sizes(graphc.ones(2)).tolist() == [11.0, 11.0]


def test_made_inside() -> None:
    @graphc.compile
    def made(values: Any) -> Any:
        x = graphc.sparse_coo_tensor([[0, 1], [1, 0]], values * 3, (2, 2))
        return x.to_dense() + (x * 2).coalesce().values().sum()

    for factor in (1.0, 2.0, 3.0):
        found = made(graphc.tensor([1.0, 2.0]) * factor)
        expected = np.array([[0, 3.0], [6.0, 0]]) * factor + 18 * factor
        np.testing.assert_allclose(found.numpy(), expected)


def test_dense_operands_of_the_recording() -> None:
    x = coo(graphc)

    @graphc.compile
    def mixed(y: Any) -> Any:
        z = y * 2
        z = z + x
        z += x
        z.add_(x, alpha=2)
        return z.sin() + x

    for factor in (1.0, 2.0, 3.0):
        y = dense(graphc, 4, 5) * factor
        expected = (y * 2 + x.to_dense() * 4).sin() + x.to_dense()
        np.testing.assert_allclose(mixed(y).numpy(), expected.numpy(), rtol=1e-5)


def test_one_graph_is_refused() -> None:
    compiled = graphc.compile(product, fullgraph=True)
    with pytest.raises(graphc.frontend.errors.TraceError, match="sparse tensor"):
        compiled(coo(graphc), dense(graphc, 5, 3))
    x = coo(graphc)
    captured = graphc.compile(lambda w: x @ w, fullgraph=True)
    with pytest.raises(graphc.frontend.errors.TraceError, match="sparse tensor"):
        captured(dense(graphc, 5, 3))


class Layer(graphc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("graph", coo(graphc).coalesce())
        self.weight = graphc.nn.Parameter(dense(graphc, 3, 3))

    def forward(self, x: Any) -> Any:
        return (self.graph @ (x @ self.weight)).relu()


def test_a_training_step() -> None:
    def train(compiled: bool) -> list[float]:
        layer = Layer()
        optimizer = graphc.optim.SGD(layer.parameters(), lr=0.01)
        x = dense(graphc, 5, 3)

        def step() -> Any:
            optimizer.zero_grad()
            loss = layer(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        run = graphc.compile(step) if compiled else step
        return [run().item() for _ in range(5)]

    np.testing.assert_allclose(train(True), train(False), rtol=1e-5)


def counted(run: Any, *args: Any) -> tuple[Any, int, int]:
    """What a call gives, and how many segments it ran and ended."""
    segments = run.segments
    ended = sum(segments.ends.values())
    before = sum(v.calls for known in segments.versions.values() for v in known)
    result = run(*args)
    after = sum(v.calls for known in segments.versions.values() for v in known)
    return result, after - before, sum(segments.ends.values()) - ended


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_training_step_is_one_segment(layout: str) -> None:
    """Graphs of several sizes, too: entries and places are inputs."""
    rng = np.random.default_rng(2)

    def matrix(nodes: int, edges: int) -> Any:
        places = graphc.from_numpy(rng.integers(0, nodes, (2, edges)))
        weights = graphc.from_numpy(rng.standard_normal(edges).astype(np.float32))
        x = graphc.sparse_coo_tensor(places, weights, (nodes, nodes)).coalesce()
        return x.to_sparse_csr() if layout == "csr" else x

    layers = [graphc.nn.Linear(16, 32), graphc.nn.Linear(32, 8)]
    optimizer = graphc.optim.SGD([p for m in layers for p in m.parameters()], lr=0.01)

    def step(adj: Any, x: Any) -> Any:
        optimizer.zero_grad()
        loss = (graphc.spmm(adj, layers[1]((adj @ layers[0](x)).relu()))).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = graphc.compile(step)
    run.always_compiled = True
    sizes = [(700, 4000), (700, 4000), (700, 4000), (700, 5000), (800, 5000), (700, 5100)]
    graphs = [(matrix(*n), graphc.from_numpy(rng.standard_normal((n[0], 16)).astype(np.float32)))
              for n in sizes]
    state = [p.detach().clone() for m in layers for p in m.parameters()]
    losses = [step(*given).item() for given in graphs for _ in range(2)]
    with graphc.no_grad():
        for p, kept in zip((p for m in layers for p in m.parameters()), state, strict=True):
            p.copy_(kept)
    found = []
    for given in graphs:
        for _ in range(2):
            if run.segments is None:
                found.append((run(*given), 1, 0))
            else:
                found.append(counted(run, *given))
    np.testing.assert_allclose([loss.item() for loss, _, _ in found], losses, rtol=1e-4)
    assert [ends for _, _, ends in found[1:]] == [0] * (len(found) - 1)
    assert [n for _, n, _ in found[1:]] == [1] * (len(found) - 1)
    assert run.segments.compile_count < len(sizes)


def test_vmap_over_dense_operands() -> None:
    x = coo(graphc)
    dense_x, batch = x.to_dense(), dense(graphc, 6, 5, 3)
    for function in (lambda t: x @ t, lambda t: t.T @ x.t(), lambda t: graphc.mv(x, t[:, 0])):
        whole = graphc.vmap(function)(batch)
        for row, found in zip(batch, whole, strict=True):
            np.testing.assert_allclose(found.numpy(), function(row).numpy(), rtol=1e-5)
    grads = graphc.func.vmap(graphc.func.grad(lambda t: (x @ t).square().sum()))(batch)
    for row, found in zip(batch, grads, strict=True):
        expected = 2 * dense_x.T @ (dense_x @ row)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_a_compiled_module() -> None:
    layer, x = Layer(), dense(graphc, 5, 3).requires_grad_()
    compiled = graphc.compile(layer)
    for _ in range(3):
        grads = []
        for module in (layer, compiled):
            x.grad = layer.weight.grad = None
            module(x).sum().backward()
            grads.append((x.grad.tolist(), layer.weight.grad.tolist()))
        np.testing.assert_allclose(grads[0][0], grads[1][0], rtol=1e-6)
        np.testing.assert_allclose(grads[0][1], grads[1][1], rtol=1e-6)


@pytest.mark.parametrize("name", ["SparseAdam", "SGD", "Adagrad"])
def test_a_step_with_sparse_gradients(name: str) -> None:
    def train(compiled: bool) -> Any:
        layer = graphc.nn.Embedding(8, 3, sparse=True)
        with graphc.no_grad():
            layer.weight.copy_(dense(graphc, 8, 3))
        optimizer = getattr(graphc.optim, name)(layer.parameters(), lr=0.1)

        def step(index: Any) -> Any:
            optimizer.zero_grad()
            loss = layer(index).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        run = graphc.compile(step) if compiled else step
        losses = [run(graphc.tensor([i % 3, 4, 4])).item() for i in range(5)]
        assert layer.weight.grad.is_sparse
        return losses, layer.weight.tolist()

    ours, expected = train(True), train(False)
    np.testing.assert_allclose(ours[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], expected[1], rtol=1e-5)


def test_a_sparse_gradient_from_before_a_compiled_step() -> None:
    weight = graphc.nn.Parameter(dense(graphc, 5, 3))
    graphc.nn.functional.embedding(graphc.tensor([1]), weight, sparse=True).sum().backward()
    assert weight.grad.is_sparse

    @graphc.compile
    def loss() -> Any:
        return (weight * 2).sum()

    for i in range(1, 4):
        loss().backward()
        expected = graphc.full((5, 3), 2.0 * i)
        expected[1] += 1
        assert weight.grad.to_dense().tolist() == expected.tolist()


def test_explain_says_so() -> None:
    compiled = graphc.compile(product)
    compiled(coo(graphc), dense(graphc, 5, 3))
    compiled(coo(graphc), dense(graphc, 5, 3))
    assert any("sparse" in str(end) for end in compiled.segments.ends)


def test_compare_sees_sparse_tensors() -> None:
    held = coo(graphc)
    found = graphc.compare(lambda w: held @ w, dense(graphc, 5, 3))
    assert "agree" in str(found)
