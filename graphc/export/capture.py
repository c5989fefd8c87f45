"""`export(model, args)`: trace the model once; say where every value of its Graph comes from."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from graphc.export import containers, dynamic, ones
from graphc.export.errors import ExportError
from graphc.export.program import ExportedProgram
from graphc.export.recorded import recorded
from graphc.export.signature import VALUES, Signature, Weights
from graphc.frontend import views
from graphc.frontend.captured import Output, TensorInput, TracedGraph
from graphc.frontend.tensor import Tensor
from graphc.frontend.trace import Trace
from graphc.frontend.tree import flatten, unflatten
from graphc.ir.dim import Dim
from graphc.ir.graph import Expr, Graph, Node, const, input_
from graphc.ir.memory import may_share, on_host
from graphc.ir.record import replaced
from graphc.ir.rewrite import everywhere, with_inputs
from graphc.nn.modules.module import Module

LARGE = 256  # elements: larger constants are stored as weights, not in the graph's text


def export(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:
    """Record `model(*args, **kwargs)` as a program that runs without the model's code.

    `model`: a Module or function, in the train or eval state that it is in. Sizes are those of the
    example, but for what `dynamic_shapes` frees: {"x": {0: "batch"}}; size 1 is among them where
    the model computes the same there (ones.py). Parameters and buffers are
    copied, to the device of the example. Numbers and strings among the arguments become part of the
    program. `strict` and the signatures to preserve are torch's; there is one way of recording.
    Raises ExportError for what a file cannot hold, such as a model that changes its
    buffers, and TraceError naming every place of its Python that one graph cannot stand for.
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args must be a tuple of the model's arguments, got {type(args).__name__}."
                        " Cure: export(model, (x,))")
    model = getattr(type(model), "_orig_mod", model)  # of a compiled Module: names without it
    given = dict(kwargs or {})
    positional = argument_names(model, len(args), given)
    shapes = dynamic.read(dynamic_shapes, args, given, positional)
    leaves, structure = flatten((args, given))
    _check_apart(leaves)
    paths = leaf_paths(structure, positional)
    names = _state_names(model)

    def record(leaves: list[Any], shapes: dynamic.DynamicShapes) -> _Program:
        args, kwargs = unflatten(leaves, structure)
        traced, trace = recorded(model, args, kwargs, paths, shapes.names)
        _check_effects(traced, names)
        _check_free(traced.graph, shapes.ranges)
        return _Program(traced, trace, leaves, paths, shapes, names)

    program = record(ones.several(leaves, shapes.names), shapes)
    ones.settle(shapes, leaves, program.recorded, lambda *other: record(*other).recorded)
    return program.build(model, structure, positional, given)


def argument_names(
    model: Callable[..., Any], count: int, kwargs: Mapping[str, Any]
) -> list[str]:
    """The names of the positional arguments; made up where the function does not say."""
    function = model.forward if isinstance(model, Module) else model
    names: list[str] = []
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
    taken = set(names) | set(kwargs)
    while len(names) < count:
        number = len(names)
        names.append(f"arg{number}" if f"arg{number}" not in taken else f"arg{number}_")
    return names[:count]


def leaf_paths(structure: Any, positional: list[str]) -> list[str]:
    """A name for each leaf of the arguments, in order."""
    args, kwargs = structure.children
    found: list[str] = []
    for name, child in zip((*positional, *kwargs.keys), (*args.children, *kwargs.children),
                           strict=True):
        found += containers.paths(child, name)
    return found


