"""Sorting along one dimension: values, and the i64 index that each came from."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, register
from ..rounding import EXACT
from ..types import TensorType, TupleType, Type
from ._rules import ops, zeros
from ._types import Types, fail, require_dim


def _sort_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_dim("sort", attrs["dim"], x.rank)
    if x.dtype.is_complex:
        fail("Sort does not support complex dtypes on CPU")
    return TupleType((x, x.with_dtype(dtypes.i64)))


def _topk_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    dim, k = attrs["dim"], attrs["k"]
    require_dim("topk", dim, x.rank)
    if x.dtype.is_complex:
        fail("topk does not support complex dtypes on CPU")
    if (isinstance(k, int) and k < 0) or not env.at_most(k, x.shape[dim]):
        fail(f"selected index k out of range: k is {k}, dimension {dim} has size {x.shape[dim]}")
    shape = tuple(k if i == dim else size for i, size in enumerate(x.shape))
    return TupleType((TensorType(x.dtype, shape), TensorType(dtypes.i64, shape)))


def _selection_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int, **attrs: Any
) -> Any:
    # the indices are distinct; "add" says so to a backend in the way it runs in parallel
    return (ops.scatter(zeros(inputs[0]), outs[1], grads[0], dim=dim, reduce="add"),)


register(
    Op(
        "sort", "sort", _sort_type, _selection_vjp, arity=1, results=2,
        attrs=("dim", "descending", "stable"),
        cost=None, rounding=EXACT, takes_complex=False, in_its_order=True,
        doc="Sorted values and their indices; NaN counts as the largest.",
    )
)
register(
    Op(
        "topk", "sort", _topk_type, _selection_vjp, arity=1, results=2,
        attrs=("k", "dim", "largest"),
        cost=None, rounding=EXACT, takes_complex=False,
        doc="The k largest (or smallest) in order, and their indices; NaN counts as the largest.",
    )
)
