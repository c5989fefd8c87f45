"""Fixtures shared by all tests."""

import gc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests start hundreds of processes, each of which would read all sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import graphc  # noqa: E402
from graphc import backends  # noqa: E402
from graphc.frontend import device, placement  # noqa: E402
from graphc.frontend.overriding import Installed  # noqa: E402
from graphc.frontend.storage import readers  # noqa: E402
from graphc.frontend.values import Eager  # noqa: E402
from graphc.ir.record import replaced  # noqa: E402

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def compiled_here() -> None:
    """Tests put other functions in the compiler's places: what is kept of whole programs goes by
    its sources, and would hide that. Those of what is kept ask for it; with KEEPS_PROGRAMS=1 all
    do, which is a sweep over what needs no such changes, run twice over one GRAPHC_CACHE_DIR."""
    backend: Any = backends.get("llvm")
    backend.keeps = bool(os.environ.get("KEEPS_PROGRAMS"))


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What outlives a file's tests is not looked at in each later collection, of which tests of
    lifetimes ask for thousands; what they make themselves is."""
    gc.collect()
    gc.freeze()
    yield


@pytest.fixture(scope="module", autouse=True)
def unanswered() -> Iterator[None]:
    """What a file's tests made of subclasses, other files' functions do not ask."""
    yield
    Installed.forget()


def _as_cpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """This machine under another CPU's name: its features stay as they are."""
    from graphc.backends.llvm import target

    backend: Any = backends.get("llvm")
    host = target.host_target()._replace(cpu=name)
    monkeypatch.setattr(target, "_host", host)
    monkeypatch.setattr(backend, "target", host)
    monkeypatch.setattr(backend, "machine", replaced(host.machine, sorts=backend.machine.sorts))


@pytest.fixture
def quick_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where pairs of bfloat16 are multiplied as fast as floats, if there is an instruction."""
    _as_cpu(monkeypatch, "znver5")


@pytest.fixture(params=["quick", "slow"])
def either_pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """So, and as where they are multiplied in more time than floats: which."""
    kind: str = request.param
    _as_cpu(monkeypatch, {"quick": "znver5", "slow": "emeraldrapids"}[kind])
    return kind


@pytest.fixture
def unread() -> Iterator[None]:
    """As where no backward waits: writes ask those of other tests, which garbage may keep."""
    outer = dict(readers)
    readers.clear()
    yield
    readers.update({key: entry for key, entry in outer.items() if entry[1]() is not None})


@pytest.fixture
def only_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no test before has used another device: then calls may take the short ways."""
    monkeypatch.setattr(Eager, "elsewhere", None)


@pytest.fixture
def beside_meta(monkeypatch: pytest.MonkeyPatch, unread: None) -> Iterator[None]:
    """As where another device has been used, which tests behind do not see."""
    monkeypatch.setattr(placement, "_places", dict(placement._places))
    monkeypatch.setattr(device, "registered", set(device.registered))
    monkeypatch.setattr(placement, "registered", device.registered)
    monkeypatch.setattr(Eager, "elsewhere", None)
    placement._places.pop("meta", None)
    graphc.empty(2, device="meta")
    assert Eager.elsewhere is not None
    yield


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


def pytest_addoption(parser: pytest.Parser) -> None:
    """--update-golden writes the files under tests/golden/ anew; --nvidia takes the GPU at hand."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/")
    parser.addoption(
        "--nvidia", action="store_true", help="tests of the device cuda run on the GPU at hand"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """check(name, text): `text` equals tests/golden/name (rewritten under --update-golden)."""

    def check(name: str, text: str) -> None:
        path = REPOSITORY / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --update-golden and look at it"
        assert text == path.read_text(), f"{name} changed: if it should, run pytest --update-golden"

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    if importlib.util.find_spec("cupy") is not None:
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU and CuPy")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
