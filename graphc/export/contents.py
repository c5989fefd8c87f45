"""What a .gcx file holds, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graphc.export.signature import Signature, Weights
from graphc.ir.graph import Graph

GOLDEN = 1 << 22  # bytes of a recorded call, at most, and of the state that it began with


@dataclass(frozen=True)
class Variant:
    """A graph of a program. `ones` are the names of the free sizes that are 1 where it is used;
    of its signature, `inputs`, `results` and `writes` are its own."""

    ones: frozenset[str]
    graph: Graph
    signature: Signature


@dataclass(frozen=True)
class Golden:
    """A recorded call: what went in by number of the argument's leaf, what came out in eager mode
    by number of the result's leaf, what was written by name, and how close code has to come.

    Of a training step, `numbers` are Python's before the call, and `state` are the arrays that it
    found, by name, where they are no longer the file's weights. `apart` says of arrays (by the name
    that a file gives them) how much further off an element may be, where rounding alone does it."""

    dims: Mapping[str, int]
    inputs: Mapping[int, np.ndarray]
    outputs: Mapping[int, np.ndarray]
    rtol: float
    atol: float
    written: Mapping[str, np.ndarray] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    apart: Mapping[str, float] = field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """By the names that a file gives them."""
        return {
            **{f"in.{leaf}": array for leaf, array in self.inputs.items()},
            **{f"out.{leaf}": array for leaf, array in self.outputs.items()},
            **{f"write.{name}": array for name, array in self.written.items()},
            **{f"state.{name}": array for name, array in self.state.items()},
        }


class Native(NamedTuple):
    """Machine code for a kind of machine ("x86_64-linux"), as a part of a file: a library that
    aot() makes, called libNAME.so. `content` are its bytes, where they were read, or are to be
    written."""

    target: str
    file: str
    sha256: str
    content: bytes = b""


@dataclass(frozen=True)
class Contents:
    """All of a file. `kind` is "program" or "step"; `variants[0]` is the main one. `numbers` are
    Python numbers that a call may give, `generator` says which weight is one, and its algorithm.
    `checked` are sizes at which export compared the graphs with eager mode; `writer` is the version
    of graphc that wrote the file, `step` what a training step computes in Python (steps/), `extra`
    texts that its writer put in beside it."""

    variants: tuple[Variant, ...]
    weights: Weights
    goldens: tuple[Golden, ...] = ()
    checked: tuple[Mapping[str, int], ...] = ()
    kind: str = "program"
    numbers: tuple[Mapping[str, Any], ...] = ()
    generator: Mapping[str, str] | None = None
    native: tuple[Native, ...] = ()
    writer: str = ""
    step: Mapping[str, Any] | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def main(self) -> Variant:
        """The graph for sizes of 2 and more."""
        return self.variants[0]

    def smallest(self, variant: Variant) -> dict[str, int]:
        """The smallest sizes that a variant is for."""
        ranges = self.main.signature.ranges
        return {
            name: max(2, ranges[name].least) if name in ranges else 2
            for name in variant.graph.env.hints
        }
