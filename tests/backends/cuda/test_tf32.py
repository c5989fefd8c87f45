"""Floats that tensor cores multiply as TF32: the instruction, and products and convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Library, Schedule, Toolchain
from graphc.backends.cuda.instructions import INSTRUCTIONS
from graphc.backends.cuda.prelude import PRELUDE
from graphc.ir.kernel import Product
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.tf32 import rounded

from .product_cases import Case, wrong

SCHEDULES = (ALL[1], Schedule(watch=True), Schedule(watch=True, early=True))
CASES = (
    Case("f32", 70, 66, 200, tf32=True),
    Case("f32", 70, 66, 100, "r", "r", tf32=True),
    Case("f32", 65, 130, 33, "k", "r", batch=2, pad=1, tf32=True),
    Case("f32", 9, 17, 600, "r", "k", offset=1, tf32=True),
    Case("f32", 7, 5, 3, "s", "s", tf32=True),
    Case("f32", 3, 2, 0, "k", "r", tf32=True),
)
LARGE = (
    Case("f32", 1100, 1100, 40, "k", "r", batch=2, tf32=True),
    Case("f32", 1100, 1100, 40, "r", "k", batch=2, tf32=True),
)
# a multiple of 2^-10 by the 11th bit, more and less, both ways; what cannot be rounded; the least
EDGES = np.array(
    [1 + 2**-11, 1 + 2**-11 + 2**-23, 1 + 2**-11 - 2**-23, -1 - 2**-11, 2 - 2**-23, 0.0, -0.0,
     np.inf, -np.inf, np.nan, 3.4028235e38, 1e-45, 1.1754942e-38, 0.1], np.float32)
NEAREST = [1 + 2**-10, 1 + 2**-10, 1.0, -1 - 2**-10, 2.0, 0.0, -0.0, np.inf, -np.inf, np.nan,
           np.inf, 0.0, 1.1754944e-38, 0.0999755859375]


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Library:
    texts = {source.stages[0].name: source.text for source in (emit(c.kernel()) for c in CASES)}
    texts["round"] = PRELUDE + INSTRUCTIONS + """
extern "C" __global__ void round_all(const float* x, float* y) {
  y[threadIdx.x] = float_bits(tf32_round(__float_as_uint(x[threadIdx.x])));
}
"""
    return toolchain.compile(texts)


def test_rounding(library: Library) -> None:
    """To nearest, ties away from 0, as cvt.rna does; the largest numbers become infinite."""
    np.testing.assert_array_equal(rounded(EDGES), np.array(NEAREST, np.float32))
    found = np.empty_like(EDGES)
    library.launch("round_all", (1,), (len(EDGES),), [EDGES, found])
    np.testing.assert_array_equal(found, rounded(EDGES))
    strided = np.linspace(1, 2, 40, dtype=np.float32).reshape(5, 8)[::2, ::3]
    np.testing.assert_array_equal(rounded(strided), rounded(strided.copy()))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(case: Case, library: Library) -> None:
    kernel = case.kernel()
    source = emit(kernel)
    assert "mma_tf32(d[i][j]" in source.text
    for schedule in SCHEDULES:
        assert not wrong(kernel, source, library, schedule)


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_large_tiles(case: Case, toolchain: Toolchain) -> None:
    source = emit(case.kernel())
    assert source.stages[0].shared == 3 * 256 * 32 * 4 + 128 * 8  # and one operand's lines
    library = toolchain.compile({source.stages[0].name: source.text})
    assert not wrong(case.kernel(), source, library, Schedule())


def test_text_and_meaning() -> None:
    """The template says it, is read back so, and rounds what it multiplies."""
    case = Case("f32", 4, 4, 4, tf32=True)
    text = print_kernel(case.kernel())
    assert "acc f32 tf32 {" in text
    template = parse_kernel(text).template
    assert isinstance(template, Product) and template.tf32
    plain = case._replace(tf32=False).kernel().template
    assert isinstance(plain, Product) and not plain.tf32
