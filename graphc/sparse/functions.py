"""torch's functions of sparse tensors: `torch.mm(x, y)` comes to FUNCTIONS["mm"] where x has no
dense memory. What is not in this table is refused by its name."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

from ..frontend import functions as T
from ..frontend.errors import located
from ..frontend.functions import (
    conversion,
    gathering,
    linalg_basic,
    parts,
    pointwise,
    pointwise_composed,
    reduction,
    shape,
)
from ..frontend.functions.arguments import check_dtype
from ..frontend.layouts import sparse_coo
from ..frontend.tensor import Tensor
from . import arithmetic, conversions
from .arithmetic import with_entries
from .conversions import coalesced, entries_at, is_sparse
from .creation import check_place
from .patterns import Pattern
from .products import check_same
from .tensor import SparseTensor, bare, entries, outside, relabelled, sparse, within

Table = dict[str, Callable[..., Any]]


def clone(input: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    """A copy with entries and places of its own."""
    return sparse(own_places(input._graphc_pattern), entries(input).clone())


def own_places(pattern: Any) -> Any:
    """The same places in memory of their own."""
    found = copy.copy(pattern)
    for name in ("indices",) if isinstance(pattern, Pattern) else ("starts", "plain"):
        setattr(found, name, getattr(pattern, name).clone())
    return found


def detach(self: SparseTensor) -> SparseTensor:
    """A tensor of the same entries without history."""
    return bare(self._graphc_pattern, self._graphc_values)


def zeros_like(input: SparseTensor, **options: Any) -> SparseTensor:
    """No entries, with the shape, dtype and layout of `input`."""
    return without_entries(tuple(input.shape), input, options)


def without_entries(
    sizes: tuple[int, ...], like: SparseTensor, options: dict[str, Any]
) -> SparseTensor:
    """No entries, with the layout of `like`, and its dtype unless the options name one."""
    own = like._graphc_pattern
    dtype = check_dtype(options.get("dtype")) or like.dtype
    check_place(options.get("device"))
    dims = own.sparse_dim
    pattern = Pattern.at(T.zeros((dims, 0), dtype=T.int64)._graphc_array, sizes, own.coalesced)
    found = sparse(pattern, T.zeros((0, *sizes[dims:]), dtype=dtype))
    found = arithmetic.as_before(found, like)  # type: ignore[assignment]
    return found.requires_grad_() if options.get("requires_grad") else found  # type: ignore[return-value]


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * input + alpha * mat1 @ mat2; dense, if anything but the left factor is."""
    check_same(mat1, mat2)
    product = T.mm(mat1, mat2)
    scaled = product if alpha == 1 else product * alpha
    if is_sparse(scaled) and not is_sparse(input):
        scaled = scaled.to_dense()
    first = input if beta == 1 else input * beta
    return T.add(first, scaled)


def sspaddmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * input + alpha * mat1 @ mat2, sparse as input and mat1 are."""
    check_same(mat1, mat2)
    product = T.mm(mat1, mat2) * alpha
    return T.add(input * beta, product if is_sparse(product) else product.to_sparse())


def sparse_result(name: str) -> Callable[..., Tensor]:
    """hspmm, whose result is sparse."""

    def function(*args: Any, **kwargs: Any) -> Tensor:
        found = T.mm(*args, **kwargs)
        return found if is_sparse(found) else found.to_sparse()

    function.__name__ = name
    return function


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    found: Tensor = T.matmul(input, weight.t())
    return found if bias is None else found + bias


def norm(
    input: SparseTensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The norm of all elements together."""
    if dim is not None and tuple(dim if isinstance(dim, (tuple, list)) else (dim,)):
        raise NotImplementedError(located(
            "norm(dim=...) of sparse tensors: only the norm of all elements. Cure: x.to_dense()"
        ))
    found: Tensor = entries(coalesced(input)).reshape(-1).norm(2.0 if p == "fro" else p)
    return found if dtype is None else found.to(dtype)


