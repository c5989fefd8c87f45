"""A finished recording as a program: where its graph's inputs come from, what its results are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.export import containers
from graphc.export.errors import ExportError
from graphc.export.portable import portable
from graphc.export.signature import VALUES, Weights
from graphc.export.store import Store
from graphc.frontend import views
from graphc.frontend.captured import NumberInput, Output, TensorInput, TracedGraph
from graphc.frontend.tensor import Tensor
from graphc.frontend.trace import Trace
from graphc.frontend.tree import flatten
from graphc.ir.dim import Dim, Size
from graphc.ir.graph import Expr, Graph, Node
from graphc.nn.modules.module import Module


class Lifted:
    """The graph of a recording, with the JSON of its `inputs`, `results` and `writes`."""

    def __init__(
        self, traced: TracedGraph, trace: Trace, paths: list[str], store: Store
    ) -> None:
        self.traced, self.trace, self.store = traced, trace, store
        self.outputs: dict[Node, int] = {}
        self.inputs, self._labels = self._sources(paths)
        results, structure = flatten(
            traced.result, is_leaf=lambda value: isinstance(value, Output)
        )
        specs = [self._result(output) for output in results]
        self.results = containers.to_json(structure, iter(specs), "the result")
        self.writes: tuple[Mapping[str, Any], ...] = tuple(
            {"output": self._number_of(traced.graph.outputs[mutation.output]),
             **self.inputs[mutation.input]}
            for mutation in traced.mutations
        )
        self.graph = Graph(trace.name, traced.graph.inputs, tuple(self.outputs), traced.graph.env)

    def finished(self) -> tuple[Graph, tuple[Mapping[str, Any], ...]]:
        """The graph for other machines, and where its inputs come from."""
        graph, constants = portable(self.graph, self._labels)
        large = [{"weight": self.store.large(array)} for array in constants]
        return graph, (*self.inputs, *large)

    def _sources(self, paths: list[str]) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
        """Where each graph input comes from, and its printed name."""
        sources: list[Mapping[str, Any]] = []
        labels: list[str] = []
        for source in self.traced.inputs:
            if isinstance(source, NumberInput):
                op = source.expression.op
                raise ExportError(
                    f"the model computes {op} of a free size, a number that Python makes at each "
                    "call, which a file does not hold. Cure: torch.full((), size, "
                    "dtype=torch.float64), and a tensor operation of that"
                )
            assert isinstance(source, TensorInput)
            if source.kind == "argument":
                sources.append({"argument": source.index})
                labels.append(paths[source.index])
            else:
                name = self.store.source(source)
                sources.append({"weight": name})
                labels.append(name)
        return tuple(sources), labels

    # --- results -----------------------------------------------------------------------------

    def _result(self, output: Output) -> Any:
        """The JSON of one leaf of the results."""
        if output.kind == "object":
            if not isinstance(output.tensor, VALUES):
                raise ExportError(
                    f"the model returns a {type(output.tensor).__name__}, which a file cannot "
                    "hold. Cure: return tensors, numbers, strings and containers of them"
                )
            return {"value": output.tensor}
        if output.kind == "number":
            return self._number(output)
        if output.kind == "input":
            if output.argument >= 0:
                return {"argument": output.argument}
            return {"weight": self.store.tensor(output.tensor)}
        return {"output": self._number_of(self._node(output))}

    def _number(self, output: Output) -> Any:
        number = output.number
        assert number is not None
        if number.op == "dim":
            size: Dim = number.args[0]
            return {"size": str(size)}
        if number.op == "constant":
            return {"value": number.value}
        raise ExportError(
            "the model returns a number computed from a free size. Cure: return the size itself, "
            "or the number as a tensor"
        )

    def _number_of(self, node: Node) -> int:
        return self.outputs.setdefault(node, len(self.outputs))

    def _node(self, output: Output) -> Node:
        """The graph node with the logical value of an output."""
        builder = self.trace.builder
        if output.kind == "alias":
            last = {m.input: m.output for m in self.traced.mutations}.get(output.index)
            memory = self.traced.inputs[output.index].node if last is None else (
                self.traced.graph.outputs[last]  # as the call leaves it
            )
            return views.replay(output.chain, Expr(builder, memory)).node
        node = self.traced.graph.outputs[output.index]
        if output.order is not None:
            node = self.trace.emit("permute", node, dims=output.order)
        if output.kind == "view":
            return views.replay(output.chain, Expr(builder, node)).node
        return node


def arguments_json(
    structure: Any, leaves: list[Any], paths: list[str], free: Mapping[int, Mapping[int, Size]]
) -> Any:
    """The JSON of the arguments, with the sizes that are free."""
    specs: list[Any] = []
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            own = free.get(number, {})
            shape = [
                str(own[d]) if d in own else size for d, size in enumerate(leaf._graphc_array.shape)
            ]
            specs.append({"dtype": leaf.dtype.name, "shape": shape})
        elif isinstance(leaf, VALUES):
            specs.append({"value": leaf})
        else:
            raise ExportError(
                f"{paths[number]} is a {type(leaf).__name__}, which a file cannot hold. "
                "Cure: pass tensors, numbers, strings and containers of them"
            )
    return containers.to_json(structure, iter(specs), "an argument")


def weights_of(model: Any, store: Store) -> Weights:
    """The state that the graphs read, and the rest of the model's."""
    kinds = {store.generator: "generator"} if store.generator in store.arrays else {}
    if not isinstance(model, Module):
        return Weights(store.arrays, kinds=kinds)
    tied: dict[str, str] = {}
    tensors = {
        name: value for name, value in model.state_dict(keep_vars=True).items()
        if isinstance(value, Tensor)
    }
    arrays: dict[str, Any] = {}
    for name, tensor in tensors.items():
        first = store.names.get(id(tensor), name)
        if first != name and first in arrays:
            tied[name] = first
        else:
            store.names.setdefault(id(tensor), name)
            arrays[name] = store.arrays[store.tensor(tensor)]
    constants = {name: a for name, a in store.arrays.items() if name not in arrays}
    parameters = tuple(name for name, _ in model.named_parameters() if name in arrays)
    buffers = tuple(name for name, _ in model.named_buffers() if name in constants)
    return Weights({**arrays, **constants}, tuple(tensors), tied, parameters, buffers, kinds)
