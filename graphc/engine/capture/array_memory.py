"""NumPy arrays that are the memory of tensors (Tensor.numpy(), from_numpy).

What Python does to such an array and what the graph does to the tensor have an order, which a graph
does not know: a function that uses both runs in segments.
"""

from __future__ import annotations

import numpy as np

from ...frontend.captured import TensorInput
from ...frontend.trace import Trace
from ...ir.memory import may_share


def is_captured(trace: Trace, array: np.ndarray) -> bool:
    """Whether an array is memory of a tensor that a trace has met."""
    return any(
        isinstance(source, TensorInput) and source.kind != "tangent"
        and may_share(array, source.owner._graphc_storage.root.flat())
        for source in trace.inputs
    )
