"""The script for a GPU works without one, on the emulator."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphc.backends.cuda.emulator import compiler
from graphc.backends.cuda.errors import CudaContextLost, error_of

from . import bundle, first_contact
from .bed import Bed
from .results import RAISED, Results
from .stages import training


def rehearse(path: Path, *arguments: str) -> list[dict[str, object]]:
    """The lines of a run that came to its end."""
    failed = first_contact.main([*arguments, "--rehearse", "--results", str(path)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert failed == 0, lines
    return lines


@pytest.fixture(autouse=True)
def needs() -> None:
    if compiler() is None:
        pytest.skip("the emulator of CUDA C needs a C++ compiler (g++ or clang++)")


def test_kernels(tmp_path: Path) -> None:
    lines = rehearse(tmp_path / "results.jsonl", "--only", "kernels")
    counted = next(line for line in lines if line["name"] == "bert")
    assert counted["right"] >= 5 and counted["wrong"] == 0


@pytest.mark.slow
def test_all_stages(tmp_path: Path) -> None:
    lines = rehearse(tmp_path / "results.jsonl", "--minutes", "30")
    ended = [line["stage"] for line in lines if line["name"] == "stage"]
    assert ended == [stage.name for stage in first_contact.STAGES]


def test_a_stage_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no C++ compiler: the child finds no device
    path = tmp_path / "results.jsonl"
    assert first_contact.main(["--only", "ceilings", "--rehearse", "--results", str(path)]) == 1
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["name"] for line in lines] == ["failed", "stage"]


def test_what_an_item_raises_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their turn, but where the context is lost."""
    bed: Any = SimpleNamespace(large=False, device=nullcontext)
    lost = error_of("cuLaunchKernel", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal address")

    def losses(name: str, device: str, compiled: bool, steps: int) -> np.ndarray:
        if device == "cuda" and (name, compiled) == ("mlp", True):
            raise raised
        return np.ones(steps)

    monkeypatch.setattr(training, "losses", losses)
    results = Results(tmp_path / "results.jsonl", 1)
    raised: Exception = ValueError("no")
    training.run(bed, results.recorder("training", ""))
    names = [line["name"] for line in results.lines()]
    assert names == [RAISED, "mlp eager", "bert compiled", "bert eager"]
    raised = lost
    with pytest.raises(CudaContextLost):
        training.run(bed, results.recorder("training", ""))
    assert [line["name"] for line in results.lines()][len(names):] == [RAISED]

    # and the stage says, by its exit status, that something was raised
    monkeypatch.setattr(first_contact.beds, "emulated", lambda: Bed(*[None] * 6))  # type: ignore[arg-type]
    monkeypatch.setattr(training, "run", lambda bed, record: None)
    child = ["--rehearse", "--stage", "training", "--results", str(results.path), "--run"]
    assert first_contact.main([*child, "1"]) == 1
    assert first_contact.main([*child, "2"]) == 0


def test_what_a_machine_lacks() -> None:
    there = "numpy==2.5.2\nml_dtypes==0.6\nllvmlite==0.5\nnetworkx==3\ntqdm==4\npytest==9\n"
    assert bundle.missing(there) == ["pytest-xdist", "mpmath", "safetensors", "cuda-pathfinder"]
