"""Loops over the axes of an iteration space: which is the vector, how the rest is cut in chunks.

All decisions read shapes only, never the number of threads, so results cannot depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...dim import Dim, Size, ceil_div, minimum, product, unwrap
from ...graph import Node
from ...kernel import Kernel, Param, Stmt
from ...op import LIGHT
from ...record import record
from ...types import Shape
from . import index_maps
from .body import Body
from .index_maps import Coordinates, Digit
from .scope import Writer


def cost(node: Node) -> int:
    """What one element costs inside a kernel, in additions: of a sum or a look-up, one step."""
    return LIGHT if node.op.cost is None else node.op.cost


def hint(body: Body, size: Size) -> int:
    """A size, or what is expected of a symbolic one: a guess for cost decisions only."""
    if isinstance(size, int):
        return size
    hints = {str(new): body.graph.env.hints.get(old, 64) for old, new in body.rename.items()}
    result = index_maps.substitute_hints(size, hints)
    return max(result, 1)


@record(frozen=False)
class Axis:
    """One axis of an iteration space; `reduced` axes are summed over. `parts` are the sizes of
    the axes that it was merged from: a product is not easily taken apart again when symbolic.
    `stretches`: the sizes of those that it is walked in, by a loop each; none: by one loop."""

    size: Size
    reduced: bool = False
    var: str = ""
    parts: tuple[Size, ...] = ()
    stretches: tuple[int, ...] = ()

    @property
    def unit(self) -> int:
        """How many steps are one of the outermost axis that it was merged from."""
        found = unwrap(product(self.parts[1:]))
        return found if isinstance(found, int) else 1


def digits(axes: Sequence[Axis], roots: Sequence[Size]) -> tuple[Digit, ...]:
    """The digits of a place in a space, row-major."""
    result: list[Digit] = []
    for axis, root in zip(axes, roots, strict=True):
        if axis.size == 1:
            continue
        div: Size = 1
        parts: list[Digit] = []
        for size in reversed(axis.parts or (axis.size,)):
            parts.append(Digit(root, axis.size, div, size))
            div = div * size
        result.extend(reversed(parts))
    return tuple(result)


def coordinates(place: tuple[Digit, ...], shape: Shape) -> Coordinates:
    """Coordinates in a tensor whose elements, in order, are those of the space."""
    return index_maps.reshape((place,), shape)


# a run of the kernel's value code with one loop per axis, to see how memory is walked
Trial = Callable[[Writer, list[Axis], list[Size]], None]


class Access(NamedTuple):
    """An index as an expression over axes' variables, whether it stores, and along which axes it
    goes where numbers in memory say: along pairs of rows, say, whose numbers are looked up."""

    place: Size
    store: bool
    anywhere: frozenset[str]


def accesses(axes: list[Axis], trial: Trial) -> list[Access]:
    """Every index that `trial` uses, over variables x0, x1, ..."""
    writer = Writer()
    for i, axis in enumerate(axes):
        axis.var = f"x{i}"
        writer.open("serial", axis.var, axis.size)
    trial(writer, axes, [Dim.var(axis.var) for axis in axes])
    return _resolved(writer, axes)


def _resolved(writer: Writer, axes: list[Axis]) -> list[Access]:
    variables = {axis.var for axis in axes}
    found: dict[Access, None] = {}
    for index, store in writer.accesses:
        names = set() if isinstance(index, int) else index.variables() - variables
        # what is looked up stands in the innermost loop that it depends on
        levels = {writer.levels.get(name, 0) for name in names}
        anywhere = frozenset(axes[level - 1].var for level in levels if level)
        found[Access(index, store, anywhere)] = None
    return list(found)


def merge(axes: list[Axis], found: list[Access]) -> list[Axis]:
    """Neighbouring axes that every access walks as one become one."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and _mergeable(merged[-1], axis, found):
            last = merged[-1]
            size = unwrap(last.size * axis.size)
            merged[-1] = Axis(size, axis.reduced, axis.var, (*last.parts, axis.size))
        else:
            merged.append(Axis(axis.size, axis.reduced, axis.var, (axis.size,)))
    return merged


def _mergeable(outer: Axis, inner: Axis, found: list[Access]) -> bool:
    if outer.reduced != inner.reduced:
        return False
    # `outer` may itself be merged: its var is that of its innermost part, with its stride
    for index, _, _ in found:
        a = index_maps.coefficient(index, outer.var)
        b = index_maps.coefficient(index, inner.var)
        if a is None or b is None or unwrap(a) != unwrap(b * inner.size):
            return False
    return True


