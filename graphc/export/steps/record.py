"""A call of a training step, recorded as compile() does it, for its graph alone: what the step does
to tensors, to optimizers and to Python's objects is taken back.

A number that the step counts up itself is a run-time input, and so are floats and ints among the
arguments. Gradients that a step adds to what it finds are zeros at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from graphc.engine.capture.exits import Constants
from graphc.engine.capture.places import Place
from graphc.engine.capture.reached import reached
from graphc.engine.capture.recording import FirstUse, Recording
from graphc.engine.capture.survey import Survey
from graphc.export.dynamic import DynamicShapes
from graphc.export.errors import ExportError
from graphc.export.recorded import name_of
from graphc.export.steps.names import scalers
from graphc.frontend.context import local
from graphc.frontend.grad_mode import set_grad_mode
from graphc.frontend.names import Names
from graphc.frontend.number_expr import sources_of
from graphc.frontend.tensor import Tensor, from_array
from graphc.frontend.tree import Structure, unflatten
from graphc.ir.dim import Dim
from graphc.ir.memory import zeros_like

_ROUNDS = 4  # recordings, each of which may show more numbers that the step counts


class Attempts:
    """The recordings of one step. `close()` leaves everything as it was before the first."""

    def __init__(
        self, function: Callable[..., Any], leaves: Sequence[Any], structure: Structure,
        paths: Sequence[str],
    ) -> None:
        self.function, self.leaves, self.structure = function, list(leaves), structure
        self.paths = list(paths)
        self._made: list[Recording] = []
        self._graded: list[Tensor] = []  # that got zeros as a gradient
        self._started = [
            scaler for scaler in scalers(function, *unflatten(self.leaves, structure))
            if scaler._graphc_begun()
        ]
        self.places: dict[Place, None] = {}  # of numbers that the step counts
        self.lifted = {
            i for i, leaf in enumerate(leaves) if type(leaf) in (int, float)
        }  # arguments that are numbers, by leaf

    def close(self) -> None:
        """Take everything back."""
        for tensor in self._graded:
            tensor._grad = None
        for scaler in self._started:
            scaler._graphc_forget()
        while self._made:
            recording = self._made.pop()
            recording.trace.rollback()
            recording.restore()

    def steady(self, leaves: Sequence[Any], shapes: DynamicShapes) -> Recording:
        """What later calls with such leaves are like, too. Raises TraceError and ExportError."""
        self.leaves = list(leaves)
        free = {
            number: {d: size for d, size in own.items() if isinstance(size, Dim)}
            for number, own in shapes.names.items()
        }
        for _ in range(_ROUNDS):
            found = self._with_gradients(free)
            counted = _counted(found)
            fixed = self._decided_whole(found)
            if not (counted.keys() - self.places.keys() or fixed):
                return found
            self.places |= counted
            self.lifted -= fixed
        raise ExportError(
            f"{name_of(self.function)}() goes on finding numbers that it changes. Cure: count "
            "outside of the step, and pass the number as an argument"
        )

    def _with_gradients(self, free: Mapping[int, Mapping[int, str | Dim]]) -> Recording:
        found = self._record(free)
        if not found.missing or found.observer.looked_at_grad:
            return found
        for tensor in found.missing:
            tensor._grad = from_array(zeros_like(tensor._graphc_array))
            self._graded.append(tensor)
        return self._record(free)

    def _decided_whole(self, recording: Recording) -> set[int]:
        """Ints among the arguments that Python asked for themselves, as sizes, say: constants."""
        return {
            guard.expression.args[0][1] for guard in recording.traced.numbers
            if guard.expression.op == "source" and type(guard.expression.args[0]) is tuple
            and type(guard.value) is int
        } & self.lifted

    def _record(self, free: Mapping[int, Mapping[int, str | Dim]]) -> Recording:
        name = name_of(self.function)
        trace = Survey(name, strict=False)  # so that loss.item() may be returned
        args, kwargs = unflatten(self.leaves, self.structure)
        trace.names = Names(lambda: reached(self.function, args, kwargs))
        trace.argument_names = self.paths
        recording = Recording(name, trace, self.leaves, Constants())
        recording.know(self.function)
        self._made.append(recording)
        try:
            with trace, _exporting():
                for place in self.places:
                    recording.lift(place)
                given: list[Any] = []
                for i, leaf in enumerate(self.leaves):
                    if isinstance(leaf, Tensor):
                        trace.add_argument(leaf, i, free.get(i))
                    elif i in self.lifted:
                        leaf = trace.lift_number(leaf, ("argument", i))
                    given.append(leaf)
                copies = unflatten(given, self.structure)
                recording.give((args, kwargs), copies)
                recording.run(self.function, *copies)
        except FirstUse as error:
            self._failed(recording)
            raise ExportError(
                f"{error}. The first call of the step is another one than those after it. Cure: "
                "call the step once before you export it"
            ) from None
        except BaseException:
            self._failed(recording)
            raise
        recording.put_back()
        return recording

    def _failed(self, recording: Recording) -> None:
        recording.restore()
        recording.observer.settle()
        set_grad_mode(*recording.mode)


@contextmanager
def _exporting() -> Iterator[None]:
    local.exporting = True
    try:
        yield
    finally:
        local.exporting = False


def _counted(recording: Recording) -> dict[Place, None]:
    """Places of numbers that the call has changed, and that were not run-time inputs."""
    lifted = {place for place, _ in recording.lifted}
    old = dict(recording.old_values)
    found: dict[Place, None] = {}
    for place, now in recording.replay:
        was = old.get(place)
        counted = type(was) in (int, float) and type(now) is type(was) and now != was
        if counted and place not in lifted:
            found[place] = None
    return found


def varying(recording: Recording) -> set[Any]:
    """The sources of numbers that the step itself changes from call to call."""
    return {place for place in recording.stored if isinstance(place, Place)}


def sources(recording: Recording, said: Sequence[Any]) -> dict[Any, Any]:
    """The run-time numbers of a recording, with their values at the trace; `said`: expressions of
    its results and of what it stores."""
    traced = recording.traced
    read = [guard.expression for guard in traced.numbers]
    read += [each.expression for each in traced.inputs if hasattr(each, "expression")]
    return dict(sources_of([*read, *said]))
