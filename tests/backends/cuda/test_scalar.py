"""A line of the CUDA table means what the NumPy table means, compiled by g++ with the prelude."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from graphc.backends.cuda.libraries import RELEASES
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import C_TYPES, apply
from graphc.backends.numpy.elementwise import TABLE, cast_array
from graphc.ir import dtypes
from graphc.ir.op import Op

from ..cells import ELEMENTWISE, Cell, cells
from . import needs

DTYPES = [dtype for dtype in dtypes.ALL if dtype.name in C_TYPES]
HOST = """
#include <math.h>
#define __device__ static
"""
# what the CUDA C library has and the host's has not
ERFINV = """
static double erfinv(double y) {
  if (!(fabs(y) < 1)) return fabs(y) == 1 ? y * INFINITY : NAN;
  double low = -6, high = 6;
  for (int i = 0; i < 200; i++) { double x = (low + high) / 2; (erf(x) < y ? low : high) = x; }
  return (low + high) / 2;
}
static float erfinvf(float y) { return (float)erfinv(y); }
"""


def code(cell: Cell) -> str:
    names = [f"{'abc'[i]}[n]" for i in range(len(cell.inputs))]
    return apply(cell.op.name, cell.result, cell.inputs, names)


def source(cell: Cell, name: str) -> str:
    names = ["abc"[i] for i in range(len(cell.inputs))]
    takes = [f"const {C_TYPES[d.name]}* {n}" for d, n in zip(cell.inputs, names, strict=True)]
    takes += [f"{C_TYPES[cell.result.name]}* o", "int size"]
    return (
        f'extern "C" void {name}({", ".join(takes)}) '
        f"{{ for (int n = 0; n < size; n++) o[n] = {code(cell)}; }}"
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Every cell that has code as a function of one library."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("scalar")
    text = [HOST, ERFINV, PRELUDE]
    for op in ELEMENTWISE:
        for cell in cells(op, DTYPES):
            with contextlib.suppress(NotImplementedError):  # test_matrix.py names it
                text.append(source(cell, f"cell_{cell.name}"))
    path = Path(folder, "cells.cpp")
    path.write_text("\n".join(text))
    library = folder / "cells.so"
    options = "-std=c++17 -O0 -w -fwrapv -ffp-contract=off -shared -fPIC".split()
    subprocess.run(["g++", *options, str(path), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def operands(cell: Cell) -> list[np.ndarray]:
    """All pairs of a few numbers of the dtype, its edges among them."""
    few: list[np.ndarray] = []
    for dtype in cell.inputs:
        if dtype is dtypes.bool_:
            values = np.array([False, True])
        elif dtype.is_float:
            low, high = cell.op.domain
            edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 7.0, np.inf, -np.inf, np.nan]
            values = np.array([*edges, *np.linspace(low, high, 7)], dtype.numpy)
        else:
            info = np.iinfo(dtype.numpy)
            small = [v for v in (-9, -3, -1, 0, 1, 2, 3, 7, 31, 64) if v >= info.min]
            values = np.array([*small, info.min, info.max], dtype.numpy)
        few.append(values)
    grid = np.meshgrid(*few, indexing="ij")
    return [np.ascontiguousarray(each.ravel()) for each in grid]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_a_line_means_the_operator(op: Op, compiled: ctypes.CDLL) -> None:
    for cell in cells(op, DTYPES):
        arrays = operands(cell)
        if op.name == "clamp":  # where the bounds are in order
            arrays = [a[~(arrays[1] > arrays[2])] for a in arrays]
        if op.name in DIVIDE and not cell.result.is_float:  # the kernel checks its divisors
            arrays = [a[arrays[1] != 0] for a in arrays]
        with np.errstate(all="ignore"):
            want = reference(cell, arrays)
        got = np.empty(arrays[0].shape, cell.result.numpy)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (*arrays, got)]
        getattr(compiled, f"cell_{cell.name}")(*pointers, ctypes.c_int(got.size))
        exact = 0.0 if not cell.result.is_float else 1e-12 if cell.result is dtypes.f64 else 2e-6
        np.testing.assert_allclose(got, want, rtol=exact, atol=exact, err_msg=cell.name)


def reference(cell: Cell, arrays: list[np.ndarray]) -> np.ndarray:
    if cell.op.name == "cast":
        return cast_array(arrays[0], cell.result.numpy)
    if cell.op.name in SHIFTS:
        return shifted(cell.op.name, *arrays)
    return TABLE[cell.op.name](*arrays)


DIVIDE = ("floor_divide", "trunc_divide", "remainder", "fmod")
SHIFTS = ("shift_left", "shift_right")


def shifted(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Shifts on Python's integers; NumPy's are undefined outside of the width."""
    bits = 8 * a.dtype.itemsize
    left = name == "shift_left"
    results = []
    for x, by in zip(a.tolist(), b.tolist(), strict=True):
        by = by if 0 <= by < bits else bits
        results.append((x << by) % (1 << bits) if left else x >> by)
    unsigned = f"u{a.dtype.itemsize}" if left else a.dtype
    return np.array(results, unsigned).astype(a.dtype)


@pytest.mark.parametrize("release", RELEASES)
def test_nvrtc_takes_every_cell(release: int) -> None:
    nvrtc = needs.compiler(release)
    text = [PRELUDE]
    for op in ELEMENTWISE:
        for cell in cells(op, DTYPES):
            body = source(cell, f"cell_{cell.name}")
            text.append(body.replace('extern "C" void', 'extern "C" __global__ void'))
    assert nvrtc.compile("\n".join(text), "sm_80").cubin[:4] == b"\x7fELF"
