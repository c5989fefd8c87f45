"""roll: equal steps that stand behind each other, as a user's Python loop leaves them -> a `scan`.

A cell called a thousand times is a thousand copies of its operators, and of their gradients'. In
the graph's order they repeat with a period (`periods.py`); what each operand is in each step is
compared exactly (`steps.py`), and what the steps read in turn must be rows of one value
(`rows.py`); what they write in turn is put beside each other at once (`parts.py`, `beside.py`).
First and last steps, which lack something, join the others where they can (`ends.py`,
`arrange.py`). The steps then become one body, run natively as often (`scans.py`): the same
operators on the same values in the same order, and so the same bits. It works on the recorded
graph, which holds the backward pass already: its steps are a loop of their own, that reads what the
forward loop stacked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...graph import Builder, Graph, Node
from ...machine import Machine
from ...op import ELEMENTWISE
from ...rewrite import everywhere, with_inputs
from .arrange import Item, arranged
from .beside import read_before
from .order import Order
from .parts import joined_parts
from .periods import Stretch, stretches
from .rows import Rows
from .scans import Scan, Unrollable, even_steps
from .steps import NONE, Loop, loop_in

# What a kernel does by the way: without anything else, all steps may be one kernel.
_LIGHT = ELEMENTWISE | {"movement", "create", "structure"}


def roll(graph: Graph, machine: Machine) -> Graph:
    """The graph, its sub-graphs included, with unrolled loops as scans; itself without one."""
    return everywhere(graph, lambda g: _roll_one(g, machine))


def _roll_one(graph: Graph, machine: Machine) -> Graph:
    if len(graph.nodes) < 2 * machine.unrolled_steps:
        return graph
    graph = read_before(graph, machine.unrolled_steps)
    graph = joined_parts(graph, machine.unrolled_steps)
    order = Order(graph)
    loops = _loops(order, machine)
    if not loops:
        return graph
    return _Roller(order, machine).run(arranged(order, loops))


def _pays(order: Order, loop: Loop, machine: Machine) -> bool:
    """Whether a loop is better than its steps behind each other, which may share kernels."""
    if loop.count < machine.unrolled_steps:
        return False
    step = [order.nodes[i] for i in loop.step.tolist()]
    if any(node.op.family not in _LIGHT for node in step):
        return True
    return loop.count * len(step) >= machine.unrolled_light


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
                start, stop = _bounds(loop)
                todo += [
                    Stretch(piece.start, start, piece.period),
                    Stretch(stop, piece.stop, piece.period),
                ]
    return sorted(found, key=_bounds)


def _bounds(loop: Loop) -> tuple[int, int]:
    return int(loop.places[0, 0]), int(loop.places[-1, -1]) + 1


def _free(stretch: Stretch, loops: list[Loop]) -> Iterator[Stretch]:
    """The parts of a stretch that are in no loop yet."""
    start = stretch.start
    for begin, end in sorted(map(_bounds, loops)):
        if end <= start or begin >= stretch.stop:
            continue
        yield Stretch(start, begin, stretch.period)
        start = end
    yield Stretch(start, stretch.stop, stretch.period)


# --- the graph with scans ----------------------------------------------------------------------


class _Roller:
    """Goes through the nodes in order, loops at once."""

    def __init__(self, order: Order, machine: Machine) -> None:
        self.order, self.machine = order, machine
        self.new: dict[Node, Node] = {}
        self.builder = Builder(order.graph.env)
        self.rows = Rows(self.builder, self.value)

    def run(self, items: Iterable[Item]) -> Graph:
        """The graph with those loops as scans whose rows are rows of something."""
        graph = self.order.graph
        for node in graph.inputs:
            self.new[node] = node
        for item in items:
            if isinstance(item, Loop):
                self._loop(item)
            else:
                self._plain(self.order.nodes[item])
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

    def _plain(self, node: Node) -> None:
        if node.op.name == "concat":
            joined = self.rows.joined(node)
            if joined is not None:
                self.new[node] = joined
        self.value(node)

    def _loop(self, loop: Loop) -> None:
        if not _pays(self.order, loop, self.machine):
            return self._unrolled(loop)
        begin, end, lists = even_steps(self.order, loop, self.rows)
        part = loop.cut(begin, end)
        if not _pays(self.order, part, self.machine):
            return self._unrolled(loop)
        self._loop(loop.cut(0, begin))  # whose rows are rows of something else
        scan = Scan(self.order, part, lists, self.rows, self.value, self._refined)
        try:
            self.new.update(scan.emit())
        except Unrollable:
            self._unrolled(part)
        self._loop(loop.cut(end, loop.count))

    def _unrolled(self, loop: Loop) -> None:
        places = loop.places[loop.places != NONE]
        for place in np.sort(places).tolist():
            self._plain(self.order.nodes[place])

    def _refined(self, body: Graph) -> Graph:
        """A body, whose own loops are rolled, too."""
        return _roll_one(body, self.machine)
