"""roll: equal steps that stand behind each other, as a user's Python loop leaves them -> a `scan`.

A cell called a thousand times is a thousand copies of its operators, and of their gradients'. In
the graph's order they repeat with a period (`periods.py`); what each operand is in each step is
compared exactly (`steps.py`), and what the steps read in turn must be rows of one value
(`rows.py`); what they write in turn is put beside each other at once (`parts.py`). The steps then
become one body, run natively as often (`scans.py`): the same operators on the same values in the
same order, and so the same bits. It works on the recorded graph, which holds the backward pass
already: its steps are a loop of their own, that reads what the forward loop stacked. What is
irregular at the ends of a loop (a first step from zeros) stays unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...graph import Builder, Graph, Node
from ...machine import Machine
from ...op import ELEMENTWISE
from ...rewrite import everywhere, with_inputs
from .order import Order
from .parts import joined_parts
from .periods import Stretch, stretches
from .rows import Rows
from .scans import Scan, Unrollable, even_steps
from .steps import Loop, loop_in

# What a kernel does by the way: without anything else, all steps may be one kernel.
_LIGHT = ELEMENTWISE | {"movement", "create", "structure"}


def roll(graph: Graph, machine: Machine) -> Graph:
    """The graph, its sub-graphs included, with unrolled loops as scans; itself without one."""
    return everywhere(graph, lambda g: _roll_one(g, machine))


def _roll_one(graph: Graph, machine: Machine) -> Graph:
    if len(graph.nodes) < 2 * machine.unrolled_steps:
        return graph
    graph = joined_parts(graph, machine.unrolled_steps)
    order = Order(graph)
    loops = _loops(order, machine)
    if not loops:
        return graph
    return _Roller(order, loops, machine).run()


def _pays(order: Order, loop: Loop, machine: Machine) -> bool:
    """Whether a loop is better than its steps behind each other, which may share kernels."""
    if loop.count < machine.unrolled_steps:
        return False
    step = order.nodes[loop.start : loop.start + loop.period]
    if any(node.op.family not in _LIGHT for node in step):
        return True
    return loop.count * loop.period >= machine.unrolled_light


# --- which stretches are loops ----------------------------------------------------------------


def _loops(order: Order, machine: Machine) -> list[Loop]:
    """Loops that do not overlap, in the graph's order."""
    found: list[Loop] = []
    for stretch in stretches(order.labels, machine.unrolled_steps):
        todo = list(_free(stretch, found))
        while todo:
            piece = todo.pop()
            if piece.steps < machine.unrolled_steps:
                continue
            loop = loop_in(order, piece, machine.unrolled_steps)
            if loop is not None and _pays(order, loop, machine):
                found.append(loop)
                todo += [
                    Stretch(piece.start, loop.start, piece.period),
                    Stretch(loop.stop, piece.stop, piece.period),
                ]
    return sorted(found, key=lambda loop: loop.start)


def _free(stretch: Stretch, loops: list[Loop]) -> Iterator[Stretch]:
    """The parts of a stretch that are in no loop yet."""
    start = stretch.start
    for loop in sorted(loops, key=lambda loop: loop.start):
        if loop.stop <= start or loop.start >= stretch.stop:
            continue
        yield Stretch(start, loop.start, stretch.period)
        start = loop.stop
    yield Stretch(start, stretch.stop, stretch.period)


# --- the graph with scans ----------------------------------------------------------------------


class _Roller:
    """Goes through the nodes in order, loops at once."""

    def __init__(self, order: Order, loops: list[Loop], machine: Machine) -> None:
        self.order, self.loops, self.machine = order, loops, machine
        self.new: dict[Node, Node] = {}
        self.builder = Builder(order.graph.env)
        self.rows = Rows(self.builder, self.value)

    def run(self) -> Graph:
        """The graph with those loops as scans whose rows are rows of something."""
        graph, place = self.order.graph, 0
        for node in graph.inputs:
            self.new[node] = node
        for loop in self.loops:
            self._plain(place, loop.start)
            self._loop(loop)
            place = loop.stop
        self._plain(place, len(graph.nodes))
        outputs = tuple(self.value(node) for node in graph.outputs)
        return Graph(graph.name, graph.inputs, outputs, graph.env)

    def value(self, node: Node) -> Node:
        """What an old node is now. Parts of other values are made where they are asked for."""
        found = self.new.get(node)
        if found is None:
            if node in self.rows.stacked:
                found = self.rows.row(node)
            else:
                found = with_inputs(node, [self.value(x) for x in node.inputs])
            self.new[node] = found
        return found

    def _plain(self, start: int, stop: int) -> None:
        for node in self.order.nodes[start:stop]:
            if node.op.name == "concat":
                joined = self.rows.joined(node)
                if joined is not None:
                    self.new[node] = joined
            self.value(node)

    def _loop(self, loop: Loop) -> None:
        if not _pays(self.order, loop, self.machine):
            return self._plain(loop.start, loop.stop)
        begin, end = even_steps(self.order, loop, self.rows)
        part = loop.cut(begin, end)
        if not _pays(self.order, part, self.machine):
            return self._plain(loop.start, loop.stop)
        self._loop(loop.cut(0, begin))  # whose rows are rows of something else
        scan = Scan(self.order, part, self.rows, self.value, self._refined)
        try:
            self.new.update(scan.emit(self.builder))
        except Unrollable:
            self._plain(part.start, part.stop)
        self._loop(loop.cut(end, loop.count))

    def _refined(self, body: Graph) -> Graph:
        """A body, whose own loops are rolled, too."""
        return _roll_one(body, self.machine)
