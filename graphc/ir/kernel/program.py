"""Programs: what planning hands to a backend. Kernel calls in order over planned buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..dim import Size
from .nest import Kernel


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer of a program. space: "input" | "output" | "const" (by index) or "arena" (`offset`
    in bytes, 64-byte aligned; an expression over named dims where sizes are symbolic)."""

    space: str
    index: int = 0
    offset: Size = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel call. `dims` are the values of kernel.dims over the program's dims.
    `ops`, `locs`: the graph operators it computes and their places (Node.place), for explain()."""

    kernel: Kernel
    buffers: tuple[BufferRef, ...]
    dims: tuple[Size, ...] = ()
    ops: tuple[str, ...] = ()
    locs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Routine:
    """A graph operator that is no kernel (sort, random, ...): run by the backend that `claimed` it,
    else by the host, in NumPy. Shapes are symbolic Sizes over the program's dims; buffers are
    contiguous."""

    op: str
    attrs: tuple[tuple[str, object], ...]
    inputs: tuple[BufferRef, ...]
    input_types: tuple[object, ...]  # TensorType
    outputs: tuple[BufferRef, ...]
    output_types: tuple[object, ...]  # TensorType
    locs: tuple[str, ...] = ()
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """A planned graph: steps in order over inputs, outputs, constants and one arena.

    `dims` are the program's named dims. `outputs_in_place` maps an output index to the input
    whose buffer it is written into (a parameter update); the caller then passes that buffer.
    Steps from `first_visible_write` on may write buffers that the user sees; every Check and
    Routine that can fail comes before it.
    """

    name: str
    dims: tuple[str, ...]
    input_types: tuple[object, ...]  # TensorType
    output_types: tuple[object, ...]  # TensorType
    constants: tuple[object, ...]  # np.ndarray, contiguous
    steps: tuple[Launch | Routine, ...]
    arena_bytes: Size
    outputs_in_place: dict[int, int] = field(default_factory=dict)
    first_visible_write: int = 0


# fetch(buffer, NumPy dtype, elements): what is in a program's buffer now, as a flat array
Fetch: TypeAlias = Callable[[BufferRef, Any, int], Any]
# visit(number of the step, step, fetch): called after each step of a call that is traced
Visit: TypeAlias = Callable[[int, Launch | Routine, Fetch], None]
