"""`summary(x)`: what a tensor, or each of many, looks like: types, places, statistics, some values.

A large tensor is looked at in places: of one with more than `SAMPLE` elements, each dim is gone
along in even strides until so many are left, and it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from graphc.frontend.layouts import sparse_bsr, sparse_coo, sparse_csr, strided
from graphc.frontend.tensor import Tensor, held
from graphc.inspect.page.fragment import shown
from graphc.inspect.page.markup import in_bytes, quantity, row, table, tag
from graphc.inspect.units import bytes_text
from graphc.ir.memory import Buffer, on_host
from graphc.nn.modules.module import Module

SAMPLE = 65_536  # elements that are looked at, about
_VALUES = 3  # of each end


class TensorSummary(NamedTuple):
    """One tensor. `stored`: how many elements are in memory, of a sparse tensor those that are
    not left out; `looked_at`: of how many of them the statistics are, which are None without any.
    Of bools the mean is the share that is true. `wrong`: how many are NaN or infinite. `values`:
    the first and the last."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    bytes: int
    requires_grad: bool
    stored: int
    looked_at: int
    least: float | None
    most: float | None
    mean: float | None
    wrong: int
    values: str

    @property
    def sampled(self) -> bool:
        """Whether the statistics are of some elements alone."""
        return self.looked_at < self.stored

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        grad = ", requires_grad" if self.requires_grad else ""
        text = (
            f"{name}{self.dtype}{list(self.shape)} on {self.device}, {bytes_text(self.bytes)}{grad}"
        )
        if self.least is not None:
            text += f"; {self.least:.4g} to {self.most:.4g}, mean {self.mean:.4g}"
        if self.wrong:
            text += f"; {self.wrong:,} NaN or infinite"
        if self.sampled and self.looked_at:
            text += f" (of {self.looked_at:,} of {self.stored:,} elements, evenly spaced)"
        return f"{text}; {self.values}"


class Summary:
    """Of one tensor or many. str() is a line for each, a notebook shows a table."""

    def __init__(self, tensors: list[TensorSummary]) -> None:
        self.tensors = tensors

    def __repr__(self) -> str:
        return "\n".join(map(str, self.tensors)) or "no tensors"

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> Iterator[TensorSummary]:
        return iter(self.tensors)

    def _repr_html_(self) -> str:
        titles = ["name", "dtype", "shape", "device", "bytes", "least", "most", "mean",
                  "NaN or infinite", "looked at", "values"]
        named = any(each.name for each in self.tensors)
        rows = [row(*_cells(each)[0 if named else 1 :]) for each in self.tensors]
        total = sum(each.bytes for each in self.tensors)
        count = len(self.tensors)
        caption = f"{count} tensor{'s' if count != 1 else ''}, {bytes_text(total)}"
        return shown(table(titles[0 if named else 1 :], rows, caption))


def summary(value: Any) -> Summary:
    """What a Tensor looks like, or each in containers of them (a list, a state_dict), or of a
    Module: dtype, shape, device, bytes, least, most and mean (of finite numbers), some values.

    Costs no more for large tensors than for those of `SAMPLE` elements; nothing is computed on
    the tape. Raises TypeError for what holds no tensors.
    """
    found = [_summary(name, tensor) for name, tensor in _named(value)]
    if not found and not isinstance(value, (Module, Mapping, list, tuple)):
        raise TypeError(
            f"summary() takes a Tensor, a Module, or containers of Tensors, got "
            f"{type(value).__name__}"
        )
    return Summary(found)


