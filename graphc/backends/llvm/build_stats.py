"""What building a program took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class KernelStats(NamedTuple):
    """One compiled kernel: its symbol, first name, size in bytes, and whether it was cached."""

    symbol: str
    name: str
    object_bytes: int
    cached: bool


@dataclass(slots=True)
class BuildStats:
    """Where a build's time went, in seconds."""

    emit: float = 0.0  # kernels to LLVM assembly
    codegen: float = 0.0  # assembly to objects
    driver: float = 0.0  # the driver, from text to object
    link: float = 0.0
    load: float = 0.0  # of code that an earlier process has kept
    kernels: list[KernelStats] = field(default_factory=list)
    remarks: tuple[str, ...] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """All of them, by stage."""
        names = ("load",) if self.load else ("emit", "codegen", "driver", "link")
        return {name: getattr(self, name) for name in names}
