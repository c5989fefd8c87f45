"""Operators, modules, optimizers, programs and compiled functions on the device, by the tests that
the emulated one passes."""

from __future__ import annotations

import re
import subprocess
import sys

from ..bed import Bed
from ..results import Record

TESTS = "tests/backends/cuda/device"


def run(bed: Bed, record: Record) -> None:
    """A line of counts, and one for each test that failed. A rehearsal runs a sample."""
    workers = ["-n", "auto", "--dist", "load"] if bed.large else []
    chosen = ["--nvidia", "-m", "slow or not slow"] if bed.large else ["-k", "gradients"]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", TESTS, *workers, *chosen]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)", lines[-1] if lines else "")
    record("tests", **{kind: int(number) for number, kind in counts})
    for line in failed[:60]:
        record("failed", test=line[:300])
    if not counts:
        raise RuntimeError(f"pytest said nothing: {found.stderr[-500:]}")
