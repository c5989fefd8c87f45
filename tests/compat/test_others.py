"""What others have under torch's and torchvision's names is theirs, in processes of their own."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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
    "torchvision/_C.so": "not to be loaded",
    "torchvision/ops/__init__.py": """
        import torch
        from torchvision.extension import _assert_has_ops, _has_ops
        from ..extension import _load_library

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


def test_a_folder_of_the_program(tmp_path: Path) -> None:
    write(tmp_path, {
        "torchvision/__init__.py": "from .part import mark", "torchvision/part.py": "mark = 5",
        "torchvision/extension.py": "mark = 6", "torch/__init__.py": "", "torch/nn.py": "mark = 7",
    })
    run(tmp_path, """
        import torch.nn, torchvision, torchvision.extension
        assert torchvision.mark == 5 and torchvision.extension.mark == 6 and torch.nn.mark == 7
        assert torch is not graphc
        try:
            import torchvision.transforms
        except ModuleNotFoundError as error:
            assert "graphc" not in str(error)
        else:
            raise AssertionError
    """)


def test_a_file_of_the_program(tmp_path: Path) -> None:
    write(tmp_path, {"torchvision.py": "mark = 5", "torch.py": "mark = 6"})
    run(tmp_path, """
        import torch, torchvision
        assert torchvision.mark == 5 and torch.mark == 6
    """)


def test_a_module_that_the_program_has_put_there(tmp_path: Path) -> None:
    run(tmp_path, """
        import types
        for name in ("torchvision", "torch.mine"):
            made = sys.modules[name] = types.ModuleType(name)
            made.__path__ = []
        sys.modules["torchvision.there"] = types.ModuleType("torchvision.there")
        import torchvision.there
        import torch
        assert torch is graphc
        for name in ("torchvision.absent", "torch.mine.absent"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                assert error.name == name and "graphc" not in str(error)
            else:
                raise AssertionError
    """)


def test_a_folder_of_data_is_no_package(tmp_path: Path) -> None:
    write(tmp_path, {"torch/weights.txt": "", "torchvision/picture.txt": ""})
    run(tmp_path, """
        import torch, torchvision
        assert torch is graphc and torchvision is graphc.vision
    """)


@pytest.mark.parametrize("sign", ["torch-2.9.0.dist-info/METADATA", "torch/_C.cpython-311.so"])
def test_an_installed_pytorch_is_what_graphc_stands_in_for(tmp_path: Path, sign: str) -> None:
    write(tmp_path, {"torch/__init__.py": "raise RuntimeError", sign: ""})
    run(tmp_path, "import torch\nassert torch is graphc")


def test_a_stand_in_that_graphc_installed_is_no_other(tmp_path: Path) -> None:
    write(tmp_path, {
        "torchvision/__init__.py": "raise RuntimeError",
        "torchvision-0.28.0+graphc.dist-info/METADATA": "Metadata-Version: 2.1\n"
        "Name: torchvision\nVersion: 0.28.0+graphc\n",
    })
    run(tmp_path, "import torchvision\nassert torchvision is graphc.vision")


def test_an_installed_torchvision_runs_on_graphc(tmp_path: Path) -> None:
    write(tmp_path, INSTALLED)
    run(tmp_path, """
        import importlib.metadata
        import torchvision, torchvision._autograd_registrations
        assert torchvision.mark == "theirs" and torchvision._HAS_OPS
        assert torchvision.torch is graphc and importlib.metadata.version("torchvision") == "0.28.7"
        assert torchvision.extension._has_ops() and torchvision.extension._check_cuda_version() == -1
        boxes = graphc.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]])
        kept = torchvision.ops.nms(boxes, graphc.tensor([0.5, 0.9, 0.1]), 0.5)
        assert kept.tolist() == [1, 2]
        torchvision.ops._load_library("image")
        try:
            torchvision.ops._load_library("video_reader")
        except ImportError as error:
            assert "video_reader" in str(error)
        else:
            raise AssertionError
        graphc.compat.uninstall()
        roots = ("torch", "torchvision")
        assert not [name for name in sys.modules if name.partition(".")[0] in roots]
    """)
