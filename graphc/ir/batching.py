"""Batching: an operator applied to every sample of a batch at once, by a rule per operator.

A `BatchValue` is a value of any kind together with the size of a batch; its `type` is that of one
sample. `batched` says whether the batch is really there, as dimension 0 of the value, or whether
all samples are the same. Operators on BatchValues run the rules of `batching_rules.py`, so a
gradient rule, a decomposition or a whole Graph (`run_graph`) is batched by being run on them.

An operator without a rule is decomposed; one that is not a composite either runs sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .dim import Size
from .graph import Builder, Constant, Expr, Graph, Node
from .interpret import resolve_attrs
from .op import Attrs, Op, OpError
from .op import get as get_op
from .ops._rules import expand, ops, permute, reshape
from .types import TensorType

# (batch, inputs, attrs) -> values with the batch as dimension 0; at least one input is batched
Rule: TypeAlias = Callable[["Batch", Sequence["BatchValue"], Attrs], Any]
RULES: dict[str, Rule] = {}
FAMILIES: dict[str, Rule] = {}

RANDOM_ERROR = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' "
    "or 'different' randomness flags on vmap or perform the randomness operation out of vmap"
)


class Batch:
    """One level of batching: its size, and what random operators do."""

    __slots__ = ("like", "randomness", "size")

    def __init__(self, size: Size, like: Any, randomness: str = "error") -> None:
        self.size = size
        self.like = like  # any value of the world that the results are computed in
        self.randomness = randomness  # "error" | "different" | "same"

    def value(self, value: Any, batched: bool) -> BatchValue:
        """A value of the inner world as one of this batch's."""
        return BatchValue(self, value, batched)

    def full(self, x: BatchValue) -> Any:
        """The value with the batch as dimension 0, repeated if all samples are the same."""
        if x.batched:
            return x.value
        shape = x.value.type.shape
        return expand(reshape(x.value, (1, *shape)), (self.size, *shape))

    def align(self, x: BatchValue, rank: int) -> Any:
        """The value such that samples of `rank` dimensions broadcast: (batch, 1, ..., *sample)."""
        if not x.batched:
            return x.value
        shape = x.value.type.shape
        missing = rank - (len(shape) - 1)
        if missing <= 0:
            return x.value
        return reshape(x.value, (shape[0], *[1] * missing, *shape[1:]))

    def sample(self, x: BatchValue, i: int) -> Any:
        """Sample number `i` alone."""
        if not x.batched:
            return x.value
        shape = x.value.type.shape
        row = ops.slice(
            x.value, starts=(i, *[0] * (len(shape) - 1)), stops=(i + 1, *shape[1:]),
            steps=(1,) * len(shape),
        )
        return reshape(row, shape[1:])


