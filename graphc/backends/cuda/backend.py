"""The GPU's Backend, as far as it is: CUDA C for every kernel, and nothing yet that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from graphc.backends import Backend, Finding, Host
from graphc.backends.cuda import emit, scalar, templates
from graphc.backends.cuda.device import GPUS, Gpus
from graphc.backends.cuda.findings import findings
from graphc.backends.cuda.machine import GPU
from graphc.backends.host.memory import HOST
from graphc.ir.graph import Node
from graphc.ir.kernel import Kernel, Program, Template
from graphc.ir.machine import Machine
from graphc.ir.types import TupleType


class CudaBackend:
    """See Backend. Tensors stay on the host until there is a driver to give them another place."""

    machine = GPU
    memory = HOST

    def __init__(self, gpus: Gpus = GPUS) -> None:
        self.gpus = gpus  # what torch.cuda is about

    def claims(self, node: Node, machine: Machine) -> bool:
        """Nothing yet."""
        return False

    def computes(self, node: Node) -> bool:
        """What the table of scalars has a line for."""
        types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        return scalar.has(
            node.op, [x.dtype for x in node.inputs], [type_.dtype for type_ in types]
        )

    def renders(self, template: Template) -> bool:
        """What has a Renderer that takes it; the rest becomes loops."""
        return templates.renders(template)

    def emit(self, kernel: Kernel) -> str:
        """CUDA C. Raises NotImplementedError for what there is no code for."""
        return emit.emit(kernel).text

    def build(self, program: Program, host: Host) -> NoReturn:
        """Raises RuntimeError."""
        raise RuntimeError(
            "the backend 'cuda' writes CUDA C and runs none of it yet. Cure: backend='llvm'"
        )

    def adapt(self, host: Host) -> None:
        """Nothing has been built."""

    def findings(self, host: Host) -> Sequence[Finding]:
        """CUDA's libraries, the driver, its devices."""
        return tuple(findings())


BACKEND: Backend = CudaBackend()
