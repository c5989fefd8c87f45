"""Sums, products with numbers, and functions of the elements that keep 0; of operands one of which
is sparse. Names and arguments are those of graphc.ir's operators, of which eager mode asks for
these (tensor.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..frontend import functions as T
from ..frontend.dispatch import apply
from ..frontend.errors import located
from ..frontend.layouts import sparse_coo
from ..frontend.tensor import Tensor, from_array
from ..ir import ops
from ..ir.dtypes import DType
from . import products
from .conversions import (
    coalesced,
    is_sparse,
    permuted,
    reshaped,
    selected,
    sliced,
    summed,
    to_compressed,
    to_coo,
)
from .patterns import BLOCKED, Compressed, Pattern
from .tensor import SparseTensor, entries, sparse


def with_entries(x: SparseTensor, function: Callable[[Tensor], Tensor]) -> SparseTensor:
    """The same places with a function of the entries."""
    return sparse(x._graphc_pattern, function(entries(x)))


def as_before(found: Tensor, *operands: Any) -> Tensor:
    """A result in the layout of the first sparse operand."""
    kind = next(x for x in operands if isinstance(x, SparseTensor))
    pattern = kind._graphc_pattern
    if not isinstance(found, SparseTensor) or isinstance(pattern, Pattern) or found.ndim != 2:
        return found
    return to_compressed(found, pattern.layout, pattern.block)


def _same_size(name: str, a: Tensor, b: Tensor) -> None:
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(located(
            f"{name}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != "
            f"{list(b.shape)}"
        ))


# --- two operands --------------------------------------------------------------------------------


def add(a: Tensor, b: Tensor) -> Tensor:
    """Sparse and sparse is sparse, dense and sparse dense."""
    if isinstance(a, SparseTensor) and not is_sparse(b):
        if a.layout is not sparse_coo and tuple(a.shape) == tuple(b.shape):
            return add(b, a)
        raise RuntimeError(located(
            "add(sparse, dense) is not supported. Use add(dense, sparse) instead."
        ))
    _same_size("add", a, b)
    assert isinstance(b, SparseTensor)
    other = to_coo(b)
    pattern: Pattern = other._graphc_pattern
    if not isinstance(a, SparseTensor):
        rows = a.reshape(pattern.places, *pattern.dense_size)
        places = from_array(pattern.keys())
        total: Tensor = T.index_add(rows, 0, places, entries(other))
        return total.reshape(pattern.size)
    first = to_coo(a)
    own: Pattern = first._graphc_pattern
    if own.indices is pattern.indices and not own.coalesced ^ pattern.coalesced:
        return as_before(sparse(own, entries(first) + entries(other)), a)
    if own.sparse_dim != pattern.sparse_dim:
        raise RuntimeError(located(
            "add: Expected tensors with the same number of sparse dims, got "
            f"{own.sparse_dim} and {pattern.sparse_dim}"
        ))
    both = Pattern.at(np.concatenate([own.array, pattern.array], 1), own.size, False)
    found = sparse(both, T.cat([entries(first), entries(other)]))
    if own.coalesced and pattern.coalesced:
        found = coalesced(found)
    return as_before(found, a)


def sub(a: Tensor, b: Tensor) -> Tensor:
    """As add."""
    return add(a, -b)


def mul(a: Tensor, b: Tensor) -> Tensor:
    """Sparse, if any operand is."""
    if not isinstance(a, SparseTensor):
        a, b = b, a
    assert isinstance(a, SparseTensor)
    if not isinstance(b, SparseTensor):
        if b.ndim == 0:
            return with_entries(a, lambda values: values * b)
        return as_before(_times_dense(to_coo(a), b), a)
    if b.ndim == 0 or a.ndim == 0:
        whole, number = (a, b) if b.ndim == 0 else (b, a)
        return with_entries(whole, lambda values: values * number.to_dense())
    _same_size("mul", a, b)
    if a._graphc_pattern is b._graphc_pattern and (
        a._graphc_pattern.coalesced and not isinstance(a._graphc_pattern, Compressed)
    ):
        return with_entries(a, lambda values: values * entries(b))
    first, other = coalesced(a), coalesced(b)
    own, its = first._graphc_pattern, other._graphc_pattern
    if own.sparse_dim != its.sparse_dim:
        raise RuntimeError(located(
            f"mul: tensors with {own.sparse_dim} and {its.sparse_dim} sparse dims. "
            "Cure: x.to_dense()"
        ))
    keys, at, its_at = np.intersect1d(
        own.keys(), its.keys(), assume_unique=True, return_indices=True
    )
    values = entries(first).index_select(0, from_array(at)) * entries(other).index_select(
        0, from_array(its_at)
    )
    return as_before(sparse(Pattern.of_keys(keys, own.size, own.sparse_dim, True), values), a)


def _times_dense(x: SparseTensor, dense: Tensor) -> Tensor:
    pattern: Pattern = x._graphc_pattern
    try:
        spread = dense.expand(pattern.size)
    except RuntimeError:
        raise RuntimeError(located(
            f"mul(sparse, dense): the shape {list(dense.shape)} does not spread to that of the "
            f"sparse tensor, {list(pattern.size)}"
        )) from None
    at = spread[tuple([from_array(row.copy()) for row in pattern.array])]
    if not pattern.sparse_dim:
        at = spread.expand(pattern.count, *pattern.dense_size)
    return sparse(pattern, entries(x) * at)


def _by_number(name: str) -> Callable[..., Tensor]:
    """An operator whose second operand is one number."""
    op = getattr(ops, name)

    def rule(a: Tensor, b: Tensor) -> Tensor:
        if not isinstance(a, SparseTensor) or is_sparse(b) or b.ndim:
            raise RuntimeError(located(
                "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
                f"{list(b.shape)} for divisor)"
            ))
        x = a if name == "div" else _coalesced_alike(a)
        number: Tensor = b
        return with_entries(x, lambda values: apply(op, values, number))

    return rule


def power(a: Tensor, b: Tensor) -> Tensor:
    """To a power that is a number, and not 0."""
    if not isinstance(a, SparseTensor) or is_sparse(b) or b.ndim:
        raise RuntimeError(located("pow of sparse tensors takes a number as its exponent"))
    if b.item() <= 0:
        raise RuntimeError(located(
            "cannot raise to zeroth power on sparse tensor; it would make the result tensor dense"
            if b.item() == 0 else
            "a negative power of the elements that are 0 is infinite. Cure: x.to_dense()"
        ))
    return with_entries(_coalesced_alike(a), lambda values: apply(ops.pow, values, b))


def _coalesced_alike(x: SparseTensor) -> SparseTensor:
    """With one entry for each place, in its layout."""
    return x if x._graphc_pattern.coalesced else coalesced(x)


# --- one operand ---------------------------------------------------------------------------------


def _keeping_zero(name: str) -> Callable[..., Tensor]:
    op = getattr(ops, name)

    def rule(x: SparseTensor, **attrs: Any) -> Tensor:
        return with_entries(_coalesced_alike(x), lambda values: apply(op, values, **attrs))

    return rule


def neg(x: SparseTensor) -> Tensor:
    """Entry by entry, wherever they are."""
    return with_entries(x, lambda values: -values)


def conj(x: SparseTensor) -> Tensor:
    """Entry by entry, wherever they are."""
    return with_entries(x, lambda values: apply(ops.conj, values))


def cast(x: SparseTensor, dtype: DType) -> Tensor:
    """Entry by entry, as torch: of a bool that may be another value than that of their sum."""
    return with_entries(x, lambda values: apply(ops.cast, values, dtype=dtype))


def permute(x: SparseTensor, dims: tuple[int, ...]) -> Tensor:
    """A compressed matrix's transpose is compressed the other way."""
    pattern = x._graphc_pattern
    if isinstance(pattern, Pattern) or dims == (0, 1):
        return permuted(x, dims)
    turned = pattern.turned()
    if pattern.layout in BLOCKED:
        return sparse(turned, entries(x).transpose(1, 2))
    return sparse(turned, entries(x))


