"""A line of the CUDA table means what the NumPy table means, on the emulator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import numpy as np
import pytest

from graphc.backends.cuda.emulator import Library, Toolchain
from graphc.backends.cuda.libraries import RELEASES
from graphc.backends.cuda.nvrtc import Options
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import C_TYPES, apply
from graphc.backends.numpy.elementwise import TABLE, cast_array
from graphc.ir import dtypes
from graphc.ir.op import Op

from ..cells import ELEMENTWISE, Cell, cells
from . import needs

DTYPES = [dtype for dtype in dtypes.ALL if dtype.name in C_TYPES]
def code(cell: Cell) -> str:
    names = [f"{'abc'[i]}[n]" for i in range(len(cell.inputs))]
    return apply(cell.op.name, cell.result, cell.inputs, names)


def source(cell: Cell, name: str) -> str:
    names = ["abc"[i] for i in range(len(cell.inputs))]
    takes = [f"const {C_TYPES[d.name]}* {n}" for d, n in zip(cell.inputs, names, strict=True)]
    takes += [f"{C_TYPES[cell.result.name]}* o", "i64 size"]
    return (
        f'extern "C" __global__ void {name}({", ".join(takes)}) '
        f"{{ for (i64 n = threadIdx.x; n < size; n += 32) o[n] = {code(cell)}; }}"
    )


def sources(ops: Iterable[Op] = ELEMENTWISE) -> str:
    """Every cell that has code."""
    functions = []
    for op in ops:
        for cell in cells(op, DTYPES):
            with contextlib.suppress(NotImplementedError):  # test_matrix.py names it
                functions.append(source(cell, f"cell_{cell.name}"))
    return "\n".join(functions)


@pytest.fixture(scope="module")
def compiled(toolchain: Toolchain) -> Library:
    return toolchain.compile({"cells": sources()})


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


def tried(cell: Cell) -> tuple[list[np.ndarray], np.ndarray]:
    """Operands, and what they have to give; only such as the operator takes."""
    arrays = operands(cell)
    if cell.op.name == "clamp":  # where the bounds are in order
        with np.errstate(invalid="ignore"):
            arrays = [a[~(arrays[1] > arrays[2])] for a in arrays]
    if cell.op.name in DIVIDE and not cell.result.is_float:  # the kernel checks its divisors
        arrays = [a[arrays[1] != 0] for a in arrays]
    with np.errstate(all="ignore"):
        return arrays, np.asarray(reference(cell, arrays))


def differs(cell: Cell, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where a result is another one; also by the sign of a zero, but for those of which IEEE 754
    leaves it open, and of lgamma."""
    if not cell.result.is_float:
        return got != want
    exact = TOLERANCE[cell.result.name]
    got, want = got.astype("f8"), want.astype("f8")
    close = np.isclose(got, want, rtol=exact, atol=exact, equal_nan=True)
    if cell.op.name in ("fmax", "fmin", "lgamma"):
        return ~close
    return ~close | ((want == 0) & (got == 0) & (np.signbit(got) != np.signbit(want)))


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_a_line_means_the_operator(op: Op, compiled: Library) -> None:
    for cell in cells(op, DTYPES):
        arrays, want = tried(cell)
        got = np.empty(arrays[0].shape, cell.result.numpy)
        compiled.launch(f"cell_{cell.name}", (1,), (32,), [*arrays, got, got.size])
        wrong = differs(cell, got, want)
        at = tuple(a[wrong][:4].tolist() for a in (*arrays, got, want))
        assert not wrong.any(), (cell.name, at)


def reference(cell: Cell, arrays: list[np.ndarray]) -> np.ndarray:
    if cell.op.name == "cast":
        return cast_array(arrays[0], cell.result.numpy)
    if cell.op.name in SHIFTS:
        return shifted(cell.op.name, *arrays)
    return TABLE[cell.op.name](*arrays)


# a last bit of 16 may go the other way, where a function's last bit of 32 does
TOLERANCE = {"f64": 1e-12, "f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}
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
    quickly = Options(more=("--Ofast-compile=max",))
    assert nvrtc.compile(PRELUDE + sources(), "sm_80", quickly).cubin[:4] == b"\x7fELF"
