"""What calls of a program's code need to know of it, where the Program itself is not at hand."""

from __future__ import annotations

import numpy as np

from graphc.backends.llvm.words import Layout
from graphc.ir.dim import Size
from graphc.ir.named import NamedTuple


class Scratch(NamedTuple):
    """The scratch memory of a template: so many bytes, and `each` for every chunk that may run at
    a time, which are `slots` at most."""

    fixed: int
    each: int
    slots: int

    def bytes(self, workers: int) -> int:
        """For so many workers."""
        return self.fixed + min(self.slots, workers) * self.each


class Frame(NamedTuple):
    """See above. `scratch` is None where it depends on the call's sizes. `early`: the outputs that
    are written to before the last step that can fail is over."""

    name: str
    inputs: int
    outputs: int
    dims: tuple[str, ...]
    arena: Size
    scratch: tuple[Scratch, ...] | None
    layout: Layout
    constants: tuple[np.ndarray, ...]
    by_flag: bool  # a loop ends by what it computes: the entry then takes the GIL and gives it back
    routines: bool  # whether the host runs some of its steps
    short: bool  # over before another thread would begin
    told: str  # a digest of the Program
    early: frozenset[int]

    def scratch_bytes(self, workers: int) -> int:
        """Templates run one after the other, and each has all of it."""
        return max((scratch.bytes(workers) for scratch in self.scratch or ()), default=0)