def stack(tensors: Any, dim: int = 0) -> Tensor:
    """COO tensors along a new sparse dim."""
    given = list(tensors)
    return conversions.cat([T.unsqueeze(x, dim) for x in given], dim)


def item(input: SparseTensor) -> Any:
    """The only element as a Python number. Raises RuntimeError for other sizes."""
    count = input.numel()
    if count != 1:
        raise RuntimeError(located(
            f"a Tensor with {count} elements cannot be converted to Scalar"
        ))
    return conversions.to_dense(input).item()


def any_(input: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
    """Whether any element is not 0."""
    if args or kwargs:
        raise NotImplementedError(located(
            "any(dim) of sparse tensors: only of all elements. Cure: x.to_dense()"
        ))
    return entries(coalesced(input)).any()


# Their bodies ask for sizes and dtypes, and apply operators of OPERATORS: they serve as they stand.
_AS_WRITTEN = {
    pointwise: """
        abs absolute add asin arcsin asinh arcsinh atan arctan atanh arctanh ceil div divide erf
        erfinv expm1 floor floor_divide log1p mul multiply neg negative pow relu round sign sin sinh
        sqrt square sub subtract tan tanh true_divide trunc isnan isinf
    """,
    pointwise_composed: "deg2rad rad2deg positive",
    shape: "permute swapaxes swapdims t transpose unsqueeze squeeze moveaxis movedim",
    parts: "narrow select",
    gathering: "index_select",
    linalg_basic: "bmm matmul mm mv",
    reduction: "sum",
}


# which end no segment
GO_ON: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys("matmul mm mv __matmul__ __rmatmul__".split(), within),
    **dict.fromkeys("permute swapaxes swapdims t transpose".split(), relabelled),
}


def _as_written() -> Table:
    return {
        name: GO_ON.get(name, outside)(inspect.unwrap(getattr(module, name)))
        for module, names in _AS_WRITTEN.items() for name in names.split()
    }


FUNCTIONS: Table = {
    **_as_written(),
    **{
        name: outside(function) for name, function in {
            "clone": clone, "detach": detach, "zeros_like": zeros_like, "empty_like": zeros_like,
            "addmm": addmm, "saddmm": addmm,
            "smm": sparse_result("smm"),
            "hspmm": sparse_result("hspmm"), "sspaddmm": sspaddmm,
            "linear": linear, "norm": norm, "cat": conversions.cat, "concat": conversions.cat,
            "concatenate": conversions.cat, "stack": stack, "any": any_, "numel": conversion.numel,
            "narrow_copy": inspect.unwrap(parts.narrow),
            "is_floating_point": conversion.is_floating_point, "is_signed": conversion.is_signed,
            "is_complex": lambda input: input.dtype.is_complex,
            "to_dense": conversions.to_dense, "sparse_mask": conversions.sparse_mask,
            "entries_at": entries_at, "conj": lambda input: (
                arithmetic.conj(input) if input.dtype.is_complex else input
            ),
            "isposinf": lambda input: with_entries(coalesced(input), T.isposinf),
            "isneginf": lambda input: with_entries(coalesced(input), T.isneginf),
            "signbit": lambda input: with_entries(coalesced(input), T.signbit),
            "sgn": lambda input: with_entries(coalesced(input), T.sgn),
            "item": item,
        }.items()
    },
    **dict.fromkeys(("spmm", "dsmm"), within(inspect.unwrap(linalg_basic.mm))),
}


def refusal(name: str, x: Any) -> NotImplementedError:
    """The error for a function of this name that a sparse tensor does not have."""
    backend = "SparseCPU" if x.layout is sparse_coo else "SparseCsrCPU"
    return NotImplementedError(located(
        f"Could not run 'aten::{name}' with arguments from the '{backend}' backend: graphc does "
        f"not have {name}() of tensors of the layout {x.layout}. Cure: x.to_dense()"
    ))


# torch.smm and the like
spmm = dsmm = T.mm
saddmm, smm = FUNCTIONS["saddmm"], FUNCTIONS["smm"]
hspmm, sspaddmm = FUNCTIONS["hspmm"], FUNCTIONS["sspaddmm"]
