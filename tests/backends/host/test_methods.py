"""Functions for Python over native code: what the code reads lives as long as they do."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest

from graphc.backends.host import methods
from graphc.engine import eager_added, eager_rows
from graphc.ir import ops
from graphc.ir.dtypes import f32, i64
from graphc.ir.types import TensorType


class Noted:
    """Something that the code reads."""


def called(table, arguments, count):
    return table


def test_what_is_read_lives_as_long_as_the_function():
    code = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
        called
    )
    noted = Noted()
    method = methods.method("called", ctypes.cast(code, ctypes.c_void_p).value)
    function = methods.bound(method, 1 << 40, noted)
    gone, its_method = weakref.ref(noted), weakref.ref(method)
    del noted, method
    gc.collect()
    assert gone() is not None and its_method() is not None
    assert function() == 1 << 40
    del function
    gc.collect()
    assert gone() is None and its_method() is None


def test_a_part_of_what_was_prepared_lives_by_itself(only_the_cpu, monkeypatch):
    monkeypatch.setattr(eager_rows.native, "_asked", 1 << 40)
    if eager_rows.native.function("add_rows", "f", [1, 1, 1, 1]) is None:
        pytest.skip("no compiler for this machine")
    types = TensorType(f32, (3,)), TensorType(f32, (4,)), TensorType(i64, (4,))
    x, rows = np.zeros(3, "f"), np.array([2, 4, 27, 29], "f")
    index = np.array([0, 2, 0, 1])

    def slow(x, rows, index, out):
        np.add.at(out, index, rows)

    written = eager_added.into(ops.index_put, types, {"dim": 0, "accumulate": True}, slow)
    for _ in range(4):
        written(x, rows, index, x)
    part = written.__dict__["rows"]
    del written
    gc.collect()
    others = [(ctypes.c_int64 * n)(*[-1] * n) for n in range(1, 20) for _ in range(50)]
    for _ in range(3):
        found = np.zeros(3, "f")
        assert part(rows, index, found) is found
        assert found.tolist() == [29, 29, 4]
    del others
