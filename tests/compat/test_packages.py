"""Whole packages, unmodified, on graphc: the numbers that PyTorch gives with the same seed.

Each side runs in a process of its own. A package that is not installed is skipped; none is needed
otherwise. Tolerance: 2e-4 of the greatest magnitude, as float32 sums are added in another order.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "packages" / "program.py"
MODELS = [
    ("timm", "resnet18"), ("timm", "vit_tiny_patch16_224"), ("timm", "convnext_atto"),
    ("timm", "mixer_s16_224"), ("transformers", "bert"), ("transformers", "gpt2"),
]
NEEDED = {"timm": ("torch", "torchvision", "timm"), "transformers": ("torch", "transformers")}
RTOL = 2e-4


def results(side: str, package: str, name: str, out: Path) -> dict[str, np.ndarray]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(PROGRAM), side, package, name, str(out)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )
    assert done.returncode == 0, f"{side}: {done.stderr[-4000:]}"
    return dict(np.load(out))


@pytest.mark.slow
@pytest.mark.parametrize(("package", "name"), MODELS, ids=[f"{p}-{n}" for p, n in MODELS])
def test_numbers_of_torch(package: str, name: str, tmp_path: Path) -> None:
    for needed in NEEDED[package]:
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    want = results("torch", package, name, tmp_path / "torch.npz")
    have = results("graphc", package, name, tmp_path / "graphc.npz")
    for key, found in have.items():
        expected = want[f"eager/{key.partition('/')[2]}"]
        assert found.shape == expected.shape and found.dtype == expected.dtype, key
        if found.dtype.kind == "i":
            np.testing.assert_array_equal(found, expected, key)
        else:
            bound = RTOL * float(np.abs(expected).max())
            np.testing.assert_allclose(found, expected, rtol=0, atol=bound, err_msg=key)
