"""What the other processes of these tests run: importable by name, as spawn wants it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import graphc
from graphc import nn
from graphc.nn import functional as F


def write(tensors: dict[str, Any]) -> None:
    """Write to each tensor in its own way."""
    for tensor in tensors.values():
        assert tensor.is_shared()
    with graphc.no_grad():
        tensors["floats"][1] = 7
        tensors["turned"][0, 1] = 8  # a transposed view
        tensors["half"].mul_(3)
        tensors["truth"].logical_not_()
        tensors["scalar"].fill_(5)
        tensors["weight"].add_(1)


def send_and_wait(queue: Any, written: Any, seen: Any) -> None:
    """Send two tensors of one storage and one alone; write after the other side has them."""
    both = graphc.arange(6.0)
    alone = graphc.zeros(3, dtype=graphc.int64)
    queue.put((both, both[2:4], alone))
    written.wait(20)
    both.add_(10)
    alone[0] = both.is_shared() + alone.is_shared()
    seen.set()


def send_and_end(queue: Any) -> None:
    """Leave a tensor behind in a queue."""
    queue.put(graphc.ones(3))


def send_back(pipe: Any) -> None:
    """Send what comes in, after a write."""
    tensor = pipe.recv()
    tensor += 1
    pipe.send(tensor)
    pipe.recv()


def share_new(queue: Any, done: Any) -> None:
    """Share a small tensor that was made after the fork."""
    queue.put(graphc.full((8,), 3.0).share_memory_())
    done.wait(20)


def net() -> Any:
    """A small classifier."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2))


def samples(seed: int, count: int) -> Any:
    """Points of two classes."""
    generator = graphc.Generator().manual_seed(seed)
    x = graphc.randn(count, 4, generator=generator)
    return x, (x.sum(1) > 0).long()


def hogwild(rank: int, model: Any) -> None:
    """Train the parameters that others train too, with an optimizer of its own."""
    graphc.manual_seed(rank)
    optimizer = graphc.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    model.train()
    for step in range(30):
        x, y = samples(100 * rank + step, 32)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def compiled_steps(rank: int, weight: Any) -> None:
    """A whole training step in one graph, on a shared parameter."""
    optimizer = graphc.optim.SGD([weight], lr=0.5)

    @graphc.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    for _ in range(3):
        step(graphc.ones(4))


class SharedAdam(graphc.optim.Adam):  # type: ignore[misc]
    """Adam whose state the processes share: the usual one of A3C programs."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr=lr)
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = graphc.zeros(()).share_memory_()
                state["exp_avg"] = graphc.zeros_like(p.data).share_memory_()
                state["exp_avg_sq"] = graphc.zeros_like(p.data).share_memory_()


def actor_critic(rank: int, shared: Any, optimizer: Any, counter: Any, lock: Any) -> None:
    """A3C: a local copy, gradients handed to the shared model, steps on shared parameters."""
    graphc.manual_seed(rank)
    local = net()
    for step in range(10):
        local.load_state_dict(shared.state_dict())
        x, y = samples(rank * 50 + step, 16)
        policy, value = graphc.log_softmax(local(x), 1), local(x).mean(1)
        loss = -(policy[graphc.arange(16), y]).mean() + 0.01 * value.pow(2).mean()
        optimizer.zero_grad()
        local.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(local.parameters(), 40)
        for mine, its in zip(local.parameters(), shared.parameters(), strict=True):
            its._grad = mine.grad
        optimizer.step()
        with lock:
            counter.value += 1


class Images:
    """A dataset of large samples of many kinds."""

    def __init__(self, size: int = 8, side: int = 100) -> None:
        self.size, self.side = size, side

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        whole = graphc.full((self.side, self.side), float(index))
        return {
            "float": whole, "half": whole.bfloat16(), "truth": whole > 3,
            "pair": (whole.to(graphc.complex64), index), "name": f"number {index}",
        }


class Dying(Images):
    """Ends its process at a sample."""

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            os._exit(3)
        return graphc.ones(self.side, self.side)


class Rows:
    """One large sample over and over; cheap to make."""

    def __init__(self, size: int) -> None:
        self.size, self.row = size, graphc.ones(40_000)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.row


def arrays(batch: Any) -> Any:
    """Large NumPy arrays, two tensors on one storage, and one read-only array."""
    both = graphc.arange(80_000.0)
    fixed = np.arange(50_000.0)
    fixed.flags.writeable = False
    return np.arange(60_000), both, both[40_000:], fixed


def failing(batch: Any) -> Any:
    """Something large that cannot be pickled."""
    return graphc.ones(200_000), lambda: None
