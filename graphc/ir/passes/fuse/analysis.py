"""What fusion knows of each node before it groups anything: category, size, cost of making it
again, and which values must be in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ... import dtypes
from ...dim import Dim, Size, floordiv, product, unwrap
from ...dtypes import DType
from ...graph import Graph, Node, on_complex
from ...machine import Machine
from ...op import ELEMENTWISE
from ...types import Shape, TensorType
from ..lower.attention import VARIABLES, sides
from ..lower.body import Body
from ..lower.contraction import contraction, has_template, operand_index, widens_operand
from ..lower.first_few import few
from ..lower.index_maps import Coordinates
from ..lower.kinds import ATTENTION, CONTRACTION, HEADS, ROUTINE, SCATTER, SORT, Kind
from ..lower.moves import MOVES
from ..lower.rows_plan import reduced_dims
from ..lower.values import INLINE
from .depthwise import is_of_planes

# what a node is to fusion: a part of some kernel, or the head of one kind
Category: TypeAlias = str | Kind
LEAF, CREATE, POINT, MOVE, REDUCE = "leaf", "create", "point", "move", "reduce"
PARTIAL = "partial"  # of a contraction's results, and in its kernel

_BY_FAMILY = {
    **dict.fromkeys(ELEMENTWISE, POINT), "index": POINT, "movement": MOVE, "create": CREATE,
    "reduce": REDUCE, "arg_reduce": REDUCE,
}

_NEED_DIMS = frozenset({"index", "cumulative", "arg_reduce", "sort"})  # on a 0-d tensor: routines

_BROADCAST = 8  # elements per source element from which a source counts as small
_BESIDE = 64  # numbers to reduce, beside which an operator on the result is nothing
_MANY = 5  # more sources than this are not told apart


@dataclass
class Analysis:
    """Facts about the nodes of one graph, and the machine that it is fused for."""

    graph: Graph
    machine: Machine
    category: dict[Node, Category] = field(default_factory=dict)
    elements: dict[Node, Size] = field(default_factory=dict)
    users: dict[Node, list[Node]] = field(default_factory=dict)
    must: set[Node] = field(default_factory=set)  # in memory whatever the groups are
    chains: dict[Node, tuple[Node, ...]] = field(default_factory=dict)  # template -> its views
    operands: dict[Node, tuple[Node, ...]] = field(default_factory=dict)  # ... -> its buffers
    written: dict[Node, Node] = field(default_factory=dict)  # permute -> attention that stores it
    cone_cost: dict[Node, int] = field(default_factory=dict)
    cone_sources: dict[Node, frozenset[Node]] = field(default_factory=dict)
    cone_reductions: dict[Node, frozenset[Pattern]] = field(default_factory=dict)
    depth: dict[Node, int] = field(default_factory=dict)  # products and the like from the inputs
    checked: set[tuple[Node, Size]] = field(default_factory=set)  # positions looked up elsewhere
    updates: set[Node] = field(default_factory=set)  # new values of buffers that are written back

    def duplicable(self, node: Node) -> bool:
        """Whether computing a value again costs no more than keeping it in memory."""
        sources = self.cone_sources[node]
        cost = self.cone_cost[node]
        if cost > self.machine.cheap and not (
            cost <= 2 * self.machine.cheap and self._beside_much(node)
        ):
            return False
        return len(sources) < _MANY if self.elements[node] == 1 else len(sources) <= 2

    def _beside_much(self, node: Node) -> bool:
        """Whether a value is made of reductions, each over so many numbers that what is done with
        their results is next to nothing."""
        sources = self.cone_sources[node]
        return bool(sources) and all(
            self.category[x] == REDUCE and _many(self.elements[x.inputs[0]], self.elements[node])
            for x in sources
        )


def _many(whole: Size, part: Size) -> bool:
    if isinstance(whole, Dim) or isinstance(part, Dim):
        return whole != part
    return whole >= _BESIDE * part


def analyse(
    graph: Graph, machine: Machine, routine: Callable[[Node], bool],
    mutated: Collection[int] = (),
) -> Analysis:
    """Look at every node once. `routine`: of which nodes no kernel computes a part; `mutated` are
    the outputs that are written back to inputs."""
    a = Analysis(graph, machine, users=graph.users())
    for node in graph.nodes:
        a.category[node] = categorise(node, machine, routine)
        a.elements[node] = _elements(node)
        step = 0 if a.category[node] in (POINT, MOVE, CREATE, REDUCE) else 1
        a.depth[node] = max((a.depth[x] + step for x in node.inputs), default=0)
    body = Body(graph, machine)
    body.buffers = {}
    for node in graph.nodes:
        if a.category[node] in (CONTRACTION, ATTENTION) and node.op.name != "get":
            _find_operands(a, body, node)
        elif a.category[node] == ROUTINE and node.op.name != "get":
            a.must.update(node.inputs)
    a.must.update(graph.outputs)
    a.written = {n: n.inputs[0].inputs[0] for n in graph.nodes if _stored_permuted(a, n)}
    _find_checked(a)
    _updates(a, mutated)
    return a


def categorise(
    node: Node, machine: Machine, routine: Callable[[Node], bool]
) -> Category:
    """What a node is; ROUTINE: nothing in a kernel, but a step of its own."""
    name, family = node.op.name, node.op.family
    if name == "input":
        return LEAF
    if name != "const" and (on_complex(node) or (name != "get" and routine(node))):
        return ROUTINE
    if on_complex(node):
        return LEAF
    if name == "const":
        return CREATE if node.attrs["value"].array.size == 1 else LEAF
    if name == "partial":
        return PARTIAL
    if name == "get":
        return categorise(node.inputs[0], machine, routine)
    found: Category = HEADS.get(name) or _BY_FAMILY.get(family) or ROUTINE
    if found in (POINT, MOVE) and not (node.op.elementwise or name in INLINE):
        return ROUTINE
    if found is CONTRACTION and not (has_template(node, machine) and _known_channels(node)):
        return ROUTINE
    if found is SORT and not (machine.sorts or _are_few(node, machine)):
        return ROUTINE
    if family in _NEED_DIMS and not node.inputs[0].shape:
        return ROUTINE
    if found is SCATTER and node.op.name != "max_pool_grad" and node.dtype is dtypes.bool_:
        return found if not node.attrs.get("reduce") else ROUTINE
    return found


def _are_few(node: Node, machine: Machine) -> bool:
    count = _elements(node.inputs[0])
    sorted_ = node.op.name == "topk" and isinstance(count, int) and count <= machine.few_sorted
    return sorted_ or few(node, machine)


def _known_channels(node: Node) -> bool:
    """A convolution's template needs fixed channels and windows."""
    if node.op.name == "dot_general":
        return True
    weight = node.shape if node.op.name == "conv_weight_grad" else node.inputs[1].shape
    return all(isinstance(size, int) for size in weight)


