"""A call of a whole model: its inputs checked, its outputs as Tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....frontend import functions as T
from ....frontend.tensor import Tensor
from ....ir.dtypes import DType
from .carried import Kind, carried
from .program import Program, as_tensors, run


@dataclass(frozen=True)
class Input:
    """An input as the file declares it; no dtype: a sequence or an optional value."""

    name: str
    dtype: DType | None
    shape: tuple[int | None, ...] | None  # None: any
    kind: Kind | None = None  # which the dtype carries


def checked(
    model: str, inputs: Sequence[Input], given: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """The values of all inputs. Raises TypeError and ValueError naming the input."""
    names = [each.name for each in inputs]
    unknown = [name for name in named if name not in names]
    twice = [name for name in names[: len(given)] if name in named]
    if len(given) > len(inputs) or unknown or twice:
        wrong = f"{(unknown or twice)[0]!r}" if unknown or twice else f"{len(given)} inputs"
        raise TypeError(f"the ONNX model {model!r} takes {names}, not {wrong}")
    values = dict(zip(names, given, strict=False)) | dict(named)
    missing = [each.name for each in inputs if each.name not in values and each.dtype is not None]
    if missing:
        raise TypeError(f"the ONNX model {model!r} takes {names}; {missing[0]!r} is missing")
    return [_checked(each, values.get(each.name)) for each in inputs]


def _checked(wanted: Input, value: Any) -> Any:
    if wanted.dtype is None:
        return value
    if isinstance(value, (bool, int, float)):
        value = T.tensor(value, dtype=wanted.dtype)
    if not isinstance(value, Tensor):
        raise TypeError(f"input {wanted.name!r} must be a Tensor, got {type(value).__name__}")
    # a Module that was converted (.double(), .half()) takes what it was converted to
    fits = value.dtype is wanted.dtype or (
        value.dtype.is_floating_point and wanted.dtype.is_floating_point
    )
    if not fits:
        spelled = f"{wanted.dtype}" if wanted.kind is None else (
            f"{wanted.kind}, carried by {wanted.dtype},"
        )
        raise TypeError(
            f"input {wanted.name!r} is {spelled} in the file, got {value.dtype}. "
            f"Cure: x.to({wanted.dtype})"
        )
    if wanted.shape is not None:
        _check_shape(wanted, value)
    return value if wanted.kind is None else carried(value, wanted.kind)


def _check_shape(wanted: Input, value: Tensor) -> None:
    shape: Any = wanted.shape
    # a size that the file fixes is fixed in a recording, too
    if value.dim() != len(shape) or any(
        size is not None and have != size for have, size in zip(value.shape, shape, strict=True)
    ):
        raise ValueError(
            f"input {wanted.name!r} has the shape {['any' if n is None else n for n in shape]} in "
            f"the file, got {list(value.shape)}. Cure: export the model with free sizes there"
        )


def called(
    program: Program, tensors: Sequence[Tensor], inputs: Sequence[Any], training: bool | None
) -> Any:
    """The output, or a tuple of them."""
    like = next((x for x in (*inputs, *tensors) if isinstance(x, Tensor)), None)
    found = as_tensors(run(program, tensors, inputs, training=training), like)
    return found[0] if len(found) == 1 else tuple(found)
