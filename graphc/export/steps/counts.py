"""The Python numbers of a step: settings (a learning rate), counters, schedules' tables, arguments;
and what is computed of them at each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.engine.capture.clocks import Clock
from graphc.engine.capture.places import Place
from graphc.engine.capture.recording import Recording
from graphc.engine.capture.streams import Draw
from graphc.export.errors import ExportError
from graphc.export.steps import numbers, schedule
from graphc.export.steps.names import StepNames, said_place
from graphc.export.steps.record import sources
from graphc.frontend.captured import Output
from graphc.frontend.number_expr import NumberExpr, sources_of
from graphc.optim.optimizer import GroupSource, ParamGroup


class Counts:
    """See above. Raises ExportError for numbers that a file cannot make."""

    def __init__(
        self, recording: Recording, stored: Mapping[Place, Any], results: Sequence[Output],
        names: StepNames, paths: Sequence[str], calls: int | None, others: int = 0,
    ) -> None:
        """`others`: how many numbers are computed for other graphs of the step."""
        self.recording, self.names, self.paths = recording, names, list(paths)
        self._others = others
        self._called: dict[Any, str] = {}
        self._computed: dict[str, numbers.Expression] = {}
        written = {
            place: value.number for place, value in stored.items()
            if isinstance(value, Output) and value.kind == "number" and value.number is not None
        }
        said = [o.number for o in results if o.kind == "number" and o.number is not None]
        self._read = sources(recording, [*said, *written.values()])
        for source in self._read:
            self.name(source)
        if recording.trace.late.steps and calls is None:
            raise ExportError(
                "the step steps a learning-rate schedule, whose Python a file does not hold; its "
                "rates become a table. Cure: export_step(..., calls=N), for how many calls at most"
            )
        self.tables = schedule.tables(recording, names, list(self._read), calls or 0, self.name)
        self.counters: dict[str, Any] = {}
        self.places: dict[str, Place] = {}  # of counters
        self.updates: dict[str, numbers.Expression] = {}
        for place, expression in written.items():
            self._counter(place, expression)
        self.settings = {
            self.name(source): value for source, value in self._read.items()
            if type(source) is not tuple and self.name(source) not in self.tables
            and self.name(source) not in self.counters
        }
        self.decided = [self._decision(guard) for guard in recording.traced.numbers]
        self._weights = {name: f"table.{i}" for i, name in enumerate(self.tables)}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The tables, as weights."""
        return {self._weights[name]: rows for name, rows in self.tables.items()}

    def to_json(self) -> dict[str, Any]:
        """The manifest's part."""
        return {
            "settings": dict(self.settings), "counters": dict(self.counters),
            "updates": dict(self.updates), "tables": dict(self._weights), "calls": 0,
            "computed": dict(self._computed), "decided": list(self.decided),
        }

    def computed(self, expression: NumberExpr) -> str:
        """The name of an input of the graph that is this number."""
        name = f"number.{self._others + len(self._computed)}"
        self._computed[name] = self.expression(expression)
        return name

    def expression(self, expression: NumberExpr) -> numbers.Expression:
        """A number as JSON."""
        return numbers.to_json(expression, self.name)

    # --- names ---------------------------------------------------------------------------------

    def name(self, source: Any) -> str:
        """What a source is called."""
        if type(source) is tuple:
            return self.paths[source[1]]
        found = self._called.get(source)
        if found is None:
            found = self._called[source] = self._new_name(source)
        return found

    def _new_name(self, source: Any) -> str:
        if schedule.is_late(source):
            holder = self.names.option(source.holder, source.key, source.index)
            steps = self.recording.trace.late.steps
            number = next(i for i, step in enumerate(steps) if step == source.step)
            return f"{holder or source.name} after schedule {number}"
        if type(source) is GroupSource:
            known = self.names.option(source.group, source.key, source.index)
            name = known or f"options.{source.name}"
        elif isinstance(source, Place):
            name = self.place_name(source)
        elif type(source) is Draw:
            raise ExportError(
                f"the step draws {source!r} from a generator of Python's or NumPy's, which a file "
                "does not have. Cure: draw by torch.rand(), or pass the number as an argument"
            )
        elif type(source) is Clock:
            raise ExportError(
                "the step reads the clock, which a file does not. Cure: read it outside"
            )
        else:
            raise ExportError(f"the step reads {source!r}, which a file does not have")
        taken = set(self._called.values()) | set(self.paths) | {"calls"}  # of state_dict()s
        return name if name not in taken else f"{name}#{len(taken)}"

    def place_name(self, place: Place) -> str:
        """What a place of a number or a tensor is called."""
        if isinstance(place.container, ParamGroup):
            known = self.names.option(place.container, place.key, None)
            if known is not None:
                return known
        return said_place(place).removeprefix("self.")

    # --- what changes --------------------------------------------------------------------------

    def _counter(self, place: Place, expression: NumberExpr) -> None:
        """A number that each call writes."""
        if expression.late:
            raise ExportError(
                f"the step stores what a schedule makes in {said_place(place)}. Cure: return it"
            )
        name = self._called.get(place) or self.place_name(place)
        if expression.op == "source" and self.name(expression.args[0]) == name:
            return  # what is written is what is there
        old = dict(self.recording.old_values).get(place)
        if type(old) not in (int, float):
            raise ExportError(
                f"the step makes {said_place(place)}, which was {old!r}, a number. Cure: set it to "
                "a number before you export the step"
            )
        self.counters[name], self.places[name] = old, place
        self.updates[name] = self.expression(expression)

    def _changing(self, guard: Any) -> str:
        """A number that may decide otherwise in a later call; "" where none does: of a table, all
        rows are known."""
        found = {self.name(source): source for source in sources_of([guard.expression])}
        for name in found:
            if name in self.counters:
                return name
        tabled = [name for name in found if name in self.tables]
        for row in zip(*(self.tables[name].tolist() for name in tabled), strict=True):
            values = {source: self._read[source] for source in found.values()}
            values |= {found[name]: value for name, value in zip(tabled, row, strict=True)}
            if guard.expression.evaluate(values, {}) != guard.value:
                return tabled[0]
        return ""

    def _decision(self, guard: Any) -> dict[str, Any]:
        changing = self._changing(guard)
        if changing:
            line = "" if guard.loc is None else f" at {guard.loc}"
            raise ExportError(
                f"the step decides by {changing}, which changes from call to call{line}. Cure: "
                "decide outside, and export a step for each case; or compute with torch.where()"
            )
        return {
            "expression": self.expression(guard.expression), "value": guard.value,
            "line": "" if guard.loc is None else str(guard.loc),
        }
