"""Tensors that Python makes of known values ahead of the native code, as each call begins.

Some layouts are decided by values (the lengths of sequences say how many rows a packed batch has),
and a graph needs its sizes before it runs. Where such values follow from the inputs alone, a
version asks a Python function for the tensors before its native code runs: they are inputs of the
graph, and their sizes are symbolic. Segments and eager mode ask it where the Python stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphc.ir import dtypes, op
from graphc.ir.device_array import DeviceArray
from graphc.ir.dim import Size, evaluate
from graphc.ir.graph import Graph, Node, toposort
from graphc.ir.interpret import evaluate as interpret
from graphc.ir.memory import on_host
from graphc.ir.types import TensorType

from .captured import MadeInput
from .context import Suspended, Uncounted, local
from .errors import TraceError, located
from .known import values
from .numbers import SymInt
from .segment_close import input_arrays
from .segment_trace import SegmentTrace
from .storage import LOOSE
from .tensor import Tensor, from_array
from .trace import Trace
from .values import Eager

# gives arrays, of the values of tensors and then of sizes; raises what is wrong with them
Make: TypeAlias = Callable[..., tuple[np.ndarray, ...]]

_MOST_NODES = 64
_MOST_ELEMENTS = 1 << 16  # of a value that is computed ahead


class _EagerTable(dict[str, Callable[..., Any]]):
    """Operators as eager mode runs them, for the interpreter."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        record = op.get(name)
        found = self[name] = lambda *arrays, **attrs: Eager.run(record, list(arrays), attrs)
        return found


_TABLE = _EagerTable()


