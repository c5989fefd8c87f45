"""The shim: its wheels, where it is refused, what requirements do, and a whole installation."""

import csv
import email
import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from base64 import urlsafe_b64encode
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from graphc import __main__ as command_line
from graphc import doctor
from graphc.shim import command, requirements, wheel
from graphc.shim.place import Package, Place, Refused, check_install, examine
from graphc.shim.requirements import Pull, directly, unmet

ROOT = Path(__file__).parents[2]
VERSIONS = dict(wheel.VERSIONS)


# --- wheels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VERSIONS)
def test_a_wheel_is_whole(name: str, tmp_path: Path) -> None:
    path = wheel.write(name, tmp_path)
    assert path.name == f"{name}-{VERSIONS[name]}-py3-none-any.whl"
    first = path.read_bytes()
    assert wheel.write(name, tmp_path).read_bytes() == first
    info = f"{name}-{VERSIONS[name]}.dist-info"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        held = {each: archive.read(each) for each in archive.namelist()}
    files = {"METADATA", "WHEEL", "RECORD", "top_level.txt"}
    assert set(held) == {f"{name}/__init__.py", *(f"{info}/{each}" for each in files)}
    rows = list(csv.reader(held[f"{info}/RECORD"].decode().splitlines()))
    assert [row[0] for row in rows] == list(held) and rows[-1] == [f"{info}/RECORD", "", ""]
    for row in rows[:-1]:
        digest = urlsafe_b64encode(hashlib.sha256(held[row[0]]).digest()).decode().rstrip("=")
        assert row[1:] == [f"sha256={digest}", str(len(held[row[0]]))]


@pytest.mark.parametrize("name", VERSIONS)
def test_a_wheel_says_what_it_is(name: str) -> None:
    info = f"{name}-{VERSIONS[name]}.dist-info"
    found = email.message_from_bytes(wheel.files(name)[f"{info}/METADATA"])
    assert found["Name"] == name and found["Version"] == VERSIONS[name]
    assert "graphc's stand-in" in found["Summary"] and "not PyTorch" in found["Summary"]
    assert found.get_all("Classifier") == ["Private :: Do Not Upload"]
    assert found.get_all("Requires-Dist") is None, "an index would be asked for it"
    tags = email.message_from_bytes(wheel.files(name)[f"{info}/WHEEL"])
    assert (tags["Wheel-Version"], tags["Tag"]) == ("1.0", "py3-none-any")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels, as pip unpacks them."""
    folder = tmp_path_factory.mktemp("site")
    for name in VERSIONS:
        with zipfile.ZipFile(wheel.write(name, folder)) as archive:
            archive.extractall(folder)
    return folder


def python(unpacked: Path, *arguments: str, own: bool = True) -> subprocess.CompletedProcess[str]:
    """A Python that has the stand-ins, before any other torch, and graphc."""
    paths = os.pathsep.join([str(unpacked), *([str(ROOT)] if own else [])])
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=unpacked,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "error"},
    )


PROGRAM = """
import importlib.metadata, importlib.util, multiprocessing, sys, threading
found = []
def first():
    import torch.nn.functional as F
    found.append(F)
def second():
    import torchvision.transforms as transforms
    found.append(transforms)

def work(queue):
    import torch
    queue.put((torch.__version__, torch.ones(2).sum().item(), torch.__name__))

if __name__ == "__main__":
    assert importlib.util.find_spec("torch").origin.startswith(sys.argv[1]), "hooked already"
    threads = [threading.Thread(target=each) for each in (first, second) * 4]
    for each in threads: each.start()
    for each in threads: each.join()
    import graphc, torch, torch.optim.lr_scheduler
    from torch.utils.data import DataLoader
    import torchvision
    assert torch is graphc and torchvision is graphc.vision
    assert DataLoader is graphc.utils.data.DataLoader
    assert set(found) == {graphc.nn.functional, graphc.vision.transforms} and len(found) == 8
    assert sys.modules["torch"] is torch and torch.__spec__.name == "graphc"
    assert importlib.util.find_spec("torch.nn.init") and not importlib.util.find_spec("torch.nope")
    for name in ("torch", "torchvision"):
        found = importlib.metadata.distributions(name=name)
        mine = [each for each in found if each.version.endswith("+graphc")]
        assert len(mine) == 1 and mine[0].files, "the hook does not answer a second time"
        assert importlib.metadata.version(name) == mine[0].version
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    child.join()
    assert child.exitcode == 0
    print(*queue.get())
    graphc.compat.uninstall()
    assert "torch" not in sys.modules
    import torch
    assert torch is graphc