def total(x: SparseTensor, dims: tuple[int, ...], keepdim: bool = False) -> Tensor:
    """Over all dims, or all that the places name, dense; else sparse and coalesced."""
    coo = to_coo(x)
    pattern: Pattern = coo._graphc_pattern
    n, rank = pattern.sparse_dim, len(pattern.size)
    values = entries(coo)
    inner = [dim - n + 1 for dim in dims if dim >= n]
    if inner:
        values = values.sum(inner, keepdim=keepdim, dtype=values.dtype)
    kept = [dim for dim in range(n) if dim not in dims]
    if not kept:
        dense: Tensor = values.sum(0, dtype=values.dtype)
        if keepdim:
            shape = [1 if dim in dims else pattern.size[dim] for dim in range(rank)]
            return dense.reshape(shape)
        return dense
    if keepdim:
        places = pattern.array.copy()
        places[[dim for dim in dims if dim < n]] = 0
        size = tuple([1 if dim in dims else pattern.size[dim] for dim in range(rank)])
    else:
        places = pattern.array[kept]
        size = tuple([pattern.size[dim] for dim in range(rank) if dim not in dims])
    ordered = len(kept) == n and pattern.coalesced
    return as_before(coalesced(sparse(Pattern.at(places, size, ordered), values)), x)


