"""Models as files: in one, or with the weights in a second one beside it.

https://github.com/onnx/onnx/blob/main/docs/ExternalData.md; a message of protobuf ends at 2 GB.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.ir import dtypes

from . import elements

LARGEST = 1536 << 20  # bytes of weights in one file, as PyTorch has it
_OUTSIDE = 1024  # bytes: smaller tensors stay in the model's own file
_PAGE = 4096  # where a tensor of a page or more begins, so that a file can be mapped


def write(
    onnx: Any, proto: Any, arrays: Mapping[str, np.ndarray], path: str | os.PathLike[str],
    external: bool,
) -> None:
    """Write a model, whole or not at all; with `external` its larger tensors are in `path`.data,
    which is written first."""
    target = Path(path)
    if external:
        beside = target.with_name(target.name + ".data")
        with _replaced(beside) as file:
            proto.graph.initializer.extend(_outside(onnx, file, beside.name, arrays))
    else:
        add(onnx, proto, arrays)
    with _replaced(target) as file:
        file.write(proto.SerializeToString())


def add(onnx: Any, proto: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays as initializers in the model."""
    for name, array in arrays.items():
        proto.graph.initializer.append(elements.tensor_proto(onnx, name, array))


def _outside(
    onnx: Any, file: Any, location: str, arrays: Mapping[str, np.ndarray]
) -> Iterator[Any]:
    """The initializers, whose data goes into a file."""
    position = 0
    for name, array in arrays.items():
        if array.nbytes < _OUTSIDE:
            yield elements.tensor_proto(onnx, name, array)
            continue
        position += file.write(bytes(-position % (_PAGE if array.nbytes >= _PAGE else 64)))
        dtype = dtypes.from_numpy(array.dtype)
        found = onnx.TensorProto(
            name=name, data_type=elements.number(dtype), dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        said = {"location": location, "offset": position, "length": array.nbytes}
        for key, value in said.items():
            found.external_data.add(key=key, value=str(value))
        position += file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        yield found


@contextlib.contextmanager
def _replaced(target: Path) -> Iterator[Any]:
    """A file to write, which takes the place of `target` when all is written."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
