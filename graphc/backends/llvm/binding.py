"""llvmlite, imported when it is first needed: the only door to it."""

import functools
import sys
import threading
from typing import Any

LOCK = threading.RLock()  # LLVM's objects are used by one thread at a time


@functools.cache
def binding() -> Any:
    """llvmlite.binding, imported (40 ms) and initialised at the first call."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # else inline assembly aborts the process
    return llvm


@functools.cache
def llvm_version() -> str:
    """The versions of llvmlite and LLVM, for cache keys and bug reports."""
    numbers = ".".join(str(part) for part in binding().llvm_version_info)
    return f"llvmlite {sys.modules['llvmlite'].__version__}, LLVM {numbers}"
