"""From a list of samples to a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ...frontend import functions as T
from ...frontend.tensor import Tensor


def _is_text(array: np.ndarray) -> bool:
    return array.dtype.kind in "SUO"


def default_convert(data: Any) -> Any:
    """NumPy arrays and scalars inside containers become tensors; the rest stays."""
    if isinstance(data, (Tensor, str, bytes)):
        return data
    if isinstance(data, np.ndarray):
        return data if _is_text(data) else T.as_tensor(data)
    if isinstance(data, np.generic):
        return T.as_tensor(data)
    if isinstance(data, Mapping):
        return _mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[default_convert(item) for item in data])
    if isinstance(data, Sequence):
        return _sequence(data, [default_convert(item) for item in data])
    return data


def default_collate(batch: Any) -> Any:
    """Stack samples: tensors, arrays and numbers become tensors with a new first dim, containers
    stay containers of batches, strings stay lists. Raises TypeError for other kinds."""
    first = batch[0]
    make = _BY_TYPE.get(type(first)) or next(
        (make for kind, make in _BY_TYPE.items() if isinstance(first, kind)), None
    )
    if make is not None:
        return make(batch)
    if isinstance(first, Mapping):
        return _mapping(
            first, {key: default_collate([sample[key] for sample in batch]) for key in first}
        )
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*[default_collate(column) for column in _columns(batch)])
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return _sequence(first, [default_collate(column) for column in _columns(batch)])
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first)}"
    )


def _columns(batch: Any) -> list[tuple[Any, ...]]:
    return list(zip(*batch, strict=False))


def _mapping(like: Any, items: dict[Any, Any]) -> Any:
    """A mapping of the kind of `like`, whose other attributes a mutable one keeps."""
    try:
        if isinstance(like, MutableMapping):
            made = copy.copy(like)
            made.update(items)
            return made
        return type(like)(items)
    except TypeError:
        return items


def _sequence(like: Any, items: list[Any]) -> Any:
    """A sequence of the kind of `like`; a tuple becomes a list, as in torch."""
    if isinstance(like, tuple):
        return items
    try:
        if isinstance(like, MutableSequence):
            made = copy.copy(like)
            for i, item in enumerate(items):
                made[i] = item
            return made
        return type(like)(items)
    except TypeError:
        return items


def _arrays(batch: Any) -> Tensor:
    if _is_text(batch[0]):
        raise TypeError(
            "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
            f"found {batch[0].dtype}"
        )
    stacked: Tensor = T.stack([T.as_tensor(array) for array in batch], 0)
    return stacked


def _stacked(batch: Any) -> Tensor:
    if batch[0].layout is not T.strided:
        raise RuntimeError(
            "Batches of sparse tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    return T.stack(list(batch), 0)


def _floats(batch: Any) -> Tensor:
    return T.tensor(list(batch), dtype=T.float64)


_BY_TYPE: dict[Any, Callable[[Any], Any]] = {
    Tensor: _stacked,
    np.ndarray: _arrays,
    np.bool_: lambda batch: T.as_tensor(np.array(batch)),
    np.number: lambda batch: T.as_tensor(np.array(batch)),
    bool: lambda batch: T.tensor(list(batch)),
    float: _floats,
    int: lambda batch: T.tensor(list(batch)),
    str: lambda batch: batch,
    bytes: lambda batch: batch,
}
