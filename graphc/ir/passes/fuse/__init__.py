"""Fusion: decides which operators are computed by one kernel.

    fuse(graph) -> a graph of `fusion` nodes with sub-graphs, aliasing reshapes and routines

What is decided, in this order:

1. *What must be in memory* (analysis): results, operands of routines, and for contractions
   the buffers that their operands are affine views of: reshapes, permutes, slices and expands
   are absorbed into the operand's index expression (heads of an attention are batch dims).
   Attention is a kernel by itself; a permutation that alone reads its result is absorbed, too.
2. *Epilogues* (epilogue): pointwise work on a contraction's results, walking forward. What
   would otherwise be stored and read back once is always absorbed; where other readers need the
   raw product as well, only what leads to a value that is kept in memory anyhow.
   Where a machine does so, sums over a contraction's rows are begun there (partials).
3. *Groups* (groups), walking backwards: a node joins the group of its readers if it has one
   group of readers. With several it is computed again in each if that is cheap (at most 8
   additions' worth of work from at most two buffers, never an exp), because a second read of a
   source costs no more than the store and read of the value. Otherwise it is stored by a reader
   that computes it on its way (m, v and p of one Adam step are one kernel), or on its own.
   Reductions join where they keep and reduce the same axes ("rows": layer norm, softmax, batch
   norm and their gradients are one kernel each), unless few kept places would leave threads idle.
4. *Siblings*: reductions over the same axes of a common source become one kernel.
5. *Columns*: sums over columns join the rows of the same values, where a machine keeps rows.
6. *Numbers*: what is equal but for numbers reads these from memory, and is one kernel.

No group ever waits for another that waits for it: each group knows the set of groups below it
as a bit set. A value that is broadcast is computed inside its reader only if that does not repeat
a division, a transcendental or many cheap steps many times. Positions that must be in range are
held there by clamps first (positions): a kernel then needs no check.

The cost model counts memory traffic first: launches cost about 0.1 us, memory 0.1 ns per byte,
an addition 0.02 ns per element, an exp 0.25 ns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...graph import Graph, Node
from ...machine import Machine
from ...rewrite import in_bodies
from .analysis import analyse
from .build import build_fused
from .columns import merge_columns
from .depthwise import widened_planes
from .empty import replace_empty
from .groups import Grouping
from .numbers import share_numbers
from .operands import affine_operands
from .partials import make_partials
from .permuted import store_permuted
from .positions import held_positions
from .siblings import merge_siblings


def fuse(
    graph: Graph, machine: Machine, routine: Callable[[Node], bool] = lambda node: False,
    mutated: Collection[int] = (),
) -> Graph:
    """The graph with its operators grouped into kernels for a machine. `routine` says of which
    nodes no kernel computes a part: they stay steps of their own. `mutated` are the
    outputs that are written back to inputs (parameters): their updates are kept apart, in kernels
    that all parameters share. Bodies of loops and branches are fused by themselves."""

    def fused(graph: Graph, written: Collection[int] = ()) -> Graph:
        graph = in_bodies(graph, fused)
        graph = widened_planes(replace_empty(graph), machine)
        graph = held_positions(store_permuted(affine_operands(graph, machine)))
        graph = make_partials(graph, machine, routine, written)
        grouping = Grouping(analyse(graph, machine, routine, written))
        merge_siblings(grouping)
        merge_columns(grouping)
        return build_fused(grouping)

    return share_numbers(fused(graph, mutated))
