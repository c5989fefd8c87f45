"""CUDA C compiled for the host, as a cubin is for a device; and one launch of it."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent
OPTIONS = (
    "-std=c++17", "-w", "-fPIC", "-ffp-contract=off", "-fwrapv", "-U_FORTIFY_SOURCE",
    f"-I{HERE}",
)
SCHEDULES = ("forwards", "backwards", "shuffled", "first ahead", "last ahead")
_KERNEL = re.compile(r'extern "C" __global__ (?:__launch_bounds__\([^)]*\) )?void (\w+)\(')


class Emulated(RuntimeError):
    """What a device would not have survived: threads that wait for ever, an address of nobody."""


class BadAddress(Emulated):
    """An access outside of all memory."""


class Config(ctypes.Structure):
    """See scheduler.cpp."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("schedule", ctypes.c_int),
        ("seed", ctypes.c_uint),
    ]


class Report(ctypes.Structure):
    """See scheduler.cpp."""

    _fields_ = [("switches", ctypes.c_int64), ("text", ctypes.c_char * 512)]


class Schedule(NamedTuple):
    """Whose turn it is: a name of SCHEDULES, and the seed of a shuffle."""

    name: str = "forwards"
    seed: int = 1


def schedules() -> Iterator[Schedule]:
    """One of each."""
    return map(Schedule, SCHEDULES)


@functools.cache
def compiler() -> str:
    """g++, or the test is skipped by its name."""
    found = shutil.which("g++")
    if found is None:
        pytest.skip("needs g++ to emulate a GPU")
    return found


@functools.cache
def _scheduler() -> Path:
    """scheduler.cpp's object, of this process."""
    path = Path(tempfile.mkdtemp(prefix="graphc-emulator-"), "scheduler.o")
    run_compiler("-O1", "-c", str(HERE / "scheduler.cpp"), "-o", str(path))
    return path


def run_compiler(*arguments: str) -> None:
    """g++ with the options that emulated code needs. Fails with what it says."""
    command = [compiler(), *OPTIONS, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:4000]


@functools.cache
def build(*texts: str) -> bytes:
    """A library of the kernels of some texts, each as emitted: what a driver may load."""
    parts = ['#include "device.h"']
    for number, text in enumerate(texts):
        parts.append(f'namespace text{number} {{\n#line 1 "text{number}.cu"\n{text}')
        for name in _KERNEL.findall(text):
            parts.append(
                f'extern "C" void emulate_{name}(const unsigned char* packed) '
                f"{{ emulator::call(&{name}, packed); }}"
            )
        parts.append("}")
    with tempfile.TemporaryDirectory(prefix="graphc-emulated-") as folder:
        source, library = Path(folder, "module.cpp"), Path(folder, "module.so")
        source.write_text("\n".join(parts) + "\n")
        run_compiler("-O1", "-shared", str(source), str(_scheduler()), "-o", str(library))
        return library.read_bytes()


class Module:
    """A library that is loaded."""

    def __init__(self, library: bytes) -> None:
        with tempfile.NamedTemporaryFile(prefix="graphc-emulated-", suffix=".so") as file:
            file.write(library)
            file.flush()
            self._library = ctypes.CDLL(file.name)

    def kernel(self, name: str) -> Callable[..., Any]:
        """Its entry. Raises AttributeError for one that is not there."""
        return self._library[f"emulate_{name}"]

    def launch(
        self, kernel: Callable[..., Any], grid: tuple[int, int, int], block: tuple[int, int, int],
        packed: bytes, schedule: Schedule,
    ) -> int:
        """Runs it; returns how often threads took turns. Raises Emulated."""
        config = Config(grid, block, SCHEDULES.index(schedule.name), schedule.seed)
        report = Report()
        verdict = self._library.emulate(kernel, packed, ctypes.byref(config), ctypes.byref(report))
        if verdict:
            raise (BadAddress if verdict == 2 else Emulated)(report.text.decode())
        return int(report.switches)
