"""What a library says of itself, and which of its names are seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import graphc as torch
from graphc.backends.llvm.freestanding.entry import FUNCTIONS
from graphc.export import aot, export

from .client import Failed, Library
from .libraries import made


def test_what_a_library_says_of_itself(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    assert library.abi() == 1 and library.states() == 0
    assert library.entries("input") == [("x", np.dtype(np.float32), [-1, -2, 16])]
    assert library.entries("output") == [
        ("result[0]", np.dtype(np.float32), [-1, -2]),
        ("result[1]", np.dtype(np.int64), []),
    ]
    assert library.named_sizes() == [("batch", 1, 5), ("length", 2, 1000)]
    assert library.text(0) == b"GRAPHC_OK" and library.text(5) == b"GRAPHC_RANGE"
    assert library.text(99) == library.text(-1) == b"GRAPHC_UNKNOWN"


def test_only_the_models_names_are_seen(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    shown = {
        line.split()[-1] for line in subprocess.run(
            ["nm", "-D", "--defined-only", folder / "libsmall_freezeFalse.so"],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
    }
    assert shown == {f"{library.name}_{each}" for each in FUNCTIONS}


@pytest.mark.slow
def test_results_by_their_keys(folder: Path) -> None:
    names = {each[0] for each in made(folder, "sequence", freeze=False).entries("output")}
    assert names == {"result['every']", "result['last']", "result['cell']"}

def test_names_end_no_comment_and_no_text(tmp_path: Path) -> None:
    """What a model calls its results is anybody's text."""
    key = 'a*/ int x; /* \\ "q" %s \n ??/ \x03\x00 é'
    program = export(lambda x: {key: x + 1}, (torch.zeros(2),))
    made = aot(program, tmp_path, name="m")
    text = made.header.read_text()
    first = text.index("*/")
    assert text[first + 2 :].startswith("\n#ifndef GRAPHC_M_H") and "\\" not in text[:first]
    library = Library(made.library, "m")
    (entry,) = library.entries("output")
    assert entry[0] == f"result[{key!r}]"
    context = library.context()
    x = np.zeros(2, np.float32)
    with pytest.raises(Failed) as raised:
        context.run([x], [np.zeros((1, 2), np.float32)])
    assert raised.value.text == f"result[{key!r}] must have 1 dims, has 2"
    context.close()
