"""What a step of k is in a contraction: one value, or neighbours along k in a word as wide as a
sum, for a machine that multiplies and adds so many at a time."""

from __future__ import annotations

import functools
from typing import NamedTuple

from .. import dtypes
from ..dtypes import DType
from ..machine import Machine, Tiling
from ..record import replaced
from .templates import Product, SumTemplate
from .templates.operand import (
    Panels,
    PanelShape,
    base_and_strides,
    panels_of,
    panels_of_weights,
)

# The tile of a matrix unit: rows, registers of columns (two by two of its own tiles), and the words
# of k that it goes along at a time.
MATRIX_ROWS, MATRIX_VECTORS, MATRIX_WORDS = 32, 2, 16


class Step(NamedTuple):
    """One way to multiply and add: its name, what is summed in, what each operand's values are
    multiplied as (narrower integers are widened to it), and how many of them a word has.

    Where `centred`, the left operand's bytes are packed as x + 128, which have no sign, and each
    panel of a block of the right operand begins with a row of what that adds too much,
    negative. Those of a `matrix` unit are multiplied by its tiles, not by registers.
    """

    name: str
    sums: DType
    left: DType
    right: DType
    group: int = 1
    centred: bool = False
    matrix: bool = False

    @property
    def heads(self) -> int:
        """Rows of a packed panel before its steps."""
        return int(self.centred)

    @property
    def quantum(self) -> int:
        """Blocks of k are multiples of this, where there are several."""
        return MATRIX_WORDS if self.matrix else 1


# By their names. Those of several values are for machines whose Tiling lists them.
STEPS = {
    step.name: step
    for step in (
        Step("f32", dtypes.f32, dtypes.f32, dtypes.f32),
        Step("f64", dtypes.f64, dtypes.f64, dtypes.f64),
        Step("i32", dtypes.i32, dtypes.i32, dtypes.i32),
        Step("i64", dtypes.i64, dtypes.i64, dtypes.i64),
        Step("rows_bf16", dtypes.f32, dtypes.f32, dtypes.bf16),
        Step("bf16", dtypes.f32, dtypes.bf16, dtypes.bf16, 2),
        Step("i16", dtypes.i32, dtypes.i16, dtypes.i16, 2),
        Step("u8i8", dtypes.i32, dtypes.u8, dtypes.i8, 4),
        Step("i8u8", dtypes.i32, dtypes.i8, dtypes.u8, 4),
        Step("i8i8", dtypes.i32, dtypes.i8, dtypes.i8, 4, centred=True),
        Step("bf16m", dtypes.f32, dtypes.bf16, dtypes.bf16, 2, matrix=True),
        Step("i8i8m", dtypes.i32, dtypes.i8, dtypes.i8, 4, matrix=True),
        Step("i8u8m", dtypes.i32, dtypes.i8, dtypes.u8, 4, matrix=True),
        Step("u8i8m", dtypes.i32, dtypes.u8, dtypes.i8, 4, matrix=True),
        Step("u8u8m", dtypes.i32, dtypes.u8, dtypes.u8, 4, matrix=True),
    )
}
MATRIX_STEPS = tuple(name for name, step in STEPS.items() if step.matrix)


_IN_AN_I16 = (dtypes.i8, dtypes.u8, dtypes.i16)


def step_of(template: SumTemplate, tiling: Tiling) -> Step:
    """How a template's operands are multiplied: by the first of those ways that the machine has,
    and that reads panels as they lie."""
    panels = panels_of(template.right.index) if isinstance(template, Product) else None
    for name in _ways(template):
        if f"{name}m" in tiling.steps and (
            _reads(STEPS[f"{name}m"], panels, tiling) if panels else _fills_tiles(template, tiling)
        ):
            return STEPS[f"{name}m"]
        if name not in tiling.steps:
            continue
        if panels is None and _reads_rows(template, tiling):
            continue
        if _reads(STEPS[name], panels, tiling) if panels else _gains(STEPS[name], template, tiling):
            return STEPS[name]
    return STEPS["rows_bf16" if _reads_rows(template, tiling) else template.acc_dtype.name]


@functools.lru_cache(maxsize=64)
def machine_of(machine: Machine, step: Step) -> Machine:
    """What products by a step are planned for: a machine with its tiles."""
    if machine.tiling is None:
        return machine
    return replaced(machine, tiling=tiling_of(machine.tiling, step))


