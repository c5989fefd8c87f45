"""The GPU's Backend: CUDA C for every kernel, compiled for the device at hand and run there. The
device is looked for when its memory, or code for it, is first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from graphc.backends import Backend, Finding, Host
from graphc.backends.cuda import emit, libraries, scalar, templates
from graphc.backends.cuda.apart import Products
from graphc.backends.cuda.ceilings import Ceilings, ceilings
from graphc.backends.cuda.choice import Chosen, prefers_library
from graphc.backends.cuda.code import Code
from graphc.backends.cuda.compilers import Compilers, WithNvrtc
from graphc.backends.cuda.cublaslt import CublasLt
from graphc.backends.cuda.device import GPUS, Device, Gpus
from graphc.backends.cuda.executable import Executable
from graphc.backends.cuda.findings import findings
from graphc.backends.cuda.machine import GPU
from graphc.backends.cuda.memory import CudaMemory
from graphc.backends.cuda.routines import Routines
from graphc.backends.cuda.source import Target
from graphc.backends.cuda.tuning import Tuner
from graphc.ir.graph import Node
from graphc.ir.kernel import Kernel, Launch, Product, Program, Template, leaves
from graphc.ir.machine import Machine
from graphc.ir.types import TupleType


class CudaBackend:
    """See Backend. `gpus`: what torch.cuda is about; tensors lie on the one with this `index`."""

    machine = GPU

    def __init__(
        self, gpus: Gpus = GPUS, compilers: Compilers | None = None, index: int = 0
    ) -> None:
        self.gpus, self._index = gpus, index
        self._compilers = compilers or WithNvrtc()
        self._most: dict[int, Ceilings | None] = {}

    def on(self, index: int) -> CudaBackend:
        """The same with another of the devices, and memory there."""
        made = type(self)(self.gpus, self._compilers, index)
        made._most = self._most
        return made

    @property
    def _device(self) -> Device:
        return self.gpus.device(self._index)

    @functools.cached_property
    def code(self) -> Code:
        """What was compiled and loaded. Raises as `memory` does."""
        return Code(self._device, self._compilers)

    @functools.cached_property
    def memory(self) -> CudaMemory:
        """Of the device. Raises MissingLibrary, or CudaError where there is no device: both say
        the cure."""
        return CudaMemory(self._device, self.code)

    def ceilings(self, host: Host) -> Ceilings | None:
        """See ceilings.py. Raises as `memory` does."""
        if self._index not in self._most:
            self._device.activate()
            target = self._compilers.target(self._device)
            code = Code(self._device, self._compilers)
            code.directory = host.cache_dir
            self._most[self._index] = ceilings(self._device, code, target)
        return self._most[self._index]

    @functools.cached_property
    def products(self) -> Products:
        """A library's, of the driver's release. Raises MissingLibrary, or as `memory` does."""
        driver = self._device.driver
        self._device.activate()
        return Products(CublasLt(libraries.find(libraries.CUBLASLT, driver.version()[0])))

    @functools.cached_property
    def routines(self) -> Routines:
        """What CuPy computes on the device."""
        return Routines(lambda: self._device)

    def claims(self, node: Node, machine: Machine) -> bool:
        """What CuPy computes, where it is installed."""
        return self.routines.claims(node)

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

    def build(self, program: Program, host: Host) -> Executable:
        """Raises NvrtcError, and as `memory` does."""
        self.code.directory = host.cache_dir
        target = self._compilers.target(self._device)
        return Executable(
            program, self.memory, self.code, target, host.table, host.cuda_graphs,
            self._chosen(program, host, target), self.routines,
        )

    def _chosen(self, program: Program, host: Host, target: Target) -> Chosen:
        """How a program's contractions are computed. Raises as `products` does, where nothing but
        a library may."""
        usual = Chosen(self._multiplying(program, host.cuda_libraries, target))
        if not host.max_autotune:
            return usual
        library = None
        if host.cuda_libraries != "0":
            with suppress(libraries.MissingLibrary):
                library = self.products
        self.tuner.directory = host.cache_dir
        return self.tuner.chosen(program, usual, library, host.cuda_libraries == "1")

    @functools.cached_property
    def tuner(self) -> Tuner:
        """Of the device. Raises as `memory` does."""
        return Tuner(self.memory, self.code, self._compilers.target(self._device))

    def _multiplying(self, program: Program, choice: str, target: Target) -> Products | None:
        """What a library multiplies of a program, where nothing is timed."""
        if choice == "0":
            return None
        if choice == "1":
            return self.products
        kernels = [step.kernel for step in leaves(program.steps) if isinstance(step, Launch)]
        chosen = {id(k): 0 for k in kernels if self._is_for_library(k, target)}
        if not chosen:
            return None
        try:
            return self.products.only(chosen)
        except libraries.MissingLibrary:
            return None

    def _is_for_library(self, kernel: Kernel, target: Target) -> bool:
        t = kernel.template
        return isinstance(t, Product) and prefers_library(t, target.architecture)

    def adapt(self, host: Host) -> None:
        """Nothing: what runs here has the device's threads."""

    def draws(self, host: Host) -> Mapping[str, Callable[..., Any]]:
        """None: NumPy's are the host's."""
        return {}

    def findings(self, host: Host) -> Sequence[Finding]:
        """CUDA's libraries, the driver, its devices."""
        return tuple(findings())


BACKEND: Backend = CudaBackend()
