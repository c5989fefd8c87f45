"""Rows of the matrix: programs written for torch, each run with PyTorch and with graphc.

A script in scripts/ is an ordinary program. It runs in two venvs with the same packages, one of
which has PyTorch, the other the stand-in of `python -m graphc shim install`. What it tells
(scripts/told.py) is compared. Add a row to a `rows_*.py`, and its script; `python -m
tests.ecosystem NAME` runs it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ecosystem.compare import Finding, compare
from tests.ecosystem.venvs import Venv, pair

SCRIPTS = Path(__file__).parent / "scripts"
PARTS = ("rows_huggingface", "rows_lightning", "rows_tools", "rows_methods")
SIDES = ("torch", "graphc")


@dataclass(frozen=True)
class Row:
    """A script, and the packages that it needs.

    name: of the row; its script is scripts/NAME.py unless `script` names another file there.
    packages: what is installed beside torch, pinned ("timm==1.0.31"), and options of pip install
        ("--no-build-isolation"). Rows with the same packages share their two venvs.
    shows: what ran, for the table.
    stages: the script runs once for each, on both sides, with the stage as its argument. In stage
        "swap" its folder is the other side's: what PyTorch wrote, graphc reads, and so on.
    limit: seconds for a stage.
    lacks: what is known not to work, for the table.
    """

    name: str
    packages: tuple[str, ...]
    shows: str
    script: str = ""
    stages: tuple[str, ...] = ("run",)
    limit: float = 900.0
    lacks: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The script."""
        return SCRIPTS / (self.script or f"{self.name}.py")


@dataclass(frozen=True)
class Result:
    """What came of a row: what was compared, what each side told for itself, what went wrong."""

    row: Row
    findings: list[Finding]
    own: dict[str, dict[str, Any]]  # by side
    versions: dict[str, str]  # of the packages

    @property
    def wrong(self) -> list[Finding]:
        """What differs by more than the script allows."""
        return [finding for finding in self.findings if finding.wrong]

    def worst(self, losses: bool) -> float | None:
        """The largest relative difference among losses, or among what is none."""
        found = [f.difference for f in self.findings if f.within and ("loss" in f.what) is losses]
        return max(found, default=None)


class Failed(Exception):
    """A script ended with an error."""


def rows() -> dict[str, Row]:
    """All rows by name."""
    found: dict[str, Row] = {}
    for part in PARTS:
        for row in importlib.import_module(f"tests.ecosystem.{part}").ROWS:
            assert row.name not in found, f"two rows called {row.name}"
            found[row.name] = row
    return found


def run(row: Row, folder: Path) -> Result:
    """Run a row's script on both sides. `folder` is new; each side writes in one of its own.

    Raises venvs.Unreachable where packages cannot be had, and Failed where a script fails.
    """
    venvs = pair(row.packages)
    told: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for side in SIDES:
        (folder / side).mkdir(parents=True)
    for stage in row.stages:
        for side in SIDES:
            other = SIDES[side == SIDES[0]]
            where = folder / (other if stage == "swap" else side)
            told[side] += run_script(row, stage, venvs[side], where)
    both = {side: [t for t in told[side] if "within" in t] for side in SIDES}
    own = {side: {t["what"]: t["value"] for t in told[side] if "within" not in t} for side in SIDES}
    findings = compare(both["graphc"], both["torch"])
    return Result(row, findings, own, venvs["graphc"].versions(row.packages))


def run_script(row: Row, stage: str, venv: Venv, folder: Path) -> list[dict[str, Any]]:
    """What the script tells. Raises Failed with the end of what it wrote."""
    try:
        done = subprocess.run(
            [str(venv.python), str(row.path), stage], cwd=folder, timeout=row.limit,
            env=environment(venv, row), capture_output=True, text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{row.name}, {stage}, with {venv.side}: over {row.limit:g} s") from error
    if done.returncode:
        written = f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        raise Failed(f"{row.name}, {stage}, with {venv.side}: status {done.returncode}\n{written}")
    return list(told_lines(done.stdout))


def told_lines(text: str) -> Iterator[dict[str, Any]]:
    """The JSON lines of scripts/told.py among what a program and its packages print."""
    for line in text.splitlines():
        at = line.find('{"told": ')  # behind a progress bar's end of line
        if at >= 0:
            yield json.loads(line[at:])["told"]


def environment(venv: Venv, row: Row) -> dict[str, str]:
    """This process's, without what leads to other packages, and nothing that asks the network."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GRAPHC_", "HF_"))}
    return {
        **kept, **venv.environment(), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg",
        "HF_HOME": str(venv.folder / "huggingface"), "ECOSYSTEM_SIDE": venv.side, **row.environment,
    }
