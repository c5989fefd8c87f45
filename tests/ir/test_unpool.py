"""The gradient of a max_pool whose windows overlap, over any number of planes: a sum over the
windows that hold a place, where no update has to be sorted."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.cuda.machine import GPU
from graphc.backends.numpy import TABLE
from graphc.ir import interpret, ops
from graphc.ir.dim import Dim
from graphc.ir.passes.layout import layout

from . import kernel_cases as cases

POOLS = {
    "apart": ((2, 2), (2, 2), (0, 0)),
    "gaps": ((2, 2), (3, 3), (0, 0)),
    "overlapping": ((3, 3), (2, 2), (1, 1)),
    "each place": ((3, 3), (1, 1), (1, 1)),
    "long": ((5, 1), (1, 1), (2, 0)),
}


@pytest.mark.parametrize("symbolic", (False, True))
@pytest.mark.parametrize("channels", (3, 16))
@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_pools(name: str, channels: int, symbolic: bool) -> None:
    """Channels first and last."""
    window, stride, pad = POOLS[name]
    attrs = {"window": window, "stride": stride, "pad_low": pad, "pad_high": pad}
    batch = Dim.var("s0") if symbolic else 2
    out = [(7 + 2 * p - w) // s + 1 for w, s, p in zip(window, stride, pad, strict=True)]

    def function(x, w, g):
        zero = {"pad_low": (0, 0), "pad_high": (0, 0)}
        y = ops.conv(x, w, stride=(1, 1), dilation=(1, 1), groups=1, **zero)
        values, indices = ops.max_pool(y, dilation=(1, 1), **attrs)
        slopes = ops.max_pool_grad(g * values, indices, plane_shape=(7, 7))
        return [values, slopes + y]

    shapes = [(batch, 8, 7, 7), (channels, 8, 1, 1), (batch, channels, *out)]
    graph = cases.build(function, *shapes, dims={"s0": 2} if symbolic else None)
    inputs = [np.round(x) for x in cases.arrays(graph)]  # with ties
    want = interpret.evaluate(graph, [x.copy() for x in inputs], TABLE)
    made = layout(graph, GPU)
    assert not any(node.op.name == "max_pool_grad" for node in made.nodes)
    for found, wanted in zip(
        interpret.evaluate(made, [x.copy() for x in inputs], TABLE), want, strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    cases.check(made, inputs=inputs, machine=GPU)
