"""The Backend that compiles nothing: a recorded graph, operator by operator, as eager mode runs it.
To tell what recording does from what kernels do."""

from __future__ import annotations

from graphc.backends.numpy.backend import NumpyBackend
from graphc.backends.numpy.ops import TABLE
from graphc.ir.graph import Node
from graphc.ir.machine import Machine


class EagerBackend(NumpyBackend):
    """See Backend. NumPy's functions are its routines; kernels only copy."""

    def claims(self, node: Node, machine: Machine) -> bool:
        """Whatever NumPy has a function for."""
        return node.op.name in TABLE

    def computes(self, node: Node) -> bool:
        """Nothing."""
        return False


BACKEND = EagerBackend()
