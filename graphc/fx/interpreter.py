"""torch.fx.interpreter: running a Graph Node by Node."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ._symbolic_trace import Tracer
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument, Node, Target, map_aggregate, map_arg
from .proxy import Proxy


class Interpreter:
    """Runs the Graph of a Module; subclasses say what becomes of a Node."""

    def __init__(
        self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.graph: Graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.args_iter: Any = iter(())
        self.garbage_collect_values = garbage_collect_values

    def run(
        self, *args: Any, initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """The result for these arguments."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        last: dict[Node, Node] = {}
        for node in self.graph.nodes:
            for read in node.all_input_nodes:
                last[read] = node
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for read in node.all_input_nodes:
                    if last[read] is node:
                        self.env.pop(read, None)
        return None

    def run_node(self, n: Node) -> Any:
        """What a Node comes to."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """An argument."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """An attribute of the Module."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """A call of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """A call of a method of the first argument."""
        itself, *rest = args
        return getattr(itself, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """A call of a submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """What is returned."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the Module by its path."""
        return functools.reduce(getattr, target.split("."), self.module)

    def fetch_args_kwargs_from_env(self, n: Node) -> Any:
        """A Node's arguments as values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Arguments with values in the Nodes' places."""
        return map_arg(args, lambda read: self.env[read])


class Transformer(Interpreter):
    """An Interpreter that makes another GraphModule."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = Tracer()
        self.tracer.root, self.tracer.graph = module, self.new_graph

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Proxy:
        """A parameter of the new Graph."""
        default = args[0] if args else inspect.Signature.empty
        defaults = () if default is inspect.Signature.empty else (default,)
        return Proxy(self.new_graph.create_node("placeholder", target, defaults), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Proxy:
        """An attribute, in the new Graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """A call, in the new Graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """A call, in the new Graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Any) -> Any:
        """A call, in the new Graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new GraphModule."""
        result = super().run()
        if result is not None:
            self.new_graph.output(map_result(result))
        return GraphModule(self.module, self.new_graph)


def map_result(result: Any) -> Any:
    """A result with Nodes in the Proxies' places."""
    return map_aggregate(result, lambda item: item.node if isinstance(item, Proxy) else item)
