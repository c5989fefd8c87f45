"""Sparse gradients of embeddings, and the optimizers that take them, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from tests.sparse.compared import compare, dense, torch

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")


def table(t: Any, rows: int = 8, **options: Any) -> Any:
    found = t.nn.Embedding(rows, 3, sparse=True, **options)
    with t.no_grad():
        found.weight.copy_(dense(t, rows, 3))
    return found


def gradient(t: Any, **options: Any) -> Any:
    layer = table(t, **options)
    layer(t.tensor([[1, 2, 1], [5, 0, 2]])).square().sum().backward()
    layer(t.tensor([7, 1])).sum().backward()
    return layer.weight.grad


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"max_norm": 0.5}])
def test_gradients(options: dict[str, Any]) -> None:
    compare(lambda t: gradient(t, **options))


def test_one_position() -> None:
    compare(lambda t: [
        (layer := table(t)), layer(t.tensor(3)).sum().backward(), layer.weight.grad][2])


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags(mode: str) -> None:
    def run(t: Any) -> Any:
        bag = t.nn.EmbeddingBag(8, 3, mode=mode, sparse=True)
        with t.no_grad():
            bag.weight.copy_(dense(t, 8, 3))
        found = bag(t.tensor([1, 2, 1, 5]), t.tensor([0, 3]))
        found.square().sum().backward()
        return found.detach(), bag.weight.grad

    compare(run)


OPTIMIZERS: dict[str, Any] = {
    "SparseAdam": lambda t, p: t.optim.SparseAdam(p, lr=0.1),
    "SparseAdam maximize": lambda t, p: t.optim.SparseAdam(p, lr=0.1, maximize=True),
    "SGD": lambda t, p: t.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD nesterov": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD dampening": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3,
                                              maximize=True),
    "Adagrad": lambda t, p: t.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
}


def trained(t: Any, make: Any, steps: int = 6) -> Any:
    layer = table(t)
    optimizer = make(t, layer.parameters())
    for i in range(steps):
        optimizer.zero_grad(set_to_none=bool(i % 2))
        layer(t.tensor([i % 3, 4, (2 * i) % 8, 4])).square().sum().backward()
        optimizer.step()
    return layer.weight.detach(), layer.weight.grad.is_sparse


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(name: str) -> None:
    compare(lambda t: trained(t, OPTIMIZERS[name]))


@pytest.mark.parametrize("name", """
    Adam AdamW Adamax NAdam RAdam RMSprop Rprop Adadelta ASGD
""".split())
def test_optimizers_that_want_dense_gradients_say_so(name: str) -> None:
    layer = table(graphc)
    optimizer = getattr(graphc.optim, name)(layer.parameters())
    before = layer.weight.tolist()
    layer(graphc.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step()
    assert layer.weight.tolist() == before


def test_what_cannot_be_optimized_is_refused() -> None:
    layer = table(graphc)
    layer(graphc.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible"):
        graphc.optim.Adagrad(layer.parameters(), weight_decay=0.1).step()
    with pytest.raises(RuntimeError, match=r"add\(sparse, dense\) is not supported"):
        graphc.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.1).step()
    with pytest.raises(ValueError, match="requires dense parameter tensors"):
        graphc.optim.SparseAdam([graphc.eye(2).to_sparse().requires_grad_()])
    frequent = graphc.nn.Embedding(4, 2, sparse=True, scale_grad_by_freq=True)
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported"):
        frequent(graphc.tensor([1])).sum().backward()


def test_a_dense_and_a_sparse_gradient_of_one_weight() -> None:
    def run(t: Any) -> Any:
        layer = table(t)
        rows = layer(t.tensor([1, 1]))
        (rows.sum() + (layer.weight * 2).sum()).backward()
        layer(t.tensor([2])).sum().backward()
        return layer.weight.grad

    compare(run)


def test_a_sparse_gradient_goes_on_dense() -> None:
    def run(t: Any) -> Any:
        w = dense(t, 5, 3).requires_grad_()
        rows = t.nn.functional.embedding(t.tensor([1, 3, 1]), w.to_dense() * 2, sparse=True)
        rows.sum().backward()
        return w.grad.to_dense()

    compare(run)


def test_a_long_table_is_not_gone_through() -> None:
    """An update writes rows: what is left is the same memory, not even read."""
    layer = graphc.nn.Embedding(1000, 4, sparse=True)
    optimizer = graphc.optim.SparseAdam(layer.parameters())
    for _ in range(2):
        layer(graphc.tensor([3])).sum().backward()
        before = layer.weight.detach().clone()
        optimizer.step()
        moved = (layer.weight.detach() != before).any(1).nonzero().reshape(-1)
        assert moved.tolist() == [3]


def word2vec(t: Any) -> list[float]:
    """Skip-gram with negative samples."""
    rng = np.random.default_rng(0)
    words, contexts = table(t, 50), table(t, 50)
    optimizer = t.optim.SparseAdam([*words.parameters(), *contexts.parameters()], lr=0.05)
    losses = []
    for _ in range(8):
        center, near, far = (t.from_numpy(rng.integers(0, 50, n)) for n in (16, 16, 48))
        u = words(center)
        positive = (u * contexts(near)).sum(1)
        negative = t.bmm(contexts(far.view(16, 3)), u.unsqueeze(2)).squeeze(2)
        loss = -(t.nn.functional.logsigmoid(positive).mean()
                 + t.nn.functional.logsigmoid(-negative).sum(1).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_word2vec() -> None:
    np.testing.assert_allclose(word2vec(graphc), word2vec(torch), rtol=1e-5)


def test_gradient_scaler() -> None:
    def run(t: Any) -> Any:
        layer = table(t)
        optimizer = t.optim.SGD(layer.parameters(), lr=0.1)
        scaler = t.amp.GradScaler("cpu", init_scale=8.0)
        scaler.scale(layer(t.tensor([1, 1, 4])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return layer.weight.detach(), scaler.get_scale()

    compare(run)


def test_state_of_an_optimizer_goes_to_another() -> None:
    layer = table(graphc)
    first = graphc.optim.SparseAdam(layer.parameters(), lr=0.1)
    layer(graphc.tensor([1, 2])).sum().backward()
    first.step()
    second = graphc.optim.SparseAdam(layer.parameters(), lr=0.5)
    second.load_state_dict(first.state_dict())
    assert second.state[layer.weight]["step"] == 1 and second.param_groups[0]["lr"] == 0.1
