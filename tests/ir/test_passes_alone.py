"""Depthwise convolutions' gradients for their images are depthwise convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.config import Config
from graphc.engine import pipeline
from graphc.ir import dtypes, interpret, ops
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.passes.alone import alone
from graphc.ir.record import replaced
from graphc.ir.text_parse import parse_graph
from graphc.ir.types import TensorType
from graphc.ir.verify import verify

from .kernel_cases import arrays

QUIET = Config()._replace(cache_dir=None, check=0, threads=2, debug=0, dump=None)
Sizes = tuple[int, ...]


def gradient(
    image: Sizes, window: Sizes, stride: Sizes, low: Sizes, high: Sizes, dilation: Sizes,
    channels: int = 6, groups: int = 6, dtype: dtypes.DType = dtypes.f32,
) -> Graph:
    """Of two images' convolution, for them; negated, which fusion joins to it."""
    builder = Builder()
    results = tuple(
        (n + a + b - (k - 1) * d - 1) // s + 1
        for n, k, s, a, b, d in zip(image, window, stride, low, high, dilation, strict=True)
    )
    g, w = (
        Expr(builder, builder.input(TensorType(dtype, shape)))
        for shape in ((2, channels, *results), (channels, channels // groups, *window))
    )
    found = ops.conv_input_grad(
        g, w, input_shape=(2, channels, *image), stride=stride, pad_low=low, pad_high=high,
        dilation=dilation, groups=groups,
    )
    return builder.build([(-found).node])


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.inputs]


CASES = {
    "same": ((9, 33), (3, 5), (1, 1), (1, 2), (1, 2), (1, 1)),
    "unequal": ((12, 20), (3, 4), (1, 1), (0, 1), (2, 3), (1, 1)),
    "dilated": ((14, 19), (3, 3), (1, 1), (2, 1), (2, 1), (2, 3)),
    "apart": ((13, 40), (3, 5), (2, 2), (1, 2), (1, 2), (1, 1)),
    "columns apart": ((8, 21), (2, 3), (1, 2), (1, 0), (0, 0), (1, 1)),
    "what no window sees": ((10, 10), (3, 3), (2, 2), (0, 0), (0, 0), (1, 1)),
    "a line": ((50,), (4,), (2,), (3,), (1,), (1,)),
}


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_they_mean_the_same(case: str, dtype: dtypes.DType) -> None:
    graph = gradient(*CASES[case], dtype=dtype)
    inputs = arrays(graph)
    want = interpret.evaluate(graph, inputs, TABLE, {})
    turned = alone(graph, CPU)
    verify(turned)
    assert str(parse_graph(str(turned))) == str(turned)
    spread = ["pad"] if max(CASES[case][2]) > 1 else []
    assert names(turned) == [*spread, "flip", "conv", "neg"]
    built = pipeline.build(graph, config=QUIET)
    native = [np.empty(x.shape, x.dtype) for x in want]
    built.run(inputs, native, ())
    small = 1e-5 if dtype is dtypes.f32 else 1e-13
    for got in (interpret.evaluate(turned, inputs, TABLE, {}), native):
        np.testing.assert_allclose(got[0], want[0], rtol=small, atol=small * 10)


@pytest.mark.parametrize("graph", [
    gradient((9, 9), (3, 3), (3, 3), (1, 1), (1, 1), (1, 1)),  # most terms would be zeros
    gradient((9, 9), (3, 3), (1, 1), (3, 3), (3, 3), (1, 1)),  # results that see padding alone
    gradient((9, 9), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), groups=3),
    gradient((9, 9), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), dtype=dtypes.f16),
    gradient((9, 9), (8, 8), (1, 1), (1, 1), (1, 1), (1, 1)),  # a long window
    gradient((4, 4, 4), (3, 3, 3), (1,) * 3, (1,) * 3, (1,) * 3, (1,) * 3),
])
def test_others_stay(graph: Graph) -> None:
    assert alone(graph, CPU) is graph


def test_a_machine_without_tiles_keeps_them() -> None:
    graph = gradient(*CASES["same"])
    assert alone(graph, replaced(CPU, tiling=None)) is graph