def index(x: Tensor, *indices: Tensor, dim: int) -> Tensor:
    """One vector of positions of one dim."""
    if not isinstance(x, SparseTensor) or len(indices) != 1 or indices[0].ndim != 1:
        raise NotImplementedError(located(
            "graphc indexes sparse tensors by numbers, slices and one vector of positions. "
            "Cure: x.to_dense()"
        ))
    return as_before(selected(x, dim, indices[0]), x)


def part(x: SparseTensor, starts: Any, stops: Any, steps: Any) -> Tensor:
    """A slice of each dim."""
    return as_before(sliced(x, starts, stops, steps), x)


def absolute_of_complex(x: SparseTensor) -> Tensor:
    """|x|, of coalesced entries."""
    return with_entries(_coalesced_alike(x), lambda values: apply(ops.complex_abs, values))


OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: _keeping_zero(name) for name in """
        abs sign square relu expm1 log1p sqrt sin tan asin atan sinh tanh asinh atanh erf erfinv
        floor ceil round trunc isnan isinf complex_sign
    """.split()},
    "add": add, "sub": sub, "mul": mul, "div": _by_number("div"), "pow": power,
    "floor_divide": _by_number("floor_divide"), "trunc_divide": _by_number("trunc_divide"),
    "neg": neg, "conj": conj, "cast": cast, "permute": permute, "sum": total, "index": index,
    "slice": part, "complex_abs": absolute_of_complex,
    "reshape": lambda x, shape: reshaped(x, tuple(shape)),
    "dot_general": products.dot_general,
}


# --- sums and softmax of torch.sparse -------------------------------------------------------------


def sparse_sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all, or over dims: sparse where dims are left that the places name."""
    x: Any = input if dtype is None else input.to(dtype)
    if dim is None:
        return entries(x).sum()
    return x.sum(dim)


def softmax(x: SparseTensor, dim: int, logarithm: bool) -> SparseTensor:
    """Over the entries along a dim: what is no entry counts as minus infinity."""
    x = coalesced(x)
    pattern: Pattern = x._graphc_pattern
    dim = dim % len(pattern.size)
    values = entries(x)
    if dim >= pattern.sparse_dim:
        inner = dim - pattern.sparse_dim + 1
        found = T.log_softmax(values, inner) if logarithm else T.softmax(values, inner)
        return sparse(pattern, found)
    others = [d for d in range(pattern.sparse_dim) if d != dim]
    places = pattern.array[others]
    rest = Pattern.at(places, tuple([pattern.size[d] for d in others]), False)
    known, group = np.unique(rest.keys(), return_inverse=True)
    which = from_array(group.reshape(-1))
    shape = (known.size, *values.shape[1:])
    spread = which.reshape(-1, *[1] * (values.ndim - 1)).expand(values.shape)
    low = T.full(shape, float("-inf"), dtype=values.dtype)
    highest = low.scatter_reduce(0, spread, values.detach(), "amax")
    shifted = values - highest.index_select(0, which)
    powers = shifted.exp()
    sums = summed(powers, group.reshape(-1), known.size)
    if logarithm:
        return sparse(pattern, shifted - sums.log().index_select(0, which))
    return sparse(pattern, powers / sums.index_select(0, which))
