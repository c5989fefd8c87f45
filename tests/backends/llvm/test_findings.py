"""What the doctor hears of the CPU."""

from pathlib import Path

import pytest

from graphc.backends.llvm import findings as module
from graphc.backends.llvm.findings import findings
from graphc.backends.llvm.target import host_target


def test_what_is_there(tmp_path: Path) -> None:
    llvm, cpu, cache = findings(tmp_path / "kernels")
    assert "llvmlite 0." in str(llvm.found) and "LLVM" in str(llvm.found)
    assert f"vectors of {host_target().vector_bytes} bytes" in str(cpu.found)
    assert cache.found == str(tmp_path / "kernels")
    assert not any(finding.cure for finding in (llvm, cpu, cache))
    assert findings(None)[-1].found == "in memory alone, by GRAPHC_CACHE_DIR"


def test_a_cache_that_others_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    cache = findings(tmp_path)[-1]
    assert "not safe" in str(cache.found) and "GRAPHC_CACHE_DIR" in cache.cure


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its absence is said, not raised."""

    def absent() -> str:
        raise ImportError("No module named 'llvmlite'")

    monkeypatch.setattr(module, "llvm_version", absent)
    llvm, cache = findings(None)
    assert llvm.found is None and llvm.needed and cache.found
    assert llvm.cure == "pip install 'llvmlite>=0.50,<0.51' (No module named 'llvmlite')"