def _check_apart(leaves: list[Any]) -> None:
    """Tensors given twice would be one input of the graph, and two at a later call."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    for i, tensor in enumerate(tensors):
        for other in tensors[:i]:
            if may_share(tensor._array, other._array):
                raise ExportError(
                    "two example arguments share memory, which later calls need not do. Cure: "
                    "clone() one of them"
                )


def _state_names(model: Any) -> dict[int, str]:
    """The dotted name of each parameter and buffer, by id; the first name of a shared one."""
    names: dict[int, str] = {}
    if isinstance(model, Module):
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            names.setdefault(id(tensor), name)
    return names


def _check_effects(traced: TracedGraph, names: dict[int, str]) -> None:
    """Raise ExportError for what the model changed: an exported program only computes."""
    for mutation in traced.mutations:
        source = traced.inputs[mutation.input]
        assert isinstance(source, TensorInput)
        if source.index >= 0:
            what = f"its argument number {source.index}"
            cure = "clone() the argument before it is written to"
        elif id(source.tensor) in names:
            what = f"the buffer or parameter {names[id(source.tensor)]!r}"
            cure = "call model.eval() before export: in train mode some layers update buffers"
        else:
            what = f"a tensor outside itself ({source.type}, perhaps a random generator)"
            cure = "call model.eval() before export: dropout then draws no numbers"
        raise ExportError(
            f"the model writes to {what}, which an exported program cannot do. Cure: {cure}"
        )
    for kind, changed in (("`.data`", traced.rebinds), ("`.grad`", traced.grads),
                          ("`.requires_grad`", traced.flags)):
        if changed:
            tensor: Any = changed[0]
            name = names.get(id(tensor.tensor), "a tensor")
            raise ExportError(
                f"the model sets {kind} of {name}, which an exported program cannot do. Cure: "
                "export the part that only computes results"
            )
    for source in traced.inputs:
        if source.number >= 0 and getattr(source, "kind", "") == "grad":
            raise ExportError("the model reads `.grad`, which an exported program does not have")
        if getattr(source, "kind", "") == "storage" and getattr(source, "index", -1) >= 0:
            raise ExportError(
                "an example argument shares memory with a parameter. Cure: clone() the argument"
            )


def _check_free(graph: Graph, ranges: Mapping[str, dynamic.Range]) -> None:
    """Raise ExportError where the model fixed a size that was to be free."""
    for guard in graph.env.guards:
        pairs = ((guard.left, guard.right), (guard.right, guard.left))
        for size, other in pairs:
            if guard.relation == "eq" and guard.holds and isinstance(other, int):
                name = str(size)
                if name in ranges:
                    raise ExportError(
                        f"the model fixes the free size {name!r} to {other} (it used the size as "
                        f"a number, or gave it a fixed partner). Cure: drop {name!r} from "
                        "dynamic_shapes, or compute with x.shape instead of int(x.shape[...])"
                    )


class _Program:
    """From a finished trace to an ExportedProgram."""

    def __init__(
        self, traced: TracedGraph, trace: Trace, leaves: list[Any], paths: list[str],
        shapes: dynamic.DynamicShapes, names: dict[int, str],
    ) -> None:
        self.traced, self.trace, self.leaves, self.paths = traced, trace, leaves, paths
        self.shapes = shapes
        self.names = names
        self.state: dict[str, np.ndarray] = {}
        self.outputs: dict[Node, int] = {}
        results, structure = flatten(
            traced.result, is_leaf=lambda value: isinstance(value, Output)
        )
        specs = [self._result(output) for output in results]
        self.results = containers.to_json(structure, iter(specs), "the result")
        self.graph = Graph(
            trace.name, traced.graph.inputs, tuple(self.outputs), traced.graph.env
        )

    @property
    def recorded(self) -> ones.Recorded:
        """The graph as it was recorded, and the results' JSON."""
        return self.graph, self.results

    def build(
        self, model: Any, structure: Any, positional: list[str], kwargs: Mapping[str, Any]
    ) -> ExportedProgram:
        """All of it, with the weights."""
        weights, labels = self._inputs()
        graph, constants = _portable(self.graph, labels)
        for name, array in constants.items():
            self.state[name] = array
            weights.append(name)
        signature = Signature(
            tuple(positional), tuple(kwargs),
            containers.to_json(structure, self._arguments(), "an argument"),
            self.results, tuple(weights), self.shapes.ranges,
        )
        return ExportedProgram(
            graph, signature, self._weights(model), self.trace.place or None
        )

    # --- inputs ------------------------------------------------------------------------------

    def _inputs(self) -> tuple[list[str | None], list[str]]:
        """Per graph input: the weight's name or None for an argument; and its printed name."""
        weights: list[str | None] = []
        labels: list[str] = []
        for source in self.traced.inputs:
            assert isinstance(source, TensorInput)
            if source.kind == "argument":
                weights.append(None)
                labels.append(self.paths[source.index])
                continue
            assert source.tensor is not None
            if source.kind == "storage":
                array, name = source.tensor._storage.root.flat(), f"storage.{source.number}"
            else:
                array = source.tensor._array
                name = self.names.get(id(source.tensor), f"constant.{source.number}")
            self.state[name] = np.array(on_host(array), order="C")
            weights.append(name)
            labels.append(name)
        return weights, labels

    def _arguments(self) -> Iterator[Any]:
        """The JSON of each leaf of the arguments."""
        inputs = {
            source.index: source.number for source in self.traced.inputs
            if isinstance(source, TensorInput) and source.kind == "argument"
        }
        for number, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                free = self.shapes.names.get(number, {})
                shape = [free.get(d, size) for d, size in enumerate(leaf._array.shape)]
                yield {"tensor": inputs.get(number), "dtype": leaf.dtype.name, "shape": shape}
            elif isinstance(leaf, VALUES):
                yield {"value": leaf}
            else:
                raise ExportError(
                    f"{self.paths[number]} is a {type(leaf).__name__}, which a file cannot hold. "
                    "Cure: pass tensors, numbers, strings and containers of them"
                )

    def _weights(self, model: Any) -> Weights:
        """The state that the graph reads, and the rest of the model's."""
        if not isinstance(model, Module):
            return Weights(self.state)
        tied: dict[str, str] = {}
        arrays: dict[str, np.ndarray] = {}
        tensors = {
            name: value for name, value in model.state_dict(keep_vars=True).items()
            if isinstance(value, Tensor)
        }
        for name, tensor in tensors.items():
            first = self.names.get(id(tensor), name)
            if first != name and first in arrays:
                tied[name] = first
            elif name in self.state:
                arrays[name] = self.state[name]
            else:
                arrays[name] = np.array(on_host(tensor._array), order="C")
        constants = {name: a for name, a in self.state.items() if name not in arrays}
        parameters = tuple(name for name, _ in model.named_parameters() if name in arrays)
        return Weights({**arrays, **constants}, tuple(tensors), tied, parameters)

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
            name = self.names.get(id(output.tensor), f"result.{len(self.state)}")
            self.state[name] = np.array(on_host(output.tensor._array), order="C")
            return {"weight": name}
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
            source = self.traced.inputs[output.index]
            return views.replay(output.chain, Expr(builder, source.node)).node
        node = self.traced.graph.outputs[output.index]
        if output.kind == "view":
            return views.replay(output.chain, Expr(builder, node)).node
        return node if output.order is None else self.trace.emit("permute", node, dims=output.order)


