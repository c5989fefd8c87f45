"""Of what process, machine and sources compiled code is, told without LLVM or any compiler."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graphc.backends.host.matrix_unit import usable
from graphc.backends.llvm.library import MAPS_IMAGES

# what decides what a graph is compiled to, and how that is called
_PARTS = ("ir", "engine/pipeline.py", "engine/stages.py", "backends/numpy", "backends/host",
          "backends/llvm")
# what /proc/cpuinfo says of a CPU that tells it from others
_FACTS = frozenset({"vendor_id", "cpu family", "model", "model name", "stepping", "flags"})
_FIRST = 1 << 14  # bytes of that file: the first CPU is among them


@functools.cache
def identity() -> bytes | None:
    """A digest of the CPU and what of it may be used, the compiler, this package's sources, NumPy
    and Python; None where something of it cannot be told, or images are not made: then nothing is
    kept.

    Files are told by their sizes and times, the time at which the system wrote them included,
    which nobody can set: to read all of them would take longer than to load what is kept.
    """
    if not MAPS_IMAGES:
        return None
    try:
        parts = [*_cpu(), *_compiler(), *_numbers(), *_sources()]
    except (OSError, ValueError):
        return None
    parts.append(f"matrix unit {usable()}")
    parts += [sys.version, np.__version__]
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _cpu() -> list[str]:
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        text = file.read(_FIRST).decode(errors="replace").split("\n\n")[0]
    facts = [line for line in text.split("\n") if line.split("\t")[0].strip() in _FACTS]
    if not any(line.startswith("flags") for line in facts):
        raise ValueError("the CPU says nothing of itself")
    return facts


def _compiler() -> Iterator[str]:
    """The files of llvmlite that change with it."""
    found = importlib.util.find_spec("llvmlite")
    if found is None or not found.submodule_search_locations:
        raise ValueError("llvmlite is not installed")
    folder = Path(found.submodule_search_locations[0])
    yield str(folder)
    yield _told(os.stat(folder / "_version.py"))
    for entry in sorted(os.scandir(folder / "binding"), key=lambda each: each.name):
        if "llvmlite" in entry.name:
            yield entry.name + _told(entry.stat())


def _numbers() -> Iterator[str]:
    """The package that has NumPy's bfloat16."""
    found = importlib.util.find_spec("ml_dtypes")
    if found is None or not found.origin:
        raise ValueError("ml_dtypes is not installed")
    yield found.origin + _told(os.stat(found.origin))


def _sources() -> Iterator[str]:
    package = Path(__file__).parents[2]
    for part in _PARTS:
        path = package / part
        if path.is_file():
            yield part + _told(path.stat())
        else:
            yield from _folder(str(path))


def _folder(path: str) -> Iterator[str]:
    entries = sorted(os.scandir(path), key=lambda each: each.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry.path + _told(entry.stat())
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _folder(entry.path)
    if not entries:
        raise ValueError("there are no sources")


def _told(status: os.stat_result) -> str:
    return f" {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
