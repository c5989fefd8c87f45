"""Libraries whose weights are in a file."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest

from . import client
from .client import Failed
from .libraries import arrays, expected, exported, made, same
from .models import CASES


@pytest.mark.parametrize("freeze", [False, True])
def test_weights_in_a_file(freeze: bool, folder: Path, tmp_path: Path) -> None:
    library = made(folder, "small", freeze=freeze, weights="file")
    path = folder / f"{library.name}.safetensors"
    args = CASES["small"].args()
    context = library.context(weights_path=str(path).encode())
    found, _ = context(*arrays(args))
    wanted = expected(exported("small")(*args))[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    context.close()
    data = path.read_bytes()
    room = mmap.mmap(-1, len(data))
    room.write(data)
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    context = library.context(weights=place, weights_bytes=len(data))
    same(context(*arrays(args))[:1], [found])
    context.close()
    if not freeze:
        import safetensors.numpy

        named = safetensors.numpy.load(data)
        assert set(named) == set(exported("small").state_dict)
    other = tmp_path / "other"
    for content, code, text in (
        (data[:-1], client.FILE, f"has {len(data) - 1} bytes"),
        (data.replace(b"layer", b"lager"), client.FILE, "another than the one"),
    ):
        other.write_bytes(content)
        with pytest.raises(Failed, match=text) as raised:
            library.context(weights_path=str(other).encode())
        assert raised.value.code == code
    for options, text in (
        ({}, "options.weights_path says where"),
        ({"weights_path": b"/nowhere/at all"}, "/nowhere/at all cannot be opened"),
        ({"weights": place, "weights_bytes": 3}, "weights_bytes is 3"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            library.context(**options)
        assert raised.value.code == client.FILE
    with pytest.raises(Failed, match="not aligned to 64"):
        library.context(weights=place + 8, weights_bytes=len(data))
