"""The CPU's Backend: LLVM code for kernels and every template, in this process.

What only compiling needs is imported when something is compiled: code that is kept of an earlier
process runs without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.backends.host.memory import HOST
from graphc.backends.llvm.identity import identity
from graphc.backends.llvm.kept import Kept
from graphc.backends.llvm.pool import MAX_THREADS, Pool, kept_pools
from graphc.ir import forks
from graphc.ir.record import replaced

if TYPE_CHECKING:
    from pathlib import Path

    from graphc.backends import Backend, Finding, Host
    from graphc.backends.host.interface import Interface, Level, LibraryObjects
    from graphc.backends.llvm.cache import ObjectCache
    from graphc.backends.llvm.ceilings import Ceilings
    from graphc.backends.llvm.executable import Executable
    from graphc.backends.llvm.library import Library
    from graphc.backends.llvm.target import Target
    from graphc.ir.graph import Node
    from graphc.ir.kernel import Kernel, Program, Template
    from graphc.ir.machine import Machine


class LlvmBackend:
    """See Backend. `target`: what code is emitted for; None: the machine that runs this process.
    `keeps`: whether whole programs are kept; not where something else than sources decides what a
    graph is compiled to."""

    memory = HOST

    def __init__(self, target: Target | None = None, keeps: bool = False) -> None:
        self._target = target
        self.keeps = keeps
        self._lock = forks.rlock()
        self._caches: dict[Path | None, ObjectCache] = {}
        self._kept: dict[Path | None, Kept] = {}
        self._pool: Pool | None = None

    @functools.cached_property
    def target(self) -> Target:
        """What code is emitted for."""
        from graphc.backends.llvm.target import host_target, known_target

        if self._target is not None:
            return self._target
        with self._lock:
            directory = next(iter(self._kept), None)
        return host_target() if directory is None else known_target(directory)

    @functools.cached_property
    def machine(self) -> Machine:
        """What the shared passes may know of the target. Libraries have no NumPy that sorts."""
        return replaced(self.target.machine, sorts=self._target is not None)

    def claims(self, node: Node, machine: Machine) -> bool:
        """Draws from torch's generator; what else is no kernel runs on the host."""
        if node.op.family != "random":
            return False
        from graphc.backends.llvm.draw import draw_of

        return draw_of(node.op.name, node.attrs) is not None

    def computes(self, node: Node) -> bool:
        """Every operator that fusion takes."""
        return True

    def renders(self, template: Template) -> bool:
        """Products; convolutions whose operands lie in memory as torch has them, or with their
        channels last, and weights in panels; attention."""
        from graphc.ir.kernel import Attention, Convolution

        if isinstance(template, Attention):
            from graphc.backends.llvm.attention import renders_attention

            return renders_attention(template)
        if isinstance(template, Convolution) and template.kind == "conv_last":
            from graphc.backends.llvm.conv_last_kernel import renders_last

            tiling = self.machine.tiling
            assert tiling is not None
            return renders_last(template, tiling)
        return not isinstance(template, Convolution) or template.in_planes()

    def emit(self, kernel: Kernel) -> str:
        """LLVM assembly."""
        from graphc.backends.llvm.emit import emit

        return emit(kernel, self.target)

    def link(
        self, name: str, text: Callable[[], str], symbols: Mapping[str, int] | None = None,
        host: Host | None = None, opt_level: int = 1,
    ) -> Library:
        """Native code of LLVM assembly in this process (host/frames.py, host/entry.py): see
        linked.py. `host`: whose directory keeps it; None: one that is known by now."""
        from graphc.backends.llvm.linked import linked

        with self._lock:
            known = next(iter((*self._kept, *self._caches)), None)
        if host is not None:
            known = host.cache_dir
        return linked(name, text, symbols, known if self.keeps else None, opt_level)

    def build(self, program: Program, host: Host) -> Executable:
        """Raises LLVMError."""
        from graphc.backends.llvm.executable import build

        return build(
            program, pool=self.pool(host), target=self._target, cache=self.cache(host),
            memory=self.memory, table=host.table,
        )

    # --- freestanding libraries (export/aot) ---

    def levels(self, names: Sequence[str]) -> tuple[str, ...]:
        """The kinds of CPU of these names, the lowest first. Raises ValueError for unknown ones,
        and those of two architectures."""
        from graphc.backends.llvm.freestanding.levels import level_name, ordered

        return tuple(map(level_name, ordered(names)))

    def machines(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Names of kinds of CPU by the machines that they are for."""
        from graphc.backends.llvm.freestanding.levels import machines

        return machines(names)

    def at(self, level: str) -> LlvmBackend:
        """The backend for a kind of CPU, which need not be this one."""
        from graphc.backends.llvm.freestanding.levels import target_named

        return LlvmBackend(target_named(level))

    def library_objects(
        self, interface: Interface, levels: Sequence[Level], host: Host
    ) -> LibraryObjects:
        """The code of a library."""
        from graphc.backends.llvm.freestanding.objects import library_objects

        return library_objects(interface, levels, self.cache(host))

    def keeper(self, host: Host) -> Kept | None:
        """Programs of earlier processes; None where none are kept."""
        if not self.keeps or self._target is not None or host.cache_dir is None:
            return None
        if identity() is None:
            return None
        pool = self.pool(host)
        with self._lock:
            found = self._kept.get(host.cache_dir)
            if found is None:
                found = self._kept[host.cache_dir] = Kept(host.cache_dir, pool)
            return found

    def adapt(self, host: Host) -> None:
        """Starts or ends workers of the pool, if there is one."""
        if self._pool is not None:
            self.pool(host)

    def draws(self, host: Host) -> Mapping[str, Callable[..., Any]]:
        """Those of torch's stream."""
        from graphc.backends.llvm.stream import functions

        return functions(host.cache_dir)

    def ceilings(self, host: Host) -> Ceilings:
        """What this machine does at most with the host's threads."""
        from graphc.backends.llvm.ceilings import measured

        return measured(host.threads, host.cache_dir)

    def findings(self, host: Host) -> Sequence[Finding]:
        """llvmlite, the CPU, the cache."""
        from graphc.backends.llvm.findings import findings

        return findings(host.cache_dir)

    def cache(self, host: Host) -> ObjectCache:
        """The process's cache of compiled kernels over a directory."""
        from graphc.backends.llvm.cache import ObjectCache

        with self._lock:
            found = self._caches.get(host.cache_dir)
            if found is None:
                found = self._caches[host.cache_dir] = ObjectCache(host.cache_dir)
            return found

    def pool(self, host: Host) -> Pool:
        """The thread pool, which every executable shares, with the host's number of threads, or
        the most that there are."""
        threads = min(host.threads, MAX_THREADS)
        with self._lock:
            if self._pool is None:
                kept = kept_pools(host.cache_dir) if self.keeps else None
                self._pool = Pool(threads, lambda: self.cache(host), kept)
            elif self._pool.threads != threads:
                self._pool.set_threads(threads)
            return self._pool


BACKEND: Backend = LlvmBackend(keeps=True)