# --- a graph for other machines --------------------------------------------------------------


def _portable(graph: Graph, labels: list[str]) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph with named inputs, large constants as further inputs, and no folder names."""
    graph = everywhere(graph, _without_folders)
    new: dict[Node, Node] = {}
    constants: dict[str, np.ndarray] = {}
    inputs: list[Node] = []

    def add_input(node: Node, name: str) -> None:
        attrs = {"index": len(inputs), "name": name, "type": node.type}
        new[node] = replaced(node, op=input_, attrs=attrs, loc=None)
        inputs.append(new[node])

    for node, label in zip(graph.inputs, labels, strict=True):
        add_input(node, label)
    for node in graph.nodes:
        if node in new:
            continue
        if node.op is const and node.attrs["value"].array.size > LARGE:
            name = f"large.{len(constants)}"
            constants[name] = node.attrs["value"].array
            add_input(node, name)
        else:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    outputs = tuple(new[node] for node in graph.outputs)
    return Graph(graph.name, tuple(inputs), outputs, graph.env), constants


def _without_folders(graph: Graph) -> Graph:
    """User lines by the file's name alone: a file tells nothing of the machine it was made on."""
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        loc = node.loc
        short = None if loc is None else loc._replace(file=os.path.basename(loc.file))
        inputs = tuple(new[x] for x in node.inputs)
        new[node] = replaced(node, inputs=inputs, loc=short)
    return Graph(
        graph.name, tuple(new[n] for n in graph.inputs), tuple(new[n] for n in graph.outputs),
        graph.env,
    )