"""


def test_imports_find_graphc(unpacked: Path, tmp_path: Path) -> None:
    """In threads, in a spawned process, whichever name comes first, and again."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = python(unpacked, str(file), str(unpacked))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{VERSIONS['torch']} 2.0 torch\n"


def test_an_installed_torchvision_may_come_first(unpacked: Path, tmp_path: Path) -> None:
    """What imports torch is then half imported itself, and stays what it is."""
    theirs = tmp_path / "torchvision"
    theirs.mkdir()
    (theirs / "__init__.py").write_text(
        "import torch\nfrom .models import model\nTORCH = torch\nfrom . import extension\n"
    )
    for name in ("extension", "_internally_replaced_utils"):
        (theirs / f"{name}.py").write_text("raise ImportError('its compiled half')\n")
    (theirs / "models.py").write_text("import torch.nn as nn\nmodel = nn.Linear(2, 1)\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + (
        "import torchvision, graphc, importlib.metadata\n"
        "assert torchvision.TORCH is graphc and torchvision.model(graphc.ones(2)).shape == (1,)\n"
        f"assert torchvision.__file__.startswith({str(tmp_path)!r})\n"
        "assert torchvision.extension._has_ops()\n"
        "assert importlib.metadata.version('torch').endswith('+graphc')\n"
    )
    done = python(unpacked, "-c", program)
    assert done.returncode == 0, done.stderr


def test_modules_run_by_name(unpacked: Path) -> None:
    done = python(unpacked, "-m", "torch.utils.collect_env")
    assert done.returncode == 0 and f"PyTorch version: {VERSIONS['torch']}" in done.stdout
    done = python(unpacked, "-m", "torch")
    assert done.returncode == 1 and "does not have torch.__main__" in done.stderr


def test_a_stand_in_without_graphc_says_so(unpacked: Path) -> None:
    """-S: this environment's own graphc is not found either."""
    done = python(unpacked, "-S", "-c", "import torch.nn", own=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: torch is graphc's stand-in") and "Cure: " in last


# --- refusals ------------------------------------------------------------------------------------


def place(**changes: Any) -> Place:
    nothing = {name: Package(None, None) for name in VERSIONS}
    return Place(
        "/v/bin/python", "/v", "/usr", str(ROOT), ["/v/lib"], False, True,
        str(ROOT / "graphc" / "__init__.py"), nothing,
    )._replace(**changes)


def having(**packages: Package) -> dict[str, Package]:
    return {**{name: Package(None, None) for name in VERSIONS}, **packages}


REAL = Package("2.13.0+cpu", "/v/lib/torch/__init__.py")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no venv": ({"prefix": "/usr"}, "no virtual environment(.|\n)*Cure: .* -m venv"),
    "conda": ({"prefix": "/usr", "conda": True}, "of conda's(.|\n)*Cure: .* -m venv"),
    "a real torch": ({"packages": having(torch=REAL)}, r"2.13.0\+cpu at /v/lib(.|\n)*uninstall"),
    "one without metadata": (
        {"packages": having(torch=Package(None, "/src/torch/__init__.py"))}, "at /src/torch",
    ),
    "no graphc": ({"graphc": None}, "is not installed in /v(.|\n)*--editable"),
    "another graphc": ({"graphc": "/v/lib/graphc/__init__.py"}, "is not installed in /v"),
    "no pip": ({"pip": False}, "no pip in /v(.|\n)*ensurepip"),
    "read only": ({"folder": str(ROOT / "README.md")}, "cannot be written"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_where_it_is_refused(changes: dict[str, Any], reason: str) -> None:
    check_install(place(), ROOT)
    with pytest.raises(Refused, match=reason) as error:
        check_install(place(**changes), ROOT)
    assert "Cure: " in str(error.value)


def test_refusals_are_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "examine", lambda: place(packages=having(torch=REAL)))
    assert command_line.main(["shim", "install"]) == 1
    assert capsys.readouterr().err.startswith("graphc shim: torch 2.13.0+cpu at ")
    monkeypatch.setattr(command, "examine", lambda: place())
    assert command_line.main(["shim", "remove"]) == 0
    assert capsys.readouterr().out == "no stand-in of graphc's is installed in /v\n"


VISION = Package("0.28.0", "/v/lib/torchvision/__init__.py")


@pytest.mark.parametrize(("vision", "asked", "answers"), [
    (Package(None, None), None, True), (Package(None, None), False, False),
    (VISION, None, False), (VISION, False, False),
    (Package("0.27.0+graphc", "/v/x"), None, True),
    (Package("0.28.0+graphc", "/v/x"), False, False),
])
def test_torchvision_is_answered_for(vision: Package, asked: bool | None, answers: bool) -> None:
    wanted = command._wanted(place(packages=having(torchvision=vision)), asked)
    assert wanted == (["torch", "torchvision"] if answers else ["torch"])


def test_a_real_torchvision_is_not_replaced() -> None:
    with pytest.raises(Refused, match=r"torchvision 0\.28\.0 at .*Cure: "):
        command._wanted(place(packages=having(torchvision=VISION)), True)


# --- requirements --------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "pulls"), [
    ("torch", False), ("torch>=2.0", False), ("torch==2.13.0", False), ("torch==2.13.*", False),
    ("torch~=2.10", False), ("torch[opt-einsum]>=1", False), ("Torch<3,>=1.8", False),
    ("torch>=2.14", True), ("torch==2.12", True), ("torch<2", True), ("torch==2.13.0+cpu", True),
    ("torch!=2.13.0", True), ("torch @ https://x/torch-2.13.0.whl", True),
    ("torchvision==0.28.*", False), ("torchvision>=0.29", True),
    ("torch==2.12; python_version < '3'", None), ("torch==2.12; extra == 'old'", None),
    ("torchaudio==2.13", None), ("./torch-2.13.0.whl", None), ("numpy>=2", None),
])
def test_requirements_that_pull(text: str, pulls: bool | None) -> None:
    pytest.importorskip("packaging")
    assert directly(text, VERSIONS) is pulls


