"""Where a compiled version finds its run-time values at each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...frontend.ahead import Ahead
from ...frontend.captured import (
    FlagWrite,
    GradRead,
    GradWrite,
    MadeInput,
    NumberInput,
    Rebind,
    TensorInput,
    TracedGraph,
)
from ...frontend.layouts import NotDense
from ...frontend.number_expr import NumberExpr, sources_of
from ...frontend.tensor import Tensor
from ...ir.dim import Dim, evaluate, is_variable
from ..capture.places import Place
from ..capture.streams import Draw
from .expected import bind
from .refused import ERRORS


class Stale(Exception):
    """A guard does not hold: this version does not fit the call. The text says which."""


def owner_of(tensor: Tensor | Place, index: int, arguments: list[Any]) -> Tensor:
    """What a tensor of the trace is in this call: an argument, what is in its place now (of those
    that each call renews), itself."""
    if index >= 0:
        given: Tensor = arguments[index]
        return given
    if not isinstance(tensor, Place):
        return tensor
    found = tensor.get()
    if not isinstance(found, Tensor):
        raise Stale(f"{tensor} is no tensor now")
    return found


def tensor_of(source: TensorInput, arguments: list[Any]) -> Tensor:
    """The tensor whose memory an input is, in this call."""
    assert source.tensor is not None or source.index >= 0
    tensor = owner_of(source.tensor, source.index, arguments)
    if source.kind == "grad":
        if tensor._grad is None:
            raise Stale("a .grad that was read is None now")
        gradient: Tensor = tensor._grad
        return gradient
    return tensor


def written_to(
    record: GradWrite | Rebind | FlagWrite | GradRead, arguments: list[Any]
) -> Tensor:
    """The tensor of this call whose `.grad`, `.data` or flag it is."""
    return owner_of(record.tensor, record.argument, arguments)


def array_of(source: TensorInput, tensor: Tensor) -> np.ndarray:
    """The memory of an input's tensor. Raises Stale for one that is sparse now."""
    try:
        return (
            tensor._graphc_storage.root.flat() if source.kind == "storage" else tensor._graphc_array
        )
    except NotDense as error:
        raise Stale(str(error)) from None


def number_array(
    source: NumberInput, numbers: dict[Any, Any], dims: dict[str, int]
) -> np.ndarray:
    """What Python computes for a number of the graph. Raises Stale where that is an error or does
    not fit: the trace of such a call knows which error."""
    try:
        return np.asarray(source.expression.evaluate(numbers, dims), source.type.dtype.numpy)
    except _ERRORS as error:
        raise Stale(f"a number cannot be computed: {error}") from None


def make_ahead(
    made: list[MadeInput], arrays: list[np.ndarray], dims: dict[str, int]
) -> None:
    """Put what Python makes of other inputs among the arrays, and note its sizes. Raises Stale
    where that is an error or does not fit."""
    found: dict[Ahead, tuple[np.ndarray, ...]] = {}
    for source in made:
        try:
            if source.ahead not in found:
                found[source.ahead] = source.ahead.now(arrays, dims)
        except ERRORS as error:
            raise Stale(f"{source.ahead!r} failed: {error}") from None
        array, type_ = found[source.ahead][source.part], source.type
        if array.dtype != type_.dtype.numpy or not _fits(array.shape, type_.shape, dims):
            raise Stale(f"{source.ahead!r} gave {array.dtype}{list(array.shape)}, was {type_}")
        arrays[source.number] = np.ascontiguousarray(array)


def _fits(have: tuple[int, ...], want: Sequence[Any], dims: dict[str, int]) -> bool:
    """bind(), where a size may be an expression of dims that are known."""
    sizes = [
        evaluate(size, dims) if isinstance(size, Dim) and not is_variable(size) else size
        for size in want
    ]
    return bind(have, tuple(sizes), dims)


def python_value(
    expression: NumberExpr, numbers: dict[Any, Any], dims: dict[str, int]
) -> Any:
    """What Python computes for a number or a text that the user gets. Raises Stale as above."""
    try:
        return expression.evaluate(numbers, dims)
    except _ERRORS as error:
        raise Stale(f"{expression.op} cannot be computed: {error}") from None


def drawn(draw: Draw, numbers: dict[Any, Any], dims: dict[str, int]) -> Any:
    """The next random number. Raises Stale as above."""
    try:
        return draw.now(numbers, dims)
    except _ERRORS as error:
        raise Stale(f"{draw!r} failed: {error}") from None


_ERRORS = (ArithmeticError, ValueError, LookupError)


def source_value(source: Any, was: float | int, arguments: list[Any]) -> Any:
    """The number now: an argument by position, or whatever the source fetches."""
    if type(source) is tuple:
        return arguments[source[1]]
    value = source.fetch()
    if type(value) is not type(was):
        raise Stale(f"{source!r} was a {type(was).__name__}")
    return value


def number_sources(
    traced: TracedGraph, said: list[NumberExpr], draws: list[Draw]
) -> list[tuple[Any, float | int]]:
    """The run-time numbers that guards, inputs, results (`said`) and draws read, with their values
    at the trace."""
    read = [guard.expression for guard in traced.numbers]
    read += [i.expression for i in traced.inputs if isinstance(i, NumberInput)]
    read += [*said, *(argument for draw in draws for argument in draw.arguments)]
    return list(sources_of(read).items())
