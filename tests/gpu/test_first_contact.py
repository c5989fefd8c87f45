"""The script for a GPU works without one, on the emulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphc.backends.cuda.emulator import compiler

from . import bundle, first_contact


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


def test_what_a_machine_lacks() -> None:
    there = "numpy==2.5.2\nml_dtypes==0.6\nllvmlite==0.5\nnetworkx==3\ntqdm==4\npytest==9\n"
    assert bundle.missing(there) == ["pytest-xdist", "mpmath", "safetensors", "cuda-pathfinder"]
