"""Rewrite rules as data: a pattern, a function from its match to a replacement, a hit counter.

    rules = Rules("simplify")
    x = wild("x")

    @rules.add(p.mul(x, number(1)))
    def multiply_by_one(m: Match) -> Any:
        return m.spread(m.x)            # an Expr of the root's type, or None: not applicable

`apply(graph, rules)` brings a Graph to a fixpoint. A rule sees a node and what it reads, never
its users, so a node that no rule fitted stays done until something it reads changes: the cost is
linear in the graph plus the rewrites. Every rule is listed, with its hits, by `all_rules()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from .dim import Dim, DimEnv, Guard
from .graph import Builder, Expr, Graph, Node, const, input_, on_complex
from .op import get as get_op
from .record import record, replaced
from .types import Shape

# --- numbers in the graph --------------------------------------------------------------------


def scalar_value(node: Node) -> Any:
    """The one number that every element of a constant is, as a NumPy scalar; None if there is none.

    Sees through `const` of one element and `full`.
    """
    if node.op is const:
        array = node.attrs["value"].array
        return array.reshape(-1)[0] if array.size == 1 else None
    if node.op.name == "full" and not isinstance(node.attrs["value"], Dim):
        with np.errstate(all="ignore"):
            return node.dtype.numpy.type(node.attrs["value"])
    return None


def is_constant(node: Node) -> bool:
    """True for `const` and `full`: what canonical form puts second."""
    return node.op is const or node.op.name == "full"


# --- patterns --------------------------------------------------------------------------------


@record
class Pattern:
    """What a node must look like.

    `op` None matches any node. A name that occurs twice must match the same node both times.
    `accepts` further restricts a node.
    """

    op: str | None = None
    inputs: tuple[Pattern, ...] | None = None  # None: any inputs
    name: str = ""
    accepts: Callable[[Node], bool] | None = None
    constant: bool = False  # a `const` or a `full`

    def named(self, name: str) -> Pattern:
        """The same pattern, with its node bound to `name`."""
        return replaced(self, name=name)


def wild(name: str) -> Pattern:
    """Matches any one-result value."""
    return Pattern(name=name)


def number(value: float | int | bool, name: str = "") -> Pattern:
    """Matches a constant all of whose elements are `value`; 0.0 does not match -0.0."""

    def accepts(node: Node) -> bool:
        found = scalar_value(node)
        return found is not None and bool(found == value) and (
            bool(value) or bool(np.signbit(np.float64(found)) == np.signbit(float(value)))
        )

    return Pattern(name=name, accepts=accepts, constant=True)


def numeric(name: str, test: Callable[[Any], bool] | None = None) -> Pattern:
    """Matches a constant of one number that passes `test` (given a NumPy scalar)."""

    def accepts(node: Node) -> bool:
        found = scalar_value(node)
        return found is not None and (test is None or test(found))

    return Pattern(name=name, accepts=accepts, constant=True)


def constant(name: str) -> Pattern:
    """Matches a `const` or a `full`."""
    return Pattern(name=name, constant=True)


def variable(name: str) -> Pattern:
    """Matches anything but a `const` or a `full`."""
    return Pattern(name=name, accepts=lambda node: not is_constant(node))


class _Patterns:
    """p.add(x, y) is the pattern of an `add` node; p.add() of an `add` with any inputs."""

    def __getattr__(self, op: str) -> Callable[..., Pattern]:
        def make(*inputs: Pattern, name: str = "") -> Pattern:
            return Pattern(op, inputs or None, name)

        return make


p = _Patterns()


def match(pattern: Pattern, node: Node) -> dict[str, Node] | None:
    """The nodes bound to the pattern's names, or None."""
    if pattern.inputs is not None:  # most patterns fail on an operand's operator
        if len(node.inputs) != len(pattern.inputs):
            return None
        for want, have in zip(pattern.inputs, node.inputs, strict=True):
            if want.op is not None and want.op != have.op.name:
                return None
            if want.constant and not is_constant(have):
                return None
    bound: dict[str, Node] = {}
    todo = [(pattern, node)]
    while todo:
        want, have = todo.pop()
        if want.op is not None and have.op.name != want.op:
            return None
        if want.inputs is not None:
            if len(have.inputs) != len(want.inputs):
                return None
            todo.extend(zip(want.inputs, have.inputs, strict=True))
        if want.constant and not is_constant(have):
            return None
        if want.accepts is not None and not want.accepts(have):
            return None
        if want.name and bound.setdefault(want.name, have) is not have:
            return None
    return bound


