"""What the C library does with freed memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource
import graphc

def step():
    x = graphc.ones(512, 512)
    for _ in range(8):
        x = x * 2 + x
    return x

for _ in range(20):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's own options")
def test_freed_memory_is_used_again(repository: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", FAULTS], env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True, text=True, check=True,
    )
    assert int(run.stdout) < 100  # of 50 steps together; each makes 16 arrays of 256 pages
