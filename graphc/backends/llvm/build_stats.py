"""What building a program took."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.named import NamedTuple


class KernelStats(NamedTuple):
    """One compiled kernel: its symbol, first name, size in bytes, and whether it was cached."""

    symbol: str
    name: str
    object_bytes: int
    cached: bool


class BuildStats:
    """Where a build's time went, in seconds."""

    def __init__(self, kernels: Sequence[KernelStats] = ()) -> None:
        self.emit = 0.0  # kernels to LLVM assembly
        self.codegen = 0.0  # assembly to objects
        self.driver = 0.0  # the driver, from text to object
        self.link = 0.0
        self.load = 0.0  # of code that an earlier process has kept
        self.kernels = list(kernels)
        self.remarks: tuple[str, ...] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """All of them, by stage."""
        names = ("load",) if self.load else ("emit", "codegen", "driver", "link")
        return {name: getattr(self, name) for name in names}
