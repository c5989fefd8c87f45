"""What explain() predicts of memory is what a fresh process takes (Linux)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Prints predicted bytes that are not there before the first call, and by how much the resident
# memory was larger at its most.
SCRIPT = """
import ctypes, gc, json, sys
import numpy as np
import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.backends.host import allocator

def now(what):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(what)) * 1024

def tidy():  # what nobody uses is none of a later call's
    gc.collect()
    allocator._shared.release()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.second(x))))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(500, 192), nn.Linear(192, 500)
        self.blocks = nn.Sequential(*[Block(192) for _ in range(3)])

    def forward(self, i):
        return self.head(self.blocks(self.tokens(i))).flatten(0, 1)

class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(128, 256, batch_first=True), nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])

def mlp():
    layers = [nn.Linear(1024, 1024)]
    for _ in range(5):
        layers += [nn.ReLU(), nn.Linear(1024, 1024)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(1024, 10))

def conv():
    layers, width = [], 3
    for more in (32, 32, 64, 64):
        layers += [nn.Conv2d(width, more, 3, padding=1), nn.BatchNorm2d(more), nn.ReLU()]
        width = more
    return nn.Sequential(*layers, nn.MaxPool2d(4), nn.Flatten(), nn.Linear(64 * 64, 10))

rng = np.random.default_rng(0)
floats = lambda *shape: torch.from_numpy(rng.standard_normal(shape, np.float32))
ints = lambda high, *shape: torch.from_numpy(rng.integers(0, high, shape))
name, kind, limit = sys.argv[1:4]
make, data = {
    "mlp": (mlp, lambda: (floats(2048, 1024), ints(10, 2048))),
    "conv": (conv, lambda: (floats(32, 3, 32, 32), ints(10, 32))),
    "gpt": (GPT, lambda: (ints(500, 16, 128), ints(500, 16 * 128))),
    "lstm": (LSTM, lambda: (floats(64, 100, 128), ints(10, 64))),
}[name]
net = make()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = data()
options = {"max_memory": int(limit)} if limit != "0" else {}
model = torch.compile(net, **options) if kind == "module" else net

def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

run = torch.compile(step, **options) if kind == "step" else step

def warm_up():  # the compiler's own memory, and that of Python modules, is none of a call's
    net = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(floats(3, 4)), ints(4, 3)).backward()
        optimizer.step()

warm_up()
if limit != "0":  # what graphc imports while it records is imported
    torch.compile(lambda x: net(x).sum())(x)
tidy()
before = now("VmRSS")
for _ in range(4):
    run(x, y)
tidy()  # what recording has made, and an optimizer's first step, operator by operator
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
for _ in range(3):
    run(x, y)
most = now("VmHWM") - before
moments = sum(8 * p.numel() for p in net.parameters())
found = torch.explain(run if kind == "step" else model, *((x, y) if kind == "step" else (x,)))
memory = found.memory
there = memory["parameters"] + memory["arguments"]
if kind == "module":
    there -= moments  # the optimizer is none of the module's
loss = 6 * memory["results"] if kind == "module" else 0  # what eager cross_entropy makes on the way
print(json.dumps([memory.peak - there, most, memory.peak, loss]))
"""


def measured(cache: Path, *arguments: str) -> list[int]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHC_CACHE_DIR": str(cache),
                   "GRAPHC_THREADS": "2"}
    for _ in range(2):  # compiled by the first, so that the second has no compiler in its memory
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments], env=environment, text=True,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("kind", ["step", "module"])
@pytest.mark.parametrize("name", ["mlp", "conv", "gpt", "lstm"])
def test_the_predicted_peak_is_what_is_measured(name: str, kind: str, tmp_path: Path) -> None:
    predicted, most, peak, loss = measured(tmp_path, name, kind, "0")
    assert abs(predicted - most) < 5e6 + loss + 0.06 * predicted, (predicted, most)
    limit = int(peak * 0.8)
    if name == "gpt":
        less, most, peak, loss = measured(tmp_path, name, kind, str(limit))
        assert peak <= limit and abs(less - most) < 5e6 + loss + 0.06 * less, (less, most)