def _elements(node: Node) -> Size:
    if isinstance(node.type, TensorType):
        return unwrap(product(node.type.shape))
    return unwrap(product(node.type.elements[0].shape))


def _positions(node: Node, first: int) -> list[tuple[Node, Size]]:
    """The position tensors of index and index_put, with the sizes they are checked against."""
    x, dim = node.inputs[0], node.attrs["dim"]
    return [(index, x.shape[dim + i]) for i, index in enumerate(node.inputs[first:])]


def _find_checked(a: Analysis) -> None:
    """The positions that some `index` looks up, and thereby checks, every one of. Of a value that
    is only sliced, or picked from, kernels compute no more than is read."""
    whole: set[Node] = set()
    for node in reversed(a.graph.nodes):
        if node in a.must or any(u in whole and _reads_all(a, u, node) for u in a.users[node]):
            whole.add(node)
            if node.op.name == "index":
                a.checked.update(_positions(node, 1))


def _reads_all(a: Analysis, user: Node, node: Node) -> bool:
    if user.op.name in ("gather", "index"):
        return node in user.inputs[1:]
    if a.category[user] == MOVE:
        return user.op.name in ("reshape", "permute", "expand")
    return a.category[user] in (POINT, REDUCE)


def can_fail(node: Node) -> bool:
    """Whether an elementwise operator has a check: an integer division by what may be 0."""
    if not node.op.divides or not node.dtype.is_integer:
        return False
    divisor = node.inputs[1]
    while divisor.op.name in ("reshape", "expand"):
        divisor = divisor.inputs[0]
    if divisor.op.name == "const":
        array = divisor.attrs["value"].array
        return not (array.size == 1 and array.all())
    return not (divisor.op.name == "full" and divisor.attrs["value"] != 0)


