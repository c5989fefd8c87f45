"""What no library is made of, and what aot() asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import ExportError, aot, export


@pytest.mark.parametrize(("function", "text"), [
    (lambda x: torch.fft.fft(x).real, r"by NumPy.*fft\w* \(.*test_refused_programs\.py:\d+\)"),
    (lambda x: torch.complex(x, x), "complex64, which the C interface"),
])
def test_what_a_library_cannot_do(function: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=text):
        aot(export(function, (torch.randn(4),)), tmp_path, name="m")
    assert not list(tmp_path.iterdir())


def test_what_no_library_is_made_of(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="not of Linear"):
        aot(nn.Linear(2, 2), tmp_path)
    with pytest.raises(ExportError, match=r"writes to num_batches_tracked.*model\.eval\(\)"):
        aot(export(nn.BatchNorm1d(4).train(), (torch.randn(3, 4),)), tmp_path)


def test_names_and_sizes_are_asked_for(tmp_path: Path) -> None:
    program = export(lambda x: x + 1, (torch.randn(4),), dynamic_shapes={"x": {0: "n"}})
    with pytest.raises(ExportError, match=r"'n' has no largest value.*sizes=\{'n': 64\}"):
        aot(program, tmp_path, name="m")
    for name in ("", "1st", "a-b", "int", "graphc_x", "x" * 65, "é"):
        with pytest.raises(ValueError, match="cannot begin C functions' names"):
            aot(program, tmp_path, name=name, sizes={"n": 8})
    with pytest.raises(ExportError, match="names 'm', which is no free size"):
        aot(program, tmp_path, name="m", sizes={"m": 8})
    with pytest.raises(ValueError, match="no target"):
        aot(program, tmp_path, name="m", sizes={"n": 8}, targets=["z80"])
    with pytest.raises(ValueError, match="weights must be"):
        aot(program, tmp_path, name="m", weights="somewhere")
    assert not list(tmp_path.iterdir())
    made = aot(program, tmp_path, sizes={"n": (2, 8)})
    assert made.library.name == "lib_lambda.so" or made.library.name.startswith("lib")
