"""The code of graphc's own modules, together in one file of the cache: a start maps that file, and
need not look for hundreds of files, open and read them.

Python's rules hold. A module's code is taken from there while its source is the file that it was
(size, times), else Python finds the module as ever; what is kept is what Python's own compiled
files say. Modules that one import asks for, all in turn, are kept as one piece: their names are
read once. A process that had to load others writes the file anew when it ends.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import marshal
import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .backends.host.store import Store
from .collecting import IMPORTING
from .ir.named import NamedTuple

_MAGIC = b"graphc modules 1"
_FEW = 8  # modules that are not worth writing the file anew
_HEADER = 16  # bytes of a compiled file before its code: number, flags, the source's time and size
_PREFIX = f"{__package__}."


class _Entry(NamedTuple):
    """A module: its source, what that was, where its compiled file is; which piece it is in."""

    source: str
    package: bool
    told: tuple[int, int, int]
    cached: str
    piece: int = -1


class _Finder:
    """Stands in sys.meta_path, before Python's. A piece: where it begins, its length and digest."""

    def __init__(
        self, entries: dict[str, _Entry], pieces: list[tuple[int, int, bytes]], data: memoryview
    ) -> None:
        self.entries = entries
        self._pieces: list[tuple[int, int, bytes] | None] = [*pieces]
        self._data = data
        self._codes: dict[str, CodeType] = {}  # of modules that were not asked for yet

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        entry = self.entries.get(fullname)
        if entry is None or _told(entry.source) != entry.told:
            return None
        loader = _Loader(fullname, entry.source, self)
        spec = ModuleSpec(fullname, loader, origin=entry.source, is_package=entry.package)
        spec.has_location = True
        spec.cached = entry.cached
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(entry.source))
        return spec

    def code(self, name: str) -> CodeType | None:
        """A module's code, once; None: it is damaged, or was compiled elsewhere."""
        number = self.entries[name].piece
        piece, self._pieces[number] = self._pieces[number], None
        if piece is not None:
            start, length, digest = piece
            data = self._data[start:start + length]
            if hashlib.sha256(data).digest() == digest:
                self._codes |= marshal.loads(data)
        found = self._codes.pop(name, None)
        if found is None or found.co_filename != self.entries[name].source:
            return None
        return found


class _Loader(SourceFileLoader):
    """Python's own, but for where the code comes from that a module begins with."""

    def __init__(self, name: str, path: str, finder: _Finder) -> None:
        super().__init__(name, path)
        self._finder = finder

    def exec_module(self, module: ModuleType) -> None:
        code = self._finder.code(module.__name__)
        if code is None:
            super().exec_module(module)
        else:
            exec(code, module.__dict__)


def use(directory: Path | None) -> None:
    """Modules that are imported from now on come from the cache in this folder, if they are there.
    Nothing is written where nothing is kept yet."""
    if directory is None:
        return
    finder = _found(directory) if os.path.isdir(directory) else None
    if finder is not None:
        sys.meta_path.insert(0, finder)
    if not sys.dont_write_bytecode:
        atexit.register(_keep, directory, finder)


def _store(directory: Path) -> Store:
    return Store(directory, _MAGIC, ".modules")


def _key() -> bytes:
    """Of this installation, of what decides what a source is compiled to, and of how it is kept,
    which this file says."""
    here = __file__, _told(__file__)
    facts = here, sys.version, sys.implementation.cache_tag, sys.flags.optimize
    return hashlib.sha256(repr(facts).encode() + importlib.util.MAGIC_NUMBER).digest()


def _found(directory: Path) -> _Finder | None:
    body = _store(directory).mapped(_key())
    if body is None:
        return None
    length = int.from_bytes(body[:8], "little")
    index = body[40:40 + length]
    if hashlib.sha256(index).digest() != body[8:40]:
        return None  # damaged
    entries, pieces = marshal.loads(index)
    made = {name: _Entry(*each) for name, each in entries.items()}
    return _Finder(made, pieces, body[40 + length:])


# --- when the process ends -----------------------------------------------------------------------


def _keep(directory: Path, finder: _Finder | None) -> None:
    """What was loaded, and what was kept and still holds."""
    kept = {} if finder is None else finder.entries
    loaded = {
        name: entry for name, module in list(sys.modules.items())
        if name.startswith(_PREFIX) and (entry := _compiled(module)) is not None
    }
    new = [name for name, entry in loaded.items() if name not in kept or (
        kept[name].told != entry.told
    )]
    if len(new) <= _FEW or not os.path.isdir(directory):
        return
    entries: dict[str, tuple[Any, ...]] = {}
    pieces: list[tuple[int, int, bytes]] = []
    data = bytearray()
    for names in _together(loaded, kept):
        codes = {}
        for name in names:
            entry = loaded.get(name) or kept[name]
            code = _read(entry)
            if code is not None:
                codes[name] = code
                entries[name] = (*entry[:4], len(pieces))
        piece = marshal.dumps(codes)
        pieces.append((len(data), len(piece), hashlib.sha256(piece).digest()))
        data += piece
    index = marshal.dumps((entries, pieces))
    head = len(index).to_bytes(8, "little") + hashlib.sha256(index).digest()
    _store(directory).write(_key(), head + index + data)


def _together(loaded: Iterable[str], kept: dict[str, _Entry]) -> Iterable[list[str]]:
    """Which modules are one piece: those of one import here; what others loaded, as it was."""
    names = list(sys.modules)
    left = dict.fromkeys(loaded)
    for first, end in IMPORTING.runs:
        run = [name for name in names[first:end] if name in left]
        for name in run:
            del left[name]
        yield run
    yield from ([name] for name in left)
    others: dict[int, list[str]] = {}
    for name, entry in kept.items():
        if name not in sys.modules:
            others.setdefault(entry.piece, []).append(name)
    yield from others.values()


def _compiled(module: ModuleType) -> _Entry | None:
    """Of a module that Python has from a source."""
    spec = getattr(module, "__spec__", None)
    loader = getattr(spec, "loader", None)
    if spec is None or not isinstance(loader, SourceFileLoader) or spec.cached is None:
        return None
    told = _told(loader.path)
    package = spec.submodule_search_locations is not None
    return told and _Entry(loader.path, package, told, spec.cached)


def _read(entry: _Entry) -> CodeType | None:
    """The code in the compiled file, if that is of this very source by Python's own rule, and was
    not written before it."""
    size, time, _ = entry.told
    header = importlib.util.MAGIC_NUMBER + bytes(4)
    header += (time // 10**9 & 0xFFFFFFFF).to_bytes(4, "little")
    header += (size & 0xFFFFFFFF).to_bytes(4, "little")
    try:
        with open(entry.cached, "rb", buffering=0) as file:
            data = file.read()
            late = os.fstat(file.fileno()).st_mtime_ns >= time
    except OSError:
        return None
    if data[:_HEADER] != header or not late or _told(entry.source) != entry.told:
        return None
    found: CodeType = marshal.loads(data[_HEADER:])
    return found


def _told(path: str) -> tuple[int, int, int] | None:
    """What tells a file from a later one; the last is the time at which the system wrote it."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
