"""Masks of lanes that are kept as bits."""

from __future__ import annotations

import pytest

from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.libraries import emit_library
from graphc.backends.llvm.target import make_target


@pytest.mark.parametrize("tile", ["f32", "f64"])
def test_avx2_compares_lanes_for_a_mask(tile: str) -> None:
    """Bits are not moved to their lanes one by one, which took half of a strided convolution."""
    target = make_target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma")
    text = compile_assembly(emit_library(f"conv_rows.{tile}.{tile}", target).text(), target)
    assert "vmaskmov" in text and "vpcmpeq" in text
    assert "vpinsr" not in text