class Match:
    """A matched node (`root`) with its bound names as attributes, as Exprs."""

    __slots__ = ("_bound", "builder", "root")

    def __init__(self, builder: Builder, root: Node, bound: dict[str, Node]) -> None:
        self.builder = builder
        self.root = root
        self._bound = bound

    def __getattr__(self, name: str) -> Expr:
        return Expr(self.builder, self._bound[name])

    def node(self, name: str) -> Node:
        """The node bound to `name`."""
        return self._bound[name]

    def attr(self, key: str, name: str = "") -> Any:
        """An attribute of the node bound to `name` (default: the root)."""
        node: Node = self._bound[name] if name else self.root
        return node.attrs[key]

    def number(self, name: str) -> Any:
        """The number of the constant bound to `name`, as a NumPy scalar."""
        return scalar_value(self._bound[name])

    @property
    def shape(self) -> Shape:
        return self.root.shape

    def inputs(self, node: Node | None = None) -> list[Expr]:
        """The inputs of the root, or of another node."""
        return [Expr(self.builder, x) for x in (node or self.root).inputs]

    def spread(self, value: Expr) -> Expr:
        """`value` expanded to the root's shape; itself where it has that."""
        if value.shape == self.root.shape:
            return value
        expanded: Expr = get_op("expand")(value, shape=self.root.shape)
        return expanded

    def constant(self, value: Any, like: Expr | None = None) -> Expr:
        """A 0-d constant of the dtype of the root (or of `like`)."""
        dtype = self.root.dtype if like is None else like.dtype
        return Expr(self.builder, self.builder.const(value, dtype))

    def filled(self, value: Any) -> Expr:
        """The root's type filled with a number (or a symbolic Size)."""
        dtype = self.root.dtype
        if not isinstance(value, Dim):
            value = {"bool": bool, "float": float}.get(dtype.kind, int)(value)
        node = self.builder.emit(get_op("full"), shape=self.root.shape, value=value, dtype=dtype)
        return Expr(self.builder, node)


Replace: TypeAlias = Callable[[Match], Any]

# --- rules -----------------------------------------------------------------------------------


@record(eq=False, frozen=False)
class Rule:
    """One rewrite, for any of its patterns. `hits`: how often it fired in this process."""

    name: str
    patterns: tuple[Pattern, ...]
    replace: Replace
    hits: int = 0


_ALL: dict[str, Rule] = {}


def all_rules() -> list[Rule]:
    """Every rule of every rule set that has been imported."""
    return list(_ALL.values())


@dataclass(eq=False, slots=True)
class Rules:
    """An ordered set of rules, found by the operator at the root of a pattern."""

    name: str
    by_op: dict[str, list[tuple[Pattern, Rule]]] = field(default_factory=dict)

    def add(self, *patterns: Pattern) -> Callable[[Replace], Replace]:
        """Decorator: a rule for any of the patterns, named after the function."""

        def register(function: Replace) -> Replace:
            name = f"{self.name}.{getattr(function, '__name__', 'rule')}"
            if name in _ALL:
                raise ValueError(f"rule {name} is defined twice")
            rule = _ALL[name] = Rule(name, patterns, function)
            for pattern in patterns:
                if pattern.op is None:
                    raise ValueError(f"rule {name} needs an operator at its root")
                self.by_op.setdefault(pattern.op, []).append((pattern, rule))
            return function

        return register

    def __add__(self, other: Rules) -> Rules:
        joined = Rules(f"{self.name}+{other.name}", {k: list(v) for k, v in self.by_op.items()})
        for op, entries in other.by_op.items():
            joined.by_op.setdefault(op, []).extend(entries)
        return joined


class RewriteError(Exception):
    """Rules that undo each other, or a replacement of another type."""


# --- the driver ------------------------------------------------------------------------------


def with_inputs(node: Node, inputs: Sequence[Node], graphs: tuple[Graph, ...] = ()) -> Node:
    """The node reading other values of the same types; itself where nothing changed."""
    if all(a is b for a, b in zip(node.inputs, inputs, strict=True)) and (
        not graphs or graphs == node.graphs
    ):
        return node
    return replaced(node, inputs=tuple(inputs), graphs=graphs or node.graphs)


def everywhere(graph: Graph, one: Callable[[Graph], Graph]) -> Graph:
    """Apply a pass that looks at one graph to the graph and all its sub-graphs, innermost first."""
    if not any(node.graphs for node in graph.nodes):
        return one(graph)
    order: list[Graph] = []
    stack = [graph]
    while stack:
        current = stack.pop()
        order.append(current)
        for node in current.nodes:
            stack.extend(node.graphs)
    done: dict[Graph, Graph] = {}
    for current in reversed(order):
        if current not in done:
            done[current] = one(_with_graphs(current, done))
    return done[graph]


