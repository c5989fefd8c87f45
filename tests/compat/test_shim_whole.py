"""An environment from nothing: graphc, the shim, and packages that ask for torch.

Printed beside the results (`pytest -m slow -s`): how long it took, and how large it is.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphc.shim import wheel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGES = ("einops", "torchinfo", "safetensors[torch]", "packaging", "pytest")


class Environment:
    """A venv in which commands run outside of the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")

    def run(self, *arguments: str, status: int = 0, errors: bool = True) -> str:
        done = subprocess.run(
            [self.python, *arguments], capture_output=True, text=True, cwd=self.folder,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + (done.stderr if errors else "")

    def install(self, *packages: str) -> None:
        """From the registry; skips where there is none."""
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *packages], capture_output=True, text=True, cwd=self.folder)
        if done.returncode and "No matching distribution" in done.stderr:
            pytest.skip(f"the registry cannot be reached for {' '.join(packages)}")
        assert done.returncode == 0, done.stderr

    @property
    def megabytes(self) -> float:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files if not path.is_symlink()) / 1e6


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    started = time.perf_counter()
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    found = Environment(folder / "venv")
    empty = found.megabytes
    source = folder / "source"  # setuptools leaves its own beside what it builds
    source.mkdir()
    wanted = [str(ROOT / name) for name in ("pyproject.toml", "README.md", "LICENSE", "graphc")]
    subprocess.run(["cp", "-RP", *wanted, str(source)], check=True)
    found.install(str(source))
    assert "installed" in found.run("-m", "graphc", "shim", "install")
    print(
        f"\ngraphc and the shim: {time.perf_counter() - started:.1f} s, "
        f"{found.megabytes - empty:.0f} MB beside an empty environment"
    )
    found.install(*PACKAGES)
    yield found


def test_packages_are_satisfied(here: Environment) -> None:
    listed = json.loads(here.run("-m", "pip", "list", "--format", "json", errors=False))
    versions = {each["name"]: each["version"] for each in listed}
    assert versions["torch"] == wheel.VERSIONS["torch"]
    assert not [name for name in versions if name.startswith(("nvidia", "triton"))]
    here.run("-m", "pip", "check")
    frozen = here.run("-m", "pip", "freeze", errors=False).splitlines()
    assert f"torch=={wheel.VERSIONS['torch']}" in frozen
    assert "nothing installed or given asks for another torch" in here.run(
        "-m", "graphc", "shim", "check", "torch>=2", "einops"
    )
    assert "stand-in" in here.run("-m", "graphc", "doctor")


PROGRAM = """
import einops, torch, torchinfo
from safetensors.torch import load_file, save_file
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
print(torchinfo.summary(model, (2, 4), verbose=0).total_params)
print(einops.rearrange(torch.ones(2, 6), "a (b c) -> b a c", b=3).shape)
save_file(model.state_dict(), "x.safetensors")
print(sorted(load_file("x.safetensors")))
"""


def test_packages_run(here: Environment) -> None:
    assert here.run("-c", PROGRAM).splitlines() == [
        "15", "torch.Size([3, 2, 2])", "['0.bias', '0.weight']",
    ]


def test_pytest_runs(here: Environment) -> None:
    (here.folder / "conftest.py").write_text("import torch\n")
    (here.folder / "test_it.py").write_text(
        "import pytest\ntorch = pytest.importorskip('torch', '2.0')\n"
        "def test_it():\n    torch.testing.assert_close(torch.ones(2), torch.ones(2))\n"
    )
    assert "1 passed" in here.run("-m", "pytest", "-q", "test_it.py")


def test_a_notebook_runs(here: Environment) -> None:
    here.install("nbclient", "ipykernel")
    said = here.run("-c", """
import nbformat
from nbclient import NotebookClient
book = nbformat.v4.new_notebook(cells=[
    nbformat.v4.new_code_cell("import torch.nn.functional as F\\nimport torch"),
    nbformat.v4.new_code_cell("print(F.relu(torch.tensor([-1.0, 2.0])))"),
])
NotebookClient(book, timeout=60).execute()
print(book.cells[1].outputs[0]["text"])
""")
    assert "tensor([0., 2.])" in said


def planned(here: Environment, *packages: str) -> dict[str, str]:
    """What pip would install."""
    said = here.run("-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check",
                    "--report", "-", *packages, errors=False)
    chosen = json.loads(said)["install"]
    return {each["metadata"]["name"]: each["metadata"]["version"] for each in chosen}


def test_what_else_pip_would_bring(here: Environment) -> None:
    found = planned(here, "accelerate")
    assert "accelerate" in found and "torch" not in found
    assert "was installed already" in here.run("-m", "graphc", "shim", "install")
    here.run("-m", "graphc", "shim", "install", "--no-torchvision")
    found = planned(here, "torchvision==0.28.*")
    assert set(found) & {"torch", "torchvision"} == {"torchvision"}


def test_nothing_is_left(here: Environment) -> None:
    """The last test of this file."""
    assert "removed" in here.run("-m", "graphc", "shim", "remove")
    assert "No module named 'torch'" in here.run("-c", "import torch", status=1)
    left = [path for path in here.folder.rglob("torch*") if "pip" not in path.parts]
    assert [path.name for path in left if path.parent.name == "site-packages"] == [
        path.name for path in left
        if path.parent.name == "site-packages" and path.name.startswith("torchinfo")
    ]