def _named(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its name: a key or a number; of one alone none."""
    if isinstance(value, Tensor):
        yield "", value
    elif isinstance(value, Module):
        yield from value.state_dict(keep_vars=True).items()
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _below(str(key), each)
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _below(str(number), each)


def _below(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, (Mapping, list, tuple)):
        for inner, tensor in _named(value):
            yield f"{name}.{inner}", tensor


def _summary(name: str, tensor: Tensor) -> TensorSummary:
    if tensor.layout is not strided:
        return _of_sparse(name, tensor)
    array = held(tensor, "graphc.summary()", "call it on what the compiled function returns")
    strides = _strides(tuple(array.shape))
    kind = str(tensor.device)
    values, looked_at = "no values", 0
    least = most = mean = None
    wrong = 0
    if kind != "meta":
        sample = np.asarray(on_host(array[tuple(slice(None, None, step) for step in strides)]))
        looked_at = sample.size
        least, most, mean, wrong = _statistics(sample)
        values = _few(array)
    return TensorSummary(
        name, tuple(array.shape), str(tensor.dtype).rpartition(".")[2], kind,
        math.prod(array.shape) * array.dtype.itemsize, tensor.requires_grad,
        math.prod(array.shape), looked_at, least, most, mean, wrong, values,
    )


def _of_sparse(name: str, tensor: Any) -> TensorSummary:
    """Of the values that are there; its bytes are theirs and those of their places."""
    coo = tensor.layout is sparse_coo
    values = tensor._values() if coo else tensor.values()
    by_rows = tensor.layout in (sparse_csr, sparse_bsr)
    names = ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices")
    places = [getattr(tensor, each)() for each in (("_indices",) if coo else names)]
    found = _summary(name, values)
    layout = str(tensor.layout).rpartition(".")[2]
    return found._replace(
        shape=tuple(tensor.shape), dtype=f"{found.dtype} {layout}",
        bytes=found.bytes + sum(place.nbytes for place in places),
        requires_grad=tensor.requires_grad, values=f"{found.stored:,} stored: {found.values}",
    )


def _strides(shape: tuple[int, ...]) -> list[int]:
    """Steps along each dim, the longest dims first, that leave SAMPLE elements or fewer."""
    steps = [1] * len(shape)
    left = list(shape)
    while math.prod(left) > SAMPLE:
        dim = max(range(len(left)), key=left.__getitem__)
        steps[dim] *= 2
        left[dim] = -(-shape[dim] // steps[dim])
    return steps


def _statistics(
    sample: np.ndarray[Any, Any]
) -> tuple[float | None, float | None, float | None, int]:
    """The least, the most and the mean of finite numbers; and how many are not finite."""
    if not sample.size:
        return None, None, None, 0
    if sample.dtype.kind == "c":
        finite = np.isfinite(sample)
        wrong = int(sample.size - np.count_nonzero(finite))
        return None, None, None, wrong
    numbers = sample.astype(np.float64)
    finite = np.isfinite(numbers)
    wrong = int(numbers.size - np.count_nonzero(finite))
    numbers = numbers[finite]
    if not numbers.size:
        return None, None, None, wrong
    # a mean of large numbers must not overflow
    scale = float(np.abs(numbers).max()) or 1.0
    return (
        float(numbers.min()), float(numbers.max()), float((numbers / scale).mean() * scale), wrong
    )


def _few(array: Buffer) -> str:
    """The first and the last values."""
    size = math.prod(array.shape)
    if not size:
        return "no elements"
    if size <= 2 * _VALUES:
        return f"[{', '.join(_at(array, place) for place in range(size))}]"
    ends = [_at(array, place) for place in (*range(_VALUES), *range(size - _VALUES, size))]
    return f"[{', '.join([*ends[:_VALUES], '…', *ends[_VALUES:]])}]"


def _at(array: Buffer, place: int) -> str:
    """The element of a number, counted row by row."""
    at = np.unravel_index(place, tuple(array.shape)) if array.shape else ()
    element = array[tuple(slice(int(i), int(i) + 1) for i in at)]
    return _said(np.asarray(on_host(element)).reshape(-1)[0])


def _said(value: Any) -> str:
    kind = np.dtype(type(value)).kind
    if kind in "biu":
        return str(bool(value) if kind == "b" else int(value))
    return f"{complex(value) if kind == 'c' else float(value):.4g}"


def _cells(each: TensorSummary) -> list[Any]:
    def number(value: float | None) -> Any:
        return tag("td", "" if value is None else quantity(value, f"{value:.4g}"), class_="number")

    looked = f"{each.looked_at:,} of {each.stored:,}" if each.sampled else "all"
    return [
        each.name, each.dtype + (", requires_grad" if each.requires_grad else ""),
        str(list(each.shape)), each.device, tag("td", in_bytes(each.bytes), class_="number"),
        number(each.least), number(each.most), number(each.mean),
        tag("td", f"{each.wrong:,}", class_="number"), looked, each.values,
    ]
