"""The clients in examples/clients, built by the compilers of this machine and run: what the library
says is, to the bit, what graphc said when it made the library."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
from graphc.export.aot.linking import linkers
from tests.docs.pages import blocks
from tests.export.client_examples import CLIENTS, WARNINGS, example, refused, run, tool


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, its header, and a recorded call: of an untrained model, which takes no time."""
    if sys.platform != "linux" or not linkers.available("x86_64"):
        pytest.skip("there is no linker for x86-64 Linux here")
    folder = tmp_path_factory.mktemp("clients")
    example("make.py").main(folder, steps=0)
    return folder


def holds(said: str) -> None:
    """What every client prints, and that both outputs have the recorded bits."""
    for line in ("input image: u8 [batch, 28, 28]", "digit']: i64 [batch]",
                 "probability']: f32 [batch, 10]"):
        assert line in said, said
    assert said.count("equal to the bit") == 2, said


def damaged(out: Path, tmp_path: Path) -> Path:
    """A recorded call with one wrong element."""
    golden = shutil.copytree(out / "golden", tmp_path / "golden")
    data = bytearray((golden / "output1.tensor").read_bytes())
    data[-1] ^= 0x3F
    (golden / "output1.tensor").write_bytes(data)
    return golden


def compile_c(
    out: Path, source: Path, made: Path, compiler: str, *options: str, library: str = "digits"
) -> Path:
    run(compiler, *WARNINGS, *options, f"-I{out}", source, "-x", "none",
        f"-L{out}", f"-l{library}", "-lm", f"-Wl,-rpath,{out}", "-o", made)
    return made


