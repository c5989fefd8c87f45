"""What a profile calls eager operators, and how many floating-point operations they are."""

from __future__ import annotations

import math
from typing import Any

from ..utils.flop_counter import FORMULAS

# by operator record, where torch has another name; a product's and a convolution's are FORMULAS'
_NAMES = {
    "concat": "cat", "cast": "_to_copy", "rng_uniform": "uniform_", "rng_normal": "normal_",
    "rng_bernoulli": "bernoulli_", "rng_randint": "random_", "rng_permutation": "randperm",
    "rng_exponential": "exponential_", "conv": "convolution",
    "conv_input_grad": "convolution_backward", "conv_weight_grad": "convolution_backward",
    "attention": "scaled_dot_product_attention",
    "attention_grad": "scaled_dot_product_attention_backward",
}


def named(op: Any, args: tuple[Any, ...]) -> str:
    """torch's name of an operator, with what it is run on: (buffers, attributes)."""
    name = getattr(op, "name", str(op))
    if name == "dot_general":
        return "aten::bmm" if args[1]["batch_a"] else "aten::mm"
    return f"aten::{_NAMES.get(name, name)}"


def counted(op: Any, args: tuple[Any, ...], result: Any) -> int:
    """Of products, convolutions and attention as FlopCounterMode counts them; one for each number
    that a sum or a product of two makes."""
    results = [each.shape for each in (result if isinstance(result, tuple) else (result,))]
    formula = FORMULAS.get(op.name)
    if formula is not None:
        return formula([each.shape for each in args[0]], results, args[1])[1]
    return math.prod(results[0]) if op.name in ("add", "mul") else 0
