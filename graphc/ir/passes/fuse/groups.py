"""Grouping: every node goes into the kernels that compute it.

Nodes are visited from the results backwards, so that all readers of a node are grouped before
it. A node whose readers are all in one group joins it; one with readers in several is computed
again in each where that is cheap, or stored by one of them, or gets a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...dim import Size, product, unwrap
from ...graph import Node
from ...op import LIGHT, QUOTIENT
from ...types import Shape
from ..lower.kinds import ALIAS, LOOP, ROWS, SCATTER, SCATTER_UNCHECKED, Kind
from .analysis import (
    CREATE,
    LEAF,
    MOVE,
    POINT,
    REDUCE,
    Analysis,
    Pattern,
    can_fail,
    find_cones,
    needs_checks,
    pattern_of,
    segments,
)
from .epilogue import Epilogues, widens
from .group import LINEAR, OTHER, UP, Group, Order
from .moments_beside import moments_beside

_MOST_NODES = 80
_MOST_PLACES = 4  # at which a group computes one node: x[i], x[i + 1], ... count one each
_SEVERAL = 4  # places that are worth a value in memory
_OWN_PLACE = frozenset({0})
_FLIP_NODES = 10  # a reduction joins at most so many pointwise nodes on its results


class Grouping:
    """The groups of a graph: `groups`, and for each node those that compute and that store it."""

    def __init__(self, a: Analysis) -> None:
        self.a = a
        self.groups: list[Group] = []
        self.computed_in: dict[Node, list[Group]] = {}
        self.stored_by: dict[Node, Group] = {}
        self.epilogues = Epilogues(a)
        find_cones(a, self.epilogues.owner)
        self._of_contraction: dict[Node, Group] = {}
        for node in reversed(self._unit_order()):
            self._place(node)

    # --- order of the visit ---------------------------------------------------------------------

    def _unit_order(self) -> list[Node]:
        """Topological order in which a contraction stands with its epilogue, and several results
        with their node: a group that is made at once has all its readers after it."""
        owner = self.epilogues.owner
        members: dict[Node, list[Node]] = dict(self.epilogues.members)
        unit: dict[Node, Node] = dict(owner)
        for node in self.a.graph.nodes:
            if node.op.name == "get" or node in self.a.written:
                head = self.a.written.get(node) or node.inputs[0]
                unit[node] = unit[head] = head
                members.setdefault(head, [head]).append(node)
        order: list[Node] = []
        done: set[Node] = set()
        for start in self.a.graph.nodes:
            stack = [(unit.get(start, start), False)]
            while stack:
                head, ready = stack.pop()
                nodes = members.get(head) or [head]
                if ready:
                    order.extend(nodes)
                    continue
                if head in done:
                    continue
                done.add(head)
                stack.append((head, True))
                inside = set(nodes)
                for node in nodes:
                    for x in node.inputs:
                        if x not in inside and unit.get(x, x) not in done:
                            stack.append((unit.get(x, x), False))
        return order

    # --- placing a node -------------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        a = self.a
        category = a.category[node]
        if category == LEAF:
            return
        if node.op.name == "get" or node in a.written:
            self._place_result(node)
            return
        readers = self._readers(node)
        if node in self.epilogues.owner:
            self._place_epilogue(node, readers)
        elif isinstance(category, Kind):
            group = self.stored_by.get(node)
            if group is None:
                unchecked = category is SCATTER and not needs_checks(a, node)
                self._new(node, SCATTER_UNCHECKED if unchecked else category, readers)
            else:
                self._add(node, group)
        elif node in a.must:
            self._keep(node, readers)
        elif readers:
            self._place_inner(node, readers)

    def _readers(self, node: Node) -> list[Group]:
        """The groups that read a node, without those that hold it as a view already."""
        found: dict[Group, None] = {}
        for user in self.a.users[node]:
            for group in self.computed_in.get(user, ()):
                found[group] = None
        return list(found)

    def _place_result(self, node: Node) -> None:
        """One of several results: stored by the group of the node that makes them, or through
        the permutation that alone reads it."""
        head = self.a.written.get(node) or node.inputs[0]
        group = self.stored_by.get(head)
        if group is None:
            kind = self.a.category[head]
            assert isinstance(kind, Kind), f"{head} has one result"
            group = self._group(kind)
            self.stored_by[head] = group
            self._add(head, group)
        self._add(node, group)
        if self.a.written.keys().isdisjoint(self.a.users[node]):
            self._store(node, group, self._readers(node))

    def _place_epilogue(self, node: Node, readers: list[Group]) -> None:
        contraction = self.epilogues.owner[node]
        group = self._of_contraction.get(contraction)
        if group is None:
            kind = self.a.category[contraction]
            assert isinstance(kind, Kind), f"{contraction} heads no kernel"
            group = self._group(kind)
            self._of_contraction[contraction] = group
        self._add(node, group)
        outside = [g for g in readers if g is not group and node not in g.orders]
        if widens(node) and node not in self.a.must:
            outside = self._join_all(node, outside)
        if outside or node in self.a.must:
            self._store(node, group, outside)

    def _place_inner(self, node: Node, readers: list[Group]) -> None:
        """A node that need not be in memory."""
        ready = [g for g in readers if node in g.orders and g.kind.template]
        for group in ready:
            group.orders[node].update(self._orders(group, node))
        others = [g for g in readers if g not in ready]
        if not others:
            return
        joins = {g: self._orders(g, node) for g in others}
        if len(others) == 1:
            (group,) = others
            if self._may_join(node, group, joins[group]):
                self._join(node, group, joins[group])
                return
        elif self._may_duplicate(node, others):
            readers, others = others, self._join_all(node, others)
            fits = [g for g in readers if g not in others]
            if not others or self._stored_on_the_way(node, fits, others):
                return
        self._keep(node, others)

    def _stored_on_the_way(self, node: Node, groups: list[Group], readers: list[Group]) -> bool:
        """Whether one of the groups that compute a node anyhow can store it for other readers."""
        if self.a.category[node] != POINT:
            return False
        for group in self._by_size(groups):
            if not self._comes_first(group, readers) or not group.kind.ordered:
                continue
            if group.orders[node] & self._storable(group, node):
                self._store(node, group, readers)
                return True
        return False

    def _comes_first(self, group: Group, readers: list[Group]) -> bool:
        """Whether none of the readers comes before a group."""
        return not any(g is not group and g.below >> group.number & 1 for g in readers)

    def _join_all(self, node: Node, groups: list[Group]) -> list[Group]:
        """Compute a node in each of its readers; those that it does not fit."""
        joins = {g: self._orders(g, node) for g in groups}
        fits = [g for g in groups if self._may_join(node, g, joins[g])]
        for group in fits:
            self._join(node, group, joins[group])
        return [g for g in groups if g not in fits]

    def _may_duplicate(self, node: Node, groups: list[Group]) -> bool:
        if self.a.category[node] == CREATE or node.op.name in ("reshape", "expand"):
            return True
        if widens(node):
            return True  # what it widens is less to keep
        if self.a.category[node] == REDUCE or not self.a.duplicable(node):
            return False
        return len(self.a.cone_sources[node]) <= 1 or len(groups) <= 2

    def _keep(self, node: Node, readers: list[Group]) -> None:
        """Store a node: by a reader that can compute it on its way, or by a group of its own."""
        if node.op.name == "reshape":
            self._new(node, ALIAS, readers)
            return
        for group in self._by_size(readers):
            if not group.kind.ordered:
                continue
            orders = self._orders(group, node)
            if not (orders & self._storable(group, node)) or self._rather_alone(node, group):
                continue
            if not self._comes_first(group, readers):
                continue
            if self._may_join(node, group, orders):
                self._join(node, group, orders)
                return self._store(node, group, [g for g in readers if g is not group])
        beside = moments_beside(self.a, node, self.stored_by)
        if beside is not None and self._comes_first(beside, readers):
            self._add(node, beside)
            return self._store(node, beside, readers)
        self._new(node, ROWS if self.a.category[node] == REDUCE else LOOP, readers)

    def _rather_alone(self, node: Node, group: Group) -> bool:
        """Whether a node is better stored by a kernel of its own reductions: softmax's rows
        should not be torn apart for the sake of a sum over its columns, and a reduction that is
        ready early should not wait for the rest of a kernel."""
        if self.a.category[node] == REDUCE:
            depth = self.a.depth
            return any(
                depth[x] > depth[node]
                for member in group.orders for x in member.inputs if x not in group.orders
            )
        if group.pattern is None:
            return False
        sizes = {p: unwrap(product(s for s, _ in p)) for p in self.a.cone_reductions[node]}
        return any(p != group.pattern and n == self.a.elements[node] for p, n in sizes.items())

    def _by_size(self, groups: Iterable[Group]) -> list[Group]:
        return sorted(groups, key=lambda g: (g.kind is not ROWS, -len(g.orders)))

    def _storable(self, group: Group, node: Node) -> set[Order]:
        """Orders in which a group can store a node beside its other results."""
        result: set[Order] = {group.full}
        if group.kept is not None:
            result.add(group.kept)
        elif self.a.category[node] == REDUCE:
            result |= {LINEAR, pattern_of(node)}
        return result

    # --- joining --------------------------------------------------------------------------------

    def _may_join(self, node: Node, group: Group, orders: set[Order]) -> bool:
        category = self.a.category[node]
        if category == CREATE:
            return group.kind.computes  # however large the group is: a number is no code
        if len(group.orders) >= _MOST_NODES and not widens(node):
            return False
        if group.kind.followed:
            return self._may_join_epilogue(node, group)
        if category == REDUCE:
            return group.kind.ordered and self._may_reduce(node, group, orders)
        if group.kind.fed:
            return self._may_feed(node, group)
        if not group.kind.ordered or category not in (POINT, MOVE):
            return False
        if node.op.name == "concat" and len(node.inputs) > 3:
            return False
        if len(self._places(node, group)) > _MOST_PLACES:
            return False  # shifts of shifts would double the work at each step
        return not self._repeats_costly_work(node, group, orders)

    def _places(self, node: Node, group: Group) -> frozenset[int]:
        """The places at which a group's members read a node."""
        found: set[int] = set()
        for user in self.a.users[node]:
            if user not in group.orders or len(found) > _MOST_PLACES:
                continue
            places = group.places.get(user, _OWN_PLACE)
            same = user.op.elementwise or user.op.name in ("expand", "reshape")
            if same or self.a.category[user] == REDUCE:
                found |= places
                continue
            for place in places:
                numbers = group.numbers
                found.add(numbers.setdefault((user, place), len(numbers) + 1))
        return frozenset(found)

    def _may_join_epilogue(self, node: Node, group: Group) -> bool:
        """What may be computed on the way into an epilogue: views, and next to nothing else. Where
        partial sums are made there, what is cheap and has an element for each of the sums, too."""
        if self.a.category[node] == MOVE:
            return node.op.name not in ("pad", "concat", "slice_update")
        # a scalar would be computed again for every element
        a, most = self.a, 2
        whole = a.elements[next(n for n in group.orders if n in self.epilogues.members)]
        if a.machine.partial_rows and len(a.cone_sources[node]) <= 2 and a.elements[node] == whole:
            most = a.machine.cheap
        return (
            node.op.elementwise and a.cone_cost[node] <= most and a.elements[node] != 1
            and not can_fail(node)
        )

    def _may_feed(self, node: Node, group: Group) -> bool:
        """What may be computed on the way into windows, running sums and scatters."""
        head = next(iter(group.orders))
        if self.a.category[node] == MOVE:
            return node.op.name in ("reshape", "permute", "slice", "expand")
        if node.op.name == "index" and self.a.machine.sorting is None:
            return head.op.name == "index_put"  # rows that are added elsewhere: read once, there
        return head.op.name != "max_pool_grad" and node.op.cost == LIGHT

    def _repeats_costly_work(self, node: Node, group: Group, orders: set[Order]) -> bool:
        """Whether an expensive value would be computed many times over by its readers."""
        cost = node.op.cost
        # a quotient is one instruction, but of a unit that the next one waits for
        if cost is None or (cost < self.a.machine.dear and cost != QUOTIENT):
            return cost is not None and self._repeats_much_work(node, orders - {group.pattern})
        if OTHER in orders:
            return len(orders) > 1 or self._evaluations(group) > 2 * _hint(self.a.elements[node])
        for order in orders:
            # constant along the innermost axis: computed once per row
            if isinstance(order, tuple) and not order[-1][1] and order != group.pattern:
                return self.a.elements[node] != 1
        return False

    def _repeats_much_work(self, node: Node, orders: set[Order]) -> bool:
        """Whether many cheap steps would be repeated for each of several places that a value is
        the same for (of a grid, for each channel). What it is before it is widened is less."""
        if self.a.category[node] != POINT or widens(node):
            return False
        return self.a.cone_cost[node] > self.a.machine.cheap and any(
            isinstance(order, tuple) and not order[-1][1]
            and _hint(unwrap(product(size for size, same in order if same))) >= _SEVERAL
            for order in orders
        )

    def _parallel(self, pattern: Pattern) -> bool:
        """Whether a reduction has enough kept places to keep several workers busy, or is small,
        or is cut in pieces anyhow."""
        machine = self.a.machine
        if machine.lane_steps:
            return True
        total = _hint(unwrap(product(size for size, _ in pattern)))
        kept = _hint(unwrap(product(size for size, flag in pattern if not flag)))
        if total < machine.alone:
            return True
        return machine.iterations(kept, not pattern[-1][1]) >= machine.least_parallel

    def _evaluations(self, group: Group) -> int:
        sizes = [_hint(self.a.elements[n]) for n in group.orders if group.orders[n] & {LINEAR, UP}]
        return max(sizes, default=1)

    def _may_reduce(self, node: Node, group: Group, orders: set[Order]) -> bool:
        """Whether a reduction and its readers fit one kernel."""
        if len(orders) != 1:
            return False
        (order,) = orders
        pattern = pattern_of(node)
        if group.pattern is not None:
            return order == group.kept and pattern == group.pattern and not (
                not self._parallel(pattern) and self._feeds_space(node, group)
            )
        if order == pattern:
            return self._parallel(pattern)
        return (
            order == LINEAR and len(group.orders) <= _FLIP_NODES
            and self.a.updates.isdisjoint(group.orders)
        )

    def _feeds_space(self, node: Node, group: Group) -> bool:
        """Whether the whole space is computed from a reduction's result, at once or after steps
        on the kept places (a mean's division)."""
        stack, seen = [node], {node}
        while stack:
            for user in self.a.users[stack.pop()]:
                orders = group.orders.get(user)
                if orders is None or user in seen:
                    continue
                if UP in orders or (not group.flipped and LINEAR in orders):
                    return True
                seen.add(user)
                stack.append(user)
        return False

    def _join(self, node: Node, group: Group, orders: set[Order]) -> None:
        if self.a.category[node] == REDUCE and group.pattern is None:
            group.pattern = pattern_of(node)
            group.flipped = orders == {LINEAR}
            group.kind = ROWS
        group.orders[node] = orders
        if self.a.category[node] in (POINT, MOVE):
            group.places[node] = self._places(node, group)
        self.computed_in.setdefault(node, []).append(group)

    def _orders(self, group: Group, node: Node) -> set[Order]:
        """The orders in which a group's members read a node."""
        result: set[Order] = set()
        for user in self.a.users[node]:
            if user in group.orders:
                for order in group.orders[user]:
                    result |= self._read_order(group, user, node, order)
        return result

    def _read_order(self, group: Group, user: Node, node: Node, order: Order) -> set[Order]:
        """The order of `node` where `user`, computed in `order`, reads it."""
        op = user.op
        if order == OTHER or not group.kind.ordered:
            return {OTHER}
        if op.name == "reshape":
            return {order}
        if op.name in ("gather", "index"):
            found: set[Order] = set()
            if user.inputs[0] is node:
                found.add(OTHER)
            if node in user.inputs[1:]:
                found.add(self._index_order(group, user, node, order))
            return found
        if op.elementwise or op.name == "expand":
            if self.a.elements[node] == self.a.elements[user]:
                return {order}
            return {self._broadcast(group, user.shape, node.shape, order)}
        if self.a.category[user] == REDUCE:
            return {group.full if order == group.kept else OTHER}
        if op.name == "slice_update" and user.inputs[0] is node:
            return {order, OTHER} if user.inputs[1] is node else {order}
        return {OTHER}

    def _index_order(self, group: Group, user: Node, node: Node, order: Order) -> Order:
        if self.a.elements[node] == self.a.elements[user]:
            return order
        if user.op.name == "gather" or len(user.inputs) > 2:
            return OTHER
        dim: int = user.attrs["dim"]
        rank = len(user.shape)
        after = rank - dim - len(node.shape)
        return self._broadcast(
            group, user.shape, (1,) * dim + node.shape + (1,) * after, order
        )

    def _broadcast(self, group: Group, out: Shape, shape: Shape, order: Order) -> Order:
        padded = (1,) * (len(out) - len(shape)) + tuple(shape)
        pattern = segments(out, [a == 1 for a in padded])
        if order == LINEAR and not group.flipped:
            return pattern
        if order == UP and pattern == group.pattern:
            return LINEAR
        return OTHER

    # --- groups ---------------------------------------------------------------------------------

    def _group(self, kind: Kind) -> Group:
        group = Group(len(self.groups), kind)
        self.groups.append(group)
        return group

    def _new(self, node: Node, kind: Kind, readers: list[Group]) -> None:
        """A group with `node` as its root."""
        group = self._group(kind)
        self._add(node, group)
        if kind is ROWS:
            group.pattern = pattern_of(node)
            group.flipped = True
        self._store(node, group, readers)

    def _add(self, node: Node, group: Group) -> None:
        if node not in group.orders:
            group.orders[node] = {LINEAR}
            self.computed_in.setdefault(node, []).append(group)
            for view in self.a.chains.get(node, ()):  # what a template's operands are
                self._add(view, group)
                group.orders[view] = {OTHER}

    def _store(self, node: Node, group: Group, readers: Iterable[Group]) -> None:
        group.outputs[node] = None
        self.stored_by[node] = group
        for reader in readers:
            if reader is not group:
                self._edge(group, reader)

    def _edge(self, group: Group, reader: Group) -> None:
        gained = reader.below | 1 << reader.number
        if gained & ~group.below:
            group.below |= gained
            for other in self.groups:
                if other.below >> group.number & 1:
                    other.below |= gained


def _hint(size: Size) -> int:
    return size if isinstance(size, int) else 4096


