"""The demo: its PyTorch twin is the same script, and one short run does all it promises."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphc import demo

CONSTANTS = ("EPOCHS", "BATCH", "LEARNING_RATE", "MEAN", "STD")


def script(path: Path) -> dict[str, str]:
    """The network and the numbers of a training script, as comparable texts."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == "ConvNet":
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            found |= {each.name: ast.unparse(each) for each in methods}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            names = [ast.unparse(name) for name in node.targets[0].elts]
            assert isinstance(node.value, ast.Tuple)
            found |= dict(zip(names, map(ast.unparse, node.value.elts), strict=True))
        if isinstance(node, ast.FunctionDef) and node.name == "train":
            wanted = ("optimizer =", "schedule =", "loader =")
            lines = [ast.unparse(each) for each in node.body]
            found["setting"] = "\n".join(each for each in lines if each.startswith(wanted))
    return found


def test_the_stated_accuracy_was_measured_on_the_same_script(repository: Path) -> None:
    ours = script(repository / "graphc" / "demo.py")
    twin = script(repository / "benchmarks" / "demo_torch.py")
    assert {*CONSTANTS, "__init__", "forward", "setting"} <= ours.keys()
    for name in (*CONSTANTS, "__init__", "forward", "setting"):
        assert ours[name] == twin[name], name


def test_pytorch_is_compared_after_as_many_epochs_only() -> None:
    stated, step = demo.comparison(demo.EPOCHS, None)
    assert f"{demo.PYTORCH.mean:.2f}%" in stated and "AMD EPYC" in step and "2026" in step
    other, _ = demo.comparison(demo.EPOCHS + 1, None)
    assert "%" not in other and f"{demo.EPOCHS} epochs" in other
    live, step = demo.comparison(2, demo.Measured("2.13.0", 95.5, 21.0))
    assert "95.5%" in live and "same script and seed" in live and step == "21.0 ms"


def test_pytorch_is_run_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "PyTorch 2.13.0+cpu, 2 threads\nseed 3: 96.9%  loss 2.4194 -> 0.0042  21.5 ms per step\n"
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, said, "")

    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(demo.subprocess, "run", run)
    assert demo.measure_pytorch(2, 3) == demo.Measured("2.13.0+cpu", 96.9, 21.5)
    assert commands[0][2:6] == ["--seeds", "3", "--epochs", "2"]
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    assert demo.measure_pytorch(2, 3) is None


@pytest.mark.slow
def test_one_epoch_end_to_end(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "graphc", "demo", "--epochs", "1", "--out", str(tmp_path)]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1000 of 1000 predictions agree" in result.stdout
    assert re.search(r"PyTorch, per step +[\d.]+ ms", result.stdout)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "step.svg").read_text()
    assert (tmp_path / "digits.gcx").stat().st_size > 10_000


def test_an_unknown_command_is_named(repository: Path) -> None:
    command = [sys.executable, "-m", "graphc", "demmo"]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert result.returncode == 2
    assert "'demmo'" in result.stderr
