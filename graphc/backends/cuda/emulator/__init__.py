"""CUDA C run on the host: emitted kernels compiled as C++, one fiber per CUDA thread.

For tests on machines without a GPU. `Toolchain(folder).compile(texts)` gives a Library, whose
`launch` runs a kernel under a Schedule and raises EmulatedError for what is wrong on a GPU: an
access outside of its buffer, a barrier that not all threads reach, a race, a misaligned vector.
"""

from graphc.backends.cuda.emulator.launch import Counts, EmulatedError, Library
from graphc.backends.cuda.emulator.schedule import ALL, Schedule
from graphc.backends.cuda.emulator.toolchain import Toolchain, compiler

__all__ = ["ALL", "Counts", "EmulatedError", "Library", "Schedule", "Toolchain", "compiler"]
