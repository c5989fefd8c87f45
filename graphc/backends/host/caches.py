"""Of which size results are so large that the caches are better left to others."""

from __future__ import annotations

from pathlib import Path

_KNOWN = {"emeraldrapids"}  # CPUs that were measured, by LLVM's names


def room(cpu: str, root: Path = Path("/")) -> int:
    """Bytes of a result that leaves what is computed with it too little room in the third cache of
    a CPU on which that shows: a fifth of it (Emerald Rapids: 52 of 260 MB, which others share);
    0: none does."""
    return _third_cache(root) // 5 if cpu in _KNOWN else 0


def _third_cache(root: Path) -> int:
    """Its bytes; 0 where the system does not say."""
    try:
        told = (root / "sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
    except OSError:
        return 0
    return int(told[:-1]) << 10 if told[:-1].isdecimal() and told.endswith("K") else 0
