"""The sparse Tensor: entries and where they are, and the history that leads through both.

What it computes is done to its entries, a dense tensor, whose history goes on from the sparse
tensor's own: `entries(x)` has it, and `sparse(pattern, values)` gives it back.

    entries(x) -> dense operators -> sparse(pattern, ...)

A gradient of a sparse tensor is a sparse tensor. What knows dense memory alone asks for
`_graphc_array`, which raises NotDense: eager mode's operators (`frontend/eager.py`) and public
functions (`frontend/tensors_only.py`) then come to the tables in `methods.py`. Under a trace all of
it ends a segment and happens eagerly, but for products with dense matrices, which segments record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ..frontend.context import Suspended, local
from ..frontend.device import CPU
from ..frontend.device import device as device_type
from ..frontend.errors import located
from ..frontend.function import Function
from ..frontend.history import requires_grad
from ..frontend.layouts import NotDense
from ..frontend.numbers import Size
from ..frontend.overriding import disabled
from ..frontend.segment_trace import SegmentTrace
from ..frontend.subtrace import SubTrace
from ..frontend.tensor import Tensor, alias
from ..frontend.tree import LEAVES
from ..ir.dtypes import DType, from_numpy
from ..ir.memory import DeviceArray
from ..ir.types import TensorType

F = TypeVar("F", bound=Callable[..., Any])

_WHAT = "a sparse tensor"
_CURE = "work with x.indices() and x.values() inside it, or leave out fullgraph=True"


def outside(function: F) -> F:
    """A function that looks at sparse tensors, or makes them: never recorded."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        trace = local.trace
        if trace is None:
            return function(*args, **kwargs)
        trace.end_segment(_WHAT, _CURE)
        with trace.suspended():
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def met() -> None:
    """A sparse tensor's state was asked for, which no guard looks at: not in one graph."""
    trace = local.trace
    if isinstance(trace, SegmentTrace) and trace.whole:
        trace.end_segment(_WHAT, _CURE)


def within(function: F) -> F:
    """A function that segments record, whose Python runs at each call; not in one graph."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        met()
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def relabelled(function: F) -> F:
    """A function of a sparse tensor that says anew where entries are, and reads none of them: no
    segment is over for it."""
    otherwise = outside(function)

    @functools.wraps(function)
    def call(x: SparseTensor, *args: Any, **kwargs: Any) -> Any:
        met()
        if local.trace is None or not records(x):
            return otherwise(x, *args, **kwargs)
        with Suspended():
            return function(x, *args, **kwargs)

    return call  # type: ignore[return-value]


def records(x: SparseTensor) -> bool:
    """Whether what is done to the entries of `x` may be recorded: in a segment, or in a part (of
    vmap) outside of whole graphs, where nobody has to guard what `x` is."""
    if local.grad and (x._graphc_node is not None or x._graphc_requires_grad):
        return False
    trace = local.trace
    while isinstance(trace, SubTrace):
        trace = trace.parent
    if trace is None:
        return True
    return isinstance(trace, SegmentTrace) and not trace.whole and not trace.place


class SparseTensor(Tensor):
    """A tensor of which only some elements, its entries, are told; the others are 0."""

    _graphc_pattern: Any  # Pattern or Compressed
    _graphc_values: Tensor  # the entries, without history

    # as torch.Tensor's; operators are found by the tables of methods.py
    _graphc_functions: dict[str, Callable[..., Any]]
    _graphc_operators: dict[str, Callable[..., Any]]
    __torch_function__ = disabled  # what it computes is no matter of the class

    def _graphc_apart(self) -> SparseTensor:
        """The same entries in memory of their own, without history: a gradient for the user."""
        return bare(self._graphc_pattern, self._graphc_values.clone())

    @property
    def _graphc_array(self) -> NoReturn:  # type: ignore[override]
        raise NotDense(self)

    @property
    def _graphc_storage(self) -> Any:
        return self._graphc_values._graphc_storage

    @property
    def shape(self) -> Size:
        met()
        return Size(self._graphc_pattern.size)

    @property
    def dtype(self) -> DType:
        met()
        return from_numpy(self._graphc_values._graphc_array.dtype)

    @property
    def device(self) -> device_type:
        return CPU

    @property
    def ndim(self) -> int:
        met()
        return len(self._graphc_pattern.size)

    @property
    def layout(self) -> Any:
        """Which of the sparse layouts it has."""
        return self._graphc_pattern.layout

    @property
    def _graphc_type(self) -> TensorType:
        met()
        return TensorType(
            from_numpy(self._graphc_values._graphc_array.dtype), self._graphc_pattern.size
        )


LEAVES.add(SparseTensor)


def bare(pattern: Any, values: Tensor) -> SparseTensor:
    """A leaf of these entries, on their memory."""
    if isinstance(values._graphc_array, DeviceArray):
        raise NotImplementedError(located(
            f"graphc has sparse tensors on the CPU alone, these entries lie on {values.device}. "
            "Cure: x.cpu()"
        ))
    result: SparseTensor = object.__new__(SparseTensor)
    result._graphc_pattern = pattern
    result._graphc_values = alias(values)
    return result


def sparse(pattern: Any, values: Tensor) -> SparseTensor:
    """The sparse tensor of entries, with their history."""
    if local.grad and requires_grad(values):
        found: SparseTensor = SparseConstructor.apply(values, pattern)
        return found
    return bare(pattern, values)


def entries(x: SparseTensor) -> Tensor:
    """The entries, with a history that leads to the sparse tensor."""
    if local.grad and (x._graphc_node is not None or x._graphc_requires_grad):
        found: Tensor = Values.apply(x)
        return found
    return alias(x._graphc_values)


class Values(Function):
    """From a sparse tensor to its entries. A gradient of them is one at the same places."""

    @staticmethod
    def forward(ctx: Any, x: SparseTensor) -> Tensor:
        ctx.pattern = x._graphc_pattern
        return alias(x._graphc_values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> SparseTensor:
        return sparse(ctx.pattern, gradient)


class SparseConstructor(Function):
    """From entries to a sparse tensor; their gradients are its gradient at their places."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, pattern: Any) -> SparseTensor:
        ctx.pattern = pattern
        return bare(pattern, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return SparseTensor._graphc_functions["entries_at"](gradient, ctx.pattern), None


def assign(target: SparseTensor, source: SparseTensor) -> SparseTensor:
    """Make a tensor what another one is: what its in-place methods do. Raises RuntimeError on a
    leaf that requires a gradient."""
    if local.grad and target._graphc_requires_grad and target._graphc_node is None:
        raise RuntimeError(located(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Cure: use an out-of-place operation, or write under torch.no_grad()"
        ))
    target._graphc_storage.version += 1  # who has saved it is to notice
    target._graphc_pattern = source._graphc_pattern
    target._graphc_values = source._graphc_values
    target._graphc_node, target._graphc_output = source._graphc_node, source._graphc_output
    return target
