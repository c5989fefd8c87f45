"""NVRTC through ctypes: CUDA C to a cubin, for any architecture, with or without a GPU.

docs.nvidia.com/cuda/nvrtc
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from graphc.backends.cuda import libraries
from graphc.backends.cuda.driver import Attribute, Driver
from graphc.backends.cuda.libraries import Found, MissingLibrary, Version, dotted
from graphc.backends.cuda.prototypes import bind, parse

PROTOTYPES = parse("""
    const char * nvrtcGetErrorString(nvrtcResult)
    nvrtcResult nvrtcVersion(int *, int *)
    nvrtcResult nvrtcGetNumSupportedArchs(int *)
    nvrtcResult nvrtcGetSupportedArchs(int *)
    nvrtcResult nvrtcCreateProgram(nvrtcProgram *, const char *, const char *, int, \
const char * const *, const char * const *)
    nvrtcResult nvrtcDestroyProgram(nvrtcProgram *)
    nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char * const *)
    nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t *)
    nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char *)
    nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t *)
    nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char *)
""".replace("\\\n", ""))
TYPES = {"nvrtcResult": ctypes.c_int, "nvrtcProgram": ctypes.c_void_p}
OLDEST = 80  # compute capability that code is made for
_NAME = b"graphc.cu"  # what the log calls the source


class NvrtcError(RuntimeError):
    """NVRTC refused a source; the message is its log."""


class Options(NamedTuple):
    """How a source is compiled. Contraction into fma is the graph's decision, not the compiler's,
    but for templates, which say so."""

    contract: bool = False
    more: tuple[str, ...] = ()

    def flags(self, architecture: str) -> tuple[str, ...]:
        """As NVRTC is given them."""
        return (
            f"--gpu-architecture={architecture}",
            f"--fmad={str(self.contract).lower()}",
            "--std=c++17",
            "--device-as-default-execution-space",
            "--ptxas-options=-v",  # what functions use, in the log
            *self.more,
        )


LOOPS = Options()  # for kernels of loops


class Use(NamedTuple):
    """What a function takes, as the assembler says: registers of a thread, bytes of its stack and
    of what did not fit into registers, bytes of static shared memory."""

    registers: int
    stack: int
    spilled: int
    shared: int


class Compiled(NamedTuple):
    """Machine code, and what NVRTC had to say."""

    cubin: bytes
    log: str

    @property
    def uses(self) -> Mapping[str, Use]:
        """Of each function."""
        return {match["name"]: _use(match["text"]) for match in _FUNCTION.finditer(self.log)}

    @property
    def losses(self) -> tuple[str, ...]:
        """What the assembler could not do as it was written: wgmma one after another, say."""
        return tuple(line for line in self.log.splitlines() if "Potential Performance Loss" in line)

    def packed(self) -> bytes:
        """As files and pipes have it."""
        log = self.log.encode()
        return len(log).to_bytes(8, "little") + log + self.cubin

    @staticmethod
    def unpacked(data: bytes) -> Compiled:
        """What `packed` made."""
        end = 8 + int.from_bytes(data[:8], "little")
        return Compiled(data[end:], data[8:end].decode())


_FUNCTION = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '\w+'\n"
    r"(?P<text>(?:(?!.*Compiling entry function).*\n?)*)"
)


def _use(text: str) -> Use:
    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found[1]) if found is not None else 0

    return Use(
        number(r"Used (\d+) registers"), number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes smem"),
    )


class Nvrtc:
    """One release of the compiler. Safe to share between threads."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._calls = bind(found.handle, PROTOTYPES, TYPES)

    @property
    def version(self) -> Version:
        """12.9, 13.5"""
        return self.found.version

    def architectures(self) -> tuple[int, ...]:
        """The compute capabilities that it compiles for: 80 is 8.0."""
        count = ctypes.c_int()
        self._do("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._do("nvrtcGetSupportedArchs", numbers)
        return tuple(numbers)

    def compile(self, text: str, architecture: str, options: Options = LOOPS) -> Compiled:
        """A source's machine code. Raises NvrtcError."""
        program = ctypes.c_void_p()
        source = text.encode()
        self._do("nvrtcCreateProgram", ctypes.byref(program), source, _NAME, 0, None, None)
        try:
            flags = [flag.encode() for flag in options.flags(architecture)]
            array = (ctypes.c_char_p * len(flags))(*flags)
            refused = self._calls["nvrtcCompileProgram"](program, len(flags), array)
            log = self._bytes("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if refused:
                raise NvrtcError(log.strip() or self._meaning(refused))
            return Compiled(self._bytes("CUBIN", program), log)
        finally:
            self._calls["nvrtcDestroyProgram"](ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._do(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._do(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _do(self, call: str, *arguments: Any) -> None:
        code = self._calls[call](*arguments)
        if code:
            raise NvrtcError(f"{call}: {self._meaning(code)}")

    def _meaning(self, code: int) -> str:
        text: bytes = self._calls["nvrtcGetErrorString"](code)
        return text.decode()


@functools.cache
def compiler(release: int | None = None) -> Nvrtc:
    """The compiler of a release of CUDA; None: the one that there is. Raises MissingLibrary."""
    return Nvrtc(libraries.find(libraries.NVRTC, release))


def compiler_for(driver: Version) -> Nvrtc:
    """The newest compiler whose cubins a driver of this CUDA version loads: of the driver's
    release, or an older one. Raises MissingLibrary."""
    found = libraries.available(libraries.NVRTC)
    fitting = [each for each in found if each.release <= driver[0]]
    if fitting:
        return compiler(fitting[0].release)
    release = max(number for number in libraries.RELEASES if number <= max(driver[0], 12))
    there = "".join(f"there is {dotted(each.version)}, " for each in found)
    raise MissingLibrary(
        f"NVRTC of CUDA {release}", libraries.NVRTC.cure(release),
        f"{there}the driver has {dotted(driver)}",
    )


def capability(driver: Driver, device: int) -> int:
    """A device's compute capability: 80 is 8.0."""
    major = driver.attribute(device, Attribute.COMPUTE_CAPABILITY_MAJOR)
    return 10 * major + driver.attribute(device, Attribute.COMPUTE_CAPABILITY_MINOR)


def architecture(driver: Driver, device: int) -> str:
    """What to compile for: with the instructions that only this architecture has (wgmma), from
    Hopper on."""
    number = capability(driver, device)
    return f"sm_{number}{'a' if number >= 90 else ''}"


def cure(compiler: Nvrtc, number: int) -> str:
    """What is to be done before it makes code for devices of a compute capability; "": nothing."""
    if number < OLDEST:
        return "a GPU of compute capability 8.0 or higher (Ampere, Hopper)"
    if number in compiler.architectures():
        return ""
    name = "nvidia-cuda-nvrtc-cu12" if compiler.found.release == 12 else "nvidia-cuda-nvrtc"
    return f"a newer NVRTC: pip install --upgrade {name}"
