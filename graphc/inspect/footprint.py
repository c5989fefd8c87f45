"""What a version needs of memory at its most, with its backward pass: as a table, and to be held
against a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from graphc.engine.limit import FORMER, Limit, limit_of
from graphc.engine.version.gradients_left import overwriting, size_of
from graphc.frontend.errors import MemoryLimitError
from graphc.inspect.memory import Fullest, bytes_of, fullest, memory_of_program
from graphc.inspect.report import short_path
from graphc.inspect.units import bytes_text
from graphc.ir.kernel import Launch, Leaf, Program
from graphc.ir.machine import Machine
from graphc.ir.record import record

if TYPE_CHECKING:
    from graphc.engine.version.version import Specialisation

_ROWS = 8  # of the largest values that a table shows
ARENA, CONSTANTS = "arena", "constants"


@record
class Footprint:
    """Bytes at the moment of a call, or of its backward pass, at which they are most.

    `rows`: what is there, and how much: "parameters", "arguments", "arena", ...; they sum up to
    `peak`. `saved`: what the forward part leaves for the backward part. `at`: the step at which
    the arena is fullest, with the user's lines, and `values` the largest values there. `again`:
    how many steps were added that compute a value again to save memory. str() is a table.
    """

    name: str
    rows: tuple[tuple[str, int], ...]
    saved: int
    at: str
    values: tuple[tuple[str, int], ...]
    again: int = 0

    @property
    def peak(self) -> int:
        """The sum of the rows."""
        return sum(size for _, size in self.rows)

    def __getitem__(self, what: str) -> int:
        """The bytes of one row; 0 where there is none."""
        return dict(self.rows).get(what, 0)

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: peak {bytes_text(self.peak)}", *self.lines()])

    def lines(self) -> Iterator[str]:
        """The rows, the step at which it is, and what fills the arena there."""
        yield from (f"  {bytes_text(size):>9}  {what}" for what, size in self.rows if size)
        if self.saved:
            yield f"  {bytes_text(self.saved):>9}  of it left by the forward part for the backward"
        if self.again:
            yield f"  {self.again} steps compute values again, to save memory"
        if self.at:
            yield f"  the arena is fullest at {self.at}:"
            yield from (f"  {bytes_text(size):>11}  {what}" for what, size in self.values)


def footprint_of_program(
    program: Program, machine: Machine, dims: Mapping[str, int], threads: int, limit: Limit
) -> Footprint:
    """Of a program, and of what is there besides."""
    memory = memory_of_program(program, machine, dims, threads)
    rows = dict(limit.held)
    for what, type_ in zip(limit.inputs, program.input_types, strict=True):
        rows[what] = rows.get(what, 0) + bytes_of(type_, dims)
    for i, (what, type_) in enumerate(zip(limit.outputs, program.output_types, strict=True)):
        if i not in program.outputs_in_place:
            rows[what] = rows.get(what, 0) + bytes_of(type_, dims)
    rows |= {ARENA: memory.arena, CONSTANTS: memory.constants}
    found = fullest(program, dims)
    return Footprint(
        program.name, tuple((what, size) for what, size in rows.items() if size), found.saved,
        _described(found.step), tuple(_values(found)), program.again,
    )


def refuse(found: Footprint, limit: int) -> MemoryLimitError:
    """The error for what does not fit, whatever is computed again."""
    return MemoryLimitError(
        f"{found.name} needs {bytes_text(found.peak)}, the least that was found by computing "
        f"values again, and max_memory is {bytes_text(limit)}. Of that are\n"
        + "\n".join(found.lines())
        + "\nCure: a smaller batch, or torch.utils.checkpoint around larger parts; or allow more",
        found.peak,
    )


def footprint_of(version: Specialisation) -> Footprint:
    """Of a version: the graph's, or that of the forward or the backward part, whichever is more."""
    traced, plan, engine = version.traced, version.plan, version.engine
    limit, dims = limit_of(traced, 1), traced.graph.env.hints
    built = engine.built
    machine, threads = built.backend.machine, built.config.threads
    if plan is None:
        spared = size_of(overwriting(version, dims))  # written where the former lie
        limit = limit._replace(held=tuple(
            (what, size - spared * (what == FORMER)) for what, size in limit.held
        ))
        return footprint_of_program(built.program, machine, dims, threads, limit)
    whole = plan.parts.whole()
    split = plan.split
    forward = footprint_of_program(
        built.program, machine, dims, threads, limit.of_forward(split)
    )
    saved = sum(bytes_of(split.forward.outputs[i].tensor_type, dims)
                for side, i in set(split.saved) if side == "output")
    found = forward
    if whole.engines is not None:
        program = whole.engines.at(dims).built.program
        backward = footprint_of_program(program, machine, dims, threads, limit.of_backward(split))
        found = max(forward, backward, key=lambda each: each.peak)
    return Footprint(
        built.name, found.rows, saved, found.at, found.values,
        forward.again + (found.again if found is not forward else 0),
    )


def _described(step: Leaf | None) -> str:
    """A step and the user's lines."""
    if step is None:
        return ""
    name = step.kernel.name if isinstance(step, Launch) else step.op
    places = [short_path(place) for place in step.locs[:2]]
    return name + (f" ({'; '.join(places)})" if places else "")


def _values(found: Fullest) -> Iterable[tuple[str, int]]:
    """The largest values of an arena at its fullest, those of one line together, and the rest."""
    rows: dict[str, tuple[int, int]] = {}
    for size, step in found.values:
        text = _described(step)
        count, total = rows.get(text, (0, 0))
        rows[text] = count + 1, total + size
    largest = sorted(rows.items(), key=lambda row: -row[1][1])
    for text, (count, size) in largest[:_ROWS]:
        yield (f"{count} times {text}" if count > 1 else text), size
    rest = largest[_ROWS:]
    if rest:
        yield f"{sum(count for _, (count, _) in rest)} more", sum(size for _, (_, size) in rest)
