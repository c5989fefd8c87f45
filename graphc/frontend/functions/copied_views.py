"""The functions of views as copies (torch.*_copy), unsafe_split and constant_pad_nd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir import ops
from graphc.ir.dtypes import DType

from .. import promote
from ..dispatch import apply
from ..errors import located
from ..history import requires_grad
from ..numbers import plain_size
from ..ownership import own, owns_result
from ..tensor import Tensor, current
from . import complex_numbers, parts, repetition, shape, strided
from .arguments import fitting, wrap_dim, write_out
from .arguments import shape as sizes_of


def slice_of(
    input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """The view input[..., start:end:step, ...] along `dim`."""
    index = (slice(None),) * wrap_dim(dim, input.ndim)
    result: Tensor = input[(*index, slice(start, end, step))]
    return result


def _narrow(input: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    if dim >= input.ndim:  # torch's error is an IndexError for narrow(), and this here
        raise RuntimeError(located(
            f"Expected dim < {input.ndim} to be true, but got false: dim is {dim}"
        ))
    return parts.narrow(input, dim, start, length)


def _viewed(input: Tensor, *size: Any, dtype: Any = None) -> Tensor:
    """view(), or reshape() where that copies."""
    sizes = size or (dtype,)
    if isinstance(sizes[0], DType):
        return shape.view(input, *sizes)
    return shape.reshape(input, *sizes)


_VIEWS: dict[str, Callable[..., Any]] = {
    "alias": lambda input: input, "detach": lambda input: input.detach(), "slice": slice_of,
    "as_strided": strided.as_strided, "diagonal": strided.diagonal, "unfold": strided.unfold,
    "expand": repetition.expand, "narrow": _narrow, "select": parts.select,
    "split": parts.split, "split_with_sizes": parts.split, "unbind": parts.unbind,
    "permute": shape.permute, "squeeze": shape.squeeze, "t": shape.t,
    "transpose": shape.transpose, "unsqueeze": shape.unsqueeze, "view": _viewed,
    "view_as_complex": complex_numbers.view_as_complex,
    "view_as_real": complex_numbers.view_as_real,
}


def _copied(name: str, view: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        seen = view(*args, **kwargs)
        if isinstance(seen, Tensor):
            copied = seen.clone()
            return copied if out is None else write_out(out, copied)
        pieces = tuple(piece.clone() for piece in seen)
        if out is None:
            return pieces
        for target, piece in zip(out, pieces, strict=True):
            write_out(target, piece)
        return None

    function.__name__ = f"{name}_copy"
    function.__doc__ = f"{name}(), with memory of its own."
    return function


FUNCTIONS = {f"{name}_copy": _copied(name, view) for name, view in _VIEWS.items()}


def _unlinked(x: Tensor, pieces: Any) -> tuple[Tensor, ...]:
    """Pieces that are no views of `x`. Of what a recording was given they have to be, for their
    history, if it gives them back."""
    of = current(x)
    given = of._graphc_trace is not None and of._graphc_storage.root.source is not None
    if given and requires_grad(x):
        return tuple(pieces)
    return tuple(own(piece, ()) for piece in pieces)


def unsafe_split(tensor: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """split() whose pieces autograd takes for tensors of their own."""
    return _unlinked(tensor, parts.split(tensor, split_size, dim))


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """chunk() whose pieces autograd takes for tensors of their own."""
    return _unlinked(input, parts.chunk(input, chunks, dim))


@owns_result
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """Pad by (low, high) pairs from the last dim back with one value; negative ones cut."""
    amounts = [int(plain_size(n)) for n in pad]
    if len(amounts) % 2:
        raise RuntimeError(located(
            f"Length of pad must be even but instead it equals {len(amounts)}"
        ))
    if len(amounts) > 2 * input.ndim:
        raise RuntimeError(located(
            "Length of pad should be no more than twice the number of dimensions of the input. "
            f"Pad length is {len(amounts)} while the input has {input.ndim} dimensions."
        ))
    x = input
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, (before, after) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        dim = x.ndim - 1 - i
        size = sizes_of(x)[dim]
        if isinstance(size, int) and size + before + after < 0:
            raise RuntimeError(located(
                f"The input size {size}, plus negative padding {before} and {after} resulted in a "
                "negative output size, which is invalid. Check dimension "
                f"{dim} of your input."
            ))
        x = parts.slice_dim(x, dim, max(-before, 0), size - max(-after, 0))
        low[dim], high[dim] = max(before, 0), max(after, 0)
    filler = promote.operand(fitting(value, x.dtype), x.dtype).item()
    result: Tensor = apply(
        ops.pad, x, low=tuple(low), high=tuple(high), interior=(0,) * x.ndim, value=filler
    )
    return result