def test_without_packaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    with pytest.raises(Refused, match=r"Cure: python -m pip install packaging"):
        directly("torch>=2", VERSIONS)


def distribution(folder: Path, name: str, *requires: str) -> metadata.Distribution:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = [f"Requires-Dist: {each}\n" for each in requires]
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{''.join(lines)}"
    )
    return metadata.PathDistribution(info)


def test_installed_distributions_that_pull(tmp_path: Path) -> None:
    pytest.importorskip("packaging")
    found = [
        distribution(tmp_path, "new", "numpy", "torch>=2.14"),
        distribution(tmp_path, "fits", "torch>=2.4", "torch==1.0; extra == 'old'"),
        distribution(tmp_path, "none"),
        distribution(tmp_path, "old", "Torch (==2.12)"),
    ]
    assert list(unmet(found, VERSIONS)) == [
        Pull("new 1.0", "torch>=2.14"), Pull("old 1.0", "Torch (==2.12)"),
    ]


def test_compiled_parts_are_named(tmp_path: Path) -> None:
    from tests.compat.test_extensions import elf

    each = distribution(tmp_path, "fast")
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast" / "_C.so").write_bytes(elf(["libc.so.6", "libtorch.so"]))
    (tmp_path / "fast" / "plain.so").write_bytes(elf(["libc.so.6"]))
    (tmp_path / "fast-1.0.dist-info" / "RECORD").write_text(
        "fast/_C.so,,\nfast/plain.so,,\nfast/gone.so,,\n"
    )
    (line,) = requirements.compiled([each])
    assert line.startswith("fast 1.0: fast/_C.so is built on libtorch.so, which graphc does not")


def chosen(name: str, version: str, *requires: str) -> dict[str, Any]:
    return {"name": name, "version": version, "requires_dist": list(requires)}


def test_what_pip_chose_is_told_as_pins() -> None:
    """Of what was asked for, and of what asks for torch itself."""
    pytest.importorskip("packaging")
    plan = [
        chosen("timm", "1.0", "torch", "numpy"), chosen("numpy", "2.0"), chosen("PyYAML", "6.0"),
        chosen("torchvision", "0.28.0", "torch==2.13.0"),
    ]
    versions = {"torch": VERSIONS["torch"]}
    first, second = requirements._choice(["timm>=1", "pyyaml"], plan, versions)
    assert first == "timm>=1, pyyaml: can be had with the stand-in, as"
    assert second.strip() == (
        "python -m pip install 'timm==1.0' 'PyYAML==6.0' 'torchvision==0.28.0'"
    )
    (line,) = requirements._choice(["einops"], [], versions)
    assert line == "einops: installed, or met by the stand-in"


PIP_SAID = """\
Looking in links: x
The conflict is caused by:
    only-new 1.0 depends on torch>=2.14
    The user requested (constraint) torch==2.13.0+graphc

To fix this you could try to:
"""


