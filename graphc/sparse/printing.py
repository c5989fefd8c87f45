"""The text of a sparse tensor, as torch prints it."""

from __future__ import annotations

from typing import Any

from ..frontend import promote
from ..frontend.functions.printing import OPTIONS, array_text
from ..frontend.layouts import sparse_bsc, sparse_csc
from ..frontend.tensor import Tensor
from ..ir import dtypes
from .patterns import Pattern
from .tensor import SparseTensor

_PREFIX = "tensor("


def text(self: SparseTensor, *, tensor_contents: Any = None) -> str:
    """repr(): places, entries, and what of size, dtype and history there is to say."""
    pattern = self._graphc_pattern
    if isinstance(pattern, Pattern):
        named = [("indices", pattern.indices)]
    elif pattern.layout in (sparse_csc, sparse_bsc):
        named = [("ccol_indices", pattern.starts), ("row_indices", pattern.plain)]
    else:
        named = [("crow_indices", pattern.starts), ("col_indices", pattern.plain)]
    named.append(("values", self._graphc_values))
    gap = ",\n" + " " * len(_PREFIX)
    body = _PREFIX + gap.join([_named(name, tensor) for name, tensor in named])
    return _with(body, _facts(self), isinstance(pattern, Pattern))


def _named(name: str, tensor: Tensor) -> str:
    begin = f"{name}=tensor("
    array = tensor._graphc_array
    shown = array_text(array, len(_PREFIX) + len(begin), tensor.dtype.is_float)
    if not array.size:
        shown += f", size={tuple(array.shape)}"
    return f"{begin}{shown})"


def _facts(x: SparseTensor) -> list[str]:
    facts = [f"size={tuple(x.shape)}", f"nnz={x._graphc_pattern.count}"]
    default = promote.get_default_dtype()
    if x.dtype not in (default, dtypes.complex_of(default), dtypes.i64, dtypes.bool_):
        facts.append(f"dtype={x.dtype}")
    facts.append(f"layout={x.layout}")
    if x._graphc_node is not None:
        facts.append(f"grad_fn=<{x._graphc_node.label(x._graphc_output)}>")
    elif x._graphc_requires_grad:
        facts.append("requires_grad=True")
    return facts


def _with(body: str, facts: list[str], on_a_new_line: bool) -> str:
    indent = len(_PREFIX)
    used = len(body) - body.rfind("\n") + 1
    for i, fact in enumerate(facts):
        if (i == 0 and on_a_new_line) or used + len(fact) + 2 > OPTIONS.linewidth:
            body += ",\n" + " " * indent + fact
            used = indent + len(fact)
        else:
            body += ", " + fact
            used += len(fact) + 2
    return body + ")"
