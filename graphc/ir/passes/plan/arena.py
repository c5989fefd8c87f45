"""Offsets in the arena: values whose lives overlap never share bytes.

Values of known size are placed largest first, each into the tightest gap between those already
placed that live at the same time. Values of symbolic size follow behind, in slots that are used
again by values of the same size expression.
"""

from __future__ import annotations

from ...dim import Size, floordiv, unwrap
from ...machine import Machine
from .step import Step, Storage

Life = tuple[int, int]


def assign_offsets(order: list[Step], machine: Machine) -> Size:
    """Set the offset of every arena value; returns the arena's size in bytes."""
    lives = _lives(order)
    static = [
        (s, (first, len(order) if _bytes(s) <= machine.lasting else last))
        for s, (first, last) in lives.items() if isinstance(s.size, int)
    ]
    top = _place_static(static, machine.alignment)
    symbolic = [(s, life) for s, life in lives.items() if not isinstance(s.size, int)]
    return _place_symbolic(symbolic, top, machine.alignment)


def _lives(order: list[Step]) -> dict[Storage, Life]:
    """First and last step of every arena value."""
    lives: dict[Storage, Life] = {}
    for i, step in enumerate(order):
        for storage in (*step.writes, *step.scratch, *step.reads):
            block = storage.block
            if block.space == "arena" and storage.elements != 0:
                lives[block] = (lives.get(block, (i, i))[0], i)
    return lives


def _bytes(storage: Storage) -> int:
    assert isinstance(storage.size, int)
    return storage.size


def _place_static(values: list[tuple[Storage, Life]], alignment: int) -> int:
    top = 0
    placed: list[tuple[int, int, int, int]] = []  # start, end (bytes), first, last (steps)
    values.sort(key=lambda item: (-_bytes(item[0]), item[1]))
    for storage, (first, last) in values:
        size = -(-_bytes(storage) // alignment) * alignment
        busy = sorted((s, e) for s, e, f, t in placed if f <= last and first <= t)
        start = _best_gap(busy, size)
        storage.offset = start
        placed.append((start, start + size, first, last))
        top = max(top, start + size)
    return top


def _best_gap(busy: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size`, or the end of what is busy."""
    best, best_room = -1, 0
    at = 0
    for start, end in busy:
        room = start - at
        if room >= size and (best < 0 or room < best_room):
            best, best_room = at, room
        at = max(at, end)
    return at if best < 0 else best


def _place_symbolic(values: list[tuple[Storage, Life]], top: int, alignment: int) -> Size:
    end: Size = top
    slots: dict[Size, list[tuple[Size, int]]] = {}  # size -> (offset, last step)
    for storage, (first, last) in sorted(values, key=lambda item: item[1]):
        free = slots.setdefault(storage.size, [])
        for i, (offset, until) in enumerate(free):
            if until < first:
                storage.offset = offset
                free[i] = (offset, last)
                break
        else:
            storage.offset = end
            free.append((end, last))
            end = unwrap(end + floordiv(storage.size + (alignment - 1), alignment) * alignment)
    return end
