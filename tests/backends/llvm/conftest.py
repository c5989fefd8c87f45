"""Convolutions by the ways that others leave to them."""

from collections.abc import Iterator

import pytest

from graphc.backends.llvm.conv_reach import conv_reach, is_by_strips
from graphc.ir.kernel import plan_convolution


@pytest.fixture
def without_strips(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No convolution goes strip by strip, or reads a copy for each tap of a line."""
    conv_reach.cache_clear()
    is_by_strips.cache_clear()
    monkeypatch.setattr(plan_convolution, "strips_of", lambda *_: None)
    monkeypatch.setattr(plan_convolution._Planner, "_shifts", lambda *_: None)
    yield
    conv_reach.cache_clear()
    is_by_strips.cache_clear()
