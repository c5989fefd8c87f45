"""What earlier processes have kept: listed, explained, removed; never more than there is room."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
from graphc import backends, config
from graphc.__main__ import main
from graphc.backends.host.store import Store, make_room, stored
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
    if not list(folder.glob("*.program")):
        return  # a machine for which none are kept
    assert re.search(r"1 linked programs.*\n.*doubled: 1 kernels, .* used just now", text, re.S)
    text = said(capsys, "explain")
    assert "1 inputs, 1 outputs" in text and "these sources compile" in text
    (program,) = folder.glob("*.program")
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


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    store = Store(tmp_path, b"magic\n", ".o")
    for i in range(8):
        store.write(bytes([i]) * 32, bytes(1000))
        path = tmp_path / f"{(bytes([i]) * 32).hex()}.o"
        os.utime(path, (0, time.time() - 10_000 + i))
    assert store.read(bytes(32)) is not None  # used: the newest from here on
    (tmp_path / ".new-0123").write_bytes(b"left")
    os.utime(tmp_path / ".new-0123", (0, 0))
    (tmp_path / "mine.o").write_bytes(bytes(100_000))
    make_room(tmp_path, most=10_000)
    assert len(stored(tmp_path)) == 8 and not (tmp_path / ".new-0123").exists()
    make_room(tmp_path, most=6_000)
    left = {each.path.name[:2] for each in stored(tmp_path)}
    assert left == {"00", "05", "06", "07"} and (tmp_path / "mine.o").exists()
