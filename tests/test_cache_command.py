"""What earlier processes have kept: listed, explained, removed; never more than there is room."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
from graphc import backends, config
from graphc.__main__ import main
from graphc.backends.host.store import Store, clear, make_room, stored
from graphc.backends.llvm.kept import MAGIC

BACKEND: Any = backends.get("llvm")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache with a program in it, a kernel, and a file of somebody else's."""
    monkeypatch.setattr(BACKEND, "keeps", True)
    directory = tmp_path / "cache"
    with config.override(cache_dir=directory, check=0, debug=0, dump=None):

        @torch.compile
        def doubled(x: Any) -> Any:
            return (x * 2).sum()

        assert float(doubled(torch.ones(3))) == 6
        (directory / "mine.txt").write_text("mine")
        yield directory


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["cache", *arguments]) == 0
    return capsys.readouterr().out


def test_list_explain_clear(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "list")
    assert "compiled kernels" in text
    if not list(folder.rglob("*.program")):
        return  # a machine for which none are kept
    assert re.search(r"1 linked programs.*\n.*doubled: 1 kernels, .* used just now", text, re.S)
    text = said(capsys, "explain")
    assert "1 inputs, 1 outputs" in text and "these sources compile" in text
    (program,) = folder.rglob("*.program")
    store = Store(folder, MAGIC, ".program")
    body = store.read(bytes.fromhex(program.stem))
    assert body is not None
    end = 8 + int.from_bytes(body[:8], "little")
    head = re.sub(rb', "[0-9a-f]{64}"\]$', b', "00"]', body[8:end])
    store.write(bytes(32), len(head).to_bytes(8, "little") + head + body[end:])
    store.write(bytes(31) + b"x", b"garbage" * 9)
    text = said(capsys, "explain")
    assert text.count("stale: ") == 1 and text.count("of another graphc") == 1
    assert re.match(r"removed \d+ files", said(capsys, "clear"))
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert said(capsys, "explain") == "no programs are kept\n"


def test_off(capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(cache_dir=None):
        assert "nothing is kept" in said(capsys, "list")


def key(i: int, part: int = 0) -> bytes:
    return bytes([part, i]) * 16


def written(tmp_path: Path, count: int, parts: int = 1) -> Store:
    """`count` files of a thousand bytes, used one after the other, the last three hours ago."""
    store = Store(tmp_path, b"magic\n", ".o")
    for i in range(count):
        store.write(key(i, i % parts), bytes(1000))
        os.utime(path(tmp_path, i, i % parts), (0, time.time() - 11_000 + i))
    return store


def path(folder: Path, i: int, part: int = 0) -> Path:
    name = key(i, part).hex()
    return folder / "o" / name[:2] / f"{name}.o"


def left(folder: Path) -> set[int]:
    return {int(each.path.name[2:4], 16) for each in stored(folder) if each.kind}


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    store = written(tmp_path, 8, parts=2)
    assert store.read(key(0)) is not None  # used: the newest from here on
    temporary = tmp_path / "o" / "00" / ".new-0123"
    temporary.write_bytes(b"left")
    os.utime(temporary, (0, 0))
    for mine in (tmp_path / "mine.o", tmp_path / "o" / "mine.o", tmp_path / "o" / "00" / "mine.o"):
        mine.write_bytes(bytes(100_000))
    make_room(tmp_path, "00", most=10_000)
    assert left(tmp_path) == set(range(8)) and not temporary.exists()
    make_room(tmp_path, "02", most=6_000)  # nothing there is too much
    assert left(tmp_path) == set(range(8))
    make_room(tmp_path, "00", most=6_000)
    assert left(tmp_path) == {0, 5, 6, 7}
    assert len(list(tmp_path.rglob("mine.o"))) == 3


def test_a_part_holds_its_share_of_files(tmp_path: Path) -> None:
    written(tmp_path, 8)
    Store(tmp_path, b"magic\n", ".limits").write(key(9), b"of another kind, and the newest")
    make_room(tmp_path, "00", count=9 * 256)
    assert left(tmp_path) == {*range(8), 9}
    make_room(tmp_path, "00", count=8 * 256)
    assert left(tmp_path) == {*range(3, 8), 9}
    make_room(tmp_path, "01", count=0)
    assert left(tmp_path) == {*range(3, 8), 9}


def test_a_write_looks_at_no_other_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of a developer's has two hundred thousand files: seconds, in each process."""
    written(tmp_path, 64, parts=32)
    listed: list[str] = []
    true = os.scandir

    def noted(folder: Any) -> Any:
        listed.append(os.path.relpath(folder, tmp_path))
        return true(folder)

    monkeypatch.setattr(os, "scandir", noted)
    Store(tmp_path, b"magic\n", ".o").write(key(99, 7), b"one more")
    assert sorted(set(listed)) == [".", "o/07"]


def test_the_former_layout_goes_in_time(tmp_path: Path) -> None:
    """Files beside each other; newer ones may be another graphc's that runs now."""
    former = [tmp_path / f"{key(i).hex()}.o" for i in range(3)]
    for each in former:
        each.write_bytes(b"former")
    for each in former[:2]:
        os.utime(each, (0, time.time() - 10_000))
    assert len(stored(tmp_path)) == 3
    Store(tmp_path, b"magic\n", ".o").write(key(5), b"now")
    assert [each.exists() for each in former] == [False, False, True]
    assert clear(tmp_path)[0] == 2 and not list(tmp_path.iterdir())


def test_clearing_while_somebody_writes(tmp_path: Path) -> None:
    store, over = Store(tmp_path, b"magic\n", ".o"), threading.Event()

    def clears() -> None:
        while not over.is_set():
            clear(tmp_path)

    thread = threading.Thread(target=clears)
    thread.start()
    try:
        for i in range(300):
            store.write(key(i % 256, i % 3), bytes([i % 256]))
            assert store.read(key(i % 256, i % 3)) in (None, bytes([i % 256]))
    finally:
        over.set()
        thread.join()
    store.write(key(1), b"after it")
    assert store.read(key(1)) == b"after it"


def test_parts_are_the_users_alone(tmp_path: Path) -> None:
    """Whatever the umask: loading what lies there runs it."""
    before = os.umask(0)
    try:
        Store(tmp_path / "cache", b"magic\n", ".o").write(key(1), b"code")
    finally:
        os.umask(before)
    made = [each for each in (tmp_path / "cache").rglob("*") if each.is_dir()]
    assert len(made) == 2 and all(each.stat().st_mode & 0o777 == 0o700 for each in made)


@pytest.mark.parametrize("command", [("cache", "list"), ("config",)], ids=" ".join)
def test_who_reads_has_seen_enough(command: tuple[str, ...]) -> None:
    """`| head` ends a command without a traceback."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "graphc", *command], stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
