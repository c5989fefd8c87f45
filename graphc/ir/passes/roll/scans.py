"""A Loop -> a `scan` node, and what stands for the values of its steps behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ... import dtypes
from ...dim import evaluate
from ...graph import Builder, Graph, Node, const
from ...op import get
from ...ops.control_gradients import copied
from ...types import TensorType
from .order import Order
from .rows import Begun, Rows
from .steps import NONE, ROW, SAME, Loop, Operand

Finals = dict[Node, Node]  # nodes of the last step -> results of the scan
RowLists = dict[int, tuple[Node, ...]]  # by the operand's slot


class Unrollable(Exception):
    """Steps that have to stay as they are."""


def even_steps(order: Order, loop: Loop, rows: Rows) -> tuple[int, int, RowLists]:
    """The first and the last (exclusive) of the steps whose rows are rows of sequences, and what
    all of these read, for each operand that is a row."""
    fits = np.ones(loop.count, np.bool_)
    lists: dict[int, list[Node]] = {}
    for operands in loop.operands:
        for operand in operands or ():
            if operand.kind == ROW:
                places = loop.reads[:, operand.slot].tolist()
                found = lists[operand.slot] = rows.completed(
                    [None if place == NONE else order.nodes[place] for place in places]
                )
                fits &= rows.even(found)
    edges = np.flatnonzero(~np.concatenate(([False], fits, [False])))
    lengths = np.diff(edges) - 1
    longest = int(lengths.argmax())
    begin, end = int(edges[longest]), int(edges[longest] + lengths[longest])
    return begin, end, {slot: tuple(nodes[begin:end]) for slot, nodes in lists.items()}


class Scan:
    """A scan in the making: `emit` gives the last step's values that are read behind it, and tells
    `rows` of the results that are rows."""

    def __init__(
        self, order: Order, loop: Loop, lists: RowLists, rows: Rows,
        value: Callable[[Node], Node], refine: Callable[[Graph], Graph],
    ) -> None:
        self.order, self.loop, self.lists, self.rows, self.value = order, loop, lists, rows, value
        self.outer = rows.builder
        self.refine = refine
        self.step = [order.nodes[i] for i in loop.step.tolist()]
        self.builder = Builder(order.graph.env)
        self.made: dict[int, Node] = {}  # the body's nodes, by place in the step
        self.begin: list[Node] = []  # what the carried values are at first
        # A step's node and the places of what the first steps read instead -> the carried values
        # that hand it on, from step to step, until it is read.
        self.carried: dict[tuple[int, tuple[int, ...]], list[Node]] = {}
        self.constants: dict[Node, Node] = {}
        self.kept: list[tuple[Node, Node]] = []  # those that come from outside
        self.sequences: dict[tuple[Node, ...], Node] = {}  # by the rows

    def emit(self) -> Finals:
        """Make the scan."""
        outer = self.outer
        for i, (node, operands) in enumerate(zip(self.step, self.loop.operands, strict=True)):
            if operands is not None:
                inputs = [self._operand(x) for x in operands]
                with self.builder.at(node.loc, node.backward):
                    self.made[i] = self.builder.emit(
                        node.op, *inputs, graphs=node.graphs, **node.attrs
                    )
        stacked, last = self._used_behind()
        chains = [(offset, chain) for (offset, _), chain in self.carried.items()]
        for offset in last:
            if all(offset != other for other, _ in chains):
                chains.append((offset, [self._unread(offset)]))
        begun = {
            offset: (begin[0], chain[0]) for (offset, begin), chain in self.carried.items()
            if len(begin) == 1 and begin[0] >= 0 and offset in stacked
        }
        kept = [head for _, head in self.kept]
        reverse, sequences, shown = self._sequences()
        body = self._body(
            [*(x for _, chain in chains for x in chain), *kept, *shown],
            [*(x for offset, chain in chains for x in (self.made[offset], *chain[:-1])),
             *kept, *(self.made[i] for i in stacked), *(head for _, head in begun.values())],
        )
        inputs = [*self.begin, *(self.value(node) for node, _ in self.kept)]
        first = self.step[0]
        with outer.at(first.loc, max(node.backward for node in self.step)):
            scan = outer.emit(
                get("scan"), *inputs, *sequences, graphs=(body,), n_carried=len(inputs),
                reverse=reverse,
            )
            results = outer.results(scan)
        results, rows = results[: len(inputs)], results[len(inputs) :]
        self._stacked(stacked, rows[: len(stacked)], reverse)
        for (offset, (place, _)), result in zip(begun.items(), rows[len(stacked) :], strict=True):
            whole, by = rows[stacked.index(offset)], -1 if reverse else 1
            first = self.order.nodes[place]
            self.rows.begun[whole] = Begun(result, first, by, self.loop.count)
        return self._finals(chains, last, results)

    # --- operands ---------------------------------------------------------------------------

    def _operand(self, operand: Operand) -> Node:
        reads = self.loop.reads[:, operand.slot]
        if operand.kind == SAME:
            return self._constant(self.order.nodes[reads[self.loop.count // 2]])
        if operand.kind == ROW:
            return self._row(operand.slot)
        if operand.back == 0:
            return self.made[operand.offset]
        begin = tuple(reads[: operand.back].tolist())
        chain = self.carried.get((operand.offset, begin))
        if chain is None:
            type_ = _tensor(self.step[operand.offset])
            chain = [self.builder.input(type_) for _ in begin]
            self.begin += [
                self.value(self.order.nodes[place]) if place >= 0 else self._neutral(type_)
                for place in reversed(begin)
            ]
            self.carried[operand.offset, begin] = chain
        return chain[-1]

    def _neutral(self, type_: TensorType) -> Node:
        """What changes no sum, not that of -0.0 either."""
        value = -0.0 if type_.dtype.is_float else 0
        return self.outer.emit(get("full"), shape=type_.shape, value=value, dtype=type_.dtype)

    def _constant(self, node: Node) -> Node:
        found = self.constants.get(node)
        if found is None:
            number = node.op is const and node.attrs["value"].array.size == 1
            if number or node.op.name == "full":
                found = self.builder.emit(node.op, **node.attrs)
            else:
                found = self.builder.input(_tensor(node))
                self.kept.append((node, found))
            self.constants[node] = found
        return found

    def _row(self, slot: int) -> Node:
        nodes = self.lists[slot]
        found = self.sequences.get(nodes)
        if found is None:
            found = self.builder.input(_tensor(nodes[0]))
            self.sequences[nodes] = found
        return found

    def _sequences(self) -> tuple[bool, list[Node], list[Node]]:
        """Whether the loop begins with the last rows; the sequences; the body's inputs of them."""
        if not self.sequences:  # one says how many steps there are
            number = self.outer.emit(
                get("full"), shape=(self.loop.count,), value=False, dtype=dtypes.bool_
            )
            return False, [number], [self.builder.input(TensorType(dtypes.bool_, ()))]
        lists = list(self.sequences)
        falling = sum(
            evaluate(nodes[0].tensor_type.elements, self.order.graph.env.hints)
            * self.rows.direction(nodes) for nodes in lists
        )
        reverse = falling < 0
        sequences = [self.rows.sequence(x[::-1] if reverse else x) for x in lists]
        return reverse, sequences, list(self.sequences.values())

    # --- results ----------------------------------------------------------------------------

    def _used_behind(self) -> tuple[list[int], list[int]]:
        """Which of a step's nodes are read behind the loop: in several steps, in the last alone."""
        used = self.order.read_outside(self.loop.places)
        stacked: list[int] = []
        last: list[int] = []
        for i in np.flatnonzero(used.any(0)).tolist():
            if i in self.made:
                _tensor(self.step[i])
                (stacked if used[:-1, i].any() else last).append(i)
        return stacked, last

    def _unread(self, offset: int) -> Node:
        """A carried value that no step reads: what is left is the last step's."""
        type_ = self.step[offset].tensor_type
        zero = {"bool": False, "float": 0.0}.get(type_.dtype.kind, 0)
        self.begin.append(
            self.outer.emit(get("full"), shape=type_.shape, value=zero, dtype=type_.dtype)
        )
        return self.builder.input(type_)

    def _body(self, heads: Sequence[Node], outputs: Sequence[Node]) -> Graph:
        name, env = f"{self.order.graph.name}_step", self.order.graph.env
        builder = Builder(env)
        inputs = [builder.input(node.tensor_type) for node in heads]
        found = copied(builder, Graph(name, tuple(heads), tuple(outputs), env), inputs)
        return self.refine(builder.build(found, name))

    def _stacked(self, offsets: Sequence[int], results: Sequence[Node], reverse: bool) -> None:
        loop = self.loop
        for offset, result in zip(offsets, results, strict=True):
            for step, place in enumerate(loop.places[:, offset].tolist()):
                if place != NONE:
                    node = self.order.nodes[place]
                    self.rows.stacked[node] = result, loop.count - 1 - step if reverse else step

    def _finals(
        self, chains: Sequence[tuple[int, list[Node]]], last: Sequence[int],
        results: Sequence[Node],
    ) -> Finals:
        found: dict[int, Node] = {}
        number = 0
        for offset, chain in chains:
            found.setdefault(offset, results[number])
            number += len(chain)
        end = self.loop.places[-1].tolist()
        return {self.order.nodes[end[offset]]: found[offset] for offset in last}


def _tensor(node: Node) -> TensorType:
    if not isinstance(node.type, TensorType):
        raise Unrollable
    return node.type
