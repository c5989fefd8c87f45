"""A ModelProto from a path, bytes or a ModelProto: what is read, and what is refused before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..package import onnx
from .errors import refuse

MOST_BYTES = 1 << 31  # what a protobuf message may have; larger models have external data
OLDEST = 1  # of operator sets of ai.onnx; operators say since when they are known


def model_of(source: Any) -> tuple[Any, Path | None]:
    """The ModelProto, and the folder in which its external data may lie. Raises OnnxError."""
    package = onnx()
    if isinstance(source, package.ModelProto):
        return source, None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parsed(package, bytes(source), "the given bytes"), None
    if hasattr(source, "read"):
        return _parsed(package, source.read(), "the given file"), None
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            f"onnx.load() takes a path, bytes, a file or a ModelProto, got {type(source).__name__}"
        )
    path = Path(source)
    size = path.stat().st_size
    if size > MOST_BYTES:
        refuse(
            f"{path} has {size} bytes, more than a protobuf message",
            "save it with external data (onnx.save_model(..., save_as_external_data=True))",
        )
    return _parsed(package, path.read_bytes(), str(path)), path.parent


def _parsed(package: Any, data: bytes, what: str) -> Any:
    model = package.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's, whose class differs between its implementations
        refuse(f"{what} is no ONNX model ({error})", "load another copy")
    if not model.HasField("graph"):
        refuse(f"{what} has no graph", "load an ONNX model (.onnx)")
    return model


def versions_of(imports: Any, what: str) -> dict[str, int]:
    """Operator sets by domain. Raises OnnxError where ai.onnx is older or newer than is known."""
    found = {domain_of(entry.domain): entry.version for entry in imports}
    version = found.get("")
    newest = onnx().defs.onnx_opset_version()
    if version is not None and not OLDEST <= version <= newest:
        refuse(
            f"{what} is of operator set {version} of ai.onnx; {OLDEST} to {newest} can be read",
            "convert it by onnx.version_converter, or install a newer onnx",
        )
    return found


def domain_of(name: str) -> str:
    """A domain's name; ai.onnx has two."""
    return "" if name == "ai.onnx" else name
