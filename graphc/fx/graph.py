"""torch.fx.graph: a function of tensors as a list of Nodes, and as Python code."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .code import source_of
from .node import Argument, Node, Target, map_arg, name_of

_BUILTINS = frozenset(dir(builtins)) | {"inf", "nan", "NoneType", "torch", "device"}


class PythonCode(NamedTuple):
    """The text of a function, and the objects that it names."""

    src: str
    globals: dict[str, Any]


class _Names:
    """Gives each Node a name of its own."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last: dict[str, int] = {}

    def new(self, wanted: str) -> str:
        """`wanted`, or with a number behind it."""
        name = re.sub(r"[^0-9a-zA-Z_]+", "_", wanted)
        if not name or name[0].isdigit():
            name = f"_{name}"
        found = re.fullmatch(r"(.*)_(\d+)", name)
        base, number = (found[1], int(found[2])) if found else (name, None)
        candidate = base if number is None else f"{base}_{number}"
        count = number or self._last.get(base, 0)
        while candidate in self._used or keyword.iskeyword(candidate) or candidate in _BUILTINS:
            count += 1
            candidate = f"{base}_{count}"
        self._used.add(candidate)
        self._last[base] = count
        return candidate

    def forget(self, name: str) -> None:
        """The name is free again."""
        self._used.discard(name)


class NodeList:
    """The Nodes of a Graph in their order: a view, which may change while it is gone along."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph, self._backwards = graph, backwards

    def __len__(self) -> int:
        return len(self._graph._nodes)

    def __iter__(self) -> Iterator[Node]:
        nodes = list(self._graph._nodes)
        for node in reversed(nodes) if self._backwards else nodes:
            if not node._erased:
                yield node

    def __reversed__(self) -> NodeList:
        return NodeList(self._graph, not self._backwards)


class CodeGen:
    """torch.fx.CodeGen: Python code as graphc writes it."""


class _InsertPoint:
    """Where a Graph's new Nodes go, from when it is made; as a context, to the context's end."""

    def __init__(self, graph: Graph, node: Node | None, behind: int) -> None:
        if node is not None and node.graph is not graph:
            raise AssertionError("Node is not of this Graph")
        self._graph, self._before = graph, graph._at
        graph._at = node, behind

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        self._graph._at = self._before


class Graph:
    """Nodes in the order in which they run; new ones go to the insertion point."""

    def __init__(
        self, owning_module: Any = None, tracer_cls: type | None = None, tracer_extras: Any = None
    ) -> None:
        self.owning_module, self._tracer_cls, self._tracer_extras = (
            owning_module, tracer_cls, tracer_extras
        )
        self._nodes: list[Node] = []
        self._names = _Names()
        # new Nodes go before (0) or directly behind (1) this one; None: what is before the first
        # and behind the last
        self._at: tuple[Node | None, int] = None, 0
        self._codegen = CodeGen()

    @property
    def nodes(self) -> NodeList:
        """The Nodes, in order."""
        return NodeList(self)

    # --- changing it ---------------------------------------------------------------------

    def create_node(
        self, op: str, target: Target, args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, name: str | None = None, type_expr: Any = None,
    ) -> Node:
        """A new Node at the insertion point."""
        wanted = name if name is not None else _name_for(target)
        node = Node(self, self._names.new(wanted), op, target, args or (), kwargs or {}, type_expr)
        beside, behind = self._at
        if beside is not None:
            self._nodes.insert(self._nodes.index(beside) + behind, node)
        elif behind:
            self._nodes.insert(0, node)
        else:
            self._nodes.append(node)
        return node

    def placeholder(
        self, name: str, type_expr: Any = None, default_value: Any = ...
    ) -> Node:
        """A parameter."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the Module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: Any = None, kwargs: Any = None,
        type_expr: Any = None, name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """What is returned."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def erase_node(self, to_erase: Node) -> None:
        """Take a Node out. Raises RuntimeError where something reads it."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase._erased:
            return
        if self._at[0] is to_erase:
            rest = self._nodes[self._nodes.index(to_erase) + 1 :]
            self._at = (rest[0], 0) if rest else (None, 0)
        self._nodes.remove(to_erase)
        self._names.forget(to_erase.name)
        to_erase._erased = True
        to_erase._set((), {})

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """New Nodes go before n, or each to the begin of the Graph: from now on, or for as long as
        what this gives is a context."""
        return _InsertPoint(self, n, 0 if n is not None else 1)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """New Nodes go directly behind n, so that the last made is the first there, or to the end
        of the Graph; as long as inserting_before says."""
        return _InsertPoint(self, n, 1 if n is not None else 0)

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node
    ) -> Node:
        """A copy of another Graph's Node, whose arguments go through arg_transform."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Copies of all Nodes of g, noted in val_map; gives what g returns."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        copies: dict[Node, Node] = {}
        for node in self.nodes:
            copies[node] = made.node_copy(node, lambda n: copies[n])
        return made

    def eliminate_dead_code(
        self, is_impure_node: Callable[[Node], bool] | None = None
    ) -> bool:
        """Take out what nobody reads; whether there was something."""
        self.lint()
        impure = is_impure_node or Node.is_impure
        found = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                found = True
        return found

    def _beside(self, node: Node, step: int) -> Node:
        place = self._nodes.index(node) + step
        return self._nodes[place % len(self._nodes)]

    def _move(self, node: Node, beside: Node, behind: int) -> None:
        if node is not beside:
            self._nodes.remove(node)
            self._nodes.insert(self._nodes.index(beside) + behind, node)

    # --- reading it ----------------------------------------------------------------------

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The Nodes of an op, and of a target."""
        return [
            node for node in self._nodes
            if node.op == op and (target is None or node.target == target)
        ]

    def output_node(self) -> Node:
        """The last Node, which says what is returned."""
        return self.find_nodes(op="output")[-1]

    def lint(self) -> None:
        """Raise RuntimeError where a Node reads one that is not before it."""
        before: set[Node] = set()
        for node in self._nodes:
            for read in node.all_input_nodes:
                if read.graph is not self or read not in before:
                    raise RuntimeError(
                        f"Argument '{read}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            before.add(node)

    def python_code(self, root_module: str = "self", **options: Any) -> PythonCode:
        """The Graph as the text of a function `forward`."""
        return PythonCode(*source_of(self._nodes, root_module))

    def on_generate_code(self, make_transformer: Any) -> Any:
        """Raises NotImplementedError: the text is graphc's own."""
        raise NotImplementedError("torch.fx.Graph.on_generate_code: graphc writes the code itself")

    def print_tabular(self) -> None:
        """Print a table of the Nodes."""
        rows = [("opcode", "name", "target", "args", "kwargs")] + [
            (n.op, n.name, name_of(n.target), str(n.args), str(n.kwargs)) for n in self._nodes
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        for row in rows:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        lines = [node.format_node() for node in self._nodes]
        return "\n    ".join(["graph():", *lines])


def _name_for(target: Target) -> str:
    """The begin of a name: `add` for operator.add, `layer1_0_conv` for "layer1.0.conv"."""
    name = target if isinstance(target, str) else (
        getattr(target, "__name__", None) or type(target).__name__
    )
    if re.fullmatch(r"__\w+__", name):
        name = name[2:-2]
    name = name.replace(".", "_")
    pieces = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name)
    return pieces.lower()

