"""MNIST's idx files: found in a folder, fetched and checked, parsed."""

import gzip
import hashlib
import struct
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError

import numpy as np

from graphc.progress import progress


class Resource(NamedTuple):
    """One file of the data set: its name without .gz, and a digest of the .gz file in hexadecimal
    (SHA-256 of 64 digits, or the MD5 of 32 that its makers publish)."""

    name: str
    digest: str


MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
TRAIN = (
    Resource(
        "train-images-idx3-ubyte",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    Resource(
        "train-labels-idx1-ubyte",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
)
TEST = (
    Resource(
        "t10k-images-idx3-ubyte",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    Resource(
        "t10k-labels-idx1-ubyte",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)

_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def parse_idx(data: bytes, source: str = "idx data") -> np.ndarray:
    """The array in an idx file (yann.lecun.com/exdb/mnist), in native byte order.

    Layout: two zero bytes, a type code, the rank, one big-endian uint32 per dimension, elements.
    """
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise ValueError(f"{source} is not an idx file: it starts with {data[:4].hex(' ')!r}")
    dtype, rank = np.dtype(_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise ValueError(f"{source} is truncated: {len(data)} bytes, its header alone is {start}")
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected = start + dtype.itemsize * int(np.prod(shape, dtype=object))
    if len(data) != expected:
        raise ValueError(
            f"{source} is truncated or damaged: {len(data)} bytes, but shape {shape} needs "
            f"{expected}; delete it and load with download=True"
        )
    elements = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return elements.astype(dtype.newbyteorder("="))


def find(folder: Path, resource: Resource) -> Path | None:
    """The resource's file in a folder, plain or gzipped."""
    candidates = (folder / resource.name, folder / f"{resource.name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def read(path: Path) -> np.ndarray:
    """Parse an idx file, gzipped or not."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError) as error:
        raise ValueError(
            f"{path} is truncated or damaged ({error}); delete it and load with download=True"
        ) from None
    return parse_idx(data, str(path))


def fetch(folder: Path, resource: Resource, mirrors: Sequence[str] = ()) -> Path:
    """Download a resource (gzipped) into a folder, from the first mirror that has it intact."""
    target, failures = folder / f"{resource.name}.gz", []
    folder.mkdir(parents=True, exist_ok=True)
    for mirror in mirrors or MIRRORS:
        url = f"{mirror}{resource.name}.gz"
        try:
            data = _download(url)
        except (URLError, OSError) as error:
            failures.append(f"{url}: {error}")
            continue
        kind = "SHA-256" if len(resource.digest) == 64 else "MD5"
        name = kind.lower().replace("-", "")
        found = hashlib.new(name, data, usedforsecurity=False).hexdigest()
        if found != resource.digest:
            failures.append(f"{url}: {kind} {found} instead of {resource.digest}")
            continue
        # Renamed when complete: a download cut off leaves no half file under the final name.
        partial = target.with_suffix(".part")
        partial.write_bytes(data)
        partial.replace(target)
        return target
    raise RuntimeError(
        f"{resource.name} could not be downloaded; MNIST(root=None) needs no network, it is the "
        "5,000 images that come with graphc. Tried:\n  " + "\n  ".join(failures)
    )


def _download(url: str, chunk_bytes: int = 1 << 16) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        chunks = iter(lambda: response.read(chunk_bytes), b"")
        total = int(response.headers.get("Content-Length", 0))
        with progress(desc=url.rsplit("/", 1)[-1], total=total, unit="B", unit_scale=True) as bar:
            parts = []
            for chunk in chunks:
                parts.append(chunk)
                bar.update(len(chunk))
    return b"".join(parts)