def needs_checks(a: Analysis, node: Node) -> bool:
    """Whether a scatter must check its positions: not those that max_pool made, nor those that
    an `index` of the same graph checks (an embedding's gradient)."""
    if node.op.name == "max_pool_grad":
        made = node.inputs[1]
        return not (
            made.op.name == "get" and made.inputs[0].op.name == "max_pool"
            and tuple(made.inputs[0].inputs[0].shape[-len(node.attrs["plane_shape"]):])
            == tuple(node.attrs["plane_shape"])
            and len(made.inputs[0].attrs["window"]) == len(node.attrs["plane_shape"])
        )
    if node.op.name == "index_put":
        return not a.checked.issuperset(_positions(node, 2))
    return True


def _find_operands(a: Analysis, body: Body, node: Node) -> None:
    """The buffers that a template reads, and the views of them that it absorbs."""
    variables, operands = _operands(body, node)
    widened = a.category[node] is CONTRACTION and not is_of_planes(node) and (
        a.machine.halves if node.dtype.is_float else a.machine.integers
    )
    sides = _sides(a, body, operands, variables, widened)
    made_of = {_narrow(views) for views in sides}
    mixed = None in made_of or len(made_of) > 1
    if widened and mixed and node.dtype.is_float:  # a template has floats of one dtype
        sides = _sides(a, body, operands, variables, False)
    leaves = _leaves(sides, operands)
    a.chains[node] = tuple(dict.fromkeys(view for views in sides for view in views))
    a.operands[node] = tuple(leaves)
    a.must.update(leaves)


def _sides(
    a: Analysis, body: Body, operands: Sequence[tuple[Node, Coordinates | None]],
    variables: Sequence[str], widened: bool,
) -> list[list[Node]]:
    """The views of each operand. Where the buffer of one is a view to another, both read it."""
    sides = [_views(a, body, side, variables, widened) for side in operands]
    while apart := _within(sides, _leaves(sides, operands)):
        i, end = apart
        sides[i] = _views(a, body, operands[i], variables, widened, end)
    return sides


def _leaves(
    sides: list[list[Node]], operands: Sequence[tuple[Node, Coordinates | None]]
) -> list[Node]:
    return [
        views[-1].inputs[0] if views else operand
        for views, (operand, _) in zip(sides, operands, strict=True)
    ]


def _within(sides: list[list[Node]], leaves: list[Node]) -> tuple[int, int] | None:
    """A side that sees through the buffer of another, and which of its views that is."""
    for i, views in enumerate(sides):
        for end, view in enumerate(views):
            if view in leaves:
                return i, end
    return None


def _views(
    a: Analysis, body: Body, side: tuple[Node, Coordinates | None], variables: Sequence[str],
    widened: bool, most: int | None = None,
) -> list[Node]:
    """The views of a buffer that lead to an operand, from it on, `most` of them at the most; with
    the cast that widens it, where it may be `widened`."""
    operand, at = side
    views: list[Node] = []
    leaf, best = operand, 0
    while len(views) != most and (_is_view(a, leaf) or (widened and widens_operand(leaf))):
        views.append(leaf)
        leaf = leaf.inputs[0]
        if operand_index(body, operand, at, leaf, variables) is not None:
            best = len(views)
    return views[:best]


def _is_view(a: Analysis, node: Node) -> bool:
    return a.category[node] == MOVE and node.op.name in MOVES and node.op.name != "as_strided"


