"""Operators, modules, optimizers, programs and compiled functions on the device, by the tests that
the emulated one passes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

from ..bed import Bed
from ..results import Record

TESTS = "tests/backends/cuda/device"
_END = 5  # seconds, for what it has to say
_LINE = re.compile(r"\b(PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b")


def run(bed: Bed, record: Record) -> None:
    """A line of counts, and one for each test that failed; also where there was no time for all.
    A rehearsal runs a sample."""
    workers = ["-n", "auto", "--dist", "load"] if bed.large else []
    chosen = ["--nvidia", "-m", "slow or not slow"] if bed.large else ["-k", "gradients"]
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", TESTS, *workers, *chosen]
    lines, ended = _said(command, max(bed.seconds - _END, 5.0))
    counts = Counter(found[1].lower() for line in lines if (found := _LINE.search(line)))
    record("tests", **counts, all_of_them=ended)
    failed = [line for line in lines if re.search(r"\b(FAILED|ERROR)\b", line)]
    for line in list(dict.fromkeys(failed))[:60]:
        record("failed", test=line[:300])
    if not counts:
        raise RuntimeError(f"pytest said nothing: {lines[-5:]}")


def _said(command: Sequence[str], seconds: float) -> tuple[list[str], bool]:
    """What a program says in so many seconds, and whether it came to its end."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return child.communicate(timeout=seconds)[0].splitlines(), True
    except subprocess.TimeoutExpired:
        child.terminate()  # its workers end with it
        return child.communicate()[0].splitlines(), False
