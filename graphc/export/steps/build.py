"""From a step's recording to what a file holds: where every input of the graph comes from, and what
becomes of every output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.engine.capture.places import Place
from graphc.engine.capture.recording import Recording
from graphc.export import containers
from graphc.export.contents import Contents, Variant
from graphc.export.dynamic import DynamicShapes
from graphc.export.errors import ExportError
from graphc.export.lifted import arguments_json
from graphc.export.portable import portable
from graphc.export.signature import VALUES, Signature, Weights, json_with
from graphc.export.steps import effects
from graphc.export.steps.counts import Counts
from graphc.export.steps.names import Named, StepNames, said_place
from graphc.frontend import views
from graphc.frontend.captured import NumberInput, Output, TensorInput
from graphc.frontend.tensor import Tensor
from graphc.frontend.tree import flatten
from graphc.ir.graph import Expr, Graph, Node
from graphc.ir.memory import on_host


class StepBuilder:
    """One recording; `contents()` is all of it."""

    def __init__(
        self, recording: Recording, names: StepNames, paths: Sequence[str], calls: int | None,
        others: Sequence[Contents] = (),
    ) -> None:
        """`others`: what other recordings of the step have come to, at other sizes."""
        self.large = {
            name: array for each in others for name, array in each.weights.arrays.items()
            if name.startswith("large.")
        }
        self.recording, self.traced, self.trace = recording, recording.traced, recording.trace
        self.names = names
        effects.check(recording, names)
        result, *stored = recording.rebuild.make(list(self.traced.result))
        self.stored = dict(zip(recording.stored, stored, strict=True))
        effects.check_stored(recording, self.stored)
        self.result = result
        self.counts = Counts(
            recording, self.stored, self._results(), names, paths, calls,
            sum(len(each.numbers) for each in others),
        )
        self.arrays: dict[str, np.ndarray] = {}
        # whose attribute `.grad` it is, or where a new tensor is put, by name
        self.graded: dict[str, Tensor] = {}
        self.placed: dict[str, Place] = {}
        self.kinds: dict[str, str] = {}
        self.graph_outputs: list[Node] = []
        self.writes: list[dict[str, Any]] = []
        self.shown: dict[Node, int] = {}  # outputs that are results
        count = self.traced.forward[0]  # behind it are the gradients of results
        self.inputs = self.traced.inputs[:count]
        self.sources: list[dict[str, Any]] = []
        self.labels: list[str] = []
        for source in self.inputs:
            self._input(source)

    def contents(
        self, structure: Any, leaves: Sequence[Any], lifted: set[int], positional: Sequence[str],
        keywords: Sequence[str], shapes: DynamicShapes, random: str,
    ) -> Contents:
        """What a file holds of the step."""
        self._writes()
        found, results = flatten(self.result, is_leaf=lambda value: isinstance(value, Output))
        shown = containers.to_json(results, iter([self._result(o) for o in found]), "the result")
        graph, constants = portable(Graph(
            self.trace.name, self.traced.graph.inputs[: len(self.inputs)],
            tuple(self.graph_outputs), self.traced.graph.env,
        ), self.labels)
        self.sources += [{"weight": self._large(array)} for array in constants]
        arguments = self._arguments(structure, leaves, lifted, shapes)
        signature = Signature(
            tuple(positional), tuple(keywords), arguments, shown, tuple(self.sources),
            dict(shapes.ranges), tuple(self.writes), dict(shapes.narrowed),
        )
        self.arrays |= self.counts.arrays
        self.kinds |= dict.fromkeys(self.counts.arrays, "number")
        generators = [name for name, kind in self.kinds.items() if kind == "generator"]
        generator = {"weight": generators[0], "algorithm": _ALGORITHMS[random]} if (
            generators
        ) else None
        step = {**self.counts.to_json(), "random": random if generators else None}
        return Contents(
            (Variant(frozenset(), graph, signature),), self._weights(), kind="step",
            numbers=self._numbers(graph), generator=generator, step=step,
        )

    # --- inputs ------------------------------------------------------------------------------

    def _input(self, source: Any) -> None:
        if isinstance(source, NumberInput):
            name = self.counts.computed(source.expression)
            self.sources.append({"number": name})
            self.labels.append(str(source.node.attrs.get("name") or name))
            return
        if not isinstance(source, TensorInput):
            raise ExportError(
                "the step works out sizes from values ahead of its graph, as packed sequences do, "
                "which a file cannot. Cure: pad the sequences instead"
            )
        if source.kind == "argument":
            self.sources.append({"argument": source.index})
            self.labels.append(self.trace.argument_names[source.index])
            return
        assert source.tensor is not None
        name = self._weight(source)
        self.sources.append({"weight": name})
        self.labels.append(name)

    def _weight(self, source: TensorInput) -> str:
        tensor = source.tensor
        assert tensor is not None
        if source.kind == "storage":
            raise ExportError(
                f"the step uses tensors that share memory ({self._named(tensor).name} is one of "
                "them), and writes to it. Cure: clone() one of them"
            )
        if source.kind == "grad":
            name = f"gradient.{self._named(tensor).name}"
            self.graded[name] = tensor
            return self._keep(name, "gradient", source.array)
        place = self.recording.stored_inputs().get(source.number)
        named = self.names.of(tensor)
        if named is None and place is not None:
            named = self.names.new(tensor, self.counts.place_name(place))
        named = named or self._named(tensor)
        return self._keep(named.name, named.kind, source.array)

    def _named(self, tensor: Tensor) -> Named:
        found = self.names.of(tensor)
        if found is None:
            found = self.names.new(tensor, f"tensor.{len(self.arrays)}", "other")
        return found

    def _keep(self, name: str, kind: str, array: Any) -> str:
        if name not in self.arrays:
            self.arrays[name] = np.array(on_host(array), order="C")
            self.kinds[name] = kind
        return name

    def _large(self, array: np.ndarray) -> str:
        """The name of a constant that is too large for a graph's text."""
        for name, known in self.large.items():
            if known.dtype == array.dtype and known.shape == array.shape and (
                known.tobytes() == array.tobytes()
            ):
                return self._keep(name, "constant", array)
        name = f"large.{len(self.large)}"
        self.large[name] = array
        return self._keep(name, "constant", array)

    def _arguments(
        self, structure: Any, leaves: Sequence[Any], lifted: set[int], shapes: DynamicShapes
    ) -> Any:
        """The JSON of the arguments: with the names of numbers that each call gives."""
        paths = self.counts.paths
        plain = arguments_json(structure, list(leaves), paths, shapes.names)
        number = iter(range(len(leaves)))

        def leaf(spec: Any) -> Any:
            i = next(number)
            return {**spec, "number": paths[i]} if i in lifted else spec

        return json_with(plain, leaf)

    # --- what is written -----------------------------------------------------------------------

    def _writes(self) -> None:
        for mutation in self.traced.mutations:
            target = self.sources[mutation.input]
            node = self.traced.graph.outputs[mutation.output]
            if "weight" not in target:
                path = self.labels[mutation.input]
                raise ExportError(
                    f"the step writes to its argument {path!r}. Cure: clone() it before it is "
                    "written to"
                )
            if mutation.history:
                raise ExportError(
                    f"the step keeps {target['weight']!r} with its history, which later calls "
                    "would go back through. Cure: store .detach()"
                )
            self._write(target["weight"], node)
        for rebind in self.traced.rebinds:
            named = self._named(rebind.tensor)
            self._keep(named.name, named.kind, rebind.tensor._graphc_array)
            self._write(named.name, self._node(rebind.value))
        inputs = {place: number for number, place in self.recording.stored_inputs().items()}
        for place, value in self.stored.items():
            if isinstance(value, Output) and value.kind != "number":
                self._stored(place, value, inputs)
        for write in self.traced.grads:
            name = f"gradient.{self._named(write.tensor).name}"
            if name in self.arrays and write.value is not None and (
                write.value.kind not in ("alias", "input")
            ):
                self._write(name, self._node(write.value))

    def _stored(self, place: Place, value: Output, inputs: Mapping[Place, int]) -> None:
        """A new tensor in a place that the next call reads."""
        number = inputs.get(place)
        if number is None or value.kind == "input" or value.method:
            read = self.recording.observer.was_read(place)
            why, cure = "it does not read again", "return the tensor"
            if read:
                why, cure = "was none before", "call the step once before you export it"
            raise ExportError(
                f"the step stores a tensor in {said_place(place)}, which {why}. Cure: {cure}"
            )
        name = self.sources[number]["weight"]
        self.placed[name] = place
        self._write(name, self._node(value))

    def _write(self, name: str, node: Node) -> None:
        array, type_ = self.arrays[name], node.tensor_type
        if tuple(array.shape) != tuple(type_.shape) or array.dtype != type_.dtype.numpy:
            sizes = ", ".join(map(str, array.shape))
            raise ExportError(
                f"the step makes {name!r}, {array.dtype} [{sizes}], a {type_}. Cure: state of a "
                "step keeps its dtype and its sizes"
            )
        self.writes = [write for write in self.writes if write["weight"] != name]
        self.writes.append({"output": len(self.graph_outputs), "weight": name})
        self.graph_outputs.append(node)

    # --- results -----------------------------------------------------------------------------

    def _results(self) -> list[Output]:
        leaves, _ = flatten(self.result, is_leaf=lambda value: isinstance(value, Output))
        return [leaf for leaf in leaves if isinstance(leaf, Output)]

    def _result(self, output: Any) -> Any:
        """The JSON of one leaf of the results."""
        if not isinstance(output, Output):
            output = Output("object", tensor=output)
        if output.kind == "object":
            if not isinstance(output.tensor, VALUES):
                raise ExportError(
                    f"the step returns a {type(output.tensor).__name__}, which a file cannot hold. "
                    "Cure: return tensors, numbers, strings and containers of them"
                )
            return {"value": output.tensor}
        if output.kind == "number":
            assert output.number is not None
            return {"computed": self.counts.expression(output.number)}
        if output.method:
            return {output.method: self._shown(self._node(output.owner or output))}
        if output.kind == "input":
            if output.argument >= 0:
                return {"argument": output.argument}
            named = self._named(output.tensor)
            return {"weight": self._keep(named.name, named.kind, output.tensor._graphc_array)}
        return {"output": self._shown(self._node(output))}

    def _shown(self, node: Node) -> int:
        if node not in self.shown:
            self.shown[node] = len(self.graph_outputs)
            self.graph_outputs.append(node)
        return self.shown[node]

    def _node(self, output: Output) -> Node:
        """The graph node with the logical value of an output, when the call is over."""
        builder = self.trace.builder
        if output.kind == "alias":
            last = {m.input: m.output for m in self.traced.mutations}.get(output.index)
            node = self.inputs[output.index].node if last is None else (
                self.traced.graph.outputs[last]
            )
            return views.replay(output.chain, Expr(builder, node)).node
        node = self.traced.graph.outputs[output.index]
        if output.order is not None:
            node = self.trace.emit("permute", node, dims=output.order)
        if output.kind == "view":
            return views.replay(output.chain, Expr(builder, node)).node
        return node

    # --- data ----------------------------------------------------------------------------------

    def _weights(self) -> Weights:
        """The state, the model's first, in the order of its state_dict."""
        written = {write["weight"] for write in self.writes}
        state: list[str] = []
        for named in self.names.state():
            self._keep(named.name, named.kind, named.tensor._graphc_array)
            state.append(named.name)
        tied = {n: first for n, first in self.names.tied.items() if first in self.arrays}
        fixed = {"other", "number", "constant"}
        state += [
            name for name in self.arrays
            if name not in state and (name in written or self.kinds[name] not in fixed)
        ]
        parameters = tuple(n for n in state if self.kinds.get(n) == "parameter")
        kinds = {
            name: kind for name, kind in self.kinds.items()
            if kind in ("optimizer", "generator", "number", "gradient")
        }
        return Weights(self.arrays, (*state, *tied), tied, parameters, (), kinds)

    def _numbers(self, graph: Graph) -> tuple[Mapping[str, Any], ...]:
        return tuple(
            {"name": source["number"], "dtype": node.tensor_type.dtype.name, "default": None}
            for source, node in zip(self.sources, graph.inputs, strict=True) if "number" in source
        )


_ALGORITHMS = {"torch": "mt19937", "counter": "counter"}