@pytest.mark.parametrize("compiler, options", [
    (("gcc", "cc", "clang"), ("-std=c99", "-x", "c")),
    (("g++", "c++", "clang++"), ("-std=c++11", "-x", "c++")),
], ids=["C", "C++"])
def test_c(
    out: Path, tmp_path: Path, compiler: tuple[str, ...], options: tuple[str, ...]
) -> None:
    client = compile_c(
        out, CLIENTS / "c" / "client.c", tmp_path / "client", tool(*compiler), *options
    )
    for threads in ("1", "2"):
        holds(run(client, out / "golden", "-", threads))
    assert "GRAPHC_CPU: " in refused(client, out / "golden", "x86-64-v9")
    assert "GRAPHC_THREADS: " in refused(client, out / "golden", "-", "-1")
    refused(client, damaged(out, tmp_path))


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that trains, and what it is to find."""
    if sys.platform != "linux" or not linkers.available("x86_64"):
        pytest.skip("there is no linker for x86-64 Linux here")
    folder = tmp_path_factory.mktemp("trainer")
    example("make.py").make_trainer(folder, steps=12)
    return folder


def trained(said: str, first: int, last: int) -> None:
    """All losses of these steps have the recorded bits."""
    for step in range(first, last):
        assert f"step {step}: loss" in said, said
    assert said.count("equal to the bit") == last - first, said


@pytest.mark.slow
def test_training(trainer: Path, tmp_path: Path) -> None:
    """In C, C++ and Python, one going on where another has stopped."""
    programs = [
        compile_c(trainer, CLIENTS / "c" / "train.c", tmp_path / name, tool(compiler), *options,
                  library="digits_trainer")
        for name, compiler, *options in (
            ("c", "gcc", "-std=c99", "-x", "c"), ("cc", "g++", "-std=c++11", "-x", "c++"),
        )
    ]
    recorded, state = trainer / "training", tmp_path / "state.safetensors"
    python = (sys.executable, "-S", CLIENTS / "python" / "train.py",
              trainer / "libdigits_trainer.so")
    for k, program in enumerate(((programs[0],), python, (programs[1],))):
        first, last = 4 * k, 4 * k + 4
        trained(run(*program, recorded, state, str(first), str(last)), first, last)
    state.write_bytes(state.read_bytes()[:-1])
    assert "GRAPHC_FILE: " in refused(programs[0], recorded, state, "4", "5")
    assert "GRAPHC_FILE: " in refused(*python, recorded, tmp_path / "none", "4", "5")


@pytest.mark.slow
def test_training_in_two_threads(trainer: Path, tmp_path: Path) -> None:
    """C++: a context in each thread, and a third that goes on from the file of one."""
    client = compile_c(
        trainer, CLIENTS / "cpp" / "train.cpp", tmp_path / "train", tool("g++", "c++", "clang++"),
        "-std=c++17", "-pthread", library="digits_trainer",
    )
    recorded, state = trainer / "training", tmp_path / "state.safetensors"
    assert run(client, recorded, state, "5") == (
        "equal to the bit: 5 and 5 of 5 losses, and 7 of the 7 behind the file\n"
    )
    assert "12 recorded batches" in refused(client, recorded, state, "13")
    assert "GRAPHC_FILE: " in refused(client, recorded, tmp_path / "no" / "state", "5")
    wrong = shutil.copytree(recorded, tmp_path / "wrong")
    losses = bytearray((wrong / "loss.tensor").read_bytes())
    losses[-1] ^= 0x3F
    (wrong / "loss.tensor").write_bytes(losses)
    assert refused(client, wrong, state, "5") == ""


def test_ctypes(out: Path, tmp_path: Path) -> None:
    """By a Python that finds no packages: neither graphc nor NumPy."""
    client = CLIENTS / "python" / "client.py"
    command = sys.executable, "-I", "-S", client, out / "libdigits.so"
    holds(run(*command, out / "golden"))
    assert "GRAPHC_CPU: " in refused(*command, out / "golden", "x86-64-v9")
    refused(*command, damaged(out, tmp_path))


def test_rust(out: Path, tmp_path: Path) -> None:
    home = Path.home() / ".cargo" / "bin" / "rustc"
    compiler = str(home) if home.exists() else tool("rustc")
    run(compiler, "--edition=2021", "-D", "warnings", CLIENTS / "rust" / "client.rs", "-L", out,
        "-C", f"link-arg=-Wl,-rpath,{out}", "-o", tmp_path / "client")
    holds(run(tmp_path / "client", out / "golden"))
    assert "GRAPHC_CPU: " in refused(tmp_path / "client", out / "golden", "x86-64-v9")
    refused(tmp_path / "client", damaged(out, tmp_path))


def test_go(out: Path, tmp_path: Path) -> None:
    compiler, client = tool("go"), tmp_path / "client"
    tool("gcc", "clang")  # for cgo
    shutil.copy(CLIENTS / "go" / "client.go", tmp_path)
    done = subprocess.run(
        [compiler, "build", "-o", client, "client.go"], cwd=tmp_path, capture_output=True,
        text=True,
        env={
            **os.environ, "GOPATH": str(tmp_path / "path"), "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "1", "CGO_CFLAGS": f"-I{out} -Wall -Werror",
            "CGO_LDFLAGS": f"-L{out} -Wl,-rpath,{out}",
        },
    )
    assert done.returncode == 0, done.stderr
    holds(run(client, out / "golden"))
    assert "GRAPHC_CPU: " in refused(client, out / "golden", "x86-64-v9")
    assert "no such file" in refused(client, tmp_path)
    refused(client, damaged(out, tmp_path))


def test_node(out: Path, tmp_path: Path) -> None:
    node = tool("node")
    headers = Path(os.path.realpath(node)).parents[1] / "include" / "node"
    if not (headers / "node_api.h").exists():
        pytest.skip("node_api.h is not installed beside Node")
    addon = compile_c(
        out, CLIENTS / "node" / "addon.c", tmp_path / "digits.node", tool("gcc", "cc", "clang"),
        "-shared", "-fPIC", f"-I{headers}", "-x", "c",
    )
    client = CLIENTS / "node" / "client.js"
    holds(run(node, client, addon, out / "golden"))
    assert "GRAPHC_CPU" in refused(node, client, addon, out / "golden", "x86-64-v9")
    refused(node, client, addon, damaged(out, tmp_path))


def commands(source: Path) -> list[str]:
    """The shell commands in a program's first lines, without what may be left out."""
    found: list[str] = []
    for line in source.read_text(encoding="utf-8").split("\n")[:12]:
        indented = re.match(r"(?://!?| \*)?(\t| {4,})(\S.*)$", line)
        if indented is None:
            continue
        if len(indented[1]) > 5:  # goes on
            found[-1] = f"{found[-1].removesuffix(chr(92))} {indented[2]}"
        else:
            found.append(re.sub(r" \[.*", "", indented[2]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("program, first", [
    ("c/client.c", "cc"), ("rust/client.rs", "rustc"), ("go/client.go", "go"),
    ("python/client.py", "python"),
])
def test_the_commands_in_the_first_lines(
    program: str, first: str, out: Path, tmp_path: Path
) -> None:
    """In a folder laid out as the checkout's."""
    path = f"{Path.home() / '.cargo' / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which(first, path=path) is None:
        pytest.skip(f"not installed: {first}")
    folder = shutil.copytree((CLIENTS / program).parent, tmp_path / "clients" / "one")
    (tmp_path / "clients" / "out").symlink_to(out)
    lines = commands(CLIENTS / program)
    assert lines
    holds(run("env", "-C", folder, f"PATH={path}", "sh", "-ec", "\n".join(lines)))


@pytest.mark.slow  # tests/docs runs the page itself
def test_the_program_of_the_page(tmp_path: Path) -> None:
    """docs/how_to/ship.md: its C program is built with what the page has made before it."""
    page = Path(__file__).parents[3] / "docs" / "how_to" / "ship.md"
    names: dict[str, Any] = {"__name__": "ship"}
    for block in blocks(page.read_text(encoding="utf-8"))[:2]:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block.code, page.name, "exec"), names)
    made = names["out"]
    run(tool("gcc", "cc", "clang"), "-Wall", "-Werror", made / "main.c", f"-I{made}", f"-L{made}",
        "-lflowers", f"-Wl,-rpath,{made}", "-o", tmp_path / "main")
    rows = names["program"](torch.tensor([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])).tolist()
    assert run(tmp_path / "main") == "".join("{:.3f} {:.3f} {:.3f}\n".format(*row) for row in rows)
