"""Training steps as files: `export_step(step, args)` is a step without its code, with its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc import config
from graphc.backends import DEFAULT, get
from graphc.engine import pipeline
from graphc.engine.devices import backend_at
from graphc.export import checking, dynamic
from graphc.export.capture import argument_names, check_apart, check_free, leaf_paths
from graphc.export.errors import ExportError
from graphc.export.steps.build import StepBuilder
from graphc.export.steps.names import StepNames
from graphc.export.steps.program import Entry, ExportedStep
from graphc.export.steps.record import Attempts
from graphc.frontend.tree import flatten, unflatten
from graphc.ir.dim import Dim
from graphc.ir.late import late

_compared = late("graphc.export.steps.compared")

__all__ = ["Entry", "ExportedStep", "export_step"]


def export_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    calls: int | None = None,
    random: str | None = None,
    check: bool = True,
) -> ExportedStep:
    """Record a training step, as one gives it to compile(), as a program with its own state.

    What the step reads and writes (parameters, buffers, the optimizer's state, the generator) is
    copied as it is now, and the step itself changes nothing. Floats and ints among the arguments
    are given at each call, as are free sizes (2 and more: `dynamic_shapes`, as in export()).
    `calls`: for how many calls the rates of a schedule inside are made ahead. `random`: "torch",
    its stream, or "counter" (config.random); None: as compile() would draw now. `check`: the graph
    is run by the reference interpreter (a large one compiled) and compared with a call of the step
    in eager mode, from the same state, at the sizes of the example, at 2, 3 and the largest; small
    calls are kept in the file, for `graphc verify`.
    Raises ExportError for what a file cannot hold, and TraceError naming every place of the Python
    that one graph cannot stand for.
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args must be a tuple of the step's arguments, got {type(args).__name__}."
                        " Cure: export_step(step, (x, y))")
    if random not in (None, "torch", "counter"):
        raise ValueError(f"random must be 'torch', 'counter' or None, got {random!r}")
    if calls is not None and calls < 1:
        raise ValueError(f"calls must be 1 or more, got {calls}")
    function = getattr(step, "__compiled_function__", step)
    given = dict(kwargs or {})
    positional = argument_names(function, len(args), given)
    shapes = dynamic.read(dynamic_shapes, args, given, positional)
    leaves, structure = flatten((args, given))
    check_apart(leaves)
    paths = leaf_paths(structure, positional)
    for name, bounds in list(shapes.ranges.items()):
        if bounds.least < 2:
            shapes.raised(name, 2, "free sizes of a training step begin with 2")
    leaves = dynamic.resized(
        leaves, shapes.names, {name: max(2, size) for name, size in shapes.example.items()}
    )
    attempts = Attempts(function, leaves, structure, paths)
    try:
        recording = attempts.steady({
            number: {d: size for d, size in own.items() if isinstance(size, Dim)}
            for number, own in shapes.names.items()
        })
        check_free(recording.traced.graph, shapes)
        place = recording.trace.place or None
        names = StepNames(function, *unflatten(leaves, structure))
        drawn = random or _random(backend_at(place, DEFAULT))
        builder = StepBuilder(recording, names, paths, calls)
        contents = builder.contents(
            structure, leaves, attempts.lifted, positional, tuple(given), shapes, drawn,
        )
    finally:
        attempts.close()
    if check:
        eager = _compared.EagerStep(function, leaves, structure, positional, builder, drawn)
        contents = checking.checked(contents, shapes, eager)
    return ExportedStep(contents, place)


def _random(backend: str) -> str:
    counter = pipeline.by_counter(config.current(), get(backend))
    return "counter" if counter else "torch"

