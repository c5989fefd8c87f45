"""The real torchvision on graphc: its Python, and graphc's operators in its compiled half's place.

Installed into a folder of the tests' own. Each side of a comparison (`real/cases.py`) runs in a
process of its own; PyTorch's has torchvision's Python alone, too, where its library does not fit.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is what results are compared with")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "real" / "cases.py"
VERSION = "0.28.*"

# of the greatest magnitude of a result: sums are added in another order, through that many layers
CLASSIFIERS = {
    "alexnet": 1e-4, "convnext_tiny": 1e-4, "densenet121": 1e-3, "efficientnet_b0": 1e-3,
    "googlenet": 1e-3, "inception_v3": 1e-3, "mnasnet0_5": 1e-3, "mobilenet_v2": 1e-3,
    "mobilenet_v3_small": 1e-3, "regnet_y_400mf": 1e-3, "resnet18": 1e-3,
    "shufflenet_v2_x0_5": 1e-3, "squeezenet1_1": 1e-4, "swin_t": 1e-4, "swin_v2_t": 1e-4,
    "vgg11": 1e-4, "vit_b_32": 1e-4, "maxvit_t": 1e-3,
}
DETECTORS = dict.fromkeys(
    """
        fasterrcnn_resnet50_fpn fasterrcnn_mobilenet_v3_large_320_fpn maskrcnn_resnet50_fpn
        keypointrcnn_resnet50_fpn retinanet_resnet50_fpn fcos_resnet50_fpn ssd300_vgg16
        training_step
    """.split(), 1e-3
)
OTHERS = {
    "segmentation": 1e-4, "video": 1e-4, "optical_flow": 1e-3, "box_functions": 1e-5,
    "pooled": 1e-5, "layers": 1e-5, "pictures": 1e-2, "data_sets": 0.0,
    "counts_of_others": 0.0, "features": 1e-4, "newer_transforms": 1e-2,
}


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with torchvision, and nothing else."""
    folder = tmp_path_factory.mktemp("torchvision")
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
            "--disable-pip-version-check", "--target", str(folder), f"torchvision=={VERSION}",
        ],
        capture_output=True, text=True,
    )
    if done.returncode:
        pytest.skip(f"torchvision {VERSION} cannot be installed: {done.stderr[-300:]}")
    return folder


def results(side: str, name: str, installed: Path, out: Path) -> dict[str, np.ndarray]:
    out.mkdir(exist_ok=True)
    path = os.pathsep.join([str(ROOT), str(installed)])
    command = ["-m", "graphc", "run"] if side == "graphc" else []
    done = subprocess.run(
        [sys.executable, *command, str(PROGRAM), str(out), name],
        # torchvision has PyTorch compile its Python for RoIAlign: minutes, for these few boxes
        env={**os.environ, "PYTHONPATH": path, "TORCHDYNAMO_DISABLE": "1"}, capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{side}: {done.stderr[-4000:]}"
    failed = out / f"{name}.txt"
    assert not failed.exists(), f"{side}: {failed.read_text()}"
    return dict(np.load(out / f"{name}.npz"))


@pytest.mark.parametrize("name", [*CLASSIFIERS, *DETECTORS, *OTHERS])
def test_results_of_torch(name: str, installed: Path, tmp_path: Path) -> None:
    tolerance = (CLASSIFIERS | DETECTORS | OTHERS)[name]
    want = results("torch", name, installed, tmp_path / "torch")
    have = results("graphc", name, installed, tmp_path / "graphc")
    assert list(have) == list(want)
    for key, expected in want.items():
        found = have[key]
        assert found.shape == expected.shape and found.dtype == expected.dtype, key
        if found.dtype.kind not in "fiu" or not expected.size:
            np.testing.assert_array_equal(found, expected, key)
        else:
            bound = tolerance * max(float(np.abs(expected.astype("f8")).max()), 1e-6)
            np.testing.assert_allclose(
                found.astype("f8"), expected.astype("f8"), rtol=0, atol=bound, err_msg=key
            )


@pytest.mark.parametrize("name", [
    "files",  # the wheel's image extension does not load beside a CPU build of PyTorch
    "ssdlite320_mobilenet_v3_large",  # its first scores are all the same, and topk takes any
])
def test_what_torch_does_not_tell(name: str, installed: Path, tmp_path: Path) -> None:
    assert all(np.isfinite(each).all() for each in results(
        "graphc", name, installed, tmp_path
    ).values() if each.dtype.kind == "f")


def test_parameters_are_as_many_as_the_weights_say(installed: Path, tmp_path: Path) -> None:
    found = results("graphc", "counts", installed, tmp_path)
    assert len({key.split()[0] for key in found}) >= 80
    wrong = {key: list(pair) for key, pair in found.items() if pair[0] != pair[1]}
    assert not wrong, wrong


def test_quantized_builders_work_on_floats_or_are_refused_by_name(
    installed: Path, tmp_path: Path
) -> None:
    for shape in results("graphc", "quantized", installed, tmp_path).values():
        assert list(shape) == [1, 1000]
