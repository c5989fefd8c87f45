"""Programs: what planning hands to a backend. Kernel calls in order over planned buffers.

Steps are leaves (a Launch, a Routine) or hold steps (Repeat, Branch). Leaves are numbered in the
order in which they are written down: `leaves`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..dim import Size, evaluate
from ..record import record, replaced
from ..shown import Shown
from .nest import Kernel


@record
class BufferRef:
    """A buffer of a program. space: "input" | "output" | "const" (by index) or "arena". `offset` in
    bytes: where a value lies in the arena (64-byte aligned), or a row in a buffer; an expression
    over named dims where sizes are symbolic, and over the variables of the Repeats around it."""

    space: str
    index: int = 0
    offset: Size = 0


@record
class Launch:
    """One kernel call. `dims` are the values of kernel.dims over the program's dims.
    `ops`, `locs`: the graph operators it computes and their places (Node.place), for explain()."""

    kernel: Kernel
    buffers: tuple[BufferRef, ...]
    dims: tuple[Size, ...] = ()
    ops: tuple[str, ...] = ()
    locs: tuple[str, ...] = ()


@record
class Routine:
    """A graph operator that is no kernel (sort, random, ...): run by the backend that `claimed` it,
    else by the host, in NumPy. Shapes are symbolic Sizes over the program's dims; buffers are
    contiguous."""

    op: str
    attrs: tuple[tuple[str, object], ...]
    inputs: tuple[BufferRef, ...]
    input_types: tuple[object, ...]  # TensorType
    outputs: tuple[BufferRef, ...]
    output_types: tuple[object, ...]  # TensorType
    locs: tuple[str, ...] = ()
    claimed: bool = False


Leaf = Launch | Routine


@record
class Repeat:
    """A loop over steps: `count` times, or, where `flag` is given, while the bool that `test`
    leaves there is true (and `count` times at most, if that is given); `test` runs before each
    iteration. Offsets inside may use `var`, the number of the iteration; behind the loop it is the
    number of iterations that ran, also to steps that follow."""

    var: str
    steps: tuple[ProgramStep, ...]
    count: Size | None
    test: tuple[ProgramStep, ...] = ()
    flag: BufferRef | None = None


@record
class Branch:
    """`then` where the bool in `flag` is true, else `otherwise`."""

    flag: BufferRef
    then: tuple[ProgramStep, ...]
    otherwise: tuple[ProgramStep, ...]


ProgramStep = Leaf | Repeat | Branch


def leaves(steps: Iterable[ProgramStep]) -> Iterator[Leaf]:
    """Every Launch and Routine, each once."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from leaves(step.test)
            yield from leaves(step.steps)
        elif isinstance(step, Branch):
            yield from leaves(step.then)
            yield from leaves(step.otherwise)
        else:
            yield step


def run_steps(
    steps: Iterable[ProgramStep], env: dict[str, int], flag: Callable[[BufferRef], bool],
    leaf: Callable[[int, Leaf], None], moved: Callable[[str], None] = lambda var: None,
    first: int = 0,
) -> None:
    """Run a program's steps in Python: `leaf(number, step)` for each Launch and Routine, `flag` for
    what Repeats and Branches look at. `env` holds the dims and gets the loops' variables; `moved`
    is told of each new value."""
    for step in steps:
        if isinstance(step, Repeat):
            _run_repeat(step, env, flag, leaf, moved, first)
        elif isinstance(step, Branch):
            if flag(step.flag):
                run_steps(step.then, env, flag, leaf, moved, first)
            else:
                skipped = sum(1 for _ in leaves(step.then))
                run_steps(step.otherwise, env, flag, leaf, moved, first + skipped)
        else:
            leaf(first, step)
        first += sum(1 for _ in leaves((step,)))


def _run_repeat(
    step: Repeat, env: dict[str, int], flag: Callable[[BufferRef], bool],
    leaf: Callable[[int, Leaf], None], moved: Callable[[str], None], first: int,
) -> None:
    body = first + sum(1 for _ in leaves(step.test))
    env[step.var] = 0
    while True:
        moved(step.var)
        run_steps(step.test, env, flag, leaf, moved, first)
        if step.flag is not None and not flag(step.flag):
            return
        if step.count is not None and env[step.var] >= evaluate(step.count, env):
            return
        run_steps(step.steps, env, flag, leaf, moved, body)
        env[step.var] += 1


Bind = Callable[[BufferRef], BufferRef]


def rebound(steps: Iterable[ProgramStep], bind: Bind) -> tuple[ProgramStep, ...]:
    """The steps on other buffers."""
    return tuple(_rebound(step, bind) for step in steps)


def _rebound(step: ProgramStep, bind: Bind) -> ProgramStep:
    if isinstance(step, Launch):
        return replaced(step, buffers=tuple(map(bind, step.buffers)))
    if isinstance(step, Routine):
        inputs, outputs = tuple(map(bind, step.inputs)), tuple(map(bind, step.outputs))
        return replaced(step, inputs=inputs, outputs=outputs)
    if isinstance(step, Branch):
        then, otherwise = rebound(step.then, bind), rebound(step.otherwise, bind)
        return Branch(bind(step.flag), then, otherwise)
    flag = None if step.flag is None else bind(step.flag)
    return replaced(
        step, steps=rebound(step.steps, bind), test=rebound(step.test, bind), flag=flag
    )


@dataclass(frozen=True, slots=True)
class Program:
    """A planned graph: steps in order over inputs, outputs, constants and one arena.

    `dims` are the program's named dims. `outputs_in_place` maps an output index to the input
    whose buffer it is written into (a parameter update); the caller then passes that buffer.
    Steps from `first_visible_write` on may write buffers that the user sees; every Check and
    Routine that can fail comes before it. `again`: how many steps were added that compute values
    once more, so that the arena is smaller.
    """

    name: str
    dims: tuple[str, ...]
    input_types: tuple[object, ...]  # TensorType
    output_types: tuple[object, ...]  # TensorType
    constants: tuple[object, ...]  # np.ndarray, contiguous
    steps: tuple[ProgramStep, ...]
    arena_bytes: Size
    outputs_in_place: dict[int, int] = field(default_factory=dict)
    first_visible_write: int = 0
    again: int = 0

    def _repr_html_(self) -> str | None:
        return Shown.html(self)


# fetch(buffer, NumPy dtype, elements): what is in a program's buffer now, as a flat array
Fetch: TypeAlias = Callable[[BufferRef, Any, int], Any]
# visit(number of the leaf, leaf, fetch): called around each leaf of a call that is traced
Visit: TypeAlias = Callable[[int, Leaf, Fetch], None]


def unseen(number: int, step: Leaf, fetch: Fetch) -> None:
    """The Visit that does nothing."""
