"""What the machine can do at most is measured once, and kept."""

from pathlib import Path

import pytest

from graphc.backends.llvm import ceilings


def test_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_COPIED", 1 << 20)
    monkeypatch.setattr(ceilings, "_STEPS", 4000)
    found = ceilings.measured(2, tmp_path)
    assert found.flops > 1e9 and found.bytes > 1e8  # a tenth of the slowest machine's
    monkeypatch.setattr(ceilings, "_together", None)
    assert ceilings.measured(2, tmp_path) == found
    with pytest.raises(TypeError):
        ceilings.measured(1, tmp_path)  # another question: it would have to measure


def test_chains_are_multiply_adds() -> None:
    """Every chain's step stays in the loop: c becomes c x + x."""
    import ctypes

    run, library = ceilings._chains(ceilings.host_target())
    result = (ctypes.c_float * 16)(0.5)
    run(3, result)
    assert result[0] == ((0.5 * 0.5 + 0.5) * 0.5 + 0.5) * 0.5 + 0.5
    del library
