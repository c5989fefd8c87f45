"""The .gcx file: a zip of a JSON manifest, graphs as text, weights and recorded calls, all stored
uncompressed. docs/reference/gcx.md is its specification.

Equal programs give equal bytes. Reading believes nothing: names, sizes, checksums, the graphs'
types, what they ask of the machine, and how the parts fit are checked before anything is used.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from graphc.export import files, limits, manifest, safetensors
from graphc.export.contents import Contents, Golden, Native, Variant
from graphc.export.errors import ExportError
from graphc.export.limits import DEFAULT, Limits
from graphc.export.manifest import FORMAT, MANIFEST, WEIGHTS
from graphc.export.signature import Signature
from graphc.ir.graph import Graph
from graphc.ir.op import OpError
from graphc.ir.record import replaced
from graphc.ir.text import ParseError, parse_graph, print_graph
from graphc.ir.verify import VerifyError, verify

__all__ = ["FORMAT", "Contents", "Golden", "Native", "Variant", "read", "read_native", "write"]

_LARGEST = {MANIFEST: 1 << 24, WEIGHTS: 1 << 40}  # bytes
_GOLDEN = 1 << 26
_ENTRIES = 1000
_PART = re.compile(
    r"manifest\.json|graph\.txt|graphs/\d+\.txt|weights\.safetensors|golden/\d+\.safetensors"
    r"|native/[\w.-]+/[\w.-]+"
    r"|extra(?:/(?!\.+(?:/|$))[\w .-]+)+", re.ASCII,
)
_EXTRA = "extra/"
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
# what reading a file that is wrong can raise
_WRONG = (
    zipfile.BadZipFile, struct.error, EOFError, NotImplementedError, MemoryError, OSError,
    ExportError, safetensors.SafetensorsError, UnicodeDecodeError, ValueError, TypeError, KeyError,
    OverflowError, RuntimeError, AttributeError, IndexError, SyntaxError, ArithmeticError,
    AssertionError,
)


Made = TypeVar("Made")


# --- writing ---------------------------------------------------------------------------------


def write(path: str | os.PathLike[str] | BinaryIO, contents: Contents) -> None:
    """Write a file beside `path` and move it there: readers see all of it or the old one. An open
    file is written to as it is."""
    parts = _parts(contents)
    described = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in parts.items()
    }
    parts = {MANIFEST: manifest.dumps(contents, described), **parts}
    if not isinstance(path, (str, os.PathLike)):
        _write_zip(path, parts)
        return
    with files.replacing(Path(path)) as file:
        _write_zip(file, parts)


def _parts(contents: Contents) -> dict[str, bytes]:
    """All but the manifest."""
    parts = {
        manifest.graph_file(number): print_graph(variant.graph).encode()
        for number, variant in enumerate(contents.variants)
    }
    parts[WEIGHTS] = safetensors.dumps(contents.weights.arrays)
    for number, golden in enumerate(contents.goldens):
        parts[manifest.golden_file(number)] = safetensors.dumps(golden.arrays())
    for native in contents.native:
        parts[native.file] = native.content
    for name, text in contents.extra.items():
        part = _extra_part(name, text)
        parts[part] = text.encode()
    return parts


def _extra_part(name: str, text: str) -> str:
    """The name of the part that holds a text of the writer's."""
    if not isinstance(text, str):
        raise TypeError(
            f"extra_files[{name!r}] must be a str, got {type(text).__name__}. Cure: encode bytes "
            "as text, with base64, say"
        )
    part = f"{_EXTRA}{name}"
    if not isinstance(name, str) or not _PART.fullmatch(part):
        raise ValueError(
            f"{name!r} cannot be the name of an extra file. Cure: letters, digits, blanks and "
            "\"_.-\", in folders if need be (notes/a.txt)"
        )
    return part


def _write_zip(file: Any, parts: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3  # Unix, on every system
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)


# --- reading ---------------------------------------------------------------------------------


def read(path: str | os.PathLike[str] | BinaryIO, bounds: Limits = DEFAULT) -> Contents:
    """The contents of a file. Raises what `opened` does."""
    return opened(path, bounds, lambda contents: contents)


def opened(
    path: str | os.PathLike[str] | BinaryIO, bounds: Limits, make: Callable[[Contents], Made]
) -> Made:
    """What `make` gives of the contents of a file, by its path or open. Raises ExportError for
    whatever is wrong with it, OSError for a file that cannot be opened."""
    return _opened(path, lambda file: make(_read(file, bounds)))


def read_native(
    path: str | os.PathLike[str] | BinaryIO, bounds: Limits = DEFAULT, only: str | None = None
) -> tuple[Signature, tuple[Native, ...]]:
    """How a file's program is called, and its machine code, whose SHA-256 is that of the bytes that
    are given here; graphs and weights are not read. `only`: the target whose bytes are read. Raises
    what `opened` does."""
    return _opened(path, lambda file: _read_native(file, bounds, only))


def _opened(
    path: str | os.PathLike[str] | BinaryIO, read: Callable[[BinaryIO], Made]
) -> Made:
    if not isinstance(path, (str, os.PathLike)):
        return _made(path, "the file", read)
    with open(path, "rb") as file:
        return _made(file, os.fspath(path), read)


