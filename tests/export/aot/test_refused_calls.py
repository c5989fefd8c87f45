"""Calls that a library refuses, by code and text."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import aot, export

from . import client
from .client import Failed, Library
from .libraries import made, same


def test_wrong_arguments(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    context = library.context()
    good = np.zeros((2, 3, 16), np.float32)
    outputs = context.outputs([good])
    for given, code, text in (
        (good.astype(np.float64), client.DTYPE, r"x must be of dtype f32 \(number 8\), .* 9"),
        (good[0], client.RANK, "x must have 3 dims, has 2"),
        (np.zeros((2, 3, 17), np.float32), client.SHAPE, "dim 2 of x must be 16, is 17"),
        (np.zeros((6, 3, 16), np.float32), client.RANGE,
         "dim 0 of x gives 6 for batch, which may be 1 to 5"),
        (np.zeros((0, 3, 16), np.float32), client.RANGE, "dim 0 of x gives 0 for batch"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            context.run([given], outputs)
        assert raised.value.code == code
        with pytest.raises(Failed, match=text):
            context.outputs([given])
    context.run([good], outputs)

    def run(given: client.Tensor, taken: list[client.Tensor]) -> int:
        return library.run(context.pointer, (client.Tensor * 1)(given), (client.Tensor * 2)(*taken))

    def tensors() -> tuple[client.Tensor, list[client.Tensor]]:
        return client.tensor_of(good), [client.tensor_of(each) for each in outputs]

    for change, code, text in (
        (lambda x, y: setattr(x, "data", None), client.ARGUMENT, "x: data is NULL"),
        (lambda x, y: setattr(x, "shape", None), client.ARGUMENT, "x: shape is NULL"),
        (lambda x, y: setattr(x, "data", x.data + 2), client.ARGUMENT, "not aligned to 4"),
        (lambda x, y: setattr(x, "bytes", 383), client.BYTES, "x needs 384 bytes, has 383"),
        (lambda x, y: setattr(y[0], "bytes", -1), client.BYTES, "result[0] needs 24 bytes"),
        (lambda x, y: setattr(y[1], "data", None), client.ARGUMENT, "result[1]: data is NULL"),
        (lambda x, y: setattr(y[1], "dtype", 8), client.DTYPE, "result[1] must be of dtype i64"),
        (lambda x, y: setattr(y[0], "rank", 1), client.RANK, "result[0] must have 2 dims"),
        (lambda x, y: setattr(y[0], "data", x.data + 380), client.OVERLAP,
         "the memory of result[0] is also that of x"),
        (lambda x, y: setattr(y[1], "data", y[0].data + 8), client.OVERLAP,
         "the memory of result[1] is also that of result[0]"),
    ):
        given, taken = tensors()
        change(given, taken)
        assert run(given, taken) == code, text
        assert text in library.message(context.pointer).decode()
    for call in (library.run, library.shapes):
        assert call(context.pointer, None, None) == client.ARGUMENT
        assert call(None, None, None) == client.ARGUMENT
    given, taken = tensors()
    given.shape = (ctypes.c_int64 * 3)(-(1 << 63), 1 << 62, 16)
    assert run(given, taken) == client.RANGE
    assert run(*tensors()) == 0
    context.close()
    library.destroy(None)
    assert library.set_threads(None, 2) == client.ARGUMENT

class _Pick(nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        return x[i] + 1


def test_an_index_out_of_range(folder: Path) -> None:
    program = export(_Pick(), (torch.arange(4.0), torch.tensor([1, 3])))
    made = aot(program, folder, name="pick")
    context = Library(made.library, "pick").context()
    x = np.arange(4, dtype=np.float32)
    same(context(x, np.array([0, -1])), [np.array([1, 4], np.float32)])
    for _ in range(2):
        with pytest.raises(Failed, match=r"(?s)index 4 .*test_refused_calls\.py:\d+") as raised:
            context(x, np.array([0, 4]))
        assert raised.value.code == client.VALUE
    same(context(x, np.array([2, 1])), [np.array([3, 2], np.float32)])
    context.close()
