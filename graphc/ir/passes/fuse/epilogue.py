"""Which pointwise work is done on a contraction's results before they are stored.

Walks forward from each contraction. A node is absorbed when it has one element per element of
the product, in an order that the template can store in, and when nothing else it reads depends
on this contraction (two kernels would wait for each other)."""

from __future__ import annotations

from ...dim import Size, product, unwrap
from ...graph import Node
from ..lower.contraction import widens_operand
from ..lower.kinds import ROUTINE, SCATTER, Kind
from .analysis import PARTIAL, POINT, Analysis, Category, can_fail, needs_checks

_MOST_NODES = 24
_MOST_UPDATE = 6
_MOST_PARTIALS = 3  # values of which partial sums are made
_LAST = frozenset({"conv_last", "winograd_output"})  # results whose channels are last


class Epilogues:
    """Contraction -> the nodes absorbed into its kernel; `owner` the other way round."""

    def __init__(self, a: Analysis) -> None:
        self.a = a
        self.owner: dict[Node, Node] = {}
        self.members: dict[Node, list[Node]] = {}
        self._bit: dict[Node, int] = {}
        self._before: dict[Node, int] = {}  # bits of the contractions that a node depends on
        self._order: dict[Node, int] = {}  # changes at each permutation absorbed
        # a cast in a chain stays what it is to others: only its template reads what it widens
        self._views = {
            view for chain in a.chains.values() for view in chain if not widens_operand(view)
        }
        self._ends = _reaches_memory(a)
        self._fails_late = any(
            a.category[n] == ROUTINE or (a.category[n] == SCATTER and needs_checks(a, n))
            for n in a.graph.nodes
        )
        if any(is_followed(c) for c in a.category.values()):
            self._walk()
            self._prune()
            self._narrow()

    def _walk(self) -> None:
        for node in self.a.graph.nodes:
            bits = 0
            for x in node.inputs:
                bits |= self._depends(x)
            self._before[node] = bits
            if is_followed(self.a.category[node]):
                self._bit[node] = 1 << len(self._bit)
                self.owner[node] = node
                self.members[node] = [node]
                self._order[node] = 0
            elif bits:
                target = self._target(node)
                if target is not None:
                    self._absorb(node, target)

    def _prune(self) -> None:
        """Let go of nodes that read a product which is stored anyhow, and lead to nothing here."""
        for contraction, members in self.members.items():
            useful: set[Node] = set()
            for node in reversed(members):
                mine = [x for x in node.inputs if self.owner.get(x) is contraction]
                if (
                    node is contraction or node in self.a.must or self.a.category[node] == PARTIAL
                    or any(u in useful for u in self.a.users[node])
                    or all(self.a.users[x] == [node] and x not in self.a.must for x in mine)
                ):
                    useful.add(node)
                else:
                    del self.owner[node]
            self.members[contraction] = [n for n in members if n in useful]

    def _narrow(self) -> None:
        """Let go of casts to a wider type whose readers are elsewhere: these widen what is stored,
        which is less to write, and less to read."""
        for contraction, members in self.members.items():
            for node in reversed(members):
                if (
                    widens(node) and node not in self.a.must
                    and all(self.owner.get(u) is not contraction for u in self.a.users[node])
                ):
                    del self.owner[node]
            self.members[contraction] = [n for n in members if self.owner.get(n) is contraction]

    def _depends(self, node: Node) -> int:
        owner = self.owner.get(node)
        if owner is None:
            return self._before[node]
        return self._before[owner] | self._bit[owner]

    def _target(self, node: Node) -> Node | None:
        """The contraction that can absorb a node: the latest of those it reads."""
        owners = {self.owner[x]: None for x in node.inputs if x in self.owner}
        for contraction in sorted(owners, key=lambda c: -self._bit[c]):
            if self._fits(node, contraction):
                return contraction
        return None

    def _fits(self, node: Node, contraction: Node) -> bool:
        a = self.a
        if a.category[node] == PARTIAL:
            return self._sums_rows(node, contraction)
        if a.elements[node] != a.elements[contraction]:
            return False
        if len(self.members[contraction]) >= _MOST_NODES or node in self._views:
            return False
        mine = [x for x in node.inputs if self.owner.get(x) is contraction]
        if len({self._order[x] for x in mine}) != 1:
            return False
        if any(a.elements[x] != a.elements[contraction] for x in mine):
            return False
        bit = self._bit[contraction]
        for x in node.inputs:
            if self.owner.get(x) is not contraction and self._depends(x) & bit:
                return False
        single = all(a.users[x] == [node] and x not in a.must for x in mine)
        if node.op.name == "reshape":
            return single
        if node.op.name == "permute":
            return single and self._keeps_rows(node, contraction)
        if a.category[node] != POINT or node.op.cost is None or can_fail(node):
            return False  # a template has no way out in the middle
        if node in a.updates and not self._plain_update(contraction):
            return False
        return single or node in self._ends

    def _sums_rows(self, node: Node, contraction: Node) -> bool:
        """Whether a partial sum goes over what the template has in rows: the rows of a product,
        or the pixels of a convolution, of channels that are last and not few."""
        if contraction.op.name in _LAST:
            return False
        (x,), members = node.inputs, self.members[contraction]
        summed = {n.inputs[0] for n in members if self.a.category[n] == PARTIAL} | {x}
        if self.owner.get(x) is not contraction or len(summed) > _MOST_PARTIALS:
            return False
        permutes, step = [], x
        while step is not contraction:
            if step.op.name == "permute":
                permutes.append(step.attrs["dims"])
            step = next(y for y in step.inputs if self.owner.get(y) is contraction)
        if self.a.elements[x] != self.a.elements[contraction]:
            return False
        if contraction.op.name == "dot_general":
            return not permutes and x.shape[-1] == _product_columns(contraction)
        rank = len(contraction.shape)
        return (
            permutes == [(0, *range(2, rank), 1)] and x.shape[-1] == contraction.shape[1]
            and _has_pixels_in_rows(contraction, self.a.machine.channels_last)
        )

    def _plain_update(self, gradient: Node) -> bool:
        """Whether a parameter's update may go with its gradient: where the gradient is read once
        (SGD, with or without momentum; Adam's longer update is one kernel for all parameters),
        and nothing fails late, for which updates would have to wait, and gradients with them."""
        return (
            len(self.a.users[gradient]) == 1
            and gradient not in self.a.must
            and len(self.members[gradient]) <= _MOST_UPDATE
            and not self._fails_late
        )

    def _keeps_rows(self, node: Node, contraction: Node) -> bool:
        """Whether rows or columns of the product stay contiguous in the permuted result."""
        dims: tuple[int, ...] = node.attrs["dims"]
        if len(node.inputs[0].shape) != len(contraction.shape):
            return False
        if contraction.op.name in _LAST:
            return dims[-1] == len(dims) - 1
        if contraction.op.name != "dot_general":  # channels are rows, positions columns
            return bool(self.a.machine.channels_last) and dims[-1] == 1
        return dims[-1] >= len(contraction.attrs["batch_a"])

    def _absorb(self, node: Node, contraction: Node) -> None:
        self.owner[node] = contraction
        self.members[contraction].append(node)
        source = next(x for x in node.inputs if self.owner.get(x) is contraction)
        step = 1 if node.op.name == "permute" else 0
        self._order[node] = self._order[source] + step
        bit = self._bit[contraction]
        gained = self._before[node] & ~bit & ~self._before[contraction]
        if gained:
            # whatever depends on this kernel now depends on these as well
            self._before[contraction] |= gained
            for other, bits in self._before.items():
                if bits & bit:
                    self._before[other] = bits | gained


