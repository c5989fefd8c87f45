"""NVRTC through ctypes: CUDA C to a cubin, on any machine, with or without a GPU.

The library comes with the wheel nvidia-cuda-nvrtc-cu12. Source: NVRTC's documentation,
docs.nvidia.com/cuda/nvrtc.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from pathlib import Path

# Contraction into fma is the graph's decision, not the compiler's.
OPTIONS = ("--fmad=false", "--std=c++17", "--device-as-default-execution-space")
LIBRARIES = ("libnvrtc.so.12", "nvrtc64_120_0.dll")


class NvrtcError(RuntimeError):
    """NVRTC refused a source; the message is its log."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The NVRTC library, from its wheel or the system; None where there is none."""
    for name in (*_in_wheel(), *LIBRARIES):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _in_wheel() -> list[str]:
    found = importlib.util.find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    places = [Path(folder, "cuda_nvrtc", "lib", name) for folder in folders for name in LIBRARIES]
    return [str(place) for place in places if place.exists()]


def compile_cubin(text: str, architecture: str = "sm_80") -> bytes:
    """Machine code for one architecture. Raises NvrtcError, or RuntimeError without NVRTC."""
    nvrtc = library()
    if nvrtc is None:
        raise RuntimeError("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12")
    program = ctypes.c_void_p()
    source = text.encode()
    _check(
        nvrtc,
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"graphc.cu", 0, None, None),
    )
    try:
        options = [o.encode() for o in (f"--gpu-architecture={architecture}", *OPTIONS)]
        array = (ctypes.c_char_p * len(options))(*options)
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            raise NvrtcError(_text(nvrtc, program, "ProgramLog").decode().rstrip("\0\n"))
        return _text(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(nvrtc: ctypes.CDLL, code: int) -> None:
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NvrtcError(nvrtc.nvrtcGetErrorString(code).decode())
