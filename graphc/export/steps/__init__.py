"""Training steps as files: `export_step(step, args)` is a step without its code, with its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from graphc import config
from graphc.backends import DEFAULT, get
from graphc.engine import pipeline
from graphc.engine.devices import backend_at
from graphc.export import checking, containers, dynamic, ones
from graphc.export.capture import argument_names, check_apart, check_free, leaf_paths
from graphc.export.contents import Contents
from graphc.export.dynamic import DynamicShapes
from graphc.export.steps import variants
from graphc.export.steps.build import StepBuilder
from graphc.export.steps.names import StepNames
from graphc.export.steps.program import Entry, ExportedStep
from graphc.export.steps.record import Attempts
from graphc.frontend.tree import flatten, unflatten
from graphc.ir.late import late
from graphc.ir.record import replaced

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
    are given at each call, as are free sizes (`dynamic_shapes`, as in export()).
    `calls`: for how many calls the rates of a schedule inside are made ahead. `random`: "torch",
    its stream, or "counter" (config.random); None: as compile() would draw now. `check`: the graph
    is run by the reference interpreter (a large one compiled) and compared with a call of the step
    in eager mode, from the same state, at the sizes of the example, 1, 2, 3 and the largest; small
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
    exporter = _StepExporter(step, args, dict(kwargs or {}), dynamic_shapes, calls, random)
    return exporter.step(check)


class _StepExporter:
    """One export: the recordings of a step, and what becomes of them."""

    def __init__(
        self, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any,
        calls: int | None, random: str | None,
    ) -> None:
        self.function = getattr(step, "__compiled_function__", step)
        self.kwargs, self.calls, self.random = kwargs, calls, random
        self.positional = argument_names(self.function, len(args), kwargs)
        self.shapes = dynamic.read(shapes, args, kwargs, self.positional)
        self.given, self.structure = flatten((args, kwargs))
        containers.check_known(self.structure)
        check_apart(self.given)
        paths = leaf_paths(self.structure, self.positional)
        self.attempts = Attempts(self.function, self.given, self.structure, paths)
        self.made: list[Contents] = []

    def step(self, check: bool) -> ExportedStep:
        """The step."""
        sizes = {name: max(2, size) for name, size in self.shapes.example.items()}
        leaves = dynamic.resized(self.given, self.shapes.names, sizes)
        try:
            builder, main = self._record(leaves, self.shapes)
            others = ones.settle(
                self.shapes, main, lambda names: self._at_one(builder, main, names),
                variants.same, "step",
            )
        finally:
            self.attempts.close()
        signature = replaced(
            main.main.signature, ranges=dict(self.shapes.ranges),
            narrowed=dict(self.shapes.narrowed),
        )
        variant = replaced(main.main, signature=signature)
        contents = variants.joined(replaced(main, variants=(variant,)), others)
        if check:
            contents = checking.checked(contents, self.shapes, _compared.EagerStep(
                self.function, self.given, self.structure, self.positional, builder, self._drawn()
            ))
        return ExportedStep(contents, self.place)

    def _record(
        self, leaves: list[Any], shapes: DynamicShapes, names: StepNames | None = None
    ) -> tuple[StepBuilder, Contents]:
        attempts = self.attempts
        recording = attempts.steady(leaves, shapes)
        check_free(recording.traced.graph, shapes)
        self.place = recording.trace.place or None
        if names is None:
            names = StepNames(self.function, *unflatten(leaves, self.structure))
        builder = StepBuilder(recording, names, attempts.paths, self.calls, self.made)
        contents = builder.contents(
            self.structure, leaves, attempts.lifted, self.positional, tuple(self.kwargs), shapes,
            self._drawn(),
        )
        self.made.append(contents)
        return builder, contents

    def _at_one(self, builder: StepBuilder, main: Contents, names: Collection[str]) -> Contents:
        """The recording where these sizes are 1."""
        sizes, free = dynamic.at_one(self.shapes, names)
        leaves = dynamic.resized(self.given, self.shapes.names, sizes)
        _, found = self._record(leaves, free, builder.names)
        variants.check_common(main, found, dict.fromkeys(names, 1))
        return found

    def _drawn(self) -> str:
        """How random numbers are drawn."""
        backend = get(backend_at(self.place, DEFAULT))
        by_counter = pipeline.by_counter(config.current(), backend)
        return self.random or ("counter" if by_counter else "torch")
