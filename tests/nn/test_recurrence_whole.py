"""Recurrent layers and cells in eager mode as graphs, one for each direction, against PyTorch.

Values, gradients and gradients of gradients of random layers; and what else a call may meet.
"""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc import config
from graphc.nn.modules import recurrence_whole


@pytest.fixture(autouse=True)
def _all_as_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However little there is to do."""
    monkeypatch.setattr(recurrence_whole, "_LEAST", 0)
    yield
    for made in (recurrence_whole._layer, recurrence_whole._packed, recurrence_whole._cell):
        made.cache_clear()


def _is_whole(output: Any) -> bool:
    return type(output.grad_fn).__name__ == "CompiledBackward"


class Case:
    """A random layer, its input, its states, and what is asked of it."""

    def __init__(self, seed: int) -> None:
        r, self.seed = random.Random(seed), seed
        self.kind = ("LSTM", "GRU", "RNN")[seed % 3]
        self.layers, self.hidden = r.choice([1, 1, 2, 3]), r.choice([1, 2, 5, 8, 17])
        self.inputs, self.steps, self.batch = (
            r.choice([1, 2, 7]), r.choice([1, 2, 3, 9]), r.choice([0, 1, 2, 6, 17])
        )
        self.options: dict[str, Any] = {
            "bias": r.random() < 0.8, "batch_first": r.random() < 0.4,
            "bidirectional": r.random() < 0.4,
        }
        if self.layers > 1 and r.random() < 0.4:
            self.options["dropout"] = 0.3
        self.shown = self.hidden
        if self.kind == "LSTM" and self.hidden > 1 and r.random() < 0.3:
            self.shown = self.options["proj_size"] = r.randint(1, self.hidden - 1)
        if self.kind == "RNN" and r.random() < 0.5:
            self.options["nonlinearity"] = "relu"
        self.dtype = r.choice(["float32", "float64"])
        self.batched, self.given = r.random() < 0.85, r.random() < 0.6
        self.tracked = [r.random() < 0.6 for _ in range(3)]
        self.frozen = {i for i in range(12) if r.random() < 0.2}
        self.used = r.choice([{0}, {0, 1}, {0, 1, 2}, {1}])
        self.lengths: list[int] | None = None
        if self.batched and self.batch and r.random() < 0.25:  # no ties: torch's sort is not stable
            self.batch = min(self.batch, self.steps)
            self.lengths = r.sample(range(1, self.steps + 1), self.batch)

    def arrays(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The input and the states; what the outputs and states are multiplied by."""
        q = np.random.default_rng(self.seed)
        both = 2 if self.options["bidirectional"] else 1
        sizes = [self.steps, self.batch]
        if self.options["batch_first"] and self.lengths is None:
            sizes = sizes[::-1]
        if not self.batched:
            sizes = [self.steps]
        one = [self.batch] if self.batched else []
        first = [self.layers * both, *one, self.shown]
        shapes = [[*sizes, self.inputs], first, [*first[:-1], self.hidden]]
        if self.lengths is not None:
            sizes = [max(self.lengths), self.batch]
        by = [[*sizes, both * self.shown], *shapes[1:]]
        values = [q.standard_normal(shape).astype(self.dtype) for shape in [*shapes, *by]]
        return values[:3], values[3:]

    def run(self, package: Any, weights: dict[str, np.ndarray]) -> list[Any]:
        """Values, gradients, and gradients of these."""
        rnn, tensor = package.nn.utils.rnn, package.tensor
        layer = getattr(package.nn, self.kind)(
            self.inputs, self.hidden, self.layers, **self.options
        ).to(getattr(package, self.dtype))
        layer.load_state_dict({name: tensor(value) for name, value in weights.items()})
        for i, weight in enumerate(layer.parameters()):
            weight.requires_grad_(i not in self.frozen)
        values, by = self.arrays()
        x, *state = [
            tensor(a, requires_grad=t) for a, t in zip(values, self.tracked, strict=True)
        ]
        given = None
        if self.given:
            given = tuple(state) if self.kind == "LSTM" else state[0]
        read = x
        if self.lengths is not None:
            read = rnn.pack_padded_sequence(x, self.lengths, enforce_sorted=False)
        package.manual_seed(self.seed)
        output, end = layer(read, given)
        if self.lengths is not None:
            output = rnn.pad_packed_sequence(output)[0]
        results = [output, *(end if isinstance(end, tuple) else (end,))]
        if package is graphc and output.requires_grad and self._is_one():
            assert _is_whole(output)
        loss = sum(
            (y * tensor(w)).sum() + (y * y).sum()
            for i, (y, w) in enumerate(zip(results, by[: len(results)], strict=True))
            if i in self.used
        )
        leaves = [t for t in (x, *state, *layer.parameters()) if t.requires_grad]
        return [*results, *_gradients(package, loss, leaves)]

    def _is_one(self) -> bool:
        """Whether the layer's output is that of one graph alone."""
        return self.batched and self.lengths is None and not (
            self.options["bidirectional"] or self.options["batch_first"]
        )


