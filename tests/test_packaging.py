"""What is installed: graphc alone, with its data, and no way in through the links at the root."""

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

LINKS = ("ir", "frontend", "backends")


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files of a wheel built from a copy of the sources, links included."""
    root = Path(__file__).parents[1]
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    # A copy: setuptools leaves build/ and an egg-info beside what it builds.
    wanted = [root / "pyproject.toml", root / "README.md", root / "LICENSE", root / "graphc"]
    links = [root / name for name in LINKS]
    subprocess.run(["cp", "-RP", *map(str, wanted + links), str(source)], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    built = subprocess.run(
        [*command, "--quiet", "--no-index", "--wheel-dir", str(out), str(source)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_wheel_holds_graphc_alone(wheel_names: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    (info,) = (name for name in tops if name.endswith(".dist-info"))
    assert info.startswith("graphc_compiler-")
    assert tops == {"graphc", info}


def test_wheel_holds_data_types_and_licences(wheel_names: list[str]) -> None:
    for name in ("graphc/py.typed", "graphc/vision/data/mnist_5k.npz"):
        assert name in wheel_names
    licences = {name.split("/licenses/")[1] for name in wheel_names if "/licenses/" in name}
    assert licences == {"LICENSE", "graphc/vision/data/README.txt"}


def test_wheel_holds_every_source(wheel_names: list[str], repository: Path) -> None:
    paths = (repository / "graphc").rglob("*.py")
    sources = {path.relative_to(repository).as_posix() for path in paths}
    assert sources <= set(wheel_names), "a package without __init__.py, or not in pyproject.toml"


@pytest.mark.parametrize("name", LINKS)
def test_links_lead_to_the_real_folders(name: str, repository: Path) -> None:
    assert (repository / name).is_symlink()
    assert (repository / name).resolve() == repository / "graphc" / name


@pytest.mark.parametrize("name", LINKS)
def test_import_through_a_link_names_the_right_module(
    name: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(repository))
    with pytest.raises(ImportError, match=rf"import graphc\.{name}, not {name}"):
        importlib.import_module(name)


def test_folder_named_graphc_beside_a_script_is_not_taken_for_it(tmp_path: Path) -> None:
    # As after a git clone: not a package itself, but a namespace package to Python.
    (tmp_path / "graphc" / "docs").mkdir(parents=True)
    script = tmp_path / "script.py"
    script.write_text("import graphc\nprint(graphc.__file__, (graphc.ones(2) + 1).tolist())\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split(" ", 1)[1] == "[2.0, 2.0]\n"
