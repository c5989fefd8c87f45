"""What gradient rules read here and torch's do not: it may be written to before the backward pass.

In eager mode an operator's node copies it when it is about to be written to (`OpNode.keep`); a
trace's keeps the value rather than the place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .nodes import OpNode

# by operator: inputs by number, results by ~number
UNSAVED = {
    "cross_entropy": frozenset({0}),  # torch keeps the log-probabilities
    "erfinv": frozenset({~0}),
    "attention": frozenset({0, ~0}),
}
NOTHING: frozenset[int] = frozenset()


def keep_values(entry: OpNode, late: frozenset[int]) -> None:
    """Of a trace's tape: keep these values themselves, whatever is written to their places."""
    assert entry.saved_in is not None and entry.saved_out is not None
    entry.saved_in = tuple([v[:1] if i in late else v for i, v in enumerate(entry.saved_in)])
    entry.saved_out = tuple([v[:1] if ~i in late else v for i, v in enumerate(entry.saved_out)])
    entry.stamps = tuple([stamp for stamp in entry.stamps if stamp[2] not in late])
