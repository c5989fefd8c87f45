"""Libraries that programs with certain operators are linked with, compiled in another thread while
such a program is still recorded and goes through the passes."""

from __future__ import annotations

import contextlib
import threading
from collections import deque

from graphc.backends.host import cpus
from graphc.backends.llvm.cache import ObjectCache, source_digest
from graphc.backends.llvm.compile_program import library_object
from graphc.backends.llvm.library import LLVMError
from graphc.backends.llvm.target import host_target

_PRODUCT = ("gemm_dot", "gemm", "gemm_pack")
_CONVOLUTION = ("conv", "gemm", "conv_pack", "gemm_dot", "gemm_pack")
_ATTENTION = ("gemm", "attention")
# by operator, those that take longest first
_KINDS = {
    "dot_general": _PRODUCT, "conv": _CONVOLUTION, "conv_input_grad": _CONVOLUTION,
    "conv_weight_grad": _CONVOLUTION, "attention": _ATTENTION, "attention_grad": _ATTENTION,
}


def libraries_of(operator: str, dtype: str) -> list[str]:
    """What template_libraries will name for an operator of numbers of this type; [] where that is
    not certain."""
    if dtype not in ("f32", "f64"):
        return []
    kinds = _KINDS.get(operator, ())
    return [f"{k}.{dtype}.{dtype}" if k.endswith("_pack") else f"{k}.{dtype}" for k in kinds]


class Ahead:
    """Compiles what it is asked for, one after the other. Who needs one of these before it is made
    waits for it, or makes it (ObjectCache).

    The thread shares Python with the one that records. So it only runs what holds no lock of
    Python's for long: what it needs is imported, read and known before.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache, self._target = cache, host_target()
        source_digest()
        self._lock = threading.Lock()
        self._asked: set[tuple[str, str]] = set()
        self._named: set[str] = set()
        self._waiting: deque[str] = deque()
        self._at_work = False

    def begin(self, operator: str, dtype: str) -> None:
        """A program will have such an operator."""
        if (operator, dtype) in self._asked:
            return
        with self._lock:
            self._asked.add((operator, dtype))
            fresh = [name for name in libraries_of(operator, dtype) if name not in self._named]
            self._named.update(fresh)
            self._waiting.extend(fresh)
            if self._at_work or not fresh or cpus.available() < 2:
                return
            self._at_work = True
        # no daemon: the interpreter ends behind it, and with it LLVM
        threading.Thread(target=self._work, name="graphc libraries").start()

    def _next(self) -> str | None:
        with self._lock:
            if not self._waiting or not threading.main_thread().is_alive():
                self._at_work = False
                return None
            return self._waiting.popleft()

    def _work(self) -> None:
        while (name := self._next()) is not None:
            with contextlib.suppress(LLVMError):  # who needs it will meet it
                library_object(name, self._target, self._cache)