def apart(graph: Graph, hints: Mapping[str, int] = MappingProxyType({})) -> Graph:
    """The same graph, on which a pass may decide about sizes without a word to the one given.
    `hints`: other example values of its named dims."""
    envs: dict[int, DimEnv] = {}

    def one(current: Graph) -> Graph:
        env = envs.get(id(current.env))
        if env is None:
            env = envs[id(current.env)] = current.env.copy()
            env.hints.update((name, hints[name]) for name in env.hints.keys() & hints)
        return Graph(current.name, current.inputs, current.outputs, env)

    return everywhere(graph, one)


def assumed(before: Graph, after: Graph) -> tuple[Guard, ...]:
    """What passes decided about sizes on the way from one graph to another."""
    return tuple([guard for guard in after.env.guards if guard not in before.env.guards])


def in_bodies(graph: Graph, one: Callable[[Graph], Graph]) -> Graph:
    """Apply a pass to the bodies of the graph's loops and branches, and to nothing else."""
    bodies = {
        body: body for node in graph.nodes for body in node.graphs if node.op.family != "control"
    }
    for node in graph.nodes:
        if node.op.family == "control":
            bodies |= {body: one(body) for body in node.graphs}
    return _with_graphs(graph, bodies)


def _with_graphs(graph: Graph, done: dict[Graph, Graph]) -> Graph:
    if not any(node.graphs for node in graph.nodes):
        return graph
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        graphs = tuple(done[g] for g in node.graphs)
        new[node] = with_inputs(node, [new[x] for x in node.inputs], graphs)
    return rebuilt(graph, new)


def remade(graph: Graph, make: Callable[[Builder, Node, dict[Node, Node]], Node]) -> Graph:
    """The graph with its inputs and every other node made again: `make(builder, node, new)`, where
    `new` has those before it."""
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op is input_:
            new[node] = builder.input(node.tensor_type, node.attrs["name"])
        else:
            with builder.at(node.loc, node.backward):
                new[node] = make(builder, node, new)
    inputs, outputs = (tuple(new[n] for n in nodes) for nodes in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, graph.env)


def rebuilt(graph: Graph, new: dict[Node, Node]) -> Graph:
    """The graph with its outputs replaced; the same inputs. Itself where no output changed."""
    outputs = tuple(new[n] for n in graph.outputs)
    if all(a is b for a, b in zip(outputs, graph.outputs, strict=True)):
        return graph
    return Graph(graph.name, graph.inputs, outputs, graph.env)


def apply(graph: Graph, rules: Rules) -> Graph:
    """Rewrite the graph and its sub-graphs until no rule applies.

    Raises RewriteError where the rules do not come to an end, or change a type.
    """
    return everywhere(graph, lambda g: _apply_one(g, rules))


def _apply_one(graph: Graph, rules: Rules) -> Graph:
    driver = _Driver(rules, graph)
    while True:
        fired = driver.fired
        graph = driver.sweep(graph)
        if driver.fired == fired:
            return graph


class _Driver:
    def __init__(self, rules: Rules, graph: Graph) -> None:
        self.rules = rules
        self.builder = Builder(graph.env)
        self.done: set[Node] = set()  # no rule applies to these
        self.fired = 0
        self.limit = 1000 + 50 * len(graph.nodes)
        self.recent: list[str] = []

    def sweep(self, graph: Graph) -> Graph:
        new: dict[Node, Node] = {}
        done = self.done
        by_op = self.rules.by_op
        for node in graph.nodes:
            current = with_inputs(node, [new[x] for x in node.inputs])
            while current not in done:
                found = None
                if current.op.name in by_op and not on_complex(current):
                    found = self.step(current)
                if found is None:
                    done.add(current)
                else:
                    current = found
            new[node] = current
        return rebuilt(graph, new)

    def step(self, node: Node) -> Node | None:
        """The first replacement that a rule gives for a node."""
        for pattern, rule in self.rules.by_op[node.op.name]:
            bound = match(pattern, node)
            if bound is None:
                continue
            with self.builder.at(node.loc, node.backward):
                result = rule.replace(Match(self.builder, node, bound))
            if result is None or result.node is node:
                continue
            if result.node.type != node.type:
                raise RewriteError(
                    f"rule {rule.name} replaced {node!r} by {result.node!r}: types must agree"
                )
            rule.hits += 1
            self.count(rule)
            found: Node = result.node
            return found
        return None

    def count(self, rule: Rule) -> None:
        self.fired += 1
        if self.fired > self.limit - 20:
            self.recent.append(rule.name)
        if self.fired > self.limit:
            raise RewriteError(
                f"the rules of {self.rules.name} did not end after {self.limit} rewrites; "
                f"the last were {', '.join(dict.fromkeys(self.recent))}"
            )
