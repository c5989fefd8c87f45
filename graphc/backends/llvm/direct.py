"""LLVM by the C functions of llvmlite's library: what compiling a module without passes needs, and
what LLVM says of this machine. Importing llvmlite's Python takes 25 ms of a Zen 4, loading its
library 5; and it holds a lock around each call, which LLVM does not need where nothing is shared.

All else goes by llvmlite itself (binding.py), and so does this where its library is another one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from typing import Any, NamedTuple

from graphc.backends.llvm.binding import binding, package

VERSION = "0.50."  # of the llvmlite whose functions these are
_REF, _TEXT, _OUT = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)
_INT = ctypes.c_int
# What lets go of the GIL: result and arguments, as llvmlite has them (a test says so).
LONG: dict[str, tuple[Any, ...]] = {
    "ParseAssembly": (_REF, _REF, _TEXT, _OUT),
    "TargetMachineEmitToMemory": (_REF, _REF, _REF, _INT, _OUT),
}
# What is over at once, and keeps it: a thread waits up to 5 ms for it where another computes.
SHORT: dict[str, tuple[Any, ...]] = {
    "ContextCreate": (_REF,),
    "ContextDispose": (None, _REF),
    "CopyStringRepOfTargetData": (None, _REF, _OUT),
    "CreateTargetMachine": (
        _REF, _REF, _TEXT, _TEXT, _TEXT, _INT, _TEXT, _TEXT, _INT, _INT, _TEXT,
    ),
    "CreateTargetMachineData": (_REF, _REF),
    "DisposeMemoryBuffer": (None, _REF),
    "DisposeModule": (None, _REF),
    "DisposeString": (None, _REF),
    "DisposeTargetData": (None, _REF),
    "GetBufferSize": (ctypes.c_size_t, _REF),
    "GetBufferStart": (_REF, _REF),
    "GetHostCPUFeatures": (_INT, _OUT),
    "GetHostCPUName": (None, _OUT),
    "GetProcessTriple": (None, _OUT),
    "GetTargetFromTriple": (_REF, _TEXT, _OUT),
    "GetVersionInfo": (ctypes.c_uint,),
    "InitializeAllAsmPrinters": (None,),
    "InitializeAllTargetInfos": (None,),
    "InitializeAllTargetMCs": (None,),
    "InitializeAllTargets": (None,),
    "InitializeNativeAsmParser": (None,),  # else inline assembly aborts the process
    "InitializeNativeAsmPrinter": (None,),
    "InitializeNativeTarget": (None,),
    "SetDataLayout": (None, _REF, _TEXT),
    "SetTarget": (None, _REF, _TEXT),
    "VerifyModule": (ctypes.c_bool, _REF, _OUT),
}


class Generator(NamedTuple):
    """A code generator, which one thread at a time may use, and where its target has what in
    memory."""

    machine: int
    layout: bytes


class Direct:
    """The functions, without their LLVMPY_. Raises AttributeError and OSError for another
    library."""

    def __init__(self) -> None:
        names = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}
        name = names.get(sys.platform, "libllvmlite.so")
        path = os.path.join(package().__path__[0], "binding", name)
        for kind, functions in ((ctypes.CDLL, LONG), (ctypes.PyDLL, SHORT)):
            library: Any = kind(path)
            for each, (result, *taken) in functions.items():
                function = getattr(library, f"LLVMPY_{each}")
                function.restype, function.argtypes = result, taken
                setattr(self, each, function)
        self.InitializeNativeTarget()
        self.InitializeNativeAsmPrinter()
        self.InitializeNativeAsmParser()
        self.triple = self.told(self.GetProcessTriple)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def told(self, function: Any, *given: Any) -> str:
        """The text that a function leaves at its last argument."""
        text = ctypes.c_char_p()
        function(*given, ctypes.byref(text))
        try:
            return (text.value or b"").decode()
        finally:
            self.DisposeString(text)

    @property
    def version(self) -> tuple[int, ...]:
        """LLVM's."""
        return tuple(self.GetVersionInfo().to_bytes(4, "big").lstrip(b"\0"))

    def generator(
        self, triple: str, cpu: str, features: str, opt_level: int, relocation: str
    ) -> Generator | None:
        """One of small code. It is never disposed of. None: who says why not is llvmlite."""
        if triple != self.triple:
            self.InitializeAllTargetInfos()
            self.InitializeAllTargets()
            self.InitializeAllTargetMCs()
            self.InitializeAllAsmPrinters()
        problem = ctypes.c_char_p()
        target = self.GetTargetFromTriple(triple.encode(), ctypes.byref(problem))
        self.DisposeString(problem)
        if not target:
            return None
        texts = (text.encode() for text in (triple, cpu, features))
        machine = self.CreateTargetMachine(
            target, *texts, opt_level, relocation.encode(), b"small", 0, 0, b""
        )
        if not machine:
            return None
        data = self.CreateTargetMachineData(machine)
        layout = self.told(self.CopyStringRepOfTargetData, data)
        self.DisposeTargetData(data)
        return Generator(machine, layout.encode())


@functools.cache
def direct() -> Direct | None:
    """None: another llvmlite, or one in a place of its own."""
    if not package().__version__.startswith(VERSION):
        return None
    try:
        return Direct()
    except (AttributeError, OSError):
        return None


@functools.cache
def llvm_version() -> str:
    """The versions of llvmlite and LLVM, for cache keys and bug reports."""
    llvm = direct()
    found = binding().llvm_version_info if llvm is None else llvm.version
    return f"llvmlite {package().__version__}, LLVM {'.'.join(map(str, found))}"


def host_words() -> tuple[str, str, list[str]]:
    """This machine's triple, and its CPU's name and features ("+avx2"), as LLVM has them."""
    llvm = direct()
    if llvm is not None:
        features = [name for name in llvm.told(llvm.GetHostCPUFeatures).split(",") if name]
        return llvm.triple, llvm.told(llvm.GetHostCPUName), features
    named = binding().get_host_cpu_features().items()
    features = [("+" if on else "-") + name for name, on in named]
    return binding().get_process_triple(), binding().get_host_cpu_name(), features
