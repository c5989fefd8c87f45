"""Cutting inputs into one part per device, and putting results together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...frontend import functions as T
from ...frontend.device import device as device_type
from ...frontend.tensor import Tensor


def _check(device: Any) -> None:
    kind = device_type(device)
    if kind.type != "cpu":
        raise RuntimeError(
            f"scatter and gather: no device {str(kind)!r} in this build of graphc. Cure: use 'cpu'"
        )


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """One copy of the containers per device; tensors are cut along `dim`, other values shared.

    Fewer parts come out where a tensor is too short. Raises RuntimeError for other devices.
    """
    for device in target_gpus:
        _check(device)
    count = len(target_gpus)

    def cut(value: Any) -> list[Any]:
        if isinstance(value, Tensor):
            return list(T.chunk(value, count, dim))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [type(value)(*row) for row in zip(*map(cut, value), strict=False)]
        if isinstance(value, tuple) and value:
            return list(zip(*map(cut, value), strict=False))
        if isinstance(value, list) and value:
            return [list(row) for row in zip(*map(cut, value), strict=False)]
        if isinstance(value, dict) and value:
            rows = zip(*map(cut, value.values()), strict=False)
            return [type(value)(zip(value, row, strict=True)) for row in rows]
        return [value] * count

    return cut(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any],
    dim: int = 0,
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """(positional, keyword) arguments per device, as many of the one as of the other."""
    positional = scatter(inputs, target_gpus, dim) if inputs else []
    keyword = scatter(kwargs, target_gpus, dim) if kwargs else []
    length = max(len(positional), len(keyword))
    positional += [()] * (length - len(positional))
    keyword += [{} for _ in range(length - len(keyword))]
    return tuple(positional), tuple(keyword)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The parts put together along `dim`, container by container. 0-d tensors become one vector."""
    if target_device != -1:  # torch's old number of the CPU
        _check(target_device)

    def join(parts: Sequence[Any]) -> Any:
        first = parts[0]
        if isinstance(first, Tensor):
            if all(part.dim() == 0 for part in parts) and dim == 0:
                return T.stack(list(parts))
            return T.cat(list(parts), dim)
        if first is None:
            return None
        if isinstance(first, Mapping):
            if not all(len(part) == len(first) for part in parts):
                raise ValueError("All dicts must have the same number of keys")
            kind: Any = type(first)
            return kind((key, join([part[key] for part in parts])) for key in first)
        kind = type(first)
        if hasattr(kind, "_fields"):
            return kind._make(map(join, zip(*parts, strict=True)))
        return kind(map(join, zip(*parts, strict=True)))

    return join(outputs)
