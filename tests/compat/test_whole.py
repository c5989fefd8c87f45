"""Models of packages, unmodified, run as one graph, and are compiled no more after two calls.

Packages run in processes of their own; one that is not installed is skipped.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "packages" / "whole.py"
PACKAGES = ["timm", "transformers", "vit_pytorch", "x_transformers", "einops"]


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_one_graph(package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    out = tmp_path / "counts.json"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(PROGRAM), package, str(out)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(out.read_text())
    assert found
    wrong = {
        model: (reasons, counts) for model, (reasons, counts) in found.items()
        if reasons or counts[-1] != counts[1]
    }
    assert not wrong, "\n".join(f"{model}: {what}" for model, what in wrong.items())
