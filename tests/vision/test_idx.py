"""MNIST's idx files: parsed, found, fetched with their checksum verified, refused when damaged."""

import gzip
import hashlib
import struct
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from graphc.vision import idx


def encode(array: np.ndarray) -> bytes:
    """An idx file's bytes."""
    code = {np.dtype(text): code for code, text in idx._TYPES.items()}
    big = array.astype(array.dtype.newbyteorder(">"))
    header = bytes((0, 0, code[big.dtype], array.ndim))
    return header + struct.pack(f">{array.ndim}I", *array.shape) + big.tobytes()


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_parse_returns_what_was_written(dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    parsed = idx.parse_idx(encode(array))
    assert parsed.dtype == array.dtype
    assert parsed.dtype.isnative
    np.testing.assert_array_equal(parsed, array)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not an idx file"),
        (lambda data: b"\x1f\x8b" + data[2:], "not an idx file"),
        (lambda data: data[:6], "truncated"),
        (lambda data: data[:-1], "truncated or damaged"),
        (lambda data: data + b"\0", "truncated or damaged"),
        (lambda data: data[:4] + b"\xff" * 8 + data[12:], "truncated or damaged"),
    ],
)
def test_damaged_files_are_refused(damage, message: str) -> None:
    data = encode(np.arange(6, dtype="u1").reshape(2, 3))
    with pytest.raises(ValueError, match=message):
        idx.parse_idx(damage(data))


def test_a_truncated_gzip_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(encode(np.zeros(1000, "u1")))[:-20])
    with pytest.raises(ValueError, match=r"x\.gz is truncated or damaged .* download=True"):
        idx.read(path)


def test_find_takes_plain_and_gzipped_files(tmp_path: Path) -> None:
    resource = idx.TRAIN[0]
    assert idx.find(tmp_path, resource) is None
    packed = tmp_path / f"{resource.name}.gz"
    packed.write_bytes(gzip.compress(encode(np.ones((1, 2), "u1"))))
    assert idx.find(tmp_path, resource) == packed
    np.testing.assert_array_equal(idx.read(packed), np.ones((1, 2), "u1"))


def serve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, bytes | None]
) -> idx.Resource:
    """Mirrors that are folders: a resource whose checksum is that of b"good"."""
    mirrors = []
    for name, content in files.items():
        folder = tmp_path / name
        folder.mkdir()
        if content is not None:
            (folder / "digits.gz").write_bytes(content)
        mirrors.append(f"{folder.as_uri()}/")
    monkeypatch.setattr(idx, "MIRRORS", tuple(mirrors))
    return idx.Resource("digits", hashlib.sha256(b"good").hexdigest())


def test_fetch_goes_on_to_a_mirror_that_is_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = serve(monkeypatch, tmp_path, {"gone": None, "bad": b"evil", "fine": b"good"})
    path = idx.fetch(tmp_path / "out" / "raw", resource)
    assert path.read_bytes() == b"good"
    assert [each.name for each in path.parent.iterdir()] == ["digits.gz"]


def test_fetch_names_every_failure_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = serve(monkeypatch, tmp_path, {"gone": None, "bad": b"evil"})
    with pytest.raises(RuntimeError, match=r"(?s)root=None.*gone.*bad.*SHA-256") as caught:
        idx.fetch(tmp_path / "out", resource)
    assert not isinstance(caught.value, URLError)
    assert list((tmp_path / "out").iterdir()) == []
