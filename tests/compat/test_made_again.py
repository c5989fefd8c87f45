"""`run --compile`: Modules that a program makes at each step are not compiled each."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

STEPS = """
import copy
import sys
import torch
from torch import nn
torch.manual_seed(0)
def head():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
model = head()
for i in range(80):
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    loss = nn.SmoothL1Loss(reduction="sum" if i % 2 else "mean", beta=1 + i % 3)(model(x), y)
    model.zero_grad()
    loss.backward()
    print("%.5f" % (loss.item() + model[0].bias.grad.sum().item()))
"""

TASKS = """
for i in range(40):
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    near = copy.deepcopy(model)
    for _ in range(2):
        near.zero_grad()
        nn.functional.mse_loss(near(x), y).backward()
        with torch.no_grad():
            for p in near.parameters():
                p -= 0.1 * p.grad
    print("%.5f" % near(x).sum().item())
"""

LASTING = """
for i in range(3):
    other = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    for _ in range(20):
        print("%.5f" % other(torch.ones(2, 4)).sum().item())
"""

COUNT = """
from graphc.engine.built import CompileCounter
print(CompileCounter.count, file=sys.stderr)
"""


def ran(mode: str, text: str, directory: Path) -> tuple[list[float], int]:
    """What a program prints, and how often something was compiled."""
    (directory / "program.py").write_text(text + COUNT)
    have = subprocess.run(
        [sys.executable, "-m", "graphc", "run", mode, "program.py"], capture_output=True,
        text=True, cwd=directory, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert have.returncode == 0, have.stderr
    return [float(line) for line in have.stdout.split()], int(have.stderr.splitlines()[-1])


@pytest.mark.parametrize(("text", "least", "most"), [
    (STEPS, 3, 16),  # 82 if each loss is compiled, and the model again after 64 of them
    (STEPS + TASKS, 3, 24),
    (STEPS + LASTING, 6, 20),
])
def test_the_next_one_waits(text: str, least: int, most: int, tmp_path: Path) -> None:
    want, _ = ran("--eager", text, tmp_path)
    have, count = ran("--compile", text, tmp_path)
    assert have == pytest.approx(want, rel=1e-4, abs=2e-5)
    assert least <= count <= most
