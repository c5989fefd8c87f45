"""A graph of an exported program as a torch.fx GraphModule: to be printed, walked and run.

Its placeholders are the graph's inputs, weights among them; its functions are the IR's operators,
which run on NumPy. A free size is read off an argument, and what follows from it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from graphc.backends.numpy import TABLE
from graphc.export.contents import Variant
from graphc.export.names import value_names
from graphc.export.signature import Weights
from graphc.frontend.tensor import Tensor, from_array
from graphc.fx import Graph as FxGraph
from graphc.fx import GraphModule
from graphc.fx import Node as FxNode
from graphc.ir import dim, op
from graphc.ir.dim import Dim
from graphc.ir.graph import Constant, Node, const, get_, input_
from graphc.ir.interpret import run_control
from graphc.ir.memory import on_host


def graph_module(variant: Variant, weights: Weights) -> GraphModule:
    """The graph of a variant."""
    return _Translation(variant, weights).module()


class _Translation:
    def __init__(self, variant: Variant, weights: Weights) -> None:
        self.variant = variant
        self.names = value_names(variant, weights)
        self.graph = FxGraph()
        self.made: dict[Node, FxNode] = {}
        self.sizes: dict[str, FxNode] = {}
        self.constants: dict[str, Any] = {}

    def module(self) -> GraphModule:
        described = zip(self.variant.signature.inputs, self.variant.graph.inputs, strict=True)
        for _, node in sorted(described, key=lambda pair: pair[0].get("argument", -1)):
            self.made[node] = self.graph.placeholder(self.names[node])
        for node in self.variant.graph.inputs:
            self._read_sizes(node)
        for node in self.variant.graph.nodes:
            if node.op is not input_:
                self.made[node] = self._node(node)
        self.graph.output(tuple(self.made[node] for node in self.variant.graph.outputs))
        for node, made in self.made.items():
            made.meta["type"] = node.type
            made.meta["stack_trace"] = node.place
        name = self.variant.graph.name
        return GraphModule(self.constants, self.graph, name if name.isidentifier() else "Graph")

    def _read_sizes(self, node: Node) -> None:
        """Nodes for the named dims of an input."""
        for place, size in enumerate(node.shape):
            for name in sorted(size.variables()) if isinstance(size, Dim) else ():
                if name not in self.sizes:
                    self.sizes[name] = self.graph.call_function(
                        sym_size, (self.made[node], place, str(size)), name=f"sym_size_{name}"
                    )

    def _node(self, node: Node) -> FxNode:
        name = self.names[node]
        if node.op is const:
            self.constants[f"_{name}"] = from_array(node.attrs["value"].array.copy())
            return self.graph.create_node("get_attr", f"_{name}", name=name)
        inputs = tuple(self.made[source] for source in node.inputs)
        if node.op is get_:
            return self.graph.call_function(getitem, (*inputs, node.attrs["index"]), name=name)
        attrs = {key: self._value(value) for key, value in node.attrs.items()}
        target: Callable[..., Any] = operator(node.op.name)
        if node.graphs:
            target = _control(node)
        return self.graph.call_function(target, inputs, attrs, name=name)

    def _value(self, value: Any) -> Any:
        """An attribute, with nodes for symbolic sizes."""
        if isinstance(value, Dim):
            return self._size(value)
        if isinstance(value, tuple):
            return tuple(self._value(item) for item in value)
        return value.array if isinstance(value, Constant) else value

    def _size(self, size: Dim) -> FxNode:
        found = self.sizes.get(str(size))
        if found is None:
            known: Mapping[str, Any] = {n: self.sizes[n] for n in sorted(size.variables())}
            found = self.sizes[str(size)] = self.graph.call_function(
                size_of, (str(size),), dict(known), name="size"
            )
        return found


def sym_size(tensor: Tensor, place: int, text: str) -> int:
    """The free size for which a dim of a tensor is what a text a*name + b says."""
    size = dim.parse(text)
    (name,) = size.variables() if isinstance(size, Dim) else ("",)
    zero, one = (dim.evaluate(size, {name: value}) for value in (0, 1))
    return (int(tensor.shape[place]) - zero) // (one - zero)


def size_of(text: str, **dims: int) -> int:
    """A size that follows from others."""
    return dim.evaluate(dim.parse(text), dims)


def getitem(values: Any, index: int) -> Any:
    """One of several results."""
    return values[index]


def _tensors(found: Any) -> Any:
    return tuple(map(from_array, found)) if isinstance(found, tuple) else from_array(found)


@cache
def operator(name: str) -> Callable[..., Any]:
    """An operator of the IR as a function of tensors."""
    record = op.get(name)

    def run(*tensors: Tensor, **attrs: Any) -> Any:
        return _tensors(
            TABLE[name](*(on_host(tensor._graphc_array) for tensor in tensors), **attrs)
        )

    run.__name__ = run.__qualname__ = name
    run.__module__ = "graphc.ir.ops"
    run.__doc__ = record.doc
    return run


def _control(node: Node) -> Callable[..., Any]:
    """An operator with graphs inside."""

    def run(*tensors: Tensor, **attrs: Any) -> Any:
        arrays = [on_host(tensor._graphc_array) for tensor in tensors]
        found = run_control(node.op, arrays, {**attrs, "graphs": node.graphs}, TABLE)
        return _tensors(found)

    run.__name__ = run.__qualname__ = node.op.name
    run.__module__ = "graphc.ir.ops"
    return run
