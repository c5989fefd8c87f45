"""torch.nn._reduction: old spellings of a loss's reduction."""

from __future__ import annotations

import warnings

DEPRECATED = (
    "size_average and reduce args will be deprecated, please use reduction='{}' instead."
)

def get_enum(reduction: str) -> int:
    """The number of a reduction."""
    numbers = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}
    if reduction not in numbers:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return numbers[reduction]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that size_average and reduce mean."""
    averaged = True if size_average is None else size_average
    wanted = True if reduce is None else reduce
    found = ("mean" if averaged else "sum") if wanted else "none"
    if emit_warning:
        warnings.warn(DEPRECATED.format(found), stacklevel=2)
    return found


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of the reduction that size_average and reduce mean."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
