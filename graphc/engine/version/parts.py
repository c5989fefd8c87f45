"""A backward graph, built for the cotangents that really arrive.

Of what a call leaves behind only some is ever differentiated: of hidden states and a loss, the
loss; a norm that was looked at is not. A gradient is linear in the cotangents, so a node of the
backward graph that hangs on missing cotangents alone is zero (whatever it would be multiplied
with: a slope may be infinite), and what it alone would read need not be as it was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...frontend.placement import Place
from ...ir import forks
from ...ir.graph import Builder, Graph
from ...ir.graph import Node as IrNode
from ...ir.late import late
from ...ir.op import get as get_op
from ...ir.record import record
from ..built import Allocate, Engine, Engines
from ..orders import NO_ORDERS, Orders, inverse

if TYPE_CHECKING:
    from ...ir import rewrite
else:
    rewrite = late("graphc.ir.rewrite")

Build = Callable[[Graph], Any]


@record(eq=False)
class Part:
    """The backward for one choice of cotangents and gradients."""

    engines: Engines | None  # None: no gradient arrives anywhere
    saved: list[int]
    tangents: list[int]
    results: list[int]  # which edge each output belongs to
    orders: Orders = NO_ORDERS  # of the dims in memory, by output

    def call(
        self, saved: Sequence[Any], grads: Sequence[Any], dims: Mapping[str, int]
    ) -> list[np.ndarray]:
        """The gradients, from what was saved and the cotangents."""
        if self.engines is None:
            return []
        arrays = [saved[i] for i in self.saved] + [grads[i] for i in self.tangents]
        found = self.engines.at(dims).results(arrays, dims)
        for i, order in self.orders.items():
            found[i] = found[i].transpose(inverse(order))
        return found


def behind(joint: Graph, forward_inputs: int, forward_outputs: int) -> list[int]:
    """Which cotangents each gradient of a joint graph hangs on, as bits: without any of those it
    is None. (0: floor's and its kin's, zeros that hang on nothing, are always there.)

    Asked of the graph as it was recorded: simplified, a gradient of zeros hangs on nothing.
    """
    bits = {node: 1 << i for i, node in enumerate(joint.inputs[forward_inputs:])}
    for node in joint.nodes:
        if node not in bits:
            found = 0
            for source in node.inputs:
                found |= bits[source]
            bits[node] = found
    return [bits[node] for node in joint.outputs[forward_outputs:]]


class Parts:
    """A backward graph, whose first `saved` inputs are saved values, and what was built of it.
    `behind`: which cotangents each output hangs on, as bits."""

    def __init__(
        self, graph: Graph, saved: int, build: Build, behind: list[int],
        allocate: Allocate, place: Place | None, orders: Orders = NO_ORDERS,
        gradients: Orders = NO_ORDERS,
    ) -> None:
        """`allocate`, `place`: of the memory where it runs; `orders`: of saved values, `gradients`:
        of what comes of it."""
        self.graph = graph
        self._at, self._orders, self._gradients = (allocate, place), orders, gradients
        self.behind = behind
        self.made: dict[Any, Part] = {}
        self._saved = saved
        self._build = build
        self._lock = forks.lock()
        # cotangents behind a node
        self._bits = {node: 1 << i for i, node in enumerate(graph.inputs[saved:])}
        for node in graph.nodes:
            if node not in self._bits:
                bits = 0
                for source in node.inputs:
                    bits |= self._bits[source]
                self._bits[node] = bits

    def whole(self) -> Part:
        """The part for all cotangents and gradients."""
        graph = self.graph
        return self.part(
            (True,) * (len(graph.inputs) - self._saved), (True,) * len(graph.outputs)
        )

    def keep_whole(self, built: Any) -> None:
        """`built` is the whole graph."""
        graph, saved = self.graph, self._saved
        given, needs = len(graph.inputs) - saved, len(graph.outputs)
        kept = list(range(saved))
        engines = Engines(graph, self._compiler(kept), self._engine(built, graph, kept))
        self.made[(True,) * given, (True,) * needs] = Part(
            engines, kept, list(range(given)), list(range(needs)), self._gradients
        )

    def _compiler(self, saved: list[int]) -> Callable[[Graph], Engine]:
        return lambda graph: self._engine(self._build(graph), graph, saved)

    def _engine(self, built: Any, graph: Graph, saved: list[int]) -> Engine:
        types = [node.tensor_type for node in graph.outputs]
        orders = {at: self._orders[i] for at, i in enumerate(saved) if i in self._orders}
        return Engine(built, types, tuple(graph.env.hints), *self._at, orders=orders)

    def part(self, given: tuple[bool, ...], needs: tuple[bool, ...]) -> Part:
        """The part for these cotangents and these edges."""
        found = self.made.get((given, needs))
        if found is None:
            with self._lock:
                found = self.made.get((given, needs))
                if found is None:
                    found = self.made[given, needs] = self._make(given, needs)
        return found

    def reads(self, given: tuple[bool, ...], needs: tuple[bool, ...]) -> list[int]:
        """The saved values that the part for these cotangents and edges reads."""
        _, _, kept = self._reduced(given, needs)
        return [i for i in kept if i < self._saved]

    def _reduced(
        self, given: tuple[bool, ...], needs: tuple[bool, ...]
    ) -> tuple[list[int], set[IrNode], list[int]]:
        """Which gradients there are, the nodes behind them, and the inputs among those."""
        graph, bits = self.graph, self._bits
        live = _live(given)
        results = [  # gradients that hang on nothing (sign's, floor's zeros) are always there
            i for i in range(len(graph.outputs))
            if needs[i] and (self.behind[i] & live or not self.behind[i])
        ]
        needed: set[IrNode] = set()
        stack = [graph.outputs[i] for i in results]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                if not bits[node] or bits[node] & live:
                    stack.extend(node.inputs)
        kept = [i for i, node in enumerate(graph.inputs) if node in needed and (
            not bits[node] or bits[node] & live
        )]
        return results, needed, kept

    def _make(self, given: tuple[bool, ...], needs: tuple[bool, ...]) -> Part:
        graph, bits, live = self.graph, self._bits, _live(given)
        results, needed, kept = self._reduced(given, needs)
        if not results:
            return Part(None, [], [], [])
        builder = Builder(graph.env)
        made: dict[IrNode, IrNode] = {}
        for i in kept:
            node = graph.inputs[i]
            made[node] = builder.input(node.tensor_type, node.attrs["name"])
        for node in graph.nodes:
            if node not in needed or node in made:
                continue
            if bits[node] and not bits[node] & live:
                builder.loc, builder.backward = node.loc, node.backward
                made[node] = _zeros(builder, node)
            else:
                made[node] = rewrite.with_inputs(node, [made[n] for n in node.inputs])
        reduced = builder.build([made[graph.outputs[i]] for i in results], graph.name)
        count = self._saved
        saved = [i for i in kept if i < count]
        return Part(
            Engines(reduced, self._compiler(saved)),
            saved, [i - count for i in kept if i >= count], results,
            {at: self._gradients[i] for at, i in enumerate(results) if i in self._gradients},
        )


def _live(given: tuple[bool, ...]) -> int:
    return sum(1 << i for i, there in enumerate(given) if there)


def _zeros(builder: Builder, node: IrNode) -> IrNode:
    if not hasattr(node.type, "shape"):
        return node  # of several results: only their zeros are read
    type_ = node.tensor_type
    value: float | int = 0.0 if type_.dtype.is_float else 0
    return builder.emit(get_op("full"), shape=type_.shape, value=value, dtype=type_.dtype)
