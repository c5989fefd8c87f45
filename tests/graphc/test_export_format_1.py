"""Files of format 1, as they were written: each loads, computes what it did, and is saved as 2."""

import json
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import containers, load
from tests.export_files.make_format_1 import leaves

FOLDER = Path(__file__).parents[1] / "export_files" / "format_1"
NAMES = sorted(path.stem for path in FOLDER.glob("*.gcx"))
Pair = namedtuple("Pair", ["first", "second"])


def arguments(program: Any, arrays: Any) -> tuple[Any, Any]:
    """The arguments of the recorded call, in the containers that the file describes."""
    numbered = iter(range(1000))

    def leaf(spec: Any) -> Any:
        number = next(numbered)
        return spec["value"] if "value" in spec else torch.from_numpy(arrays[f"in.{number}"])

    args, kwargs = containers.build(program.signature.arguments, leaf)
    return args, kwargs


def check(program: Any, arrays: Any) -> None:
    args, kwargs = arguments(program, arrays)
    found = leaves(program(*args, **kwargs))
    tensors = {i: each for i, each in enumerate(found) if isinstance(each, torch.Tensor)}
    assert {f"out.{i}" for i in tensors} == {key for key in arrays if key.startswith("out.")}
    for i, tensor in tensors.items():
        wanted = arrays[f"out.{i}"]
        got = tensor.float().numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6)


def test_there_are_files() -> None:
    assert len(NAMES) == 10


@pytest.mark.parametrize("name", NAMES)
def test_files_of_format_1_are_read(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(FOLDER / f"{name}.gcx") as file:
        assert json.loads(file.read("manifest.json"))["format"] == 1
    program = load(FOLDER / f"{name}.gcx")
    with np.load(FOLDER / f"{name}.npz") as stored:
        arrays = dict(stored)
    check(program, arrays)
    program.save(tmp_path / "again.gcx")
    with zipfile.ZipFile(tmp_path / "again.gcx") as file:
        assert json.loads(file.read("manifest.json"))["format"] == 2
    again = load(tmp_path / "again.gcx")
    assert str(again.graph) == str(program.graph)
    assert again.signature == program.signature


def test_free_sizes_of_format_1() -> None:
    program = load(FOLDER / "convnet.gcx")
    for batch in (1, 2, 6):
        assert program(torch.ones(batch, 1, 4, 4))["rows"] == batch
    with pytest.raises(ValueError, match="dim 0 of x is 1, but 'n' was exported for 2 to any size"):
        load(FOLDER / "squeezed.gcx")(torch.ones(1, 2))
    with pytest.raises(ValueError, match=r"holds only where \(n % 2\) == 0; here n = 5"):
        load(FOLDER / "guarded.gcx")(torch.ones(5, 3))
    with pytest.raises(ValueError, match="'m' was exported for 2 to 9"):
        load(FOLDER / "two_sizes.gcx")(torch.ones(2, 3), torch.ones(10, 3))
