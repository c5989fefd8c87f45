"""`plan_attention(template, machine)`: how attention is tiled, and the scratch of one chunk."""

from __future__ import annotations

from ..dim import ceil_div
from ..machine import Machine
from ..record import record
from .blocking import ALIGN, MOST_SLOTS
from .templates import Attention
from .templates.attention import OPTIONAL
from .templates.operand import base_and_strides


@record
class AttentionBlocking:
    """A chunk goes with blocks of `queries`, a vector register's lanes each, along blocks of
    `keys`. A chunk of attention is one block of queries, one of its gradient all those of a head,
    or a block of queries or keys where that shares the work better (`shared_sums`). `places` are
    offsets in a chunk's scratch, which has `chunk_scratch` bytes.

    `along_keys`: there are too few queries for a register each; they are one block, vectors go
    along its keys, and a chunk is all of a head."""

    queries: int
    keys: int
    places: tuple[tuple[str, int], ...]
    chunk_scratch: int
    along_keys: bool = False
    slots: int = MOST_SLOTS  # chunks that have scratch at a time, at most

    def scratch(self, workers: int) -> int:
        """Bytes of scratch where so many chunks run at a time."""
        return min(self.slots, workers) * self.chunk_scratch

    def __str__(self) -> str:
        """One line: what a person tuning it looks at."""
        return (
            f"blocks of {self.queries} queries and {self.keys} keys"
            f"{', vectors along keys' * self.along_keys}; scratch {self.chunk_scratch} a thread"
        )


_TILES = 16  # of keys in a block: their scores, times a block of queries, fit the first cache
_REGISTERS = 8  # of a few queries' scores in a block


def plan_attention(t: Attention, machine: Machine) -> AttentionBlocking | None:
    """How a template is tiled on a machine; None where the width of heads is not known, or the
    machine has no tiles."""
    if machine.tiling is None or not isinstance(t.e, int) or not isinstance(t.f, int):
        return None
    itemsize = t.dtype.itemsize
    lanes = machine.tiling.lanes(itemsize)
    if isinstance(t.m, int) and 2 * t.m <= lanes:
        return _few(t, t.m, lanes)
    queries, keys = machine.tiling.columns(itemsize), _TILES * machine.tiling.rows
    wide, narrow = (queries * _padded(width, lanes) for width in (t.e, t.f))
    scores = keys * queries
    if t.kind == "attention":
        elements = {
            "rows": max(wide, narrow), "q": wide, "out": narrow, "scores": scores,
            "peak": queries, "total": queries, "lse": queries,
        }
    else:
        elements = {
            "q_rows": wide, "q": wide, "dq": wide, "g_rows": narrow, "g": narrow, "p": scores,
            "s": scores, "lse": queries, "slope": queries,
        }
    for name in OPTIONAL:
        if not same_for_queries(t, name):
            elements |= dict.fromkeys((name, f"{name}_rows"), scores)
    return AttentionBlocking(queries, keys, *_laid_out(elements, itemsize))


def _few(t: Attention, queries: int, lanes: int) -> AttentionBlocking:
    keys = _REGISTERS * lanes
    e, f = (_padded(width, lanes) for width in (t.e, t.f) if isinstance(width, int))
    scores = queries * keys
    if t.kind == "attention":
        elements = {
            "q": queries * e, "out": queries * f, "scores": scores, "peak": queries * lanes,
            "total": queries * lanes, "lse": queries,
        }
    else:
        elements = {
            "q": queries * e, "dq": queries * e, "g": queries * f, "p": scores, "s": scores,
            "lse": queries, "slope": queries,
        }
    for name in OPTIONAL:
        if t.optional(name) is not None:
            elements[f"{name}_rows"] = scores
    for name, width in (("k", e), ("v", f)):
        if not lies_in_rows(t, name):
            elements[name] = keys * width
    return AttentionBlocking(
        queries, keys, *_laid_out(elements, t.dtype.itemsize), along_keys=True
    )


def _laid_out(elements: dict[str, int], itemsize: int) -> tuple[tuple[tuple[str, int], ...], int]:
    """(places, the size of all of them)."""
    places: list[tuple[str, int]] = []
    total = 0
    for name, count in elements.items():
        places.append((name, total))
        total += _padded(count * itemsize, ALIGN)
    return tuple(places), total


def lies_in_rows(t: Attention, name: str) -> bool:
    """Whether each key, or value, is a row of elements side by side."""
    variable, width = {"k": ("e", t.e), "v": ("f", t.f)}[name]
    return width == 1 or base_and_strides(dict(t.inputs)[name], "n", variable)[2] == 1


def shared_sums(t: Attention) -> tuple[int, int]:
    """Products that a gradient sums over for each query and key: by heads, and by blocks, where
    those of keys and those of queries make scores each for themselves.

    By heads a worker has at most ceil(batch / workers) heads to itself; by blocks it has its part
    of more work. No bit depends on which it is: it may follow the number of workers.
    """
    wanted = {name for name, _ in t.results}
    of_keys, of_queries = len(wanted & {"dk", "dv"}), len(wanted & {"dq"})
    again = 2  # q times k, and g times v
    together = again + of_keys + of_queries
    return together, together + (again if of_keys and of_queries else 0)


def same_for_queries(t: Attention, name: str) -> bool:
    """Whether a mask or what dropout keeps, if there is one, has one element for all queries of a
    head: then it is read where it lies."""
    operand = t.optional(name)
    return operand is None or base_and_strides(operand, "m", "n")[1] == 0


def _padded(size: int, quantum: int) -> int:
    """A size, rounded up."""
    found = ceil_div(size, quantum) * quantum
    assert isinstance(found, int)
    return found