def _made(file: BinaryIO, name: str, read: Callable[[BinaryIO], Made]) -> Made:
    try:
        return read(file)
    except _WRONG as error:
        said = str(error) or type(error).__name__
        cure = "" if "Cure: " in said else (
            ". Cure: export the model again, or fetch the file again if it was copied"
        )
        raise ExportError(f"{name} cannot be loaded: {said}{cure}") from None


def _read(file: BinaryIO, bounds: Limits) -> Contents:
    with zipfile.ZipFile(file) as archive:
        described, entries = _listed(archive, file, bounds)
        parts = {
            name: _part(archive, entry, described)
            for name, entry in entries.items() if not name.startswith("native/")
        }
    graphs = {
        name: _graph(data, name, bounds)
        for name, data in parts.items() if name.endswith(".txt") and not name.startswith(_EXTRA)
    }
    arrays = {
        name: safetensors.loads(data)[0]
        for name, data in parts.items()
        if name.endswith(".safetensors") and not name.startswith(_EXTRA)
    }
    extra = {
        name.removeprefix(_EXTRA): data.decode()
        for name, data in parts.items() if name.startswith(_EXTRA)
    }
    contents = replaced(manifest.contents(described, graphs, arrays), extra=extra)
    for variant in contents.variants:
        for dims in (contents.smallest(variant), variant.graph.env.hints):
            limits.check_sizes(variant.graph, dims, bounds, f"graph {variant.graph.name}")
    return contents


def _read_native(
    file: BinaryIO, bounds: Limits, only: str | None
) -> tuple[Signature, tuple[Native, ...]]:
    with zipfile.ZipFile(file) as archive:
        described, entries = _listed(archive, file, bounds)
        signature, parts = manifest.native_contents(described)
        return signature, tuple(
            part._replace(content=_part(archive, entries[part.file], described))
            if only in (None, part.target) else part for part in parts
        )


def _listed(
    archive: zipfile.ZipFile, file: BinaryIO, bounds: Limits
) -> tuple[dict[str, Any], dict[str, zipfile.ZipInfo]]:
    """The manifest, and the parts that it lists."""
    entries = {entry.filename: entry for entry in archive.infolist()}
    _check_entries(archive.infolist(), file.seek(0, os.SEEK_END), bounds)
    if MANIFEST not in entries:
        raise ExportError(f"it holds no {MANIFEST}")
    described = manifest.loads(archive.read(entries.pop(MANIFEST)))
    _check_listed(described, entries)
    return described, entries


def _check_entries(entries: list[zipfile.ZipInfo], size: int, bounds: Limits) -> None:
    names = [entry.filename for entry in entries]
    if len(names) > _ENTRIES or len(set(names)) != len(names):
        raise ExportError(f"it holds {len(names)} parts, some of them twice or too many")
    for entry in entries:
        if not _PART.fullmatch(entry.filename):
            raise ExportError(
                f"it holds {entry.filename!r}, a part that format {FORMAT} does not know"
            )
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise ExportError(f"{entry.filename} is compressed or encrypted")
        if entry.file_size != entry.compress_size or not (
            0 <= entry.file_size <= min(size, _largest(entry.filename, bounds))
        ):
            raise ExportError(f"{entry.filename} has the wrong size {entry.file_size}")
    if sum(entry.file_size for entry in entries) > size:
        raise ExportError("its parts overlap")


def _largest(name: str, bounds: Limits) -> int:
    if name.startswith(_EXTRA):
        return _GOLDEN
    if name.endswith(".txt"):
        return bounds.text
    return _LARGEST.get(name, _GOLDEN if name.startswith("golden/") else 1 << 40)


def _check_listed(described: Mapping[str, Any], entries: Mapping[str, Any]) -> None:
    """The manifest names every part, and no other."""
    listed = described["parts"] if described["format"] > 1 else manifest.PARTS_1
    if set(listed) != set(entries):
        raise ExportError(f"it holds {sorted(entries)} instead of {sorted(listed)}")


def _part(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, described: Mapping[str, Any]) -> bytes:
    """The bytes of a part, read once: what is hashed is what is used."""
    data = archive.read(entry)  # checks the CRC
    if described["format"] > 1:
        wanted = described["parts"][entry.filename]
        found = hashlib.sha256(data).hexdigest()
        if wanted["sha256"] != found or wanted["bytes"] != len(data):
            raise ExportError(f"{entry.filename} is not what the manifest says: its sha256 is "
                              f"{found}")
    return data


def _graph(data: bytes, name: str, bounds: Limits) -> Graph:
    """The verified graph. A file may hold any operator but those that passes make."""
    if data.count(b"\n") > bounds.nodes * 2:
        raise ExportError(f"{name} has more than {2 * bounds.nodes} lines")
    try:
        graph = parse_graph(data.decode())
        limits.check_form(graph, bounds, name)
        verify(graph)
    except ParseError as error:
        raise ExportError(f"{name}, {error}") from None
    except (VerifyError, OpError, ValueError, TypeError, KeyError, IndexError, AttributeError,
            ArithmeticError, RecursionError, AssertionError) as error:
        raise ExportError(f"{name} is malformed: {error}") from None
    small = [each for each, hint in graph.env.hints.items() if hint < 2]
    if small:
        raise ExportError(f"{name} has the free size {small[0]!r} below 2")
    return graph
