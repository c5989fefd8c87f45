"""The CPU's Backend: LLVM code for kernels and every template, in this process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphc.backends.host.memory import HOST
from graphc.backends.llvm import emit, executable
from graphc.backends.llvm.attention import renders_attention
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.findings import findings
from graphc.backends.llvm.jit import Library, compile_object
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.target import Target, host_target
from graphc.ir.graph import Node
from graphc.ir.kernel import Attention, Convolution, Kernel, Program, Template
from graphc.ir.machine import Machine

if TYPE_CHECKING:
    from graphc.backends import Backend, Finding, Host


class LlvmBackend:
    """See Backend. `target`: what code is emitted for; None: the machine that runs this process."""

    memory = HOST

    def __init__(self, target: Target | None = None) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._caches: dict[Path | None, ObjectCache] = {}
        self._pool: Pool | None = None

    @functools.cached_property
    def target(self) -> Target:
        """What code is emitted for."""
        return self._target or host_target()

    @functools.cached_property
    def machine(self) -> Machine:
        """What the shared passes may know of the target."""
        return self.target.machine

    def claims(self, node: Node, machine: Machine) -> bool:
        """Nothing: what is no kernel runs on the host."""
        return False

    def computes(self, node: Node) -> bool:
        """Every operator that fusion takes."""
        return True

    def renders(self, template: Template) -> bool:
        """Products; convolutions whose operands lie in memory as torch has them; attention."""
        if isinstance(template, Attention):
            return renders_attention(template)
        return not isinstance(template, Convolution) or template.in_planes()

    def emit(self, kernel: Kernel) -> str:
        """LLVM assembly."""
        return emit.emit(kernel, self.target)

    def link(self, text: str, symbols: Mapping[str, int] | None = None) -> Library:
        """Native code of LLVM assembly in this process (host/frames.py, host/entry.py). `symbols`:
        where what it calls is."""
        with self._lock:
            cache = next(iter(self._caches.values()), None)
        make = compile_object if cache is None else cache.compile
        return Library([make(text, self.target)], symbols)

    def build(self, program: Program, host: Host) -> executable.Executable:
        """Raises LLVMError."""
        return executable.build(
            program, pool=self.pool(host), target=self._target, cache=self.cache(host),
            memory=self.memory, table=host.table,
        )

    def adapt(self, host: Host) -> None:
        """Starts or ends workers of the pool, if there is one."""
        if self._pool is not None:
            self.pool(host)

    def findings(self, host: Host) -> Sequence[Finding]:
        """llvmlite, the CPU, the cache."""
        return findings(host.cache_dir)

    def cache(self, host: Host) -> ObjectCache:
        """The process's cache of compiled kernels over a directory."""
        with self._lock:
            found = self._caches.get(host.cache_dir)
            if found is None:
                found = self._caches[host.cache_dir] = ObjectCache(host.cache_dir)
            return found

    def pool(self, host: Host) -> Pool:
        """The thread pool, which every executable shares, with the host's number of threads."""
        cache = self.cache(host)
        with self._lock:
            if self._pool is None:
                self._pool = Pool(host.threads, cache)
            elif self._pool.threads != host.threads:
                self._pool.set_threads(host.threads)
            return self._pool


BACKEND: Backend = LlvmBackend()