def tiling_of(tiling: Tiling, step: Step) -> Tiling:
    """The tiles of a step."""
    return replaced(tiling, rows=MATRIX_ROWS, vectors=MATRIX_VECTORS) if step.matrix else tiling


def _reads(step: Step, panels: Panels, tiling: Tiling) -> bool:
    return (panels.columns, panels.group) == _shape(step, tiling)


def _shape(step: Step, tiling: Tiling) -> PanelShape:
    return PanelShape(tiling_of(tiling, step).columns(step.sums.itemsize), step.group)


def panel_shape(
    left: DType, right: DType, tiling: Tiling, rows: int, columns: int
) -> PanelShape | None:
    """The panels of a right operand, multiplied with so many rows, for the widest steps that the
    machine has; None where there is no reading them as they lie."""
    if left is not right or not left.is_float:
        return None
    if left.itemsize >= 4:
        return _shape(STEPS[left.name], tiling)
    many = rows > tiling.dot_rows
    names = [] if many and left.name in tiling.slow else [left.name]
    if many and columns > tiling.dot_columns:
        names.insert(0, f"{left.name}m")
    return next((_shape(STEPS[name], tiling) for name in names if name in tiling.steps), None)


def lies_in_panels(panels: Panels, dtype: DType, tiling: Tiling) -> bool:
    """Whether products of operands of a dtype read these panels as they lie."""
    if not dtype.is_float:
        return False
    names = (dtype.name, f"{dtype.name}m")
    return any(
        _reads(STEPS[name], panels, tiling) for name in names
        if name in (tiling.steps if dtype.itemsize < 4 else STEPS)
    )


def _ways(template: SumTemplate) -> tuple[str, ...]:
    """The steps of several values that fit, the best first, on whatever machine."""
    acc, operands = template.acc_dtype, (template.left.dtype, template.right.dtype)
    if isinstance(template, Product):
        if acc is dtypes.i32 and all(x in _IN_AN_I16 for x in operands):
            return (operands[0].name + operands[1].name, "i16")
    elif template.geometry.in_channels == template.geometry.groups:  # few terms of many sums
        return ()
    return ("bf16",) if acc is dtypes.f32 and set(operands) == {dtypes.bf16} else ()


def _gains(step: Step, template: SumTemplate, tiling: Tiling) -> bool:
    """Whether words are as fast as their values: where there are instructions for them that are
    not slow, or weights lie in words already, or products along k wait for the memory. Where sizes
    are a call's, those may be any."""
    if step.name not in tiling.slow:
        return True
    if not isinstance(template, Product):
        words = panels_of_weights(template.right.index) if template.kind == "conv_last" else None
        return words is not None and words.group == step.group
    # packing costs as much as in_place_rows rows
    few = (template.m, tiling.in_place_rows), (template.n, tiling.dot_columns)
    return _along_k(template) and any(not isinstance(n, int) or n <= most for n, most in few)


def _reads_rows(template: SumTemplate, tiling: Tiling) -> bool:
    """Whether few rows meet a right operand of bfloat16 whose columns are neighbours: it is read
    where it lies, and widened then."""
    if not isinstance(template, Product) or template.acc_dtype is not dtypes.f32:
        return False
    m, n = template.m, template.n
    if {template.left.dtype, template.right.dtype} != {dtypes.bf16} or panels_of(
        template.right.index
    ):
        return False
    _, right_k, right_n = base_and_strides(template.right, "k", "n")
    few = isinstance(m, int) and m <= tiling.in_place_rows
    wide = isinstance(n, int) and n >= tiling.lanes(4)
    return few and wide and right_n == 1 and right_k != 1


def _along_k(product: Product) -> bool:
    _, _, left_k = base_and_strides(product.left, "m", "k")
    _, right_k, _ = base_and_strides(product.right, "k", "n")
    return left_k == 1 and right_k == 1


def _fills_tiles(template: SumTemplate, tiling: Tiling) -> bool:
    """Whether tiles of many rows and columns gain: few of either are dot products, or wait for the
    right operand. Where sizes are a call's, operands along k may be either."""
    if not isinstance(template, Product):
        return False
    few = (template.m, tiling.dot_rows), (template.n, tiling.dot_columns)
    if any(isinstance(size, int) and size <= most for size, most in few):
        return False
    if all(isinstance(size, int) for size, _ in few):
        return True
    return not _along_k(template)
