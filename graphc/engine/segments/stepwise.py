"""A recording run operator by operator: the tier below compiled code, with the same interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.numpy.ops import TABLE
from ...frontend.device_table import table_for
from ...frontend.errors import located
from ...ir.dim import Guard
from ...ir.graph import Graph, Node, const, get_, input_
from ...ir.interpret import evaluate
from ...ir.memory import DeviceArray, write
from ..built import concrete_shape

_GIVEN = (input_, const, get_)  # operators that compute nothing


class Stepwise:
    """A Graph as something to run. Nothing is rewritten, fused or compiled."""

    assumed: tuple[Guard, ...] = ()  # of sizes: nothing is compiled

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], dims: Sequence[int] = ()
    ) -> None:
        """Compute everything, then write the outputs, some of which may be the memory of inputs.

        Raises what an operator finds wrong (an index out of range) before anything is written.
        """
        steps = iter([node for node in self.graph.nodes if node.op not in _GIVEN])

        def observe(node: Node, value: Any) -> None:
            next(steps)

        # np.ascontiguousarray makes one dimension of none
        inputs = [
            array.reshape(concrete_shape(node.tensor_type, {}))
            for array, node in zip(inputs, self.graph.inputs, strict=True)
        ]
        try:
            values = evaluate(self.graph, inputs, table_for(inputs, TABLE), observe=observe)
        except Exception as error:
            error.args = (located(str(error), next(steps).loc),)
            raise
        values = [  # may be inputs' memory
            v.copy() if isinstance(v, DeviceArray) or v.base is not None else v for v in values
        ]
        for output, value in zip(outputs, values, strict=True):
            write(output, value)