def _narrow(views: list[Node]) -> DType | None:
    """What views widen, if they do."""
    return next((view.inputs[0].dtype for view in views if widens_operand(view)), None)


def _stored_permuted(a: Analysis, node: Node) -> bool:
    """Whether a node is the one form in which a result of an attention is read."""
    if node.op.name != "permute" or a.category[node.inputs[0]] != ATTENTION:
        return False
    (result,) = node.inputs
    rank = len(node.shape)
    return (
        result.op.name == "get" and a.users[result] == [node] and result not in a.must
        and node.attrs["dims"][-1] == rank - 1
    )


def _operands(
    body: Body, node: Node
) -> tuple[Sequence[str], list[tuple[Node, Coordinates | None]]]:
    """The variables that a template's operands are affine in, and their nodes and places."""
    if node.op.name in ATTENTION.heads:
        return VARIABLES, [(operand, at) for _, operand, at in sides(node, body.shape)]
    t = contraction(body, node)
    return t.variables, [(t.left, t.left_at), (t.right, t.right_at)]


def find_cones(a: Analysis, stored: Container[Node]) -> None:
    """For each cheap node, what it would cost to compute it from values in memory, which are
    those that must be and the `stored` ones."""
    for node in a.graph.nodes:
        if (
            a.category[node] not in (POINT, MOVE, CREATE) or node in a.must or node in stored
        ):
            a.cone_cost[node] = 0
            a.cone_sources[node] = frozenset((node,))
            continue
        total = 0
        if a.category[node] == POINT:  # what checks positions should not be repeated
            total = a.machine.cheap + 1 if node.op.cost is None else node.op.cost
        sources: frozenset[Node] = frozenset()
        for x in node.inputs:
            # what is broadcast is read and computed far less often
            broadcast = _ratio(a.elements[node], a.elements[x]) >= _BROADCAST
            total += a.cone_cost[x] // (4 if broadcast else 1)
            if not broadcast and len(sources) < _MANY:
                sources |= a.cone_sources[x]
        a.cone_cost[node] = min(total, 1 << 20)
        a.cone_sources[node] = sources
    for node in a.graph.nodes:
        found: frozenset[Pattern] = frozenset()
        if a.category[node] == REDUCE:
            found = frozenset((pattern_of(node),))
        elif a.category[node] in (POINT, MOVE):
            for x in node.inputs:
                if x not in a.must and len(found) < _MANY:
                    found |= a.cone_reductions[x]
        a.cone_reductions[node] = found


def _ratio(elements: Size, source: Size) -> int:
    if isinstance(elements, int) and isinstance(source, int):
        return elements // max(source, 1)
    if source == 1 or (source != elements and floordiv(elements, source) * source == elements):
        return _BROADCAST  # of a size that is not known
    return 1


def _updates(a: Analysis, mutated: Collection[int]) -> None:
    """Pointwise nodes that are only there for the sake of buffers that are written back: an
    optimizer's step. One shared kernel does them for every parameter."""
    roots = {a.graph.outputs[i] for i in mutated}
    for node in reversed(a.graph.nodes):
        if a.category[node] in (POINT, MOVE) and (
            node in roots
            or (node not in a.must and a.users[node] and a.updates.issuperset(a.users[node]))
        ):
            a.updates.add(node)


Pattern: TypeAlias = tuple[tuple[Size, bool], ...]  # (size, reduced) of each run of axes


def pattern_of(node: Node) -> Pattern:
    """What a reduction keeps and reduces, as runs of axes."""
    shape, dims = node.inputs[0].shape, reduced_dims(node)
    return segments(shape, [d in dims for d in range(len(shape))])


def segments(shape: Shape, reduced: list[bool]) -> Pattern:
    """Runs of kept and reduced dims, neighbours joined, dims of size 1 left out."""
    result: list[tuple[Size, bool]] = []
    for size, flag in zip(shape, reduced, strict=True):
        if size == 1:
            continue
        if result and result[-1][1] == flag:
            result[-1] = (unwrap(result[-1][0] * size), flag)
        else:
            result.append((size, flag))
    return tuple(result)