class Ahead:
    """What a call computes before its native code runs: `make` of the operands' values. Two are
    equal that make the same."""

    def __init__(
        self, make: Make, graph: Graph, reads: tuple[int, ...], sizes: tuple[Size, ...],
    ) -> None:
        """`graph` computes the operands of the inputs number `reads`."""
        self.make, self.graph, self.reads, self.sizes = make, graph, reads, sizes
        self._key = make, graph.outputs, sizes
        self.named: dict[str, Size] = {}  # sizes that `make` decides

    def now(
        self, arrays: Sequence[np.ndarray], dims: Mapping[str, int]
    ) -> tuple[np.ndarray, ...]:
        """The arrays for these inputs of the version's graph."""
        given = [arrays[i] for i in self.reads]
        values = interpret(self.graph, given, _TABLE, dims)
        return self.make(*values, *(evaluate(size, dims) for size in self.sizes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ahead) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{self.make.__name__}() of inputs {', '.join(map(str, self.reads))}"


def made_ahead(
    make: Make, operands: Sequence[Tensor], sizes: Sequence[Any], shapes: Sequence[Sequence[Any]],
    kept: bool = False, **known: Any,
) -> tuple[Tensor, ...]:
    """The tensors of make(*arrays of the operands, *sizes), which carry no gradients. `shapes`:
    theirs, with a name for each size that `make` decides; equal names are one size. `kept`: they
    are handed out to nobody, so that a recording on a device may have them there, of operands on
    the CPU. `known`: further sizes that size_made() is to tell.

    `make` is a pure function: what it says of equal values is the same in every call.
    """
    trace = local.trace
    if isinstance(trace, SegmentTrace) and trace.whole and not local.exporting:
        found = _recorded(trace, make, operands, sizes, shapes, kept, known)
        if found is not None:
            return found
    what = f"{make.__name__.strip('_').replace('_', ' ')}, which a tensor's values decide,"
    arrays = [_value(t, what) for t in operands]
    made = make(*arrays, *map(int, sizes))
    with Suspended():
        return tuple([_loose(array) for array in made])


def _loose(array: np.ndarray) -> Tensor:
    """A tensor that joins those of any device."""
    made = from_array(array)
    made._graphc_storage.away |= LOOSE
    return made


def size_made(tensor: Tensor, name: str) -> Any:
    """The size of this name that was decided with a tensor; None where it is not known."""
    trace = local.trace
    if trace is None or tensor._graphc_trace is not trace:
        return None
    node = trace.read(tensor)
    for source in trace.inputs:
        if source.node is node and isinstance(source, MadeInput) and name in source.ahead.named:
            size = source.ahead.named[name]
            return size if isinstance(size, int) else trace.lift_size(size)
    return None


def _value(tensor: Tensor, what: str) -> np.ndarray:
    """The array of a tensor. A recording goes on where it holds already what it will hold."""
    trace = local.trace
    if trace is None:
        with Uncounted():
            return values(tensor, what, "decide it outside")
    if trace.whole or tensor._graphc_trace is not None or _was_written(trace, tensor):
        return values(tensor, what, "decide it outside")
    return on_host(tensor._graphc_array)


def _was_written(trace: Trace, tensor: Tensor) -> bool:
    """Whether a recording has written to the memory of a concrete tensor."""
    if not trace.written:
        return False
    root = trace.shadow(tensor)._graphc_storage.root
    return root.source is None or root.node is not root.source.node


def _recorded(
    trace: SegmentTrace, make: Make, operands: Sequence[Tensor], sizes: Sequence[Any],
    shapes: Sequence[Sequence[Any]], kept: bool, known: Mapping[str, Any],
) -> tuple[Tensor, ...] | None:
    """The same as inputs of a version; None where an operand is not known as a call begins."""
    ends = _captured(trace, operands, kept)
    nodes = toposort(ends, ())
    numbers = {source.node: i for i, source in enumerate(trace.inputs)}
    heads = [node for node in nodes if node.op.name == "input"]
    elsewhere = bool(trace.place) and not kept
    if elsewhere or len(nodes) > _MOST_NODES or not numbers.keys() >= set(heads) or (
        not all(_is_cheap(trace, node) for node in nodes)
    ):
        return None  # on another device; dear; computed of what is no input
    arrays = input_arrays(trace)
    if any(isinstance(arrays[numbers[node]], DeviceArray) for node in heads):
        return None  # known when the device has computed it
    ahead = Ahead(
        make, Graph("ahead", tuple(heads), tuple(ends), trace.env),
        tuple([numbers[node] for node in heads]),
        tuple([_plain(size) for size in sizes]),
    )
    before = [s for s in trace.inputs if isinstance(s, MadeInput) and s.ahead == ahead]
    if before:
        return tuple([trace.wrap(source.node) for source in before])
    ahead.named = {name: _plain(size) for name, size in known.items()}
    try:
        made = ahead.now(arrays, trace.env.hints)
    except Exception as error:  # code that catches it has decided upon values
        trace.refused = TraceError(located(f"{error}, which the values of tensors decide"))
        trace.refused.__cause__ = error
        raise
    if not heads and all(isinstance(size, int) for size in ahead.sizes):
        return tuple([trace.constant(array) for array in made])
    found: list[Tensor] = []
    for part, (array, names) in enumerate(zip(made, shapes, strict=True)):
        shape = [_size(trace, ahead, *x) for x in zip(names, array.shape, strict=True)]
        type_ = TensorType(dtypes.from_numpy(array.dtype), tuple(shape))
        number = len(trace.inputs)
        with trace.builder.at(None, trace.builder.backward):
            node = trace.graph_input(type_, f"made{number}")
        trace.inputs.append(MadeInput(node, ahead, part, array, number))
        found.append(trace.wrap(node))
    return tuple(found)


def _captured(
    trace: SegmentTrace, operands: Sequence[Tensor], kept: bool
) -> list[Node]:
    """The operands' values in a recording."""
    trace.beside = kept and all(
        t._graphc_trace is None and not isinstance(t._graphc_array, DeviceArray) for t in operands
    )
    try:
        return [trace.read(t if t._graphc_trace is trace else trace.shadow(t)) for t in operands]
    finally:
        trace.beside = False


def _is_cheap(trace: SegmentTrace, node: Node) -> bool:
    """Whether a call may compute a node ahead."""
    if node.op.impure or node.graphs or node.op.family == "contract":
        return False
    if type(node.type) is not TensorType:
        return True  # what is taken of it is looked at
    return bool(trace.env.hint(node.type.elements) <= _MOST_ELEMENTS)


def _plain(size: Any) -> Size:
    return size.dim if isinstance(size, SymInt) else int(size)


def _size(trace: SegmentTrace, ahead: Ahead, name: Any, value: int) -> Size:
    """A size of what is made: one that is known, or a dim of its own."""
    if not isinstance(name, str):
        known = _plain(name)
        if trace.env.hint(known) != value:
            raise RuntimeError(f"{ahead!r} gave a size of {value} for {name}")
        return known
    if name not in ahead.named:
        made = value if value < 2 else trace.env.new(f"{name}{len(trace.env.hints)}", value)
        ahead.named[name] = made
        if value >= 2:  # segments have concrete sizes
            trace.tainted = trace.tainted or "sizes that values decide"
    return ahead.named[name]