def _gradients(package: Any, loss: Any, leaves: list[Any]) -> list[Any]:
    if not leaves or not loss.requires_grad:
        return []
    grad = package.autograd.grad
    first = grad(loss, leaves, create_graph=True, allow_unused=True)
    again = sum((g * g).sum() for g in first if g is not None)
    if isinstance(again, int) or not again.requires_grad:
        return [*first]
    return [*first, *grad(again, leaves, allow_unused=True)]


def _same(case: Case) -> None:
    theirs = getattr(torch.nn, case.kind)(
        case.inputs, case.hidden, case.layers, **case.options
    ).state_dict()
    q = np.random.default_rng(1)
    weights = {
        name: (0.4 * q.standard_normal(tuple(w.shape))).astype(case.dtype)
        for name, w in theirs.items()
    }
    tolerance = 3e-4 if case.dtype == "float32" else 1e-9
    wanted, found = case.run(torch, weights), case.run(graphc, weights)
    assert len(wanted) == len(found)
    for i, (a, b) in enumerate(zip(wanted, found, strict=True)):
        assert (a is None) == (b is None), i
        if a is not None:
            x, y = a.detach().numpy(), b.detach().numpy()
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            scale = max(1.0, np.abs(x).max(initial=0))
            np.testing.assert_allclose(y / scale, x / scale, rtol=0, atol=tolerance, err_msg=str(i))


@pytest.mark.filterwarnings("ignore:dropout option")
@pytest.mark.parametrize("seed", range(18))
def test_random_layers(seed: int) -> None:
    _same(Case(seed))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:dropout option")
@pytest.mark.parametrize("first", range(18, 318, 20))
def test_more_random_layers(first: int) -> None:
    for seed in range(first, first + 20):
        _same(Case(seed))


def test_one_graph_serves_all_lengths_and_batches() -> None:
    lstm = graphc.nn.LSTM(3, 4)
    for steps, batch in ((5, 3), (6, 3), (2, 7), (9, 2)):
        output, _ = lstm(graphc.randn(steps, batch, 3))
        output.sum().backward()
        assert _is_whole(output)
    assert _count(recurrence_whole._layer, lstm) == 1


def test_one_graph_serves_all_packed_batches() -> None:
    """But those that are mostly padding, which go step by step."""
    lstm, rnn = graphc.nn.LSTM(3, 4), graphc.nn.utils.rnn
    for lengths in ([5, 4, 3], [6, 6], [3, 3, 2, 2], [9, 5]):
        packed = rnn.pack_padded_sequence(graphc.randn(lengths[0], len(lengths), 3), lengths)
        output = lstm(packed)[0].data
        output.sum().backward()
        assert _is_whole(output)
    assert _count(recurrence_whole._packed, lstm) == 1
    sparse = rnn.pack_padded_sequence(graphc.randn(9, 4, 3), [9, 1, 1, 1])
    assert not _is_whole(lstm(sparse)[0].data)


def _count(made: Any, lstm: Any) -> int:
    """How many versions there are of its graph."""
    sizes = tuple(tuple(w.shape) for w in lstm.parameters())
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    known = recurrence_whole._Known("LSTM", 2, names, sizes, graphc.float32)
    count: int = made(known, False).compiled.compile_count
    return count


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(kind: str, bias: bool) -> None:
    """Two steps, the second with the states of the first, for batches of several sizes."""
    q = np.random.default_rng(3)
    theirs, ours = (
        getattr(package.nn, kind)(3, 5, bias=bias).double() for package in (torch, graphc)
    )
    weights = {n: q.standard_normal(tuple(w.shape)) for n, w in theirs.state_dict().items()}
    for batch in (4, 1, 7, 0):
        x = q.standard_normal((2, batch, 3))
        found = []
        for package, cell in ((torch, theirs), (graphc, ours)):
            cell.load_state_dict({name: package.tensor(w) for name, w in weights.items()})
            given = package.tensor(x, requires_grad=True)
            state = cell(given[1], cell(given[0]))
            parts = list(state) if isinstance(state, tuple) else [state]
            loss = sum((part * part).sum() for part in parts)
            found.append([*parts, *_gradients(package, loss, [given, *cell.parameters()])])
        assert len(found[0]) == len(found[1]) and _is_whole(found[1][0])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), atol=1e-9)


def test_cells_with_states_of_one_row() -> None:
    """A state that is repeated goes through the operators, which repeat it."""
    weights = [graphc.randn(6, 3), graphc.randn(6, 2), graphc.randn(6), graphc.randn(6)]
    x, state = graphc.randn(4, 3), graphc.randn(1, 2)
    one = graphc.gru_cell(x, state, *weights)
    assert graphc.allclose(one, graphc.gru_cell(x, state.expand(4, 2), *weights), atol=1e-6)


