"""The linker of this machine for a CPU: GNU ld, LLVM's lld, or the one in the wheel `ziglang`."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from graphc.export.aot.linking.errors import LinkError

# A CPU's name in -m, as GNU ld and lld have it.
EMULATIONS = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}
_CURE = "Cure: install binutils or lld, or `pip install graphc-compiler[aot]`, which brings one"


@functools.cache
def linker(arch: str) -> tuple[str, ...]:
    """The command that links ELF objects of a CPU. Raises LinkError where there is none."""
    emulation = EMULATIONS.get(arch)
    if emulation is None:
        raise LinkError(f"libraries are linked for {', '.join(EMULATIONS)}, not for {arch}")
    tried = []
    for command in _candidates(arch):
        if _links(command, emulation):
            return command
        tried.append(" ".join(command))
    seen = f" ({', '.join(tried)} cannot)" if tried else ""
    raise LinkError(f"there is no linker for {arch} on this machine{seen}. {_CURE}")


def available(arch: str) -> bool:
    """Whether there is a linker for a CPU."""
    try:
        linker(arch)
    except LinkError:
        return False
    return True


def _candidates(arch: str) -> list[tuple[str, ...]]:
    found = [shutil.which(name) for name in ("ld", "ld.lld", f"{arch}-linux-gnu-ld")]
    commands = [(path,) for path in found if path is not None]
    if importlib.util.find_spec("ziglang") is not None:
        return [*commands, (sys.executable, "-m", "ziglang", "ld.lld")]
    return [*commands]


def _links(command: Sequence[str], emulation: str) -> bool:
    """Whether a linker knows a CPU. lld, and mold, know all of ours; GNU ld lists what it knows."""
    said = _said([*command, "--version"])
    if any(name in said.split() for name in ("LLD", "mold")):
        return True
    return "GNU ld" in said and emulation in _said([*command, "-V"]).split()


def _said(command: Sequence[str]) -> str:
    """What a command prints; "" where it cannot be run."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def run(command: Sequence[str], arguments: Sequence[str], folder: Path) -> None:
    """Links, in a folder. Raises LinkError with what the linker said."""
    # GNU ld would write the folders that this variable names into the file
    env = shutil.which("env")
    plain = (env, "-u", "LD_RUN_PATH") if env else ()
    done = subprocess.run(
        [*plain, *command, *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, errors="replace",
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[:8]
        raise LinkError("\n".join([f"{command[0]} cannot link:", *lines]))
