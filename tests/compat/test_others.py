"""What others have under torch's and torchvision's names is theirs, in processes of their own."""

import subprocess
import sys
import textwrap
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from graphc.compat import others
from graphc.compat.finder import ROOTS

ROOT = Path(__file__).parents[2]

INSTALLED = {  # as much of torchvision as says that it is one
    "torchvision/__init__.py": """
        import torch
        from torchvision import _meta_registrations, ops
        from .extension import _HAS_OPS
        mark = "theirs"
    """,
    "torchvision/_internally_replaced_utils.py": "",
    "torchvision/extension.py": "raise RuntimeError('the compiled half')",
    "torchvision/_meta_registrations.py": "raise RuntimeError('registered')",
    "torchvision/_autograd_registrations.py": "raise RuntimeError('registered')",
    "torchvision/ops/_register_onnx_ops.py": "from torch.onnx import symbolic_opset11",
    "torchvision/_C.so": "not to be loaded",
    "torchvision/ops/__init__.py": """
        import torch
        from ._register_onnx_ops import _register_custom_op
        from torchvision.extension import _assert_has_ops, _has_ops

        def nms(boxes, scores, threshold):
            _assert_has_ops()
            return torch.ops.torchvision.nms(boxes, scores, threshold)
    """,
    "torchvision-0.28.7.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\n"
    "Version: 0.28.7\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


def run(folder: Path, body: str) -> None:
    """Run a program after install(), with a folder at the head of sys.path."""
    program = (
        f"import sys\nsys.path.insert(0, {str(folder)!r})\n"
        "import graphc, graphc.compat\ngraphc.compat.install()\n" + textwrap.dedent(body)
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


# what is on the path, and the roots that are somebody else's then
FOUND: dict[str, tuple[dict[str, str], set[str]]] = {
    "folders": ({"torch/__init__.py": "", "torchvision/__init__.py": ""}, {"torch", "torchvision"}),
    "files": ({"torch.py": "", "torchvision.py": ""}, {"torch", "torchvision"}),
    "data": ({"torch/weights.txt": "", "torchvision/picture.txt": ""}, set()),
    "installed": (
        {"torch/__init__.py": "", "torch-2.9.0.dist-info/METADATA": "", **INSTALLED},
        {"torchvision"},
    ),
    "compiled": ({"torch/__init__.py": "", "torch/_C.cpython-311.so": ""}, set()),
    "stand-ins": (
        {
            f"{name}{part}": "" for name in ("torch", "torchvision")
            for part in ("/__init__.py", "-2.13.0+graphc.dist-info/METADATA")
        },
        set(),
    ),
}


@pytest.mark.parametrize("kind", FOUND)
def test_whose_a_name_is(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, theirs = FOUND[kind]
    write(tmp_path, files)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    assert {root for root in ROOTS if others.found(root, None)} == theirs


def test_packages_and_modules_of_the_program(tmp_path: Path) -> None:
    """A module that is not there was looked for without end."""
    write(tmp_path, {
        "torchvision/__init__.py": "from .part import mark", "torchvision/part.py": "mark = 5",
        "torchvision/extension.py": "mark = 6",
    })
    run(tmp_path, """
        import types
        import torch, torchvision, torchvision.extension
        assert torchvision.mark == 5 and torchvision.extension.mark == 6 and torch is graphc
        mine = sys.modules["torch.mine"] = types.ModuleType("torch.mine")
        mine.__path__ = []
        for name in ("torchvision.absent", "torch.mine.absent"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                assert error.name == name and "graphc" not in str(error)
            else:
                raise AssertionError
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        made = sys.modules["torchvision"] = types.ModuleType("torchvision")
        made.__path__ = []
        try:
            import torchvision.transforms
        except ModuleNotFoundError as error:
            assert "graphc" not in str(error)
        else:
            raise AssertionError
    """)


def test_an_installed_torchvision_runs_on_graphc(tmp_path: Path) -> None:
    write(tmp_path, INSTALLED)
    run(tmp_path, """
        import importlib.metadata
        import torchvision, torchvision._autograd_registrations
        assert torchvision.mark == "theirs" and torchvision._HAS_OPS
        assert torchvision.torch is graphc and importlib.metadata.version("torchvision") == "0.28.7"
        assert torchvision.extension._has_ops()
        assert torchvision.extension._check_cuda_version() == -1
        boxes = graphc.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]])
        kept = torchvision.ops.nms(boxes, graphc.tensor([0.5, 0.9, 0.1]), 0.5)
        assert kept.tolist() == [1, 2]
        assert torchvision.extension._load_library("_C")
        assert not torchvision.extension._load_library("video_reader")
        graphc.compat.uninstall()
        roots = ("torch", "torchvision")
        assert not [name for name in sys.modules if name.partition(".")[0] in roots]
    """)
