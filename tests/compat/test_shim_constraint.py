"""What keeps pip from replacing the stand-in, and what is said where something has."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from graphc import doctor
from graphc.shim import constraint, requirements, wheel
from graphc.shim.place import Package
from tests.compat.test_shim import VERSIONS, chosen, having, pip_wheel, place

OWN = "[global]\nindex-url = https://x/simple\n"
WITH_SECTION = "# mine\n[install]\nno-compile = true\n"
OTHERS = "[install]\nconstraint = https://x/limits.txt\n"
BROKEN = "index-url = without a section\n"


@pytest.mark.parametrize("settings", [None, OWN, WITH_SECTION, OTHERS, BROKEN])
def test_settings_of_pip_are_given_back(settings: str | None, tmp_path: Path) -> None:
    prefix = tmp_path / "an environment"
    prefix.mkdir()
    file = prefix / ("pip.ini" if os.name == "nt" else "pip.conf")
    if settings is not None:
        file.write_text(settings)
    first = constraint.keep(str(prefix))
    assert constraint.keep(str(prefix)) == first and constraint.is_kept(str(prefix))
    line = f"constraint = {(prefix / 'graphc-shim.txt').as_uri()}"
    if settings in (OTHERS, BROKEN):
        assert "Cure: " in first and file.read_text() == settings
    else:
        found = file.read_text().splitlines()
        assert found[found.index("[install]") + 1] == line and " environment" not in line
        assert [x for x in found if x.startswith("constraint")] == [line]
    constraint.let_go(str(prefix))
    constraint.let_go(str(prefix))
    assert not constraint.is_kept(str(prefix))
    if settings is None:
        assert not list(prefix.iterdir())
    else:  # a section more may be left
        assert file.read_text().replace("[install]\n", "") == settings.replace("[install]\n", "")


def test_pip_leaves_the_stand_in(tmp_path: Path) -> None:
    """Asked for a newer one, by name and by another package, it has what is there."""
    shelf, prefix = tmp_path / "shelf", tmp_path / "a venv"
    shelf.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    constraint.keep(str(prefix))
    pip_wheel(shelf, "torch", VERSIONS["torch"])
    pip_wheel(shelf, "torch", "9.0")
    pip_wheel(shelf, "model_zoo", "1.0", "torch>=2.0")
    pip_wheel(shelf, "model_zoo", "2.0", "torch>=2.14")
    pip = Path(metadata.distribution("pip").locate_file(""))
    settings = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")} | {
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf), "PYTHONPATH": str(pip),
        "XDG_CONFIG_DIRS": str(shelf),  # no constraints of the machine's own
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }

    def planned(*wanted: str) -> str:
        done = subprocess.run(
            [str(prefix / "bin" / "python"), "-m", "pip", "install", "--dry-run", "-U", *wanted],
            capture_output=True, text=True, env=settings, cwd=prefix,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (line,) = (x for x in done.stdout.splitlines() if x.startswith("Would install"))
        return line.removeprefix("Would install ")

    assert planned("torch") == f"torch-{VERSIONS['torch']}"
    assert planned("model_zoo") == f"model_zoo-1.0 torch-{VERSIONS['torch']}"
    constraint.let_go(str(prefix))
    assert planned("torch") == "torch-9.0"


def test_a_stand_in_that_was_replaced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Package("2.14.0", "/v/lib/torch/__init__.py")
    found = place(prefix=str(tmp_path), packages=having(torch=real))
    assert requirements._state(found, "torch").endswith("not graphc's")
    constraint.keep(str(tmp_path))
    said = requirements._state(found, "torch")
    assert "taken the place of graphc's stand-in" in said and constraint.CURE in said
    monkeypatch.setattr(metadata, "version", lambda name: "2.14.0")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert doctor._torch().startswith("PyTorch 2.14.0, which has taken the place of graphc's")
    monkeypatch.setattr(metadata, "version", lambda name: wheel.VERSIONS["torch"])
    assert "by its stand-in" in doctor._torch()


def test_what_is_built_on_torch_is_not_offered() -> None:
    pytest.importorskip("packaging")
    plan: list[dict[str, Any]] = [
        chosen("speech", "1.0", "torch", "torchaudio"), chosen("torchaudio", "2.13", "torch"),
        chosen("numpy", "2.0"), chosen("torchvision", "0.28.0", "torch==2.13.0"),
    ]
    versions = {"torch": VERSIONS["torch"]}
    compiled = {"torchaudio", "torchvision", "numpy"}
    (line,) = requirements._choice(["speech"], plan, versions, compiled)
    assert line.startswith("torchaudio 2.13 has compiled code and asks for torch")
    first, second = requirements._choice(["x"], [plan[0], *plan[2:]], versions, compiled)
    assert "can be had" in first and "'torchvision==0.28.0'" in second
