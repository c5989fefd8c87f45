"""A condition on values that a recording takes for granted, and its graph checks at each call.

Where it does not hold, native code refuses before it has written anything, and the function runs in
eager mode, which finds the condition broken and says so.
"""

from __future__ import annotations

import numpy as np

from .context import local
from .functions import index_select, logical_not, reshape
from .segment_trace import SegmentTrace
from .tensor import Tensor, from_array

_ONE = from_array(np.ones(1, np.float32))
_KEPT = from_array(np.ones(1, np.float32))  # what is written there has to be computed
_WHAT = "a value that is checked in the graph"


def require(condition: Tensor) -> bool:
    """Let one graph, which is being recorded, refuse calls where a tensor of one bool is False.
    False: nothing like that is being recorded, and Python has to ask."""
    trace = local.trace
    if (
        not isinstance(trace, SegmentTrace) or not trace.whole or local.exporting
        or condition.device.type != "cpu"
    ):
        return False
    # segments would not take it for granted
    trace.tainted = trace.tainted or _WHAT
    position = reshape(logical_not(condition), (1,)).long()  # 1 lies outside
    _KEPT.mul_(index_select(_ONE, 0, position))  # behind those before it
    return True
