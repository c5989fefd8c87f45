"""Extension modules that are linked to libtorch are refused by name, before they are loaded."""

import importlib.util
import random
import struct
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from graphc.compat import extensions
from graphc.compat.extensions import needed, of_pytorch


def elf(libraries: list[str], wide: bool = True, order: str = "<") -> bytes:
    """The least file with these libraries in its dynamic section, whose strings are loaded to
    another address than they have in the file."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in libraries)
    places, at = [], 1
    for name in libraries:
        places.append(at)
        at += len(name) + 1
    header, program, tag = (64, 56, "QQ") if wide else (52, 32, "II")
    start, address = header + 2 * program, 0x4000
    entries = [(1, place) for place in places] + [(5, address), (0, 0)]
    section = b"".join(struct.pack(order + tag, *entry) for entry in entries)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    if wide:
        head = struct.pack(order + "HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
        segment = "IIQQQQQQ"
    else:
        head = struct.pack(order + "HHIIIIIHHHHHH", 3, 40, 1, 0, 52, 0, 0, 52, 32, 2, 0, 0, 0)
        segment = "IIIIIIII"

    def one(kind: int, offset: int, address: int, size: int) -> bytes:
        if wide:
            return struct.pack(order + segment, kind, 4, offset, address, address, size, size, 1)
        return struct.pack(order + segment, kind, offset, address, address, size, size, 4, 1)

    after = start + len(section)
    return b"".join([
        ident, head, one(1, after, address, len(strings)), one(2, start, 0x100, len(section)),
        section, strings,
    ])


LINKED = ["libtorch_python.so", "libc10.so.2", "libc.so.6", "libtorch_helper_of_others.so.1"]


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
def test_needed_libraries(wide: bool, order: str, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(elf(LINKED, wide, order))
    assert needed(path) == LINKED
    path.write_bytes(elf([], wide, order))
    assert needed(path) == []


def test_needed_libraries_of_real_files() -> None:
    module = importlib.util.find_spec("numpy._core._multiarray_umath")
    assert module is not None and module.origin is not None
    if sys.platform == "linux":
        assert any(name.startswith("libc.") for name in needed(module.origin))
    assert of_pytorch(module.origin) == [] == needed(np.__file__)


def test_needed_libraries_of_torch() -> None:
    torch = pytest.importorskip("torch")
    assert of_pytorch(torch._C.__file__) == ["libtorch_python.so"]


def test_names_of_pytorchs_libraries(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(elf(["libtorch.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorchvision.so",
                          "libc100.so", "mylibtorch.so", "libtorch.so.old"]))
    assert of_pytorch(path) == ["libtorch.so", "libtorch_cpu.so", "libc10_cuda.so"]


def test_damaged_files_need_nothing(tmp_path: Path) -> None:
    """Their loader has more to say; nothing here may raise, or take all memory."""
    draw = random.Random(0)
    path = tmp_path / "x.so"
    for wide in (True, False):
        whole = elf(LINKED, wide)
        for _ in range(400):
            data = bytearray(whole[: draw.randrange(len(whole) + 1)])
            for _ in range(draw.randrange(4)):
                if data:
                    data[draw.randrange(len(data))] = draw.choice((0, 1, 0x7F, 0xFF))
            path.write_bytes(data)
            try:
                found = needed(path)
            except OSError:
                continue
            assert all(isinstance(name, str) for name in found)


@pytest.fixture
def guarded() -> Iterator[None]:
    create = extensions.ExtensionFileLoader.create_module
    extensions.guard()
    extensions.guard()
    yield
    extensions.unguard()
    extensions.unguard()
    assert extensions.ExtensionFileLoader.create_module is create


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"package.{path.name.partition('.')[0]}", path)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


def test_a_module_on_libtorch_is_refused(guarded: None, tmp_path: Path) -> None:
    path = tmp_path / f"fast{EXTENSION_SUFFIXES[0]}"
    path.write_bytes(elf(LINKED))
    with pytest.raises(ImportError, match=r"package.fast is .*libtorch_python.so.*Cure: ") as error:
        load(path)
    assert error.value.path == str(path) and error.value.name == "package.fast"
    path.write_bytes(elf(["libc.so.6"]))
    with pytest.raises(ImportError, match=r"^(?!.*graphc)"):  # what the system says of it
        load(path)
    path.unlink()
    with pytest.raises(ImportError, match=r"(?i)no such file"):
        load(path)


def test_other_modules_are_loaded(guarded: None) -> None:
    found = importlib.util.find_spec("_json") or importlib.util.find_spec("_bisect")
    assert found is not None and importlib.util.module_from_spec(found)
