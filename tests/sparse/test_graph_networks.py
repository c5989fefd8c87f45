"""Graph networks in the ways that people write them, trained beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from tests.sparse.compared import torch

NODES, EDGES, FEATURES, CLASSES = 40, 160, 6, 3


def graph() -> tuple[Any, Any, Any, Any]:
    """Edges without repetition and with loops, normalised weights, features, labels."""
    rng = np.random.default_rng(1)
    pairs = {(int(a), int(b)) for a, b in rng.integers(0, NODES, (EDGES, 2))}
    pairs |= {(b, a) for a, b in pairs} | {(i, i) for i in range(NODES)}
    edges = np.array(sorted(pairs)).T
    degree = np.bincount(edges[0], minlength=NODES).astype(np.float32)
    weights = 1 / np.sqrt(degree[edges[0]] * degree[edges[1]])
    features = rng.standard_normal((NODES, FEATURES)).astype(np.float32)
    return edges, weights.astype(np.float32), features, rng.integers(0, CLASSES, NODES)


def convolution(t: Any) -> type:
    """Kipf's layer: adj @ (x @ weight) + bias."""

    class GraphConvolution(t.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, outer: int) -> None:
            super().__init__()
            self.weight = t.nn.Parameter(t.linspace(-0.5, 0.5, inner * outer).view(inner, outer))
            self.bias = t.nn.Parameter(t.zeros(outer))

        def forward(self, x: Any, adj: Any) -> Any:
            return t.spmm(adj, t.mm(x, self.weight)) + self.bias

    return GraphConvolution


def trained(t: Any, make_graph: Any, compiled: bool = False) -> list[float]:
    edges, weights, features, labels = graph()
    adj = make_graph(t, t.from_numpy(edges), t.from_numpy(weights))
    x, y = t.from_numpy(features), t.from_numpy(labels)
    layer = convolution(t)
    layers = t.nn.ModuleList([layer(FEATURES, 8), layer(8, CLASSES)])
    optimizer = t.optim.Adam(layers.parameters(), lr=0.05)

    def step() -> Any:
        optimizer.zero_grad()
        hidden = t.nn.functional.relu(layers[0](x, adj))
        found = t.nn.functional.log_softmax(layers[1](hidden, adj), dim=1)
        loss = t.nn.functional.nll_loss(found, y)
        loss.backward()
        optimizer.step()
        return loss

    run = t.compile(step) if compiled else step
    return [run().item() for _ in range(12)]


def legacy(t: Any, edges: Any, weights: Any) -> Any:
    return t.sparse.FloatTensor(edges, weights, t.Size([NODES, NODES]))


def coo(t: Any, edges: Any, weights: Any) -> Any:
    return t.sparse_coo_tensor(edges, weights, (NODES, NODES)).coalesce()


def csr(t: Any, edges: Any, weights: Any) -> Any:
    return t.sparse_coo_tensor(edges, weights, (NODES, NODES)).to_sparse_csr()


@pytest.mark.filterwarnings("ignore:(Sparse|torch.sparse):UserWarning")
@pytest.mark.parametrize("make", [legacy, coo, csr])
def test_convolutions(make: Any) -> None:
    expected = trained(torch, make)
    np.testing.assert_allclose(trained(graphc, make), expected, rtol=2e-4)
    assert expected[-1] < expected[0]


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_compiled_convolutions() -> None:
    np.testing.assert_allclose(
        trained(graphc, coo, compiled=True), trained(graphc, coo), rtol=2e-4)


def attention(t: Any) -> list[float]:
    """Learned weights of edges, normalised by a sparse softmax."""
    edges, _, features, labels = graph()
    index, x, y = t.from_numpy(edges), t.from_numpy(features), t.from_numpy(labels)
    w = t.linspace(-0.3, 0.3, FEATURES * CLASSES).view(FEATURES, CLASSES).requires_grad_()
    a = t.linspace(-0.2, 0.4, 2 * CLASSES).requires_grad_()
    optimizer = t.optim.SGD([w, a], lr=0.2, momentum=0.9)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        h = x @ w
        scores = t.nn.functional.leaky_relu(t.cat([h[index[0]], h[index[1]]], 1) @ a, 0.2)
        weights = t.sparse.softmax(t.sparse_coo_tensor(index, scores, (NODES, NODES)), 1)
        loss = t.nn.functional.cross_entropy(t.sparse.mm(weights, h), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_attention() -> None:
    np.testing.assert_allclose(attention(graphc), attention(torch), rtol=2e-4)
