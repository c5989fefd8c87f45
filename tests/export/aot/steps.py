"""Training steps that libraries are made of in tests, and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import Dim, ExportedStep, export_step


class Small(nn.Module):
    """Quick to compile: no products of matrices; draws numbers, keeps statistics, and an index
    picks a row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(5, 4)
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.3)
        self.steps = 0

    def forward(self, x: Any, index: Any) -> Any:
        return self.drop(self.norm(x * self.rows(index)))


def small() -> Callable[..., Any]:
    """A step that counts, whose rate is an argument."""
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, index: Any, rate: float) -> Any:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        made = model(x, index)
        loss = (made * made).mean()
        loss.backward()
        optimizer.step()
        model.steps += 2
        return loss.item(), made, model.steps * rate

    return step


def small_batch(k: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(k)
    rows = 2 + k % 5
    return (
        torch.from_numpy(rng.standard_normal((rows, 4)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 5, rows)), 0.1 / (k + 1),
    )


def exported_small() -> ExportedStep:
    torch.manual_seed(0)
    batch = {0: Dim("batch", min=2, max=6)}
    return export_step(
        small(), small_batch(1), dynamic_shapes={"x": batch, "index": batch, "rate": None}
    )


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.25), nn.Linear(64, 10),
        )

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Gpt(nn.Module):
    """One block, whose head is its table."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(17, 16), nn.Embedding(12, 16)
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down, self.drop = nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.1)
        self.head = nn.Linear(16, 17, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Any) -> Any:
        b, t = words.shape
        x = self.drop(self.words(words) + self.places(torch.arange(t)))
        heads = self.attention(self.first(x)).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(b, t, 16)))
        x = x + self.drop(self.down(F.gelu(self.up(self.second(x)))))
        return self.head(x).flatten(0, 1)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 10)

    def forward(self, words: Any) -> Any:
        return self.head(self.lstm(self.words(words))[0][:, -1])


def _mlp() -> Any:
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 10))


def _numbers(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def _integers(high: int, *shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(0, high, shape)


class Case(NamedTuple):
    """A model, its optimizer, and how its batches are made."""

    model: Callable[[], Any]
    optimizer: Callable[[Any], Any]
    inputs: Callable[[Any], Any]
    targets: Callable[[Any], Any]
    schedule: Callable[[Any], Any] | None = None
    calls: int | None = None
    accumulates: bool = False

    def step(self) -> tuple[Callable[..., Any], Any, Any]:
        """The step, its model and its optimizer."""
        torch.manual_seed(0)
        model = self.model()
        optimizer = self.optimizer(model.parameters())
        schedule = self.schedule and self.schedule(optimizer)

        def step(x: Any, y: Any) -> Any:
            if not self.accumulates:
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            return loss

        return step, model, optimizer

    def batch(self, k: int) -> tuple[Any, ...]:
        """Arguments."""
        rng = np.random.default_rng(k)
        return torch.from_numpy(self.inputs(rng)), torch.from_numpy(self.targets(rng))


CASES = {
    "convolutions": Case(
        Convolutions, lambda p: torch.optim.AdamW(p, lr=0.01), _numbers(6, 1, 8, 8),
        _integers(10, 6),
    ),
    "momentum": Case(
        _mlp, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), _numbers(6, 8),
        _integers(10, 6),
    ),
    "accumulating": Case(
        _mlp, lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True), _numbers(6, 8),
        _integers(10, 6), accumulates=True,
    ),
    "gpt": Case(
        Gpt, lambda p: torch.optim.AdamW(p, lr=0.01), _integers(17, 3, 12), _integers(17, 36),
    ),
    "schedule": Case(
        _mlp, lambda p: torch.optim.AdamW(p, lr=0.01), _numbers(6, 8), _integers(10, 6),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=120), 110,
    ),
    "lstm": Case(
        Lstm, lambda p: torch.optim.RMSprop(p, lr=0.01), _integers(11, 4, 7), _integers(10, 4),
    ),
}
