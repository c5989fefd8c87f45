"""Masks of lanes that are kept as bits."""

from __future__ import annotations

import re

import pytest

from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.libraries import emit_library
from graphc.backends.llvm.target import make_target

from .test_targets import loops


@pytest.mark.parametrize("tile", ["f32", "f64"])
def test_avx2_compares_lanes_for_a_mask(tile: str) -> None:
    """Bits are not moved to their lanes one by one, which took half of a strided convolution."""
    target = make_target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma")
    text = compile_assembly(emit_library(f"conv_window_rows.{tile}.{tile}", target).text(), target)
    assert "vmaskmov" in text and "vpcmpeq" in text
    assert "vpinsr" not in text
    # a store under a mask takes 12 cycles: only the last row of a piece is
    stores = re.compile(r"vmaskmovp[sd]\s+%ymm\d+, %ymm\d+, ")
    assert stores.search(text)
    assert not [body for body in loops(text) if any(map(stores.search, body))]
