"""What a step of k is in a contraction: one value, or neighbours along k in a word as wide as a
sum, for a machine that multiplies and adds so many at a time."""

from __future__ import annotations

from typing import NamedTuple

from .. import dtypes
from ..dtypes import DType
from ..machine import Tiling
from .templates import Product, SumTemplate
from .templates.operand import panels_of


class Step(NamedTuple):
    """One way to multiply and add: its name, what is summed in, what each operand's values are
    multiplied as (narrower integers are widened to it), and how many of them a word has.

    Where `centred`, the left operand's bytes are multiplied as x + 128, which have no sign, and
    each panel of a block of the right operand begins with a row of what that adds too much,
    negative.
    """

    name: str
    sums: DType
    left: DType
    right: DType
    group: int = 1
    centred: bool = False

    @property
    def heads(self) -> int:
        """Rows of a packed panel before its steps."""
        return int(self.centred)


# By their names. Those of several values are for machines whose Tiling lists them.
STEPS = {
    step.name: step
    for step in (
        Step("f32", dtypes.f32, dtypes.f32, dtypes.f32),
        Step("f64", dtypes.f64, dtypes.f64, dtypes.f64),
        Step("i32", dtypes.i32, dtypes.i32, dtypes.i32),
        Step("i64", dtypes.i64, dtypes.i64, dtypes.i64),
        Step("bf16", dtypes.f32, dtypes.bf16, dtypes.bf16, 2),
        Step("i16", dtypes.i32, dtypes.i16, dtypes.i16, 2),
        Step("u8i8", dtypes.i32, dtypes.u8, dtypes.i8, 4),
        Step("i8u8", dtypes.i32, dtypes.i8, dtypes.u8, 4),
        Step("i8i8", dtypes.i32, dtypes.i8, dtypes.i8, 4, centred=True),
    )
}

_IN_AN_I16 = (dtypes.i8, dtypes.u8, dtypes.i16)


def step_of(template: SumTemplate, tiling: Tiling) -> Step:
    """How a template's operands are multiplied: by the first of those ways that the machine has."""
    for name in _ways(template):
        if name in tiling.steps:
            return STEPS[name]
    return STEPS[template.acc_dtype.name]


def _ways(template: SumTemplate) -> tuple[str, ...]:
    """The steps of several values that fit, the best first, on whatever machine."""
    acc, operands = template.acc_dtype, (template.left.dtype, template.right.dtype)
    if isinstance(template, Product):
        if panels_of(template.right.index):
            return ()
        if acc is dtypes.i32 and all(x in _IN_AN_I16 for x in operands):
            return (operands[0].name + operands[1].name, "i16")
    elif template.geometry.in_channels == template.geometry.groups:  # few terms of many sums
        return ()
    return ("bf16",) if acc is dtypes.f32 and set(operands) == {dtypes.bf16} else ()
