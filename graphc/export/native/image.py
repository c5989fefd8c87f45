"""Shared libraries, opened: by their file, or by bytes that were hashed, from a private copy.

The loader of the system knows an open library again by the text of its path. Files are therefore
opened by a path of their descriptor that nobody has used before, or a file that took another's
place, or another's number, would be taken for that one.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import platform
import struct
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from graphc.backends.host import elf
from graphc.export.errors import ExportError
from graphc.ir.late import late

_fcntl = late("fcntl")  # which only Linux is asked for
_HEAD, _SEGMENT = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
_SHARED = 3  # the kind of ELF file
_MACHINES = {elf.X86_64: "x86_64", elf.AARCH64: "aarch64"}
Read = Callable[[int, int], bytes]  # of a file: from where on, how much


def machine() -> str:
    """What native code of an archive has to be for to run here: "x86_64-linux"."""
    return f"{platform.machine()}-{sys.platform}"


class Image:
    """An open library. It is closed when nobody refers to this, nor to a function of it; not as
    the process ends, where other threads may still be inside. `where` names it in messages."""

    def __init__(self, descriptor: int, where: str) -> None:
        self.where = where
        try:
            self.code = ctypes.CDLL(_path(descriptor))
        except OSError as error:
            raise ExportError(f"{where} cannot be loaded: {error}") from None
        closing = weakref.finalize(self, _ctypes.dlclose, self.code._handle)
        closing.atexit = False

    def has(self, name: str) -> bool:
        """Whether it has a function."""
        return hasattr(self.code, name)

    @classmethod
    def of_file(cls, path: Path) -> Image:
        """Raises OSError for a file that cannot be opened, ExportError for what is no whole
        library for this machine."""
        _check_system(str(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            check(lambda start, count: os.pread(descriptor, count, start), size, str(path))
            return cls(descriptor, str(path))
        finally:
            os.close(descriptor)

    @classmethod
    def of_bytes(cls, data: bytes, where: str) -> Image:
        """A library that is loaded from these bytes, and nothing else. Raises ExportError."""
        _check_system(where)
        check(lambda start, count: data[start : start + count], len(data), where)
        try:
            descriptor = private_copy(data)
        except OSError as error:
            raise ExportError(
                f"{where} cannot be copied to where code may be run: {error}. Cure: a folder for "
                "temporary files with room, and without noexec"
            ) from None
        try:
            return cls(descriptor, where)
        finally:
            os.close(descriptor)


def _check_system(where: str) -> None:
    if sys.platform != "linux":
        raise ExportError(f"{where} is for Linux, and this is {sys.platform}")


def check(read: Read, size: int, where: str) -> None:
    """Raise ExportError unless a file of so many bytes is a whole shared library for this CPU: the
    loader would map what is not there, and whoever reads that dies."""
    head = read(0, _HEAD.size)
    if len(head) < _HEAD.size or head[:6] != elf.MAGIC:
        raise ExportError(f"{where} is no shared library (64-bit ELF)")
    (_, kind, cpu, _, _, segments, sections, _, _, segment_size, count, section_size,
     section_count, _) = _HEAD.unpack(head)
    if kind != _SHARED or segment_size != _SEGMENT.size:
        raise ExportError(f"{where} is an ELF file, and no shared library")
    here = platform.machine()
    if _MACHINES.get(cpu) != here:
        raise ExportError(
            f"{where} is for {_MACHINES.get(cpu, f'CPU number {cpu}')}, and this machine is {here}"
        )
    table = read(segments, count * _SEGMENT.size)
    ends = [segments + count * _SEGMENT.size, sections + section_count * section_size]
    if len(table) == count * _SEGMENT.size:
        ends += [start + bytes_ for _, _, start, _, _, bytes_, _, _ in _SEGMENT.iter_unpack(table)]
    if max(ends) > size:
        raise ExportError(f"{where} ends too early: it has {size:,} bytes of {max(ends):,}")


def private_copy(data: bytes) -> int:
    """A descriptor of a file without a name that holds these bytes, which nobody can change: in
    memory where the system allows it, else among the temporary files, unlinked."""
    try:
        return _in_memory(data)
    except (OSError, AttributeError):
        return _unlinked(data)


def _in_memory(data: bytes) -> int:
    descriptor = os.memfd_create("graphc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write(descriptor, data)
        _fcntl.fcntl(
            descriptor, _fcntl.F_ADD_SEALS,
            _fcntl.F_SEAL_SEAL | _fcntl.F_SEAL_SHRINK | _fcntl.F_SEAL_GROW | _fcntl.F_SEAL_WRITE,
        )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unlinked(data: bytes) -> int:
    with tempfile.TemporaryFile(prefix="graphc-") as file:
        _write(file.fileno(), data)
        # one that cannot be written through
        return os.open(_path(file.fileno()), os.O_RDONLY | os.O_CLOEXEC)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _path(descriptor: int) -> str:
    """A path of a descriptor as nobody has spelled it before."""
    bits = int.from_bytes(os.urandom(8), "little")
    spelled = "".join("/." if bits >> place & 1 else "/" for place in range(64))
    return f"/proc/self/fd{spelled}/{descriptor}"
