"""The kinds of kernels: what may stand in one of each, and what lowers it.

Fusion groups nodes into kinds, a fusion node keeps its kind's name, lowering finds the kind again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...graph import Node
from ...kernel import Kernel
from ...record import record
from .attention import lower_attention
from .body import Body
from .contraction import lower_contraction
from .cumulative import lower_cumulative
from .first_few import lower_sort
from .loops import lower_loop
from .rows import lower_rows
from .scatter import lower_scatter
from .sparse import lower_sparse_product
from .windows import lower_window
from .winograd import lower_winograd


@record(eq=False)
class Kind:
    """One kind. `heads`: the operators of which exactly one is computed by such a kernel, and by
    no other kind; the rest of it is what leads to that one, or starts from it."""

    name: str
    heads: frozenset[str]
    with_head: Callable[[Body, Node], Kernel] | None = None
    without: Callable[[Body], Kernel] | None = None
    ordered: bool = False  # walks a space of elements, in which every member has its order
    fed: bool = False  # light pointwise work may be done on the way into the head
    template: bool = False  # the head's operands are buffers, through views of them
    followed: bool = False  # light pointwise work may be done on the head's results

    @property
    def computes(self) -> bool:
        """Whether there is a kernel: not for a routine, nor for another name for a buffer."""
        return self.with_head is not None or self.without is not None

    def kernel(self, body: Body) -> Kernel:
        """The kernel of a fusion node's body."""
        if self.with_head is not None:
            head = next(node for node in body.graph.nodes if node.op.name in self.heads)
            return self.with_head(body, head)
        assert self.without is not None, f"{self.name} is no kernel"
        return self.without(body)


_NONE: frozenset[str] = frozenset()
_SCATTERS = frozenset({"scatter", "index_put", "max_pool_grad"})

LOOP = Kind("loop", _NONE, without=lower_loop, ordered=True)
ROWS = Kind("rows", _NONE, without=lower_rows, ordered=True)
CONTRACTION = Kind(
    "contraction",
    frozenset({"dot_general", "conv", "conv_input_grad", "conv_weight_grad", "conv_last"}),
    lower_contraction, template=True, followed=True,
)
ATTENTION = Kind(
    "attention", frozenset({"attention", "attention_grad"}), lower_attention, template=True
)
WINDOW = Kind("window", frozenset({"max_pool", "window_sum"}), lower_window, fed=True)
WINOGRAD = Kind("winograd", frozenset({"winograd_input", "winograd_filter"}), lower_winograd)
WINOGRAD_OUTPUT = Kind(
    "winograd_output", frozenset({"winograd_output"}), lower_winograd, followed=True
)
SCATTER = Kind("scatter", _SCATTERS, lower_scatter, fed=True)
# where another kernel checks the same positions
SCATTER_UNCHECKED = Kind(
    "scatter_unchecked", _SCATTERS, partial(lower_scatter, checked=False), fed=True
)
CUMULATIVE = Kind(
    "cumulative", frozenset({"cumsum", "cumprod", "cummax", "cummin"}), lower_cumulative, fed=True
)
SPARSE = Kind("sparse", frozenset({"sparse_product"}), lower_sparse_product)
SORT = Kind("sort", frozenset({"sort", "topk"}), lower_sort)  # if a machine does so
ROUTINE = Kind("routine", _NONE)  # a step of its own
ALIAS = Kind("alias", _NONE)  # a reshape that is another name for a buffer

KERNELS = {
    kind.name: kind for kind in (
        LOOP, ROWS, CONTRACTION, ATTENTION, WINDOW, WINOGRAD, WINOGRAD_OUTPUT, SCATTER,
        SCATTER_UNCHECKED, CUMULATIVE, SPARSE, SORT,
    )
}
# operator -> the kind that it heads
HEADS = {
    name: kind for kind in (
        CONTRACTION, ATTENTION, WINDOW, WINOGRAD, WINOGRAD_OUTPUT, SCATTER, CUMULATIVE, SPARSE,
        SORT,
    )
    for name in kind.heads
}
