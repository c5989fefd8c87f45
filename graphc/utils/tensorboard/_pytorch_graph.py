"""torch.utils.tensorboard._pytorch_graph: what a model computes, as TensorBoard's GraphDef.

The graph is the one that graphc records, before any pass. A node stands in the scope of the Module
whose call made it ("Net/Sequential[blocks]/Linear[0]"), a parameter in that of its owner, and has
as attributes the shapes and dtypes of its results, those of its operator, and the user's line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...export.capture import argument_names, leaf_paths
from ...export.recorded import recorded
from ...frontend.captured import TensorInput, TracedGraph
from ...frontend.tree import flatten
from ...ir.graph import Graph, Node
from ...ir.types import TensorType, TupleType
from ...nn.modules.module import Module
from ._proto_graph import attributes
from .packages import GraphDef, NodeDef, VersionDef

_DEVICE = "/device:CPU:0"


class RunMetadata:
    """TensorFlow's message of this name, of a run on one device that measured nothing."""

    def __init__(self, device: str = _DEVICE) -> None:
        self.device = device

    def SerializeToString(self) -> bytes:
        """step_stats (1) of dev_stats (1) of device (1): lengths and bytes, as protobuf has it."""
        data = self.device.encode()
        for _ in range(3):
            assert len(data) < 128, "a length of one byte"
            data = bytes([1 << 3 | 2, len(data)]) + data
        return data


def graph(
    model: Any, args: Any, verbose: bool = False, use_strict_trace: bool = True
) -> tuple[Any, RunMetadata]:
    """The GraphDef and RunMetadata of `model(*args)`; a Module is in evaluation mode meanwhile.

    Python that asks for values goes on with those of these arguments. `verbose`: print the graph.
    `use_strict_trace` is torch's; containers are never kept from a trace here.
    """
    given = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    _, structure = flatten((given, {}))
    paths = leaf_paths(structure, argument_names(model, len(given), {}))
    with _set_model_to_eval(model):
        traced, trace = recorded(model, given, {}, paths, whole=False)
    found = _Definition(model, traced, trace.name, paths).nodes()
    if verbose:
        print(traced.graph)
    return GraphDef(node=found, versions=VersionDef(producer=22)), RunMetadata()


class _Definition:
    """Names for the nodes of a graph, and their messages."""

    def __init__(self, model: Any, traced: TracedGraph, root: str, paths: list[str]) -> None:
        self.graph: Graph = traced.graph
        self.root = root
        self.paths = paths
        self.sources = {source.node: source for source in traced.inputs}
        modules: Mapping[str, Any] = dict(
            model.named_modules(remove_duplicate=False) if isinstance(model, Module) else ()
        )
        self.modules = modules
        self.taken: dict[str, int] = {}
        self.names: dict[Node, str] = {}

    def nodes(self) -> list[Any]:
        """All messages, operands before what reads them."""
        found = []
        for node in self.graph.nodes:
            if node.op.name == "get":  # a result of several: "name:index"
                index = node.attrs["index"]
                self.names[node] = f"{self.names[node.inputs[0]]}{f':{index}' if index else ''}"
                continue
            source = self.sources.get(node)
            name, kind = self._input(node, source) if source is not None else (
                f"{self._scope(node)}/{node.op.name}", node.op.name
            )
            self.names[node] = self._unique(name)
            found.append(self._message(node, self.names[node], kind))
        for number, node in enumerate(self.graph.outputs, 1):
            name = self._unique(f"output/output.{number}")
            found.append(NodeDef(
                name=name, op="IO Node", input=[self.names[node]],
                attr=attributes(_shapes(node), {"dtype": _dtypes(node)}),
            ))
        return found

    def _input(self, node: Node, source: Any) -> tuple[str, str]:
        """The name and kind of a graph's input."""
        if isinstance(source, TensorInput) and source.kind == "argument":
            return f"input/{self.paths[source.index]}", "IO Node"
        owner, _, leaf = str(node.attrs["name"]).rpartition(".")
        return f"{self._place(owner)}/{leaf}", "Parameter"

    def _scope(self, node: Node) -> str:
        return self._place("" if node.loc is None else node.loc.module)

    def _place(self, path: str) -> str:
        """A Module's path as scopes: its root's class, and Class[name] for each below."""
        parts = [self.root]
        names = path.split(".") if path else []
        for count, name in enumerate(names, 1):
            module = self.modules.get(".".join(names[:count]))
            parts.append(name if module is None else f"{type(module).__name__}[{name}]")
        return "/".join(parts)

    def _unique(self, name: str) -> str:
        """The name, numbered where another node has it."""
        name = name.replace(":", "_")
        count = self.taken.get(name, 0)
        self.taken[name] = count + 1
        return name if not count else self._unique(f"{name}_{count}")

    def _message(self, node: Node, name: str, kind: str) -> Any:
        texts = {"dtype": _dtypes(node)}
        settings = {} if node in self.sources else {
            key: value for key, value in node.attrs.items()
            if isinstance(value, (int, float, str, tuple))
        }
        if settings:
            # TensorBoard shows quotation marks as something else
            texts["attr"] = str(settings).replace("'", " ")
        if node.op.name == "const" and (array := node.attrs["value"].array).size == 1:
            texts["value"] = str(array.item())
        if node.loc is not None:
            texts["line"] = f"{os.path.basename(node.loc.file)}:{node.loc.line}"
        return NodeDef(
            name=name, op=kind, input=[self.names[each] for each in node.inputs],
            attr=attributes(_shapes(node), texts), device=_DEVICE,
        )


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.type,)


def _shapes(node: Node) -> list[Any]:
    return [type_.shape for type_ in _types(node)]  # of numbers: nothing was declared to be free


def _dtypes(node: Node) -> str:
    return ", ".join(type_.dtype.torch_name for type_ in _types(node))


@contextmanager
def _set_model_to_eval(model: Any) -> Iterator[None]:
    """Inside, a Module and all below it are in evaluation mode; then each as it was."""
    modules = list(model.modules()) if isinstance(model, Module) else []
    before = [module.training for module in modules]
    if modules:
        model.eval()
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training
