"""A compiled call whose native code refuses leaves what eager mode leaves: parameters, buffers,
.grad, optimizer state, generator, arguments and Python state are those of a run up to the error,
and the next call goes on."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn as nn
import graphc.nn.functional as F
from tests.reference import torch

RNG = np.random.default_rng(9)
HERE = __file__


class Net(nn.Module):
    """Words to classes, with everything that keeps state."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.rows = nn.LayerNorm(16)
        self.mix = nn.Linear(16, 24)
        self.norm = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(24, 7)
        self.register_buffer("seen", graphc.zeros(20, dtype=graphc.int64))
        self.register_buffer("average", graphc.zeros(24))
        self.calls = 0

    def forward(self, i: Any, divisor: Any) -> Any:
        self.calls += 1
        x = self.drop(self.norm(self.mix(self.rows(self.words(i)))).relu())
        with graphc.no_grad():
            self.seen.scatter_add_(0, i, graphc.ones_like(i) // divisor)
            self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.out(x)


def by_hand(parameters: list[Any]) -> Callable[[], None]:
    """Momentum in plain Python."""
    moments = [graphc.zeros_like(p) for p in parameters]

    def step() -> None:
        with graphc.no_grad():
            for p, m in zip(parameters, moments, strict=True):
                m.mul_(0.9).add_(p.grad)
                p.sub_(0.05 * m)

    step.moments = moments  # type: ignore[attr-defined]
    return step


# eps: gradients that are zero but for rounding move nothing
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: graphc.optim.SGD(p, lr=0.05),
    "momentum": lambda p: graphc.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: graphc.optim.Adam(p, lr=0.01, eps=1e-3),
    "adamw": lambda p: graphc.optim.AdamW(p, lr=0.01, eps=1e-3),
}


class Training:
    """A model, its optimizer and one step over them."""

    def __init__(self, optimizer: str, clear: str, compiled: bool = True) -> None:
        graphc.manual_seed(3)
        self.net = Net()
        self.optimizer = OPTIMIZERS[optimizer](self.net.parameters())
        self.clear = clear
        self.run = graphc.compile(self.step) if compiled else self.step
        self.generator = graphc.get_rng_state()

    def __call__(self, arguments: dict[str, Any]) -> Any:
        """A step on copies of these, with this training's own random numbers."""
        graphc.set_rng_state(self.generator)
        given = {name: each.detach().clone() for name, each in arguments.items()}
        given["scratch"] = graphc.zeros(6, 4).t()  # written through its strides
        try:
            return self.run(**given), given["scratch"]
        except (IndexError, RuntimeError) as error:
            return error, given["scratch"]
        finally:
            self.generator = graphc.get_rng_state()

    def step(self, i: Any, y: Any, divisor: Any, scratch: Any) -> Any:
        if self.clear != "never":
            self.optimizer.zero_grad(set_to_none=self.clear == "none")
        scratch.add_(1)
        loss = F.cross_entropy(self.net(i, divisor), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[Any]:
        """All that a graph writes."""
        tensors = [*self.net.state_dict().values(), *(p.grad for p in self.net.parameters())]
        tensors += [v for s in self.optimizer.state.values() for v in s.values()]
        found = [t.detach().numpy() if isinstance(t, graphc.Tensor) else t for t in tensors]
        return [*found, self.generator.numpy(), len(self.optimizer.state), self.net.calls]


def assert_same(expected: list[Any], found: list[Any]) -> None:
    """Equal, but for rounding."""
    for want, have in zip(expected, found, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(have, want, 1e-4, 1e-5)
        else:
            assert want == have


def good() -> dict[str, Any]:
    return {
        "i": graphc.from_numpy(RNG.integers(0, 20, 64)),
        "y": graphc.from_numpy(RNG.integers(0, 7, 64)),
        "divisor": graphc.ones(64, dtype=graphc.int64),
    }


BAD: dict[str, tuple[str, int, type[Exception], str]] = {
    "label": ("y", 7, IndexError, r"Target 7 is out of bounds\."),
    "label below": ("y", -1, IndexError, r"Target -1 is out of bounds\."),
    "word": ("i", 20, IndexError, "index out of range in self: 20"),
    "far word": ("i", 1 << 40, IndexError, "index out of range in self"),
    "division": ("divisor", 0, RuntimeError, "ZeroDivisionError"),
}


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = graphc.get_num_threads()
    yield
    graphc.set_num_threads(before)


STEPS = [("sgd", "none"), ("momentum", "zero"), ("adam", "none"), ("adamw", "never")]


@pytest.mark.parametrize(
    "optimizer, clear",
    [
        pytest.param(o, c, marks=() if (o, c) in STEPS else pytest.mark.slow)
        for o in OPTIMIZERS for c in ("none", "zero", "never")
    ],
)
def test_training_steps(optimizer: str, clear: str) -> None:
    """Failing at the first call, at the second, and in the steady state."""
    pair = Training(optimizer, clear, compiled=False), Training(optimizer, clear)
    for _ in range(3):
        for argument, value, kind, message in BAD.values():
            arguments = good()
            arguments[argument][61] = value
            for training in pair:
                error, scratch = training(arguments)
                assert isinstance(error, kind) and re.search(message, str(error))
                assert (scratch.numpy() == 1).all()
            assert HERE in str(error), "the user's line is missing"
            assert_same(pair[0].state(), pair[1].state())
        for threads in (1, 3):
            graphc.set_num_threads(threads)
            arguments = good()
            losses = [training(arguments)[0].item() for training in pair]
            assert losses[0] == pytest.approx(losses[1], 1e-4)
            assert_same(pair[0].state(), pair[1].state())
    assert pair[1].run.segments is None  # type: ignore[attr-defined]


def test_an_optimizer_by_hand() -> None:
    net = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 3))
    update = by_hand(list(net.parameters()))
    moments: list[Any] = update.moments  # type: ignore[attr-defined]

    def step(i: Any, y: Any) -> Any:
        net.zero_grad()
        loss = F.cross_entropy(net(i), y)
        loss.backward()
        update()
        return loss

    run = graphc.compile(step)
    i, y = graphc.arange(9), graphc.arange(9) % 3
    for _ in range(3):
        state = [t.detach().numpy().tobytes() for t in (*net.parameters(), *moments)]
        for bad in ((i, y + 1), (i + 1, y)):  # each before the update
            with pytest.raises(IndexError, match=r"Target 3 is out of bounds|out of range"):
                run(*bad)
            assert all(p.grad is None for p in net.parameters())
        assert [t.detach().numpy().tobytes() for t in (*net.parameters(), *moments)] == state
        run(i, y)


