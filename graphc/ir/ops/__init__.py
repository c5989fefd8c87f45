"""Every operator record, as an attribute: `from graphc.ir import ops; ops.add(a, b)`.

The modules here register their records when they are imported; none of them is named like an
operator. `op.REGISTRY` finds a record by a name that is only known at run time.
"""

from __future__ import annotations

from ..op import REGISTRY, Op
from . import (
    boxes,
    complex_numbers,
    composite_activation,
    composite_attention,
    composite_loss,
    composite_norm,
    composite_partial,
    composite_softmax,
    contract,
    control,
    create,
    cumulative,
    elementwise,
    fourier,
    indexing,
    matrix_decompositions,
    matrix_ldl,
    matrix_solves,
    movement,
    panels,
    random,
    random_sampled,
    reduce,
    sorting,
    sparse,
    special_functions,
    window,
    winograd,
)
from ._rules import sum_to
from ._types import broadcast_shapes as broadcast_shapes
from ._types import reduced_shape as reduced_shape
from .contract import conv_output_shape

globals().update(REGISTRY)


def __getattr__(name: str) -> Op:
    raise AttributeError(f"graphc.ir.ops has no operator {name!r}")


def __dir__() -> list[str]:
    return sorted(REGISTRY)
