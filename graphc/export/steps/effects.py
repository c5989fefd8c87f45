"""What a step does besides computing that a file cannot do: each refused by its name and line."""

from __future__ import annotations

from typing import Any

from graphc.engine.capture.argument_writes import GivenItems
from graphc.engine.capture.places import same
from graphc.engine.capture.recording import Recording
from graphc.engine.capture.writes import Contents, Repeat, Tail
from graphc.export.errors import ExportError
from graphc.export.steps.names import StepNames, said_place
from graphc.frontend.captured import Output
from graphc.optim.optimizer import GroupSource, ParamGroup


def check(recording: Recording, names: StepNames) -> None:
    """Raise ExportError for the first of them."""
    _python(recording)
    traced = recording.traced
    if traced.overlaps or traced.input_aliases:
        raise ExportError(
            "the step uses tensors that share memory, and writes to it. Cure: clone() one of them"
        )
    for flag in traced.flags:
        if flag.tensor._graphc_requires_grad != flag.requires_grad:
            raise ExportError(
                f"the step sets requires_grad of {_called(names, flag.tensor)}, which an exported "
                "step cannot do. Cure: set it before you export"
            )
    _gradients(recording, names)


def _python(recording: Recording) -> None:
    observer, old = recording.observer, dict(recording.old_values)
    if observer.draws:
        raise ExportError(
            f"the step draws {observer.draws[0]!r} from a generator of Python's or NumPy's, which "
            "a file does not have. Cure: draw by torch.rand(), or pass the number as an argument"
        )
    for place in recording.stored:
        name, where = said_place(place), observer.line_of(place)
        if isinstance(place, Repeat):
            raise ExportError(
                f"the step calls {name}(){where}, which a file cannot do. Cure: return what it "
                "says, and call it outside"
            )
        if isinstance(place, Contents | Tail | GivenItems):
            raise ExportError(
                f"the step changes {name}{where}, which a file does not have. Cure: return what it "
                "puts there, and put it there outside"
            )
    for place, now in recording.replay:
        was = old.get(place)
        if not (now is was or same(now, was) or isinstance(place.container, ParamGroup)):
            raise ExportError(
                f"the step sets {said_place(place)}{observer.line_of(place)}, which was "
                f"{_short(was)}, to {_short(now)}; a file does not have it. Cure: set it outside "
                "of the step"
            )
    steps = recording.trace.late.steps
    for action in recording.traced.deferred:
        if not any(action == step for step in steps):
            raise ExportError(
                "the step seeds a generator or switches gradients for good, which a file cannot "
                "do. Cure: do that outside of the step"
            )


def check_stored(recording: Recording, stored: dict[Any, Any]) -> None:
    """Raise ExportError for what is no tensor and no number. `stored`: what is put where."""
    for place, value in stored.items():
        if not isinstance(value, Output) and not _as_it_was(place, value):
            raise ExportError(
                f"the step puts a {type(value).__name__} in {said_place(place)}"
                f"{recording.observer.line_of(place)}, which a file does not have. Cure: keep "
                "tensors in attributes of their own"
            )


def _as_it_was(place: Any, value: Any) -> bool:
    """Whether options of a param group (betas), which a call writes to, are what they were."""
    return isinstance(place.container, ParamGroup) and isinstance(value, tuple) and all(
        isinstance(each, Output) and each.number is not None and each.number.op == "source"
        and each.number.args[0] == GroupSource(place.container, place.key, i)
        for i, each in enumerate(value)
    )


def _gradients(recording: Recording, names: StepNames) -> None:
    """A gradient that a call finds has to be there, or not, as it leaves it."""
    traced = recording.traced
    written = {id(write.tensor): write.value is not None for write in traced.grads}
    for read in traced.grad_reads:
        left = written.get(id(read.tensor), read.present)
        if left != read.present:
            raise ExportError(
                f"the step reads the gradient of {_called(names, read.tensor)} of the call before, "
                f"which was {'there' if read.present else 'None'} and is "
                f"{'there' if left else 'None'} afterwards: later calls would be others. Cure: "
                "optimizer.zero_grad() before backward(), or before you export the step"
            )


def _called(names: StepNames, tensor: Any) -> str:
    found = names.of(tensor)
    return "a tensor" if found is None else repr(found.name)


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, int | float | str | bool | None) else (
        f"a {type(value).__name__}"
    )
    return text if len(text) < 60 else text[:57] + "..."
