"""What a call of a compiled graph needs of memory, and what fills its arena, read off its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphc.engine.built import Built
from graphc.inspect.touched import Span, covered, known, touched
from graphc.ir.dim import evaluate, product
from graphc.ir.kernel import Leaf, Program, leaves
from graphc.ir.kernel.plan_contraction import scratch_bytes
from graphc.ir.machine import Machine
from graphc.ir.record import record
from graphc.ir.types import TensorType


@record
class Memory:
    """Bytes of a call: what it is given, makes, keeps for itself, and has as constants."""

    inputs: int
    outputs: int  # without those written into an input
    arena: int  # with the scratch of contractions
    constants: int

    @property
    def peak(self) -> int:
        """All of it: everything is there during the whole call."""
        return self.inputs + self.outputs + self.arena + self.constants


def memory_of(built: Built, dims: Mapping[str, int]) -> Memory:
    """What a call needs for these values of the dims."""
    return memory_of_program(built.program, built.backend.machine, dims, built.config.threads)


def memory_of_program(
    program: Program, machine: Machine, dims: Mapping[str, int], threads: int
) -> Memory:
    """The same, of a program that so many threads will run."""
    made = [t for i, t in enumerate(program.output_types) if i not in program.outputs_in_place]
    constants = sum(getattr(c, "nbytes", 0) for c in program.constants)
    scratch = scratch_bytes(program, machine, dims, threads)
    return Memory(
        sum(bytes_of(t, dims) for t in program.input_types), sum(bytes_of(t, dims) for t in made),
        evaluate(program.arena_bytes, dims) + scratch, constants,
    )


def bytes_of(type_: object, dims: Mapping[str, int]) -> int:
    """Of a value of this type."""
    assert isinstance(type_, TensorType)
    return evaluate(product(type_.shape), dims) * type_.dtype.itemsize


# --- who lives in the arena ------------------------------------------------------------------


@record
class Fullest:
    """The step at which most of the arena is in use. `values`: those that are there, the largest
    first. `saved`: bytes that the forward part of a step leaves to its backward part."""

    step: Leaf | None
    values: tuple[tuple[int, Leaf], ...]
    saved: int


def fullest(program: Program, dims: Mapping[str, int]) -> Fullest:
    """What fills a program's arena. (A loop's steps count once, where its first iteration is.)"""
    steps = list(leaves(program.steps))
    spans_of = [tuple(_in_arena(step, dims)) for step in steps]
    after = _live_after(spans_of)
    most, at = 0, -1
    for i, spans in enumerate(spans_of):
        total = covered([*after[i], *(span for span, _ in spans)])
        if total > most:
            most, at = total, i
    first = next((i for i, step in enumerate(steps) if _is_backward(step)), None)
    saved = covered(after[first - 1]) if first else 0
    if at < 0:
        return Fullest(None, (), saved)
    writers: dict[tuple[int, int], int] = {}
    for i, spans in enumerate(spans_of[: at + 1]):
        writers.update((span, i) for span, access in spans if access != "in")
    there = {*after[at], *(span for span, _ in spans_of[at])}
    values = sorted(
        ((stop - start, steps[writers[start, stop]])
         for start, stop in there if (start, stop) in writers),
        key=lambda value: -value[0],
    )
    return Fullest(steps[at], tuple(values), saved)


def _live_after(spans_of: Sequence[Sequence[tuple[Span, str]]]) -> list[set[Span]]:
    """By step, the stretches of the arena that later steps read before they are written."""
    live: set[Span] = set()
    found: list[set[Span]] = []
    for spans in reversed(spans_of):
        found.append(set(live))
        written = [span for span, access in spans if access in ("out", "scratch")]
        live = {
            span for span in live
            if not any(start <= span[0] and span[1] <= stop for start, stop in written)
        }
        live.update(span for span, access in spans if access in ("in", "inout"))
    found.reverse()
    return found


def _in_arena(step: Leaf, dims: Mapping[str, int]) -> Iterator[tuple[Span, str]]:
    """The stretches of the arena that a step touches, and how."""
    for ref, size, access in touched(step, dims):
        if ref.space == "arena" and size:
            start = known(ref.offset, dims)
            yield (start, start + size), access


def _is_backward(step: Leaf) -> bool:
    return bool(step.locs) and all(place.endswith(", backward") for place in step.locs)
