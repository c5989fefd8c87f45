"""llvmlite, imported when it is first needed: the only door to it."""

import functools
import os
import threading
from typing import Any

from graphc.ir import forks

LOCK = forks.rlock()  # LLVM's objects are used by one thread at a time
_PATIENCE = 20.0  # seconds that a fork waits for LLVM, which is whole in the child then


class _Fork(threading.local):
    """A thread that forks has the lock meanwhile, if it got it."""

    held = False

    def begins(self) -> None:
        self.held = LOCK.acquire(timeout=_PATIENCE)

    def over(self) -> None:
        if self.held:
            LOCK.release()


_fork = _Fork()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_fork.begins, after_in_parent=_fork.over, after_in_child=_fork.over
    )


def package() -> Any:
    """llvmlite, which has nothing but its version in it."""
    import llvmlite

    return llvmlite


@functools.cache
def binding() -> Any:
    """llvmlite.binding, imported at the first call (25 ms, which direct.py does without)."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # else inline assembly aborts the process
    return llvm
