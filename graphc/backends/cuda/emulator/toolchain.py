"""C++ for the host: the emulator's runtime, once per folder, and libraries of kernels."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from graphc.backends.cuda.emulator.launch import Library, Runtime
from graphc.backends.cuda.instructions import INSTRUCTIONS
from graphc.backends.cuda.prelude import PRELUDE

_FOLDER = Path(__file__).parent / "cpp"
_RUNTIME = ("blocks.cpp", "warp.cpp", "copies.cpp", "wgmma.cpp", "memory.cpp")
_COMMON = "-std=c++17 -fPIC -ffp-contract=off".split()
# What the emulator watches is put in by the compiler; memory.cpp has the functions that are called.
_KERNELS = (
    "-g1 -gdwarf-4 -w -fno-strict-aliasing -fno-tree-loop-distribute-patterns "
    "-fsanitize=thread "
    "-fsanitize=shift-exponent,integer-divide-by-zero,signed-integer-overflow,bounds"
).split()
# characters of a unit from which on it is not optimized: that is three quarters of its compilation
_LARGE = 1 << 20
_NO_ENTRIES = {"g++": ["--param", "tsan-instrument-func-entry-exit=0"]}
_runtime: list[Runtime] = []  # the one that is loaded
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")


@functools.cache
def compiler() -> str | None:
    """A C++ compiler on the path, g++ or clang++; None where there is none."""
    return next((name for name in ("g++", "clang++") if shutil.which(name)), None)


def kernel_names(text: str) -> list[str]:
    """The `__global__` functions of a source, in order."""
    return _KERNEL.findall(text)


class Toolchain:
    """Compiles into a folder, which is the caller's: what lies there already is not made again.
    Raises RuntimeError where there is no C++ compiler."""

    def __init__(self, folder: Path) -> None:
        name = compiler()
        if name is None:
            raise RuntimeError("the emulator needs a C++ compiler: install g++ or clang++")
        self.folder, self.compiler = folder, name
        self.runtime = self._runtime()

    def compile(self, texts: Mapping[str, str], optimized: bool = True) -> Library:
        """One library of several sources of CUDA C, by name; names are those of places in reports.
        Not `optimized`: in less than half of the time, for what runs shortly; counts of accesses
        are others. Raises RuntimeError with what the compiler says."""
        source = _unit(texts)
        level = "-O1" if optimized and len(source) < _LARGE else "-O0"
        path = self.folder / f"kernels_{_digest((level + _first() + source).encode())}.so"
        if not path.exists():
            written = path.with_suffix(".cpp")
            written.write_text(source)
            instrument = [level, *_KERNELS, *_NO_ENTRIES.get(self.compiler, [])]
            made, first = path.with_suffix(".o"), self._header(instrument)
            self._run([*_COMMON, *instrument, "-include", first, "-c", written, "-o", made])
            self._run(["-shared", made, "-o", path])
        return Library(path, self.runtime)

    def _header(self, options: list[str]) -> Path:
        """What every unit begins with, compiled: that is most of the work for a small kernel."""
        path = self.folder / f"first_{_digest((' '.join(options) + _first()).encode())}.h"
        made = Path(f"{path}.gch")
        if not made.exists():
            path.write_text(_first())
            self._run([*_COMMON, *options, "-x", "c++-header", path, "-o", made])
        return path

    def load(self, image: bytes) -> Library:
        """A library by the bytes of its file: what a driver calls a cubin."""
        path = self.folder / f"loaded_{_digest(image)}.so"
        if not path.exists():
            path.write_bytes(image)
        return Library(path, self.runtime)

    def _runtime(self) -> Runtime:
        # once per process: kernels find its functions by their names, which a second one has, too
        if not _runtime:
            parts = sorted(_FOLDER.iterdir())
            path = self.folder / f"runtime_{_digest(b''.join(p.read_bytes() for p in parts))}.so"
            if not path.exists():
                sources = [_FOLDER / name for name in _RUNTIME]
                self._run([*_COMMON, "-O2", "-shared", *sources, "-o", path])
            _runtime.append(Runtime(ctypes.CDLL(str(path), os.RTLD_GLOBAL)))
        return _runtime[0]

    def _run(self, arguments: list[str | Path]) -> None:
        command = [self.compiler, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr[:4000]}")


@functools.cache
def _first() -> str:
    device = (_FOLDER / "device.h").read_text()
    return "\n".join((device, '#line 1 "prelude"', PRELUDE + INSTRUCTIONS, ""))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _unit(texts: Mapping[str, str]) -> str:
    """One C++ file, behind what all begin with: each source in a namespace of its own."""
    contents = json.dumps({name: kernel_names(text) for name, text in texts.items()})
    parts = [f'extern "C" const char* contents() {{ return {json.dumps(contents)}; }}']
    for number, (name, text) in enumerate(texts.items()):
        section = f"shared_{number}"
        parts += ["#undef SHARED_SECTION", f'#define SHARED_SECTION "{section}"']
        parts += [f"namespace source_{number} {{", f'#line 1 "{name}"', text, '#line 1 "entries"']
        for kernel in kernel_names(text):
            parts.append(
                f'extern "C" void entry_{kernel}(const unsigned char* packed) '
                f"{{ emulated_call({kernel}, packed); }}"
            )
        weak = '__attribute__((weak, visibility("hidden")))'
        parts.append(
            f'extern "C" unsigned char __start_{section}[] {weak}, __stop_{section}[] {weak};\n'
            f'extern "C" void range_{number}(unsigned char** range) '
            f"{{ range[0] = __start_{section}; range[1] = __stop_{section}; }}\n}}"
        )
    return "\n".join(parts) + "\n"
