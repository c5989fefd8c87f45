"""From a list of samples to a batch."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...frontend import functions as T
from ...frontend.tensor import Tensor

Collates: TypeAlias = dict[Any, Callable[..., Any]]
np_str_obj_array_pattern = re.compile(r"[SaUO]")  # the dtypes of arrays that are no numbers


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
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Any, *, collate_fn_map: Collates | None = None) -> Any:
    """default_collate(), where other functions make the batches of samples that are no containers.
    They get the samples, and `collate_fn_map`, which has them by type."""
    first, known = batch[0], collate_fn_map or {}
    make = known.get(type(first)) or next(
        (make for kind, make in known.items() if isinstance(first, kind)), None
    )
    if make is not None:
        return make(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _mapping(
            first, {
                key: collate([sample[key] for sample in batch], collate_fn_map=known)
                for key in first
            }
        )
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*[collate(column, collate_fn_map=known) for column in _columns(batch)])
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        parts = [collate(column, collate_fn_map=known) for column in _columns(batch)]
        return _sequence(first, parts)
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


def collate_tensor_fn(batch: Any, *, collate_fn_map: Collates | None = None) -> Tensor:
    """One tensor, of the samples along a new first dim. Raises RuntimeError for sparse ones."""
    if batch[0].layout is not T.strided:
        raise RuntimeError(
            "Batches of sparse tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    stacked: Tensor = T.stack(list(batch), 0)
    return stacked


def _arrays(batch: Any) -> Tensor:
    if _is_text(batch[0]):
        raise TypeError(
            "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
            f"found {batch[0].dtype}"
        )
    stacked: Tensor = T.stack([T.as_tensor(array) for array in batch], 0)
    return stacked


def _floats(batch: Any) -> Tensor:
    return T.tensor(list(batch), dtype=T.float64)


def _plain(make: Callable[[Any], Any]) -> Callable[..., Any]:
    def made(batch: Any, *, collate_fn_map: Collates | None = None) -> Any:
        return make(batch)

    return made


# by type, subclasses too; programs put their own here
default_collate_fn_map: Collates = {
    Tensor: collate_tensor_fn,
    np.ndarray: _plain(_arrays),
    np.bool_: _plain(lambda batch: T.as_tensor(np.array(batch))),
    np.number: _plain(lambda batch: T.as_tensor(np.array(batch))),
    bool: _plain(lambda batch: T.tensor(list(batch))),
    float: _plain(_floats),
    int: _plain(lambda batch: T.tensor(list(batch))),
    str: _plain(lambda batch: batch),
    bytes: _plain(lambda batch: batch),
}
