"""The text of the kernels that fusion makes of a few well-known patterns."""

from collections.abc import Callable

import pytest

from graphc.ir import ops
from graphc.ir.kernel.text import print_kernel

from . import kernel_cases as cases
from .kernel_cases import build, check, i64, only_kernel
from .machines import WIDE

CASES = {
    "chain": (lambda x, y: ops.tanh(x * 2.0 + y) - x, [(300, 40), (300, 40)]),
    "bias_relu": (lambda x, b: ops.relu(x + b), [(300, 40), (40,)]),
    "softmax": (lambda x: cases.softmax(x, 1), [(300, 40)]),
    "softmax_columns": (lambda x: cases.softmax(x, 1), [(30, 8, 40)]),
    "layer_norm": (cases.layer_norm, [(8, 64, 128), (128,), (128,)]),
    "gemm_bias_gelu": (
        lambda x, w, b: cases.gelu(cases.dot(x, w) + b), [(64, 48), (32, 48), (32,)],
    ),
    "cross_entropy": (lambda x, t: cases.cross_entropy(x, t)[0], [(64, 10), (i64, (64,))]),
    "cross_entropy_gradient": (
        lambda x, t: cases.cross_entropy(x, t)[1], [(64, 10), (i64, (64,))],
    ),
    "bias_gradient": (lambda g: cases.total(g, (0,)), [(64, 256)]),
    "whole_sum": (lambda x: cases.total(x * x, (0, 1)), [(768, 128)]),
}


@pytest.mark.parametrize("name", CASES)
def test_kernel_text(name: str, golden: Callable[[str, str], None]) -> None:
    function, inputs = CASES[name]
    golden(f"kernels/{name}.txt", print_kernel(only_kernel(function, *inputs)))


@pytest.mark.parametrize("name", CASES)
def test_kernel_text_for_a_wide_machine(name: str, golden: Callable[[str, str], None]) -> None:
    function, inputs = CASES[name]
    program = check(build(function, *inputs), machine=WIDE)
    golden(f"kernels/wide/{name}.txt", "\n".join(map(print_kernel, cases.kernels(program))))
