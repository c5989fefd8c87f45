"""Two libraries of training steps in a C program that uses them wrongly, too (two_steps.c)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import Dim, aot, export_step


def _made(folder: Path, name: str, width: int) -> None:
    model = nn.Sequential(
        nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any, rate: float) -> Any:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batch = {0: Dim("batch", min=2, max=64)}
    exported = export_step(
        step, (torch.randn(8, 4), torch.randint(0, 3, (8,)), 0.1),
        dynamic_shapes={"x": batch, "y": batch, "rate": None},
    )
    aot(exported, folder, name=name, targets=["x86-64", "native"])


@pytest.mark.slow
def test_two_steps_in_one_program(tmp_path: Path) -> None:
    """Also under valgrind, where it is installed: no memory that is not theirs, none left."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    for name, width in (("one", 16), ("two", 33)):
        _made(tmp_path, name, width)
    subprocess.run(
        [compiler, "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}",
         Path(__file__).with_name("two_steps.c"), "-o", tmp_path / "two_steps", "-ldl", "-pthread"],
        check=True,
    )

    def holds(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    holds("./two_steps", "5", "200")
    if (valgrind := shutil.which("valgrind")) is not None:
        holds(valgrind, "-q", "--error-exitcode=99", "--leak-check=full", "./two_steps", "1", "40")