def test_a_compiled_model_in_an_ordinary_loop() -> None:
    """Its buffers, and the generator, are where eager mode leaves them when its forward raises."""
    one, found = graphc.ones(8, dtype=graphc.int64), []
    for how in (lambda net: net, graphc.compile):
        graphc.manual_seed(5)
        net = Net()
        run = how(net)
        run(graphc.arange(8), one).sum().backward()
        for bad in ((graphc.arange(8) + 13, one), (graphc.arange(8), one - 1)):
            with pytest.raises((IndexError, RuntimeError)):
                run(*bad)
            tensors = [*net.state_dict().values(), *(p.grad for p in net.parameters())]
            tensors.append(graphc.get_rng_state())
            found.append([net.calls, *(t.detach().numpy().copy() for t in tensors)])
    assert_same(found[0], found[2])
    assert_same(found[1], found[3])


LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cross_entropy": lambda t, x, y: t.nn.functional.cross_entropy(x, y),
    "weighted": lambda t, x, y: t.nn.functional.cross_entropy(x, y, t.ones(5)),
    "smoothed": lambda t, x, y: t.nn.functional.cross_entropy(x, y, label_smoothing=0.1),
    "nll_loss": lambda t, x, y: t.nn.functional.nll_loss(x, y),
    "sum": lambda t, x, y: t.nn.functional.cross_entropy(x, y, reduction="sum"),
    "module": lambda t, x, y: t.nn.CrossEntropyLoss()(x, y),
}


TARGETS = [
    pytest.param(name, shape, marks=() if number == i % 4 or i == 0 else pytest.mark.slow)
    for i, name in enumerate(LOSSES)
    for number, shape in enumerate([(6, 5), (5,), (2, 5, 3), (2, 5, 3, 4)])
]


@pytest.mark.parametrize("name, shape", TARGETS)
def test_targets_that_are_no_class(name: str, shape: tuple[int, ...]) -> None:
    """torch's error in torch's words, eager and compiled; -100 is the ignored one."""
    function = LOSSES[name]
    classes = 5
    compiled = graphc.compile(function)
    places = () if len(shape) == 1 else (shape[0], *shape[2:])
    for bad in (classes, -1, -99, 1 << 33):
        y = np.full(places, 2)
        y.reshape(-1)[-1] = bad
        x = RNG.standard_normal(shape).astype("float32")
        with pytest.raises(IndexError) as expected:
            function(torch, torch.from_numpy(x), torch.from_numpy(y))
        assert str(expected.value) == f"Target {bad} is out of bounds."
        given = graphc.from_numpy(x), graphc.from_numpy(y)
        for run in (function, compiled):
            with pytest.raises(IndexError) as caught:
                run(graphc, *given)
            assert str(caught.value).split("\n")[0] == str(expected.value)
    y.reshape(-1)[-1] = -100
    want = function(torch, torch.from_numpy(x), torch.from_numpy(y)).item()
    have = compiled(graphc, graphc.from_numpy(x), graphc.from_numpy(y)).item()
    assert have == pytest.approx(want, rel=1e-5, nan_ok=True)


def test_the_state_of_a_copied_training_is_its_own() -> None:
    training = Training("adamw", "none")
    training(good())
    twin = copy.deepcopy(training.net)
    before = [p.detach().numpy().tobytes() for p in twin.parameters()]
    training(good())
    assert [p.detach().numpy().tobytes() for p in twin.parameters()] == before
