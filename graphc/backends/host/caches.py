"""The caches of this machine, where the system says."""

from __future__ import annotations

from pathlib import Path


def third_cache(root: Path = Path("/")) -> int:
    """Bytes of the third one; 0 where the system does not say."""
    try:
        told = (root / "sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
    except OSError:
        return 0
    return int(told[:-1]) << 10 if told[:-1].isdecimal() and told.endswith("K") else 0
