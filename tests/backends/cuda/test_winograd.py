"""Winograd's transforms are loops like others, on a GPU, too, whose Machine does not ask for them.
"""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.config import current
from graphc.engine.pipeline import host
from graphc.ir import interpret
from graphc.ir.machine import Transform
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.plan import plan
from graphc.ir.record import replaced

from ...ir.machines import WIDE
from ...ir.test_passes_winograd import close, convolution, inputs_of, tiled
from .emulated import EmulatedBackend

MACHINE = replaced(WIDE, transform=Transform(0, 0, 0), tf32=False)


@pytest.mark.slow
@pytest.mark.parametrize("window", [3, 5])
def test_a_convolution_and_its_gradients(emulated: EmulatedBackend, window: int) -> None:
    net = convolution((2, 17, 9, 6), 12, (window, window), pad=(1, 2), backward=True)
    graph = tiled(net, MACHINE)
    fused = fuse(graph, MACHINE)
    program = plan(fused, lower(fused, MACHINE, emulated.renders), MACHINE)
    inputs = inputs_of(graph, window)
    outputs = [
        np.empty([int(size) for size in node.shape], node.dtype.numpy) for node in graph.outputs
    ]
    emulated.build(program, host(current())).run(inputs, outputs)
    close(outputs, interpret.evaluate(net, inputs, TABLE))
