"""The .gcx file: a zip of manifest.json, graph.txt and weights.safetensors, stored uncompressed.

Equal programs give equal bytes. Reading believes nothing: names, sizes, checksums, the graph's
types and how the parts fit are checked before anything is used.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.export import safetensors, signature
from graphc.export.errors import ExportError
from graphc.export.signature import Signature, Weights
from graphc.ir.graph import Graph
from graphc.ir.op import OpError
from graphc.ir.text import ParseError, parse_graph, print_graph
from graphc.ir.verify import VerifyError, verify

FORMAT = 1
MANIFEST, GRAPH, WEIGHTS = "manifest.json", "graph.txt", "weights.safetensors"
_MOST = {MANIFEST: 1 << 24, GRAPH: 1 << 28, WEIGHTS: 1 << 40}  # bytes
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold


class Contents(NamedTuple):
    """What a file holds."""

    graph: Graph
    signature: Signature
    weights: Weights


# --- writing ---------------------------------------------------------------------------------


def write(
    path: str | os.PathLike[str], graph: Graph, described: Signature, weights: Weights
) -> None:
    """Write a file beside `path` and move it there: readers see all of it or the old one."""
    target = Path(path)
    manifest = {
        "format": FORMAT, "graphc": _version(), "name": graph.name, **described.to_json(),
        **weights.to_json(), "guards": [guard.text() for guard in graph.env.guards],
    }
    parts = {
        MANIFEST: json.dumps(manifest, indent=1).encode(),
        GRAPH: print_graph(graph).encode(),
        WEIGHTS: safetensors.dumps(weights.arrays),
    }
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write_zip(file, parts)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write_zip(file: Any, parts: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3  # Unix, on every system
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)


def _mode() -> int:
    """The permissions that an ordinary new file gets."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _version() -> str:
    try:
        return importlib.metadata.version("graphc-compiler")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# --- reading ---------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> Contents:
    """The contents of a file. Raises ExportError for whatever is wrong with it, OSError for a
    file that cannot be opened."""
    with open(path, "rb") as file:
        try:
            parts = _read_zip(file)
            manifest = _manifest(parts[MANIFEST])
            state, _ = safetensors.loads(parts[WEIGHTS])
            graph = _graph(parts[GRAPH])
            return _fit(manifest, graph, state)
        except (zipfile.BadZipFile, struct.error, EOFError, NotImplementedError, MemoryError,
                OSError, ExportError, safetensors.SafetensorsError, UnicodeDecodeError,
                ValueError, OverflowError, RuntimeError) as error:
            raise ExportError(
                f"{os.fspath(path)} cannot be loaded: {error}. Cure: export the model again, or "
                "fetch the file again if it was copied"
            ) from None


def _read_zip(file: Any) -> dict[str, bytes]:
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if sorted(names) != sorted(_MOST):
            raise ExportError(f"it holds {names} instead of {list(_MOST)}")
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise ExportError(f"{entry.filename} is compressed or encrypted")
            if entry.file_size != entry.compress_size or not (
                0 <= entry.file_size <= min(size, _MOST[entry.filename])
            ):
                raise ExportError(f"{entry.filename} has the wrong size {entry.file_size}")
        return {entry.filename: archive.read(entry) for entry in entries}  # checks the CRC


def _manifest(data: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{MANIFEST} is not JSON: {error}") from None
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise ExportError(f"{MANIFEST} does not say the format of the file")
    if manifest["format"] > FORMAT:
        raise ExportError(
            f"it has format {manifest['format']}, written by graphc {manifest.get('graphc')}; "
            f"this graphc reads formats up to {FORMAT}: upgrade graphc"
        )
    if manifest["format"] < 1:
        raise ExportError(f"there is no format {manifest['format']}")
    return manifest


def _graph(data: bytes) -> Graph:
    """The verified graph. A file may hold any operator but those that passes make."""
    try:
        graph = parse_graph(data.decode())
        verify(graph)
    except ParseError as error:
        raise ExportError(f"{GRAPH}, {error}") from None
    except (VerifyError, OpError, ValueError, TypeError, KeyError, IndexError, AttributeError,
            ArithmeticError, RecursionError, AssertionError) as error:
        raise ExportError(f"{GRAPH} is malformed: {error}") from None
    small = [name for name, hint in graph.env.hints.items() if hint < 2]
    if small:
        raise ExportError(f"{GRAPH} has the free size {small[0]!r} below 2")
    stack = [graph]
    while stack:
        for node in stack.pop().nodes:
            if node.op.name == "fusion":
                raise ExportError(f"{GRAPH} holds the operator fusion, which only passes make")
            stack.extend(node.graphs)
    return graph


def _fit(manifest: dict[str, Any], graph: Graph, arrays: dict[str, np.ndarray]) -> Contents:
    described = signature.from_json(manifest)
    described.check(graph, arrays)
    return Contents(graph, described, signature.weights_from_json(manifest, arrays))
