"""Training steps that tests export, what they are compared by, and how refusals are asked for."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.__main__ import main
from graphc.export import ExportError, export_step
from graphc.frontend.errors import TraceError


class Net(nn.Module):
    """Convolution, batch norm, dropout, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(4 * 16, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x.flatten(1)))


def batches(count: int, rows: int = 6) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [
        (torch.from_numpy(rng.standard_normal((rows, 1, 8, 8)).astype(np.float32)),
         torch.from_numpy(rng.integers(0, 10, rows)))
        for _ in range(count)
    ]


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def plain(net: Any, opt: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def clipped(net: Any, opt: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        opt.zero_grad()
        return loss.item(), norm

    return step


def autocast(net: Any, opt: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def accumulating(net: Any, opt: Any) -> Any:
    """Nobody clears the gradients: each call adds to what it finds."""
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def several(net: Any, opt: Any) -> Any:
    """A call is two small batches."""
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        for rows in (slice(0, 3), slice(3, 6)):
            loss = F.cross_entropy(net(x[rows]), y[rows]) / 2
            loss.backward()
        opt.step()
        return loss

    return step


STEPS = {"plain": plain, "clipped": clipped, "autocast": autocast, "accumulating": accumulating,
         "several": several}


def made(optimizer: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = Net()
    return net, OPTIMIZERS[optimizer](net.parameters())


def bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().tobytes()
    return [bits(part) for part in value] if isinstance(value, tuple) else value


def trained(step: Any, data: Any) -> list[Any]:
    return [bits(step(*pair)) for pair in data]


def state_of(net: Any, opt: Any) -> dict[str, Any]:
    """What state_dict() of an exported step says, of the objects themselves."""
    found = {name: bits(value) for name, value in net.state_dict().items()}
    for name, parameter in net.named_parameters():
        for key, value in opt.state.get(parameter, {}).items():
            found[f"optimizer.state.{name}.{key}"] = bits(value)
    return found


def small() -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


class Trainer:
    """State of its own: a counter, an average."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.steps = 0
        self.average = torch.zeros(())

    def step(self, x: Any) -> Any:
        self.opt.zero_grad()
        loss = self.net(x).square().mean() * (1 + self.steps * 0.1)
        loss.backward()
        self.opt.step()
        self.steps += 1
        self.average = 0.9 * self.average + 0.1 * loss.detach()
        return loss, self.steps


def refused(body: Callable[..., Any], *args: Any) -> str:
    with pytest.raises((ExportError, TraceError)) as caught:
        export_step(body, args)
    assert "Cure:" in str(caught.value)
    return str(caught.value)


def tampered(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file with another manifest."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            new.writestr(entry, data)
    return target


def verified(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["verify", str(path)])
    return code, capsys.readouterr().out
