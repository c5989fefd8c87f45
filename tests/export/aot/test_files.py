"""The files of a library, and the command that writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphc.export import aot

from .client import Library
from .libraries import exported, made
from .models import LeNet


def test_the_same_model_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    program = exported("small")
    first = aot(program, tmp_path / "a", name="m")
    second = aot(program, tmp_path / "b", name="m")
    assert first.library.read_bytes() == second.library.read_bytes()
    assert first.header.read_text() == second.header.read_text()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from graphc.__main__ import main

    exported("small").save(tmp_path / "m.gcx")
    folder = tmp_path / "out"
    arguments = ["aot", str(tmp_path / "m.gcx"), "--out", str(folder), "--name", "m"]
    assert main([*arguments, "--size", "length=8", "--weights", "file"]) == 0
    assert sorted(each.name for each in folder.iterdir()) == ["libm.so", "m.h", "m.safetensors"]
    assert "libm.so" in capsys.readouterr().out
    assert Library(folder / "libm.so", "m").named_sizes()[1] == ("length", 2, 8)
    assert main([*arguments[:-1], "7up"]) == 2
    assert "cannot begin" in capsys.readouterr().err


@pytest.mark.slow
def test_lenet_has_the_size_of_its_weights(folder: Path) -> None:
    made(folder, "lenet")
    weights = sum(each.numel() for each in LeNet().parameters()) * 4
    assert (folder / "liblenet.so").stat().st_size < 3 * weights
