"""Every call of the Driver, by the tests that the emulated one passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..bed import Bed
from ..results import Record

TESTS = Path("tests/backends/cuda")


def run(bed: Bed, record: Record) -> None:
    """A line for each file; a rehearsal runs what needs no device."""
    for name in ("test_driver.py", "test_headers.py", "test_libraries.py", "test_nvrtc.py"):
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", str(TESTS / name)]
        if not bed.large:
            command += ["-k", "not device"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = found.stdout.strip().splitlines() or [found.stderr[-500:]]
        wrong = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        record(name, said=lines[-1], wrong=wrong[:20])
        if wrong:
            print(found.stdout[-4000:])
