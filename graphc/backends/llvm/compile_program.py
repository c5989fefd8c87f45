"""Every distinct kernel of a program to an object, once, and all of them linked."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.contraction import emit_library, template_libraries
from graphc.backends.llvm.driver import PYTHON, Layout, emit_driver, ends_by_flag
from graphc.backends.llvm.emit import emit, kernel_checks
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.target import Target
from graphc.ir.kernel import Kernel, Launch, Program, Routine, leaves
from graphc.ir.kernel.text import kernel_symbol, print_kernel


@dataclass(slots=True)
class KernelStats:
    """One compiled kernel: its symbol, first name, size in bytes, and whether it was cached."""

    symbol: str
    name: str
    object_bytes: int
    cached: bool


@dataclass(slots=True)
class BuildStats:
    """Where a build's time went, in seconds."""

    emit: float = 0.0  # kernels to LLVM assembly
    codegen: float = 0.0  # assembly to objects
    driver: float = 0.0  # the driver, from text to object
    link: float = 0.0
    kernels: list[KernelStats] = field(default_factory=list)
    remarks: tuple[str, ...] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """All of them, by stage."""
        return {name: getattr(self, name) for name in ("emit", "codegen", "driver", "link")}


@dataclass(slots=True)
class Compiled:
    """A linked program."""

    library: Library
    layout: Layout
    stats: BuildStats
    pool: Pool  # its workers run the library's code


def compile_program(program: Program, target: Target, pool: Pool, cache: ObjectCache) -> Compiled:
    """Compiles what the cache lacks and links it with the driver."""
    stats = BuildStats()
    compiler = _Compiler(target, cache, stats)
    steps = list(leaves(program.steps))
    symbols = [
        compiler.kernel(step.kernel) if isinstance(step, Launch) else "" for step in steps
    ]
    checks = [
        isinstance(step, Routine) or compiler.checked[symbol]
        for step, symbol in zip(steps, symbols, strict=True)
    ]
    start = time.perf_counter()
    text, layout = emit_driver(program, symbols, checks, target)
    driver = cache.compile(text, target, opt_level=0)
    stats.driver = time.perf_counter() - start
    start = time.perf_counter()
    objects = [*compiler.objects.values(), *compiler.libraries.values(), driver]
    shared = {"graphc_par": pool.address}
    if ends_by_flag(program):
        shared |= {name: _address(name) for name in PYTHON}
    library = Library(objects, shared)
    stats.link = time.perf_counter() - start
    return Compiled(library, layout, stats, pool)


def _address(name: str) -> int:
    """Where a function of CPython's API lies."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


class _Compiler:
    """Objects of the kernels seen so far, by symbol, and of the libraries they need, by name."""

    def __init__(self, target: Target, cache: ObjectCache, stats: BuildStats) -> None:
        self.target, self.cache, self.stats = target, cache, stats
        self.objects: dict[str, bytes] = {}
        self.libraries: dict[str, bytes] = {}
        self.checked: dict[str, bool] = {}
        self._symbols: dict[int, str] = {}  # by identity: launches often share a kernel

    def kernel(self, kernel: Kernel) -> str:
        """The symbol of a kernel, which is compiled if it is new."""
        symbol = self._symbols.get(id(kernel))
        if symbol is None:
            symbol = self._symbols[id(kernel)] = kernel_symbol(kernel)
        if symbol not in self.objects:
            self.checked[symbol] = bool(kernel_checks(kernel))
            self.objects[symbol] = self._compile(kernel, symbol)
            if kernel.template is not None:
                for name in template_libraries(kernel, self.target):
                    if name not in self.libraries:
                        self.libraries[name] = self._library(name)
        return symbol

    def _compile(self, kernel: Kernel, symbol: str) -> bytes:
        text = ""
        emitting = 0.0

        def make() -> str:
            nonlocal text, emitting
            start = time.perf_counter()
            text = emit(kernel, self.target, symbol)
            emitting = time.perf_counter() - start
            return text

        start = time.perf_counter()
        # the kernel's own text is the key: a kernel that is known is not even emitted
        compiled = self.cache.compile(print_kernel(kernel, name=False), self.target, make=make)
        self.stats.codegen += time.perf_counter() - start - emitting
        self.stats.emit += emitting
        self.stats.kernels.append(
            KernelStats(symbol, kernel.name, len(compiled), cached=not text)
        )
        return compiled

    def _library(self, name: str) -> bytes:
        start = time.perf_counter()
        compiled = self.cache.compile(
            f"library {name}", self.target, make=lambda: emit_library(name, self.target).text()
        )
        self.stats.codegen += time.perf_counter() - start
        return compiled
