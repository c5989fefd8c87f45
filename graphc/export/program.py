"""An exported model: a Graph, its weights, and what it takes and gives."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from graphc import config
from graphc.backends import DEFAULT
from graphc.engine import pipeline
from graphc.engine.built import Engine, Engines
from graphc.engine.devices import backend_at
from graphc.export import archive, containers
from graphc.export.errors import ExportError
from graphc.export.signature import Signature, Weights
from graphc.frontend.context import local
from graphc.frontend.errors import TraceError, located
from graphc.frontend.history import requires_grad
from graphc.frontend.placement import Place, one_place
from graphc.frontend.tensor import Parameter, Tensor, from_array
from graphc.ir import dim
from graphc.ir.graph import Graph
from graphc.ir.late import late
from graphc.ir.memory import on_host
from graphc.nn.modules.module import Module

_specialise = late("graphc.ir.passes.specialise")  # a pass, which most programs run without


class ExportedProgram:
    """A recorded model. Calls run compiled code, made at the first one; there is no autograd.

    `graph` takes the weights and the arguments, in the order of `signature.weights`.
    `state_dict` holds parameters and buffers by the model's names (`parameters` says which are
    parameters), `constants` the other tensors that the model read. All of them lie on `place`
    (None: on the CPU, as those of a file do).
    """

    def __init__(
        self, graph: Graph, signature: Signature, weights: Weights, place: Place | None = None
    ) -> None:
        self.graph = graph
        self.signature = signature
        self.parameters = weights.parameters
        self.tied = weights.tied
        tensors = {
            name: from_array(array if place is None else place.put(array))
            for name, array in weights.arrays.items()
        }
        self._weights = tensors
        self.state_dict: OrderedDict[str, Tensor] = OrderedDict(
            (name, tensors[weights.tied.get(name, name)]) for name in weights.state
        )
        self.constants = {k: v for k, v in tensors.items() if k not in self.state_dict}
        self._place = place
        # by backend and the free dims of size 1
        self._engines: dict[tuple[str, frozenset[str]], Engines] = {}
        self._lock = threading.Lock()
        self._leaf_of_input = signature.argument_inputs()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's results. Raises TypeError or ValueError for arguments unlike the example."""
        return self._run(self._weights, args, kwargs)

    def __repr__(self) -> str:
        return f"ExportedProgram({', '.join(self.signature.leaf_paths())}):\n{self.graph}"

    def module(self) -> Module:
        """A Module with this state and this forward; load_state_dict changes what it computes."""
        return ExportedModule(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a .gcx file, whole or not at all."""
        arrays = {
            name: np.ascontiguousarray(on_host(t._array)) for name, t in self._weights.items()
        }
        weights = Weights(arrays, tuple(self.state_dict), self.tied, self.parameters)
        archive.write(path, self.graph, self.signature, weights)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The pipeline's Built, compiled now if it is not yet; the arguments do not matter."""
        return self._engine(self._place, self.graph.env.hints).built

    def _engine(self, place: Place | None, dims: Mapping[str, int]) -> Engine:
        """Code for these sizes: for all but 1, and of its own for each set of dims that are 1."""
        name = backend_at(place, DEFAULT)
        ones = frozenset(each for each, size in dims.items() if size == 1)
        with self._lock:
            engines = self._engines.get((name, ones))
            if engines is None:
                graph = self.graph
                if ones:
                    graph = _specialise.at_sizes(graph, dict.fromkeys(ones, 1))
                engines = self._engines[name, ones] = Engines(graph, lambda graph: Engine.of(
                    pipeline.build(graph, config=config.current(), name=graph.name, backend=name)
                ))
            return engines.at(dims)

    # --- a call --------------------------------------------------------------------------------

    def _run(
        self, weights: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        leaves = self.signature.leaves(args, kwargs)
        self._refuse(leaves)
        dims = self.signature.bind(leaves)
        for guard in self.graph.env.guards:
            if not guard.check(dims):
                sizes = ", ".join(f"{k} = {v}" for k, v in dims.items())
                raise ValueError(
                    f"the exported model holds only where {guard.text()}; here {sizes}. Cure: "
                    "export it again with an example of these sizes"
                )
        tensors = list(self._inputs(weights, leaves))
        engine = self._engine(one_place(tensors), dims)
        _, outputs = engine.call([tensor._array for tensor in tensors], dims)
        results = [from_array(array) for array in outputs]
        return self._results(results, leaves, weights, dims)

    def _refuse(self, leaves: Sequence[Any]) -> None:
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                continue
            if local.trace is not None or leaf._trace is not None:
                raise TraceError(located(
                    "an exported program is called inside a compiled function. Cure: call it "
                    "outside; it is compiled already"
                ))
            if local.grad and requires_grad(leaf):
                raise RuntimeError(located(
                    "an exported program has no autograd, and an argument requires a gradient. "
                    "Cure: call it under no_grad(), or detach() the argument"
                ))

    def _inputs(self, weights: Mapping[str, Tensor], leaves: Sequence[Any]) -> Iterator[Tensor]:
        for i, name in enumerate(self.signature.weights):
            yield leaves[self._leaf_of_input[i]] if name is None else weights[name]

    def _results(
        self, outputs: Sequence[Tensor], leaves: Sequence[Any], weights: Mapping[str, Tensor],
        dims: Mapping[str, int],
    ) -> Any:
        def leaf(spec: Any) -> Any:
            ((kind, value),) = spec.items()
            if kind == "output":
                return outputs[value]
            if kind == "argument":
                return leaves[value]
            if kind == "weight":
                return weights[value]
            return dim.evaluate(dim.parse(value), dims) if kind == "size" else value

        return containers.build(self.signature.results, leaf)


class ExportedModule(Module):
    """An exported program as a Module: its parameters and buffers have the model's names."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self._program = [program]  # in a list: not one of the Module's own fields to copy
        for name, tensor in program.state_dict.items():
            if name in program.tied:
                owner, attribute = self._owner(name)
                setattr(owner, attribute, self._find(program.tied[name]))
            else:
                self._place(name, tensor, "parameter" if name in program.parameters else "buffer")
        for name, tensor in program.constants.items():
            self._place(name, tensor, "constant")

    def _owner(self, name: str) -> tuple[Module, str]:
        """The module that holds a dotted name; made where it is missing."""
        *folders, attribute = name.split(".")
        owner: Module = self
        for folder in folders:
            child = owner._modules.get(folder)
            if child is None:
                child = Module()
                owner.add_module(folder, child)
            owner = child
        return owner, attribute

    def _place(self, name: str, tensor: Tensor, kind: str) -> None:
        owner, attribute = self._owner(name)
        value = tensor.detach().clone()
        try:
            if kind == "parameter":
                owner.register_parameter(attribute, Parameter(value, requires_grad=False))
            else:
                owner.register_buffer(attribute, value, persistent=kind == "buffer")
        except (KeyError, TypeError) as error:
            raise ExportError(f"the weight {name!r} cannot be part of a Module: {error}") from None

    def _find(self, name: str) -> Tensor:
        owner, attribute = self._owner(name)
        found: Tensor = getattr(owner, attribute)
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The exported model's results with this Module's state."""
        program = self._program[0]
        names = {name for name in program.signature.weights if name is not None}
        names |= {
            leaf["weight"] for leaf in containers.leaves_of(program.signature.results)
            if "weight" in leaf
        }
        weights = {name: self._find(name) for name in names}
        for name, tensor in weights.items():
            wanted = program._weights[name]
            if tensor._array.shape != wanted._array.shape or tensor.dtype is not wanted.dtype:
                raise ValueError(
                    f"the weight {name!r} must be {wanted.dtype.name}{list(wanted._array.shape)}, "
                    f"is {tensor.dtype.name}{list(tensor._array.shape)}"
                )
        return program._run(weights, args, kwargs)
