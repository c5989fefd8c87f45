"""Rows that a loop writes over rows that it reads.

A scan that is the last to read a sequence may stack a result in its place: where no step of the
body reads the iteration's row after the step that writes the result's, or that step reads it
element by element, right before it writes each. So the gates of a recurrent layer lie where its
input's product was, and their gradients where the gates were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ...graph import Node
from ...kernel import BufferRef, Launch, Program, ProgramStep, Routine, leaves
from ...record import replaced
from .in_place import merged, safe_in_place


def over_rows(program: Program, row: int, result: int) -> Program | None:
    """A body whose output `result` lies where its input `row` does; None where that cannot be."""
    steps = list(program.steps)
    written = [at for at, step in enumerate(steps) if _writes(step, result)]
    if len(written) != 1:
        return None
    (at,) = written
    writer = steps[at]
    behind = steps[at + 1 :]
    if not isinstance(writer, Launch) or not all(isinstance(s, (Launch, Routine)) for s in behind):
        return None
    if any(_touches(step, "input", row) for step in behind):
        return None
    if any(_touches(step, "output", result) for step in steps[:at]):
        return None
    if _touches(writer, "input", row):
        found = _in_place(writer, row, result)
        if found is None:
            return None
        steps[at] = found
    return replaced(program, steps=tuple(steps))


def read_once(
    value: Node, users: Mapping[Node, Sequence[Node]], results: Collection[Node]
) -> bool:
    """Whether a value, by whatever name, is read once alone, and is none of the graph's results."""
    names, reads = [_unshaped(value)], 0
    if names[0].op.name == "get":
        (maker,) = names[0].inputs
        names = [user for user in users[maker] if user.attrs == names[0].attrs]
    for name in names:
        if name in results:
            return False
        for user in users[name]:
            if user.op.name == "reshape":
                names.append(user)
            else:
                reads += sum(each is name for each in user.inputs)
    return reads == 1


def _unshaped(value: Node) -> Node:
    """The node that a reshaped value is of."""
    while value.op.name == "reshape":
        (value,) = value.inputs
    return value


def _in_place(launch: Launch, row: int, result: int) -> Launch | None:
    """The launch that reads the row where it writes the result."""
    reads = _places(launch.buffers, "input", row)
    writes = _places(launch.buffers, "output", result)
    if len(reads) != 1 or len(writes) != 1:
        return None
    params = launch.kernel.params
    source, target = params[reads[0]], params[writes[0]]
    same = source.dtype is target.dtype and source.size == target.size
    whole = all(launch.buffers[i].offset == 0 for i in (*reads, *writes))
    if not (same and whole and (source.access, target.access) == ("in", "out")):
        return None
    if not safe_in_place(launch.kernel, source.name, target.name):
        return None
    kernel = merged(launch.kernel, ((source.name, target.name),))
    buffers = tuple(ref for i, ref in enumerate(launch.buffers) if i != reads[0])
    return replaced(launch, kernel=kernel, buffers=buffers)


def _places(buffers: Sequence[BufferRef], space: str, index: int) -> list[int]:
    return [i for i, ref in enumerate(buffers) if (ref.space, ref.index) == (space, index)]


def _touches(step: ProgramStep, space: str, index: int) -> bool:
    return any(_places(_buffers(leaf), space, index) for leaf in leaves([step]))


def _buffers(leaf: Launch | Routine) -> Sequence[BufferRef]:
    return leaf.buffers if isinstance(leaf, Launch) else (*leaf.inputs, *leaf.outputs)


def _writes(step: ProgramStep, result: int) -> bool:
    return any(
        (ref.space, ref.index) == ("output", result)
        for leaf in leaves([step]) for ref in _written(leaf)
    )


def _written(leaf: Launch | Routine) -> Iterable[BufferRef]:
    if isinstance(leaf, Routine):
        return leaf.outputs
    pairs = zip(leaf.buffers, leaf.kernel.params, strict=True)
    return [ref for ref, param in pairs if param.access != "in"]
