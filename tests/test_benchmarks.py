"""The benchmarks run: their figures are not judged here."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


def run(repository: Path, script: str, *arguments: str) -> str:
    """What a benchmark prints; it must succeed."""
    command = [sys.executable, str(repository / "benchmarks" / script), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_parity(repository: Path) -> None:
    text = run(repository, "parity.py", "--models", "mlp", "lenet", "--steps", "6")
    assert text.count(": ok") == 8


def test_training(repository: Path) -> None:
    text = run(repository, "training.py", "--models", "mlp", "--rounds", "1", "--threads", "2")
    assert "| mlp | 2 | " in text and "WARNING" not in text


def test_compile_time(repository: Path) -> None:
    text = run(repository, "compile_time.py", "--models", "mlp", "--rounds", "1")
    assert "mlp: graphc " in text and "codegen" in text


def test_overhead(repository: Path) -> None:
    text = run(repository, "overhead.py", "--models", "mlp", "--rounds", "1")
    for part in ("call of x + 1", "import, s", "peak resident memory", "  mlp: torch "):
        assert part in text


def test_eager(repository: Path) -> None:
    text = run(repository, "eager.py", "--rounds", "1")
    assert "(w * y).sum().backward()" in text and "step " in text


def test_threads(repository: Path) -> None:
    """A row's counts, and its gain beside the machine's."""
    text = run(repository, "threads.py", "--only", "softmax 4096", "--rounds", "2", "--above", "0")
    (line,) = [line for line in text.splitlines() if line.startswith("| softmax 4096x1024 |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2] == "0.0%" and 1.5 < float(cells[4]) <= 2.0
    assert all(0.2 < float(cell) < 4.0 for cell in cells[5:9]) and len(cells) == 10


SUITE = ("suite", "--engines", "torch", "graphc", "--seconds", "0.05", "--rows")


def test_suite(repository: Path, tmp_path: Path) -> None:
    """A row of each family against PyTorch: figures, values that agree, and what is kept."""
    rows = tmp_path / "rows.jsonl"
    command = (*SUITE, str(rows), "--only", "mlp b1", "mlp training", "softmax 4096", "--out",
               str(tmp_path))
    text = run(repository, *command, "--rounds", "2")
    for row in ("mlp b1 inference", "mlp training", "softmax 4096x1024",
                "bfloat16 softmax 4096x1024"):
        assert f"| {row} | 1 |" in text
    assert "| failed" not in text and "(differs)" not in text and "(2 rounds" in text
    assert len(rows.read_text().splitlines()) == 5  # limits, and four rows
    assert (tmp_path / "benchmarks.svg").exists()
    assert (tmp_path / "benchmarks.md").read_text() in text
    # a second time nothing is left to do, and one more round is one more line a row
    again = run(repository, *command, "--rounds", "2")
    assert again.splitlines()[4:] == text.splitlines()[4:]
    rows.write_text(rows.read_text()[:-20])  # ended while it wrote
    run(repository, *command, "--rounds", "2", "--minutes", "0")
    assert "(1-2 rounds" in run(repository, *command, "--rounds", "1")


def test_peers_far_behind_get_no_further_rounds(repository: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    command = ["suite", "--seconds", "0.05", "--rows", str(rows), "--only", "softmax 4096",
               "--engines", "torch", "torch.compile", "graphc"]
    run(repository, *command, "--rounds", "1")
    text = run(repository, *command, "--rounds", "2", "--drop", "0.9")  # the best one, too
    assert "more than 0.9 times the best one's time have fewer rounds" in text
    last = json.loads(rows.read_text().splitlines()[-1])
    assert list(last[2]) == ["graphc"] and len(last[2]["graphc"]["seconds"]) == 1


def test_an_engine_that_takes_too_long_has_failed(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(repository / "benchmarks" / "suite"), *SUITE[1:],
               str(tmp_path / "rows.jsonl"), "--only", "softmax 4096", "--rounds", "1"]
    result = subprocess.run([*command, "--limit", "0.01"], capture_output=True, text=True)
    assert result.returncode == 1 and "took more than 0.01 s" in result.stderr
    assert "| softmax 4096x1024 | 1 | failed | failed |" in result.stdout
