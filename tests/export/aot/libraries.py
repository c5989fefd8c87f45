"""Libraries of the models here, made once for all tests, and what their programs answer."""

from __future__ import annotations

import ctypes
import functools
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import ExportedProgram, aot, export
from graphc.frontend.tree import flatten

from .client import Library
from .models import CASES

QUICK = ("small", "kinds", "ranked")
CALLED = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES
]


@functools.cache
def exported(name: str) -> ExportedProgram:
    torch.manual_seed(0)
    case = CASES[name]
    return export(case.model().eval(), case.args(), dynamic_shapes=case.dynamic)


def made(folder: Path, name: str, **options: Any) -> Library:
    """The library of a case."""
    called = name + "".join(f"_{key}{value}" for key, value in sorted(options.items()))
    path = folder / f"lib{called}.so"
    if not path.exists():
        aot(exported(name), folder, name=called, **options)
    return Library(path, called)


def expected(result: Any) -> list[np.ndarray]:
    leaves, _ = flatten(result)
    return [
        np.array(leaf) if isinstance(leaf, int) else leaf.detach()._graphc_array for leaf in leaves
    ]


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def arrays(args: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.asarray(each._graphc_array, order="C") for each in args]


def at_the_end(array: np.ndarray) -> tuple[np.ndarray, Any]:
    """The array in memory behind which nothing may be touched."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = -(-array.nbytes // mmap.PAGESIZE) + 1
    room = mmap.mmap(-1, pages * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    last = start + (pages - 1) * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(last), mmap.PAGESIZE, 0) == 0
    kind = (ctypes.c_uint8 * array.nbytes).from_address(last - array.nbytes)
    placed = np.frombuffer(kind, array.dtype).reshape(array.shape)
    placed[...] = array
    return placed, room
