"""Which contractions go by pairs of values along k, for a machine that multiplies and adds two at a
time: a step of k is then a pair, in a word as wide as a sum."""

from __future__ import annotations

from .. import dtypes
from ..dtypes import DType
from ..machine import Tiling
from .templates import Product, SumTemplate
from .templates.operand import panels_of


def values_of(template: SumTemplate, tiling: Tiling) -> DType:
    """What a template's operands are multiplied as: the type of its sums, or bfloat16, or int16
    (to which narrower integers are widened), by pairs."""
    acc, operands = template.acc_dtype, (template.left.dtype, template.right.dtype)
    if isinstance(template, Product):
        if panels_of(template.right.index):
            return acc
        if tiling.i16_pairs and acc is dtypes.i32 and all(x in _FIT for x in operands):
            return dtypes.i16
    elif template.geometry.in_channels == template.geometry.groups:  # few terms of many sums
        return acc
    halves = acc is dtypes.f32 and set(operands) == {dtypes.bf16}
    return dtypes.bf16 if halves and tiling.bf16_pairs else acc


_FIT = (dtypes.i8, dtypes.u8, dtypes.i16)  # in an int16


def values_a_step(template: SumTemplate, tiling: Tiling) -> int:
    """How many values of k a step has."""
    return 1 if values_of(template, tiling) is template.acc_dtype else 2