def test_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same path for the same types: few steps on few numbers go one by one, and so do those
    that somebody watches or turned the code off for, and halves."""
    monkeypatch.undo()
    gru, x = graphc.nn.GRU(8, 32), graphc.randn(8, 32, 8)
    assert _is_whole(gru(x)[0]) and _is_whole(gru(x[:, :1])[0])  # many numbers, or many steps
    assert not _is_whole(gru(x[:7, :4])[0]) and not _is_whole(gru(x[:1])[0])
    for lengths in ([8, 6, 5], [7, 6, 5]):
        packed = graphc.nn.utils.rnn.pack_padded_sequence(x[:, :3], lengths)
        assert _is_whole(gru(packed)[0].data) is (lengths[0] == 8)
    lstm = graphc.nn.LSTMCell(8, 64)
    assert _is_whole(lstm(x[0])[0]) and not _is_whole(lstm(x[0, :4])[0])
    with config.override(eager_kernels="0"):
        assert not _is_whole(gru(x)[0])
    with graphc.compiler.set_stance("fail_on_recompile"):
        assert not _is_whole(gru(x)[0])
    with graphc.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert not _is_whole(gru(x)[0])
    assert not _is_whole(gru.bfloat16()(x.bfloat16())[0])


def test_hooks_and_writes() -> None:
    """Hooks see the gradients; a weight that is written to before the backward pass is an error."""
    rnn, x = graphc.nn.RNN(3, 4), graphc.randn(5, 2, 3)
    plain = graphc.autograd.grad(rnn(x)[0].square().sum(), [rnn.weight_hh_l0])[0]
    rnn.weight_hh_l0.register_hook(lambda g: 2 * g)
    output, _ = rnn(x)
    output.register_hook(lambda g: 3 * g)
    output.square().sum().backward()
    assert graphc.allclose(rnn.weight_hh_l0.grad, 6 * plain, rtol=1e-4, atol=1e-5)
    output, _ = rnn(x)
    with graphc.no_grad():
        rnn.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_transforms() -> None:
    """grad, jvp and vmap of a layer."""
    def run(package: Any) -> list[Any]:
        layer = package.nn.GRU(2, 3)
        q = np.random.default_rng(2)
        layer.load_state_dict({
            name: package.tensor(q.standard_normal(tuple(w.shape)).astype("float32"))
            for name, w in layer.state_dict().items()
        })
        x, one = package.tensor(q.standard_normal((4, 3, 2)).astype("float32")), package.ones
        weights, func = dict(layer.named_parameters()), package.func
        by = func.grad(lambda w: func.functional_call(layer, w, (x,))[0].square().sum())(weights)
        layer.requires_grad_(False)
        value, slope = func.jvp(lambda x: layer(x)[0], (x,), (one(4, 3, 2),))
        rows = func.jacrev(lambda x: layer(x)[0])(x)
        return [*[by[name] for name in sorted(by)], value, slope, rows]

    for wanted, found in zip(run(torch), run(graphc), strict=True):
        np.testing.assert_allclose(
            found.detach().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("mode", ["train", "no_grad", "inference"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LSTMCell"])
def test_graphs_keep_no_tensors_of_the_user(kind: str, mode: str) -> None:
    """A graph is kept when its layer is gone: what it was recorded with is not the user's."""
    layer, x = getattr(graphc.nn, kind)(6, 5), graphc.randn(4, 6)
    if kind != "LSTMCell":
        x = graphc.randn(3, 4, 6).transpose(0, 1)
    within = {"no_grad": graphc.no_grad, "inference": graphc.inference_mode}
    with within.get(mode, contextlib.nullcontext)():
        first = layer(x)[0]
        if mode == "train":
            assert _is_whole(first)
            first.sum().backward()
    kept = [weakref.ref(tensor) for tensor in (x, *layer.parameters())]
    del layer, x, first
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)


def test_bits_do_not_hang_on_the_sizes_that_came_first() -> None:
    graphc.manual_seed(0)
    layer, x = graphc.nn.LSTM(64, 96), graphc.randn(40, 24, 64)

    def run(*sizes: tuple[int, int]) -> tuple[graphc.Tensor, ...]:
        recurrence_whole._layer.cache_clear()
        for steps, rows in [*sizes, (40, 24)]:
            layer.zero_grad()
            found = layer(x[:steps, :rows])[0]
            found.square().sum().backward()
        return found, *[p.grad.clone() for p in layer.parameters()]

    for fresh, later in zip(run(), run((2, 2), (7, 3)), strict=True):
        assert graphc.equal(fresh, later)


@pytest.mark.usefixtures("beside_meta")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LSTMCell"])
def test_another_device_that_was_used_changes_nothing(kind: str) -> None:
    """The states that a layer begins with are its own, and lie where its input does."""
    layer = getattr(graphc.nn, kind)(6, 5)
    found = layer(graphc.randn(4, 6) if kind == "LSTMCell" else graphc.randn(3, 4, 6))
    assert _is_whole(found[0]) and found[0].device.type == "cpu"