def vector_axis(axes: list[Axis], found: list[Access]) -> int:
    """The axis along which most memory is walked one element at a time; the last of equals."""
    best, best_score = len(axes) - 1, -1e9
    shares = [_share(axes, access) for access in found]
    for i, axis in enumerate(axes):
        score = 0.0
        for (index, store, anywhere), share in zip(found, shares, strict=True):
            c = None if axis.var in anywhere else index_maps.coefficient(index, axis.var)
            if c == 1:
                score += (6 if store else 4) * share
            elif c in (0, 2):  # every other element: a register is two loads, all of whose lines
                score += (0 if store else 2) * share
            else:
                score -= 2 * share
        if isinstance(axis.size, int) and axis.size < 4:
            score -= 1000 if len(axes) > 1 else 0
        if score >= best_score:
            best, best_score = i, score
    return best


def _share(axes: list[Axis], access: Access) -> float:
    """How much of the space an access walks: what does not vary along an axis is read once for
    all of it, so a bias weighs little beside the tensor that it is added to."""
    share = 1.0
    for axis in axes:
        if axis.var in access.anywhere:
            continue
        if index_maps.coefficient(access.place, axis.var) == 0:
            share /= axis.size if isinstance(axis.size, int) else 64
    return share


# --- opening loops ------------------------------------------------------------------------------


def open_outer(
    writer: Writer, body: Body, axes: Sequence[Axis], work: int, weight: int, prefix: str = "p"
) -> list[Size]:
    """Open the loops around the vector loop; returns each axis's root expression.

    `work` elements of cost `weight` are done inside. Big spaces get a parallel loop over the
    product of the axes, small ones plain serial loops.
    """
    count: Size = unwrap(product(a.size for a in axes))
    if count == 1:
        return [0 for _ in axes]
    total = hint(body, count) * work
    if body.machine.one_worker(total, weight) and isinstance(count, int):
        return [
            0 if a.size == 1 else writer.open("serial", f"{prefix}{i}", a.size)
            for i, a in enumerate(axes)
        ]
    chunk = max(1, body.machine.chunk(total, weight) // max(work, 1))
    root = writer.open("parallel", prefix, count, chunk)
    return unravelled(writer, root, axes)


def unravelled(writer: Writer, root: Size, axes: Sequence[Axis]) -> list[Size]:
    """Each axis's value for a flat position, named so that index expressions stay affine."""
    live = [a for a in axes if a.size != 1]
    if len(live) <= 1:
        return [0 if a.size == 1 else root for a in axes]
    roots: list[Size] = []
    total: Size = unwrap(product(a.size for a in axes))
    for i, axis in enumerate(axes):
        if axis.size == 1:
            roots.append(0)
            continue
        div = unwrap(product(a.size for a in axes[i + 1 :]))
        value = Digit(root, total, div, axis.size).value()
        roots.append(writer.index_name(value))
    return roots


def open_blocks(
    writer: Writer, body: Body, axes: Sequence[Axis], inner: Axis, block: int, work: int,
    weight: int,
) -> tuple[list[Size], Size]:
    """Outer axes and blocks of `inner` as one parallel loop, then the vector loop over a block.

    `work` is what one lane does. Returns the outer roots and the inner axis's expression.
    """
    if isinstance(inner.size, int) and inner.size <= block:
        roots = open_outer(writer, body, axes, work * inner.size, weight)
        return roots, writer.open("vector", "v", inner.size)
    blocks = Axis(ceil_div(inner.size, block))
    roots = open_outer(writer, body, [*axes, blocks], work * block, weight)
    start = roots.pop() * block
    even = isinstance(inner.size, int) and inner.size % block == 0
    extent = block if even else minimum(block, unwrap(inner.size - start))
    v = writer.open("vector", "v", extent)
    return roots, unwrap(start + v)


# --- kernels ------------------------------------------------------------------------------------


def make_kernel(
    body: Body, stages: Sequence[tuple[Stmt, ...]], dims: tuple[str, ...],
    scratch: Sequence[Param] = (), sizes: dict[Node, Size] | None = None,
) -> Kernel:
    """A kernel over the body's inputs a0.., outputs o0.. and scratch buffers."""
    return Kernel(kernel_name(body), params(body, scratch, sizes or {}), dims, tuple(stages))


def params(
    body: Body, scratch: Sequence[Param] = (), sizes: dict[Node, Size] | None = None
) -> tuple[Param, ...]:
    """The kernel's buffers: the body's inputs, its outputs, scratch."""
    known = sizes or {}

    def size(node: Node) -> Size:
        found = known.get(node)
        return unwrap(product(body.shape(node))) if found is None else found

    ins = [Param(f"a{i}", n.dtype, size(n), "in") for i, n in enumerate(body.graph.inputs)]
    outs = [Param(f"o{i}", n.dtype, size(n), "out") for i, n in enumerate(body.graph.outputs)]
    return (*ins, *outs, *scratch)


def kernel_name(body: Body) -> str:
    """The operators that the kernel computes, for people."""
    names = [n.op.name for n in body.graph.nodes if n.op.family not in ("structure", "create")]
    short = list(dict.fromkeys(names))
    return "_".join(short[:4] if len(short) <= 5 else [*short[:3], "etc", short[-1]]) or "fill"