def _product_columns(product_: Node) -> Size:
    """Columns of a product of matrices; 0 of several products."""
    attrs, (a, _) = product_.attrs, product_.inputs
    kept = len(a.shape) - len(attrs["contract_a"])
    return 0 if attrs["batch_a"] else unwrap(product(product_.shape[kept:]))


def _has_pixels_in_rows(convolution: Node, least: int) -> bool:
    """Whether a convolution is computed pixel by pixel, all channels of one beside each other: not
    by phases of its strides, nor groups of less than so many channels, each by itself."""
    attrs, channels = convolution.attrs, (convolution.shape[1], convolution.inputs[0].shape[1])
    if convolution.op.name == "conv_weight_grad":
        return False
    if convolution.op.name == "conv_input_grad" and {*attrs["stride"]} != {1}:
        return False
    groups = attrs["groups"]
    return groups == 1 or all(isinstance(c, int) and c // groups >= least > 0 for c in channels)


def is_followed(category: Category) -> bool:
    """Whether a node's results may have more done to them before they are stored."""
    return isinstance(category, Kind) and category.followed


def widens(node: Node) -> bool:
    """Whether a node is a smaller one with more bytes for each element."""
    return node.op.name == "cast" and node.inputs[0].dtype.itemsize < node.dtype.itemsize


def _reaches_memory(a: Analysis) -> set[Node]:
    """Pointwise nodes from which pointwise steps of the same size lead to a value that is kept."""
    found: set[Node] = set()
    for node in reversed(a.graph.nodes):
        if a.category[node] != POINT:
            continue
        if node in a.must or any(
            a.category[u] == PARTIAL or (u in found and a.elements[u] == a.elements[node])
            for u in a.users[node]
        ):
            found.add(node)
    return found
