"""Eager mode: the gradient rule of a node of few numbers as one call of native code, in place of
its operators one by one (eager_program.py says how)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..frontend.programs import ArrayProgram
from ..ir.graph import get_
from . import eager_rows
from .eager_program import Followed
from .program_code import Code
from .program_writer import Unwritten

Arrays = Sequence[Any]
_HELD = 2  # results


class Gradient:
    """A rule's program, once it was right so often."""

    __slots__ = ("_program", "_right", "_tried", "_work", "run")

    def __init__(self, program: ArrayProgram) -> None:
        self._program, self._right = program, 0
        self._work = len(program.steps)
        self._tried: Callable[[Arrays], Any] | None = None
        # the rule's results, of its gradients, saved inputs and saved results; None: not by native
        # code
        self.run: Callable[[Arrays], Any] | None = None

    def met(self, heads: Arrays, found: Arrays) -> bool:
        """What NumPy has made of these; whether there may be a program."""
        if self._tried is None:
            code = eager_rows.native.program(self._work)
            if code is None:
                return True
            try:
                self._tried = _written(code, self._program, heads)
            except Unwritten:
                return False
        mine = self._tried(heads)
        if mine is None:
            return True
        if not all(map(_same, mine, found)):
            return False
        self._right += 1
        if self._right >= _HELD:
            self.run = self._tried
        return True


def _same(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return mine.strides == theirs.strides and bool(mine.tobytes() == theirs.tobytes())


def _written(code: Code, program: ArrayProgram, heads: Arrays) -> Callable[[Arrays], Any]:
    slots = [s for _, s in (*program.from_grads, *program.from_in, *program.from_out)]
    f = Followed(code, list(zip(slots, heads, strict=True)))
    fixed = set()
    for slot, array in enumerate(program.start):
        if array is not None:
            f.values[slot], f.root[slot] = array, slot
            f.w.constants.append(array)
            fixed.add(slot)
    assert program.ready is not None
    for run, (op, part, slot, sources, attrs, _) in zip(
        program.ready, program.steps, strict=True
    ):
        if part is not None or op is get_ or "graphs" in attrs:
            raise Unwritten
        if run is None:
            array = program.runner(op, [f.values[sources[0]]], attrs)
            if np.may_share_memory(array, f.values[sources[0]]):
                f.view(slot, sources[0], array)
                continue
        constant = all(s in fixed for s in sources)
        f.made(
            slot, op, attrs, run or (lambda x, op=op, attrs=attrs: program.runner(op, [x], attrs)),
            [f.values[s] for s in sources], constant,
        )
        if constant:
            fixed.add(slot)
    wanted = [s for s in dict.fromkeys(program.results) if s is not None and s not in slots]
    if not wanted or len({f.root[s] for s in wanted}) < len(wanted):
        raise Unwritten
    found = [f.result(s) for s in wanted]
    return _running(f, program, slots, wanted, found)


def _running(
    f: Followed, program: ArrayProgram, slots: Sequence[int], wanted: Sequence[int],
    found: Sequence[tuple[Any, Any]],
) -> Callable[[Arrays], Any]:
    fill, keep = f.w.finish([memory for memory, _ in found])
    made = [(memory.shape, memory.dtype, part) for memory, part in found]
    # where each result is: the number of what is made, or of what is given
    places = [
        None if s is None else ~slots.index(s) if s in slots else wanted.index(s)
        for s in program.results
    ]
    empty, odd, spread = np.empty, f.odd(), not f.w.in_order

    def run(heads: Arrays, _keep: Any = keep) -> Any:
        for i, strides in odd:
            if heads[i].strides != strides:
                return None
        memory = [empty(shape, dtype) for shape, dtype, _ in made]
        if fill(*heads, *memory) is None:
            if not spread:
                return None
            # a number that stands for several is as good as these
            rows = [np.ascontiguousarray(x) if 0 in x.strides else x for x in heads]
            if fill(*rows, *memory) is None:
                return None
        for i, (_, _, part) in enumerate(made):
            if part is not None:
                shape, dtype, off, strides = part
                memory[i] = np.ndarray(shape, dtype, memory[i], off, strides)
        return [
            None if at is None else memory[at] if at >= 0 else heads[~at] for at in places
        ]

    return run