def test_pips_conflicts_are_told() -> None:
    told = requirements._conflict(PIP_SAID, "ERROR: Cannot install only-new\nWARNING: old pip")
    assert told.splitlines() == [
        "ERROR: Cannot install only-new", *PIP_SAID.splitlines()[1:4],
    ]
    assert requirements._conflict("", "Killed") == "Killed"


def pip_wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/WHEEL", wheel._WHEEL)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}"
        )
        archive.writestr(f"{info}/RECORD", "")


# --- a whole installation ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with graphc, what it needs and pip, by links: nothing is downloaded, or copied."""
    here = tmp_path_factory.mktemp("venv")
    venv.create(here, with_pip=False, symlinks=True)
    folder = Path(sysconfig.get_path("purelib", "venv", {"base": str(here), "platbase": str(here)}))
    for name in ("numpy", "ml_dtypes", "networkx", "llvmlite", "tqdm", "pip", "packaging"):
        own = metadata.distribution(name)
        tops = {Path(file).parts[0] for file in own.files or () if ".." not in Path(file).parts}
        for top in sorted(tops - {"__pycache__"}):
            (folder / top).symlink_to(Path(str(own.locate_file(top))).resolve())
    (folder / "graphc.pth").write_text(f"{ROOT}\n")  # an editable installation
    return here


def run(here: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(here / "bin" / "python"), *arguments], capture_output=True, text=True, **options
    )


def listing(here: Path) -> set[str]:
    """All files but what Python has compiled of others'."""
    return {
        str(path.relative_to(here)) for path in here.rglob("*")
        if not (path.suffix == ".pyc" and path.parents[1].name != "torch")
    }


def test_install_check_and_remove(environment: Path, tmp_path: Path) -> None:
    here = environment
    before = listing(here)
    done = run(here, "-m", "graphc", "shim", "install", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("graphc's stand-in, installed in") == 2
    found = examine(str(here / "bin" / "python"))
    assert found.stand_ins == ["torch", "torchvision"] and found.is_virtual
    info = Path(found.folder, f"torch-{VERSIONS['torch']}.dist-info")
    assert (info / "INSTALLER").read_text().strip() == "pip"
    assert not (info / "direct_url.json").exists(), "`pip freeze` would name a folder that is gone"
    done = run(here, "-O", "-c", "import torch; print(torch.ones(2) + 1)", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "tensor([2., 2.])\n"), done.stderr

    done = run(here, "-m", "graphc", "shim", "install", "--no-torchvision", cwd=tmp_path)
    assert "torch 2" in done.stdout and "was installed already" in done.stdout, done.stderr
    assert examine(found.python).stand_ins == ["torch"]

    done = run(here, "-m", "graphc", "shim", "remove", cwd=tmp_path)
    assert done.returncode == 0 and "removed" in done.stdout, done.stderr
    assert listing(here) == before


@pytest.mark.slow
def test_check_asks_pip(environment: Path, tmp_path: Path) -> None:
    """Of packages with several versions, the one that can do with the stand-in."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    pip_wheel(shelf, "model_zoo", "1.0", "torch>=2.0")
    pip_wheel(shelf, "model_zoo", "2.0", "torch==2.14.0")
    pip_wheel(shelf, "above", "5.0", "model_zoo")
    pip_wheel(shelf, "only_new", "1.0", "torch>=2.14")
    settings = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf)}

    def check(*given: str) -> subprocess.CompletedProcess[str]:
        return run(environment, "-m", "graphc", "shim", "check", *given, cwd=tmp_path, env=settings)

    done = check("above", "torch>=2", "torch==2.12")
    assert done.returncode == 1, done.stderr
    assert "torch>=2: met by the stand-in" in done.stdout
    assert "torch==2.12: pip would put PyTorch itself" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if "pip install" in line)
    assert set(line.split("install ")[1].split()) == {"'above==5.0'", "'model_zoo==1.0'"}
    done = check("only_new")
    assert done.returncode == 1 and "only" in done.stderr and "2.14" in done.stderr


def test_doctor_says_who_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(version: str | None) -> str:
        def ask(name: str) -> str:
            if version is None:
                raise metadata.PackageNotFoundError(name)
            return version

        with monkeypatch.context() as patched:
            patched.setattr(metadata, "version", ask)
            return doctor._torch()

    assert said("2.13.0+graphc").startswith("graphc, by its stand-in 2.13.0+graphc")
    assert said("2.13.0+cpu").startswith("PyTorch 2.13.0+cpu")
    assert "shim install" in said(None)
