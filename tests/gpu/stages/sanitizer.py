"""compute-sanitizer's memcheck and racecheck over the recorded kernels, where it is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..bed import Bed
from ..results import Record

TOOLS = ("memcheck", "racecheck")


def run(bed: Bed, record: Record) -> None:
    """A line for each tool."""
    program = shutil.which("compute-sanitizer")
    if program is None or not bed.large:
        record("compute-sanitizer", missing="the program" if program is None else "a GPU")
        return
    for tool in TOOLS:
        path = Path(tempfile.mkdtemp()) / "results.jsonl"
        command = [
            program, "--tool", tool, sys.executable, "-m", "tests.gpu.first_contact",
            "--stage", "kernels", "--results", str(path),
        ]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        errors = re.findall(r"ERROR SUMMARY: (\d+)|(\d+) hazards", found.stdout + found.stderr)
        record(tool, errors=[a or b for a, b in errors], said=found.stdout[-2000:])
