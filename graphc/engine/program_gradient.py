"""Eager mode: the gradient rule of a node of few numbers as one call of native code, in place of
its operators one by one (eager_program.py says how)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..frontend.programs import ArrayProgram
from ..ir.slots import steps_of
from ..ir.types import TupleType
from . import eager_rows
from .eager_program import Followed
from .program_code import Code
from .program_writer import Unwritten

Arrays = Sequence[Any]
_HELD = 2  # results


# of a rule's gradients, saved inputs and saved results: its results; None: not of such arrays
Run = Callable[[Arrays, Arrays, Arrays], "list[Any] | None"]


class Gradient:
    """A rule's program, once it was right so often."""

    __slots__ = ("_program", "_right", "_tried", "_work", "run")

    def __init__(self, program: ArrayProgram) -> None:
        self._program, self._right = program, 0
        self._work = len(program.steps)
        self._tried: Run | None = None
        self.run: Run | None = None  # None: not by native code

    def met(self, grads: Arrays, saved_in: Arrays, saved_out: Arrays, found: Arrays) -> bool:
        """What NumPy has made of these; whether there may be a program."""
        if self._tried is None:
            code = eager_rows.native.program(self._work)
            if code is None:
                return True
            try:
                self._tried = _written(code, self._program, grads, saved_in, saved_out)
            except Unwritten:
                return False
        mine = self._tried(grads, saved_in, saved_out)
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


def _written(
    code: Code, program: ArrayProgram, grads: Arrays, saved_in: Arrays, saved_out: Arrays
) -> Run:
    every = (program.from_grads, grads), (program.from_in, saved_in), (program.from_out, saved_out)
    slots = [s for places, _ in every for _, s in places]
    heads = [arrays[i] for places, arrays in every for i, _ in places]
    f = Followed(code, list(zip(slots, heads, strict=True)))
    f.decomposed |= {"attention"}  # of which all results are read
    fixed = set()
    for slot, array in enumerate(program.start):
        if array is not None:
            f.values[slot], f.root[slot] = array, slot
            f.w.constants.append(array)
            fixed.add(slot)
    assert program.ready is not None
    several: dict[int, int] = {}  # of what gives several results: the first one's number
    for run, node, (op, part, slot, sources, attrs, _) in zip(
        program.ready, steps_of(program.graph), program.steps, strict=True
    ):
        if part is not None:
            number = several[sources[0]] + part
            f.values[slot], f.root[slot] = f.values[number], f.root[number]
            continue
        if "graphs" in attrs:
            raise Unwritten
        if run is None:
            array = program.runner(op, [f.values[sources[0]]], attrs)
            if np.may_share_memory(array, f.values[sources[0]]):
                f.view(slot, sources[0], array)
                continue
        constant = all(s in fixed for s in sources)
        number = slot
        if isinstance(node.type, TupleType):
            number = several[slot] = max(len(program.start), *f.values) + 1
        moves = lambda x, op=op, attrs=attrs: program.runner(op, [x], attrs)  # noqa: E731
        f.made(number, op, attrs, run or moves, [f.values[s] for s in sources], constant)
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
) -> Run:
    """One Python function, with a line for each array: it takes as long as the numbers do."""
    fill = f.w.finish([memory for memory, _ in found])
    names: dict[str, Any] = {
        "fill": fill, "empty": np.empty, "array": np.ndarray, "rows": _in_rows,
    }
    heads = [
        f"{which}[{i}]" for which, places in (
            ("grads", program.from_grads), ("saved_in", program.from_in),
            ("saved_out", program.from_out),
        ) for i, _ in places
    ]
    given = [f"h{i}" for i in range(len(heads))]
    lines = [f"{name} = {head}" for name, head in zip(given, heads, strict=True)]
    for i, strides in f.odd():
        names[f"odd{i}"] = strides
        lines += [f"if h{i}.strides != odd{i}:", "    return None"]
    for i, (memory, _) in enumerate(found):
        names[f"shape{i}"], names[f"dtype{i}"] = memory.shape, memory.dtype
        lines.append(f"m{i} = empty(shape{i}, dtype{i})")
    made = [f"m{i}" for i in range(len(found))]
    lines.append(f"if fill({', '.join([*given, *made])}) is None:")
    if f.w.in_order:
        lines.append("    return None")
    else:  # a number that stands for several is as good as these
        rows = [f"rows({name})" for name in given]
        lines += [
            f"    if fill({', '.join([*rows, *made])}) is None:", "        return None",
        ]
    for i, (_, part) in enumerate(found):
        if part is not None:
            names[f"part{i}"] = part
            lines.append(
                f"m{i} = array(part{i}[0], part{i}[1], m{i}, part{i}[2], part{i}[3])"
            )
    results = [
        "None" if s is None else given[slots.index(s)] if s in slots else made[wanted.index(s)]
        for s in program.results
    ]
    lines.append(f"return [{', '.join(results)}]")
    text = "\n".join([
        "def run(grads, saved_in, saved_out):", *[f"    {line}" for line in lines]
    ])
    exec(compile(text, "<graphc>", "exec", dont_inherit=True), names)
    run: Run = names["run"]
    return run


def _in_rows(x: Any) -> Any:
    return np.ascontiguousarray(x) if 0 in x.strides else x
