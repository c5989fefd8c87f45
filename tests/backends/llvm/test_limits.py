"""What the machine can do at most is measured once, and kept."""

from pathlib import Path

import pytest

from graphc.backends.llvm import limits


def test_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_COPIED", 1 << 20)
    monkeypatch.setattr(limits, "_STEPS", 4000)
    found = limits.measured(2, tmp_path)
    assert found.flops > 1e9 and found.copied > 1e8  # a tenth of the slowest machine's
    monkeypatch.setattr(limits, "_flops", None)
    assert limits.measured(2, tmp_path) == found
    with pytest.raises(TypeError):
        limits.measured(1, tmp_path)  # another question: it would have to measure


def test_chains_are_multiply_adds() -> None:
    """Every chain's step stays in the loop: c becomes c x + x."""
    import ctypes

    run, library = limits._chains(limits.host_target())
    result = (ctypes.c_float * 16)(0.5)
    run(3, result)
    assert result[0] == ((0.5 * 0.5 + 0.5) * 0.5 + 0.5) * 0.5 + 0.5
    del library
