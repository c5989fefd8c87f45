"""Libraries in programs on other CPUs, by qemu-user: x86-64 without AVX-512 or AVX, and ARM."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from graphc.export.aot.linking import linkers

from .client_examples import CLIENTS, WARNINGS, example, run, tool

pytestmark = pytest.mark.slow
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The client in C, and the recorded call."""
    if not linkers.available("x86_64"):
        pytest.skip("there is no linker for x86-64 here")
    out = tmp_path_factory.mktemp("digits")
    example("make.py").main(out, steps=20, targets=LEVELS)
    run(tool("gcc", "cc", "clang"), *WARNINGS, CLIENTS / "c" / "client.c", f"-I{out}", f"-L{out}",
        "-ldigits", "-lm", f"-Wl,-rpath,{out}", "-o", out / "client")
    return out / "client", out / "golden"


@pytest.mark.parametrize("cpu, level", [
    ("Nehalem", "x86-64-v2"), ("SandyBridge", "x86-64-v2"), ("Haswell", "x86-64-v3"),
    ("Skylake-Server", "x86-64-v3"),  # qemu has no AVX-512
])
def test_x86(client: tuple[Path, Path], cpu: str, level: str) -> None:
    done = subprocess.run(
        [tool("qemu-x86_64", "qemu-x86_64-static"), "-cpu", cpu, *client], capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"code for {level}, " in done.stdout


def test_x86_below_all_levels(client: tuple[Path, Path]) -> None:
    done = subprocess.run(
        [tool("qemu-x86_64", "qemu-x86_64-static"), "-cpu", "Conroe", *client],
        capture_output=True, text=True,
    )
    assert done.returncode == 1 and "GRAPHC_CPU" in done.stderr, done.stderr


@pytest.mark.parametrize("targets", [("aarch64",), ("aarch64", "aarch64+dotprod")])
def test_arm(tmp_path: Path, targets: tuple[str, ...]) -> None:
    """A program without a system: the archive, linked with musl by the compiler of ziglang."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("not installed: ziglang")
    qemu = tool("qemu-aarch64", "qemu-aarch64-static")
    example("make.py").main(tmp_path, steps=20, targets=targets, static=True)
    made = tmp_path / "client"
    run(sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static",
        *WARNINGS, CLIENTS / "c" / "client.c", f"-I{tmp_path}", tmp_path / "libdigits.a", "-lm",
        "-o", made)
    for threads in ("1", "3"):
        said = run(qemu, made, tmp_path / "golden", "-", threads)
        assert f"code for {targets[-1]}, threads: {threads}\n" in said
    assert "GRAPHC_CPU" in subprocess.run(
        [qemu, made, tmp_path / "golden", "x86-64"], capture_output=True, text=True
    ).stderr