class BatchValue(Expr):
    """A value for every sample of a batch."""

    __slots__ = ("batch", "batched", "value")

    def __init__(self, batch: Batch, value: Any, batched: bool) -> None:
        self.batch = batch
        self.value = value
        self.batched = batched

    @property
    def type(self) -> TensorType:
        found: TensorType = self.value.type
        return found.with_shape(found.shape[1:]) if self.batched else found

    @property
    def shape(self) -> Any:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.value.type.dtype

    def _emit(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        return apply(self.batch, op, inputs, attrs)

    def _constant(self, value: float | int | bool, like: TensorType) -> BatchValue:
        return BatchValue(self.batch, self.value._constant(value, like), False)


def apply(batch: Batch, op: Op, inputs: Sequence[BatchValue], attrs: Attrs) -> Any:
    """An operator on BatchValues: a BatchValue, or a tuple of them."""
    if op.family == "random":
        return _random(batch, op, inputs, attrs)
    if op.family == "control":
        return RULES[op.name](batch, inputs, attrs)  # says itself what of it is batched
    if not any(x.batched for x in inputs):
        like = inputs[0].value if inputs else batch.like
        return _wrap(batch, like._emit(op, tuple(x.value for x in inputs), attrs), False)
    rule = RULES.get(op.name) or FAMILIES.get(op.family)
    if rule is not None:
        return _wrap(batch, rule(batch, inputs, attrs | {"op": op}), True)
    if op.decompose is not None:
        return op.decompose(*inputs, **attrs)
    return one_by_one(batch, op, inputs, attrs)


def _wrap(batch: Batch, out: Any, batched: bool) -> Any:
    if isinstance(out, tuple):
        return tuple(BatchValue(batch, x, batched) for x in out)
    return BatchValue(batch, out, batched)


def _random(batch: Batch, op: Op, inputs: Sequence[BatchValue], attrs: Attrs) -> Any:
    """Draws: one stream for the whole batch, whose state is never batched."""
    if batch.randomness == "error":
        raise OpError(RANDOM_ERROR)
    if any(x.batched for x in inputs):
        raise OpError(f"vmap: the state of the generator of {op.name} differs between samples")
    if batch.randomness == "same":
        out = inputs[0].value._emit(op, tuple(x.value for x in inputs), attrs)
        return _wrap(batch, out, False)
    if "shape" in attrs:
        wide = attrs | {"shape": (batch.size, *attrs["shape"])}
        values, state = inputs[0].value._emit(op, tuple(x.value for x in inputs), wide)
        return BatchValue(batch, values, True), BatchValue(batch, state, False)
    state = inputs[0].value
    rows = []
    for _ in range(_static(batch, op)):
        values, state = state._emit(op, (state,), attrs)
        rows.append(reshape(values, (1, *values.type.shape)))
    return (
        BatchValue(batch, ops.concat(*rows, dim=0), True), BatchValue(batch, state, False)
    )


def one_by_one(batch: Batch, op: Op, inputs: Sequence[BatchValue], attrs: Attrs) -> Any:
    """The operator on each sample by itself, the results stacked."""
    columns: list[list[Any]] = []
    several = False
    for i in range(_static(batch, op)):
        samples = tuple(batch.sample(x, i) for x in inputs)
        out = samples[0]._emit(op, samples, attrs)
        several = isinstance(out, tuple)
        row = out if several else (out,)
        columns = columns or [[] for _ in row]
        for column, value in zip(columns, row, strict=True):
            column.append(reshape(value, (1, *value.type.shape)))
    if not columns:
        raise OpError(f"vmap: there is no batching rule for {op.name} on an empty batch")
    stacked = tuple(ops.concat(*column, dim=0) for column in columns)
    return _wrap(batch, stacked if several else stacked[0], True)


def _static(batch: Batch, op: Op) -> int:
    if not isinstance(batch.size, int):
        raise OpError(f"vmap: there is no batching rule for {op.name} on a batch of unknown size")
    return batch.size


# --- whole graphs ------------------------------------------------------------------------------


def run_graph(
    graph: Graph, inputs: Sequence[Any], like: Any, dims: Mapping[str, int] | None = None
) -> list[Any]:
    """The outputs of a Graph, run operator by operator on values of any kind.

    `like` is any value of their world: constants are made in it. `dims`: the values of named
    dims, where the attributes are to hold numbers.
    """
    values: dict[Node, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        if node in values:
            continue
        if node.op.name == "get":
            out = values[node.inputs[0]][node.attrs["index"]]
        else:
            attrs: Attrs = resolve_attrs(node.attrs, dims) if dims else dict(node.attrs)
            if node.graphs:
                attrs["graphs"] = node.graphs
            out = like._emit(node.op, tuple(values[x] for x in node.inputs), attrs)
        values[node] = out
    return [values[node] for node in graph.outputs]


def batch_graph(
    graph: Graph, batch: Batch, batched: Sequence[bool], force: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """A Graph over whole batches, and which outputs are batched (those in `force` at least)."""
    builder = Builder(graph.env)
    inputs: list[BatchValue] = []
    like: Any = Expr(builder, builder.emit(get_op("const"), value=Constant(np.zeros(()))))
    inner = Batch(batch.size, like, batch.randomness)
    for node, is_batched in zip(graph.inputs, batched, strict=True):
        type_ = node.tensor_type
        wide = type_.with_shape((batch.size, *type_.shape)) if is_batched else type_
        inputs.append(BatchValue(inner, Expr(builder, builder.input(wide)), is_batched))
    outputs = run_graph(graph, inputs, BatchValue(inner, like, False))
    if force is not None:
        outputs = [
            BatchValue(inner, inner.full(x), True) if want else x
            for x, want in zip(outputs, force, strict=True)
        ]
    built = builder.build([x.value.node for x in outputs], graph.name)
    return built, [x.batched for x in outputs]


def move_dim(x: Any, source: int, target: int) -> Any:
    """`x` with dimension `source` at `target`."""
    order = [d for d in range(len(x.type.shape)) if d != source]
    order.insert(target, source)
    return permute(x, order)


def rules(table: Mapping[str, Rule]) -> None:
    """Add rules by operator name."""
    RULES.update(table)
