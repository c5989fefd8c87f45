"""The code of graphc's modules, kept in one file: it is used, never stale, and Python's ways go on
where it is not there, damaged or of another source."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphc import kept_modules
from graphc.backends.host.store import stored
from graphc.collecting import IMPORTING

ROOT = Path(__file__).parents[2]


class Small:
    """A package of some modules, and a cache for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / "small", folder / "cache"
        self.folder.mkdir()
        self.cache.mkdir(mode=0o700)
        self.write("__init__", "")
        for number in range(12):
            self.write(f"part{number}", f"value = {number}\ndef asked(): return value")
        self.write("all", "\n".join(f"from . import part{number}" for number in range(12)))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.py"
        path.write_text(text)
        os.utime(path, (1_000_000_000, 1_000_000_000))  # long before it is compiled
        return path

    def loaded(self, name: str = "all") -> ModuleType:
        """As in a new process."""
        self.forget()
        finder = kept_modules._found(self.cache)
        self.finders = [finder] if finder is not None else []
        sys.meta_path[:0] = self.finders  # type: ignore[arg-type]
        with IMPORTING:
            return importlib.import_module(f"small.{name}")

    def forget(self) -> None:
        sys.meta_path[:] = [
            each for each in sys.meta_path if not isinstance(each, kept_modules._Finder)
        ]
        for name in [name for name in sys.modules if name.split(".")[0] == "small"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def keep(self) -> None:
        """As at the end of a process."""
        kept_modules._keep(self.cache, self.finders[0] if self.finders else None)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(kept_modules, "_PREFIX", "small")
    monkeypatch.setattr(IMPORTING, "runs", [])
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Small(tmp_path)
    made.loaded()
    made.keep()
    yield made
    made.forget()


def is_kept(name: str) -> bool:
    return isinstance(sys.modules[f"small.{name}"].__loader__, kept_modules._Loader)


def test_modules_come_from_the_file(small: Small) -> None:
    for path in (small.folder / "__pycache__").iterdir():
        path.unlink()
    module = small.loaded()
    assert all(is_kept(f"part{number}") for number in range(12)) and is_kept("all")
    assert module.part3.asked() == 3
    part = module.part3
    assert part.__file__ == str(small.folder / "part3.py") == part.__spec__.origin
    assert part.__cached__ == importlib.util.cache_from_source(part.__file__)
    assert inspect.getsource(part.asked) == "def asked(): return value\n"
    assert sys.modules["small"].__path__ == [str(small.folder)]
    assert not list((small.folder / "__pycache__").iterdir())  # Python was not asked


def test_an_import_is_one_piece(small: Small) -> None:
    small.loaded("part3")
    finder: Any = small.finders[0]
    assert len({entry.piece for entry in finder.entries.values()}) == 1
    assert set(finder._codes) == set(finder.entries) - {"small", "small.part3"}


def test_a_module_is_read_again_by_pythons_way(small: Small) -> None:
    part = small.loaded().part4
    part.value = 40
    assert importlib.reload(part) is part and part.value == 4


@pytest.mark.parametrize("same_time", [True, False])
def test_a_changed_source_counts(small: Small, same_time: bool) -> None:
    path = small.folder / "part5.py"
    times = path.stat()
    path.write_text("value = 6\ndef asked(): return value")  # as long as before
    if same_time:  # Python's own file would be taken
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        Path(importlib.util.cache_from_source(str(path))).unlink()
    module = small.loaded()
    assert module.part5.asked() == 6 and not is_kept("part5") and is_kept("part6")


def test_a_compiled_file_older_than_its_source_is_not_kept(small: Small) -> None:
    for number in range(12):
        path = small.folder / f"part{number}.py"
        path.write_text(f"value = {number}\ndef asked(): return value ")
        status = path.stat()
        small.loaded(f"part{number}")
        cached = importlib.util.cache_from_source(str(path))
        os.utime(cached, ns=(status.st_atime_ns, status.st_mtime_ns - 1))
    small.loaded()
    small.keep()
    small.loaded()
    assert not is_kept("part5") and is_kept("all")


def test_a_module_that_became_a_package(small: Small) -> None:
    (small.folder / "part5.py").unlink()
    (small.folder / "part5").mkdir()
    small.write("part5/__init__", "value = 55")
    assert small.loaded().part5.value == 55


def test_what_is_damaged_is_not_used(small: Small) -> None:
    (file,) = stored(small.cache)
    whole = file.path.read_bytes()
    for at in (3, 20, 60, 100, len(whole) // 2, len(whole) - 5):
        file.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        assert small.loaded().part3.asked() == 3
    for length in (0, 1, 30, 100, len(whole) - 1):
        file.path.write_bytes(whole[:length])
        assert small.loaded().part3.asked() == 3


def test_the_file_grows_and_keeps_what_others_loaded(small: Small) -> None:
    for number in range(12):
        small.write(f"more{number}", "value = 1")
    small.write("many", "\n".join(f"from . import more{number}" for number in range(12)))
    small.loaded("many")
    small.keep()
    assert len(stored(small.cache)) == 1
    small.loaded("many")
    assert is_kept("many") and is_kept("more7")
    assert small.loaded().part3.asked() == 3 and is_kept("part3")


def test_few_new_modules_are_no_reason_to_write(small: Small) -> None:
    (file,) = stored(small.cache)
    small.write("lone", "value = 1")
    small.loaded("lone")
    small.keep()
    assert [each.used for each in stored(small.cache)] == [file.used]


def process(cache: str, text: str) -> str:
    environment = {**os.environ, "GRAPHC_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, check=True, capture_output=True, text=True
    )
    assert not done.stderr
    return done.stdout


COUNT = """
import graphc, sys
print(sum(type(m.__loader__).__name__ == "_Loader" for m in sys.modules.values()
          if hasattr(m, "__loader__")), graphc.ones(2).sum().item())
"""


def test_processes_share_it(tmp_path: Path) -> None:
    assert process(str(tmp_path / "absent"), COUNT).split() == ["0", "2.0"]
    assert not (tmp_path / "absent").exists()
    assert process("off", COUNT).split() == ["0", "2.0"]
    tmp_path.chmod(0o700)
    assert process(str(tmp_path), COUNT).split() == ["0", "2.0"]
    assert [each.kind for each in stored(tmp_path)] == [".modules"]
    count, total = process(str(tmp_path), COUNT).split()
    assert int(count) > 200 and total == "2.0"
    tmp_path.chmod(0o777)  # anybody could have written it
    assert process(str(tmp_path), COUNT).split() == ["0", "2.0"]
