"""A training step's part of a library: its state, which lies in each context, what is computed of
Python's numbers, and its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.backends.host.interface import (
    Code,
    Decided,
    Entry,
    Interface,
    Level,
    Number,
    Place,
    State,
    Step,
    Stored,
)
from graphc.config import current
from graphc.export import safetensors
from graphc.export.aot.compiled import Source, compiled
from graphc.export.aot.described import Described, described, known, numbers_given
from graphc.export.aot.numbers import constant, typed
from graphc.export.aot.stock import Stock
from graphc.export.dynamic_shapes import Range
from graphc.export.errors import ExportError
from graphc.export.steps import ExportedStep, numbers
from graphc.export.steps.program import CALLS, Plan
from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.record import replaced

ALIGN = 64
_WORD = 8


class StepLibrary:
    """A step as it is now. `stock`: where what it begins with is put. `sizes`: the largest of free
    sizes. Raises ExportError for what a library cannot hold."""

    def __init__(self, step: ExportedStep, stock: Stock, sizes: Mapping[str, Any]) -> None:
        contents = step.snapshot()
        assert contents.step is not None
        self.graph = step.graph
        self.signature = replaced(step.signature, ranges={  # no second graph is in a library
            name: Range(max(2, bounds.least), bounds.most)
            for name, bounds in step.signature.ranges.items()
        })
        self._step, self._stock, self._parts = step, stock, contents.step
        self._arrays, self._weights = contents.weights.arrays, contents.weights
        self._memory = 0
        self._first: list[tuple[int, Place, int]] = []
        self._after: list[tuple[int, int, int]] = []
        self._stored: list[Stored] = []
        self._places: dict[str, int] = {}  # of weights in a context
        self._sources: dict[str, Number] = {}
        self._states = self._named_states()
        self._numbers_of_calls()
        self.about: Described = described(
            self.graph, self.signature, sizes, self._described, self._computed
        )
        self._update()
        self._outputs = self._outputs_of_graph()
        self._inputs = [self._input(i, each) for i, each in enumerate(self.signature.inputs)]

    def interface(self, name: str) -> Interface:
        """What callers see."""
        generators = tuple(map(self._weight, self._step.generators))
        order = tuple(sorted(
            range(len(self._states)), key=lambda i: -self._states[i].entry.dtype.itemsize
        ))
        head = safetensors.header({
            self._states[i].entry.name: (self._states[i].entry.dtype, _fixed(self._states[i].entry))
            for i in order
        })
        found = self._take(_WORD * len(self._states))
        step = Step(
            self._memory, tuple(self._states), tuple(self._first), tuple(self._after),
            self._decided(), tuple(self._stored), head, order, found,
            generators,
        )
        about = self.about
        return Interface(
            name, about.inputs, about.outputs, about.results, about.sizes, step=step
        )

    def level(self, name: str, backend: Any) -> Level:
        """The code for one kind of CPU."""
        config = current()
        if self._parts["random"] is not None:
            config = config._replace(random=self._parts["random"])
        mutated = Plan.of(self._step.variant).mutated
        made: Code = compiled(
            self.graph, self.graph.env.guards, self._inputs, self._outputs, mutated,
            self.about, frozenset(), backend, config, self._stock.stored, self._stock.data,
        )
        return Level(name, (made,))

    # --- memory --------------------------------------------------------------------------------

    def _take(self, size: int) -> int:
        """So many bytes of a context."""
        begin = self._memory
        self._memory += -(-size // ALIGN) * ALIGN
        return begin

    def _begin(self, name: str, array: np.ndarray) -> int:
        """Memory that begins as an array; zeros are there already."""
        place = self._take(array.nbytes)
        if array.reshape(-1).view(np.uint8).any():
            self._first.append((place, self._stock.stored(name, array), array.nbytes))
        return place

    def _weight(self, name: str) -> int:
        """Where a weight lies that calls may change."""
        if name not in self._places:
            self._places[name] = self._begin(name, self._arrays[name])
        return self._places[name]

    # --- state ---------------------------------------------------------------------------------

    def _named_states(self) -> list[State]:
        """As state_dict() has them."""
        found: list[State] = []
        for name in self._weights.state:
            first = self._weights.tied.get(name, name)
            array = self._arrays[first]
            dtype = known(dtypes.from_numpy(array.dtype), name)
            found.append(State(Entry(name, dtype, array.shape), self._weight(first)))
        own = {**self._parts["settings"], **self._parts["counters"]}
        if self._parts["tables"]:
            own[CALLS] = self._parts["calls"]
        for name, value in own.items():
            kind = "float" if type(value) is float else "int"
            dtype = dtypes.f64 if kind == "float" else dtypes.i64
            place = self._begin(name, np.array(value, dtype.numpy))
            found.append(State(Entry(name, dtype, ()), place))
            self._sources[name] = Number("held", kind, (), Place("context", place))
        names = [each.entry.name for each in found]
        if len(set(names)) != len(names):
            raise ExportError("two parts of the step's state have one name")
        for write in self.signature.writes:  # state that no state_dict has
            self._weight(write["weight"])
        return found

    def _described(self, name: str) -> tuple[DType, tuple[int, ...], Place]:
        """A weight that is a result."""
        array = self._arrays[name]
        place = Place("context", self._places[name]) if name in self._places else (
            self._stock.stored(name, array)
        )
        return dtypes.from_numpy(array.dtype), array.shape, place

    # --- numbers -------------------------------------------------------------------------------

    def _numbers_of_calls(self) -> None:
        """Those that are rows of tables, and those that callers give."""
        for name, weight in self._parts["tables"].items():
            rows = self._arrays[weight]
            kind = "float" if rows.dtype == np.float64 else "int"
            value = self._stock.data.add(rows), len(rows)
            self._sources[name] = Number("row", kind, (self._sources[CALLS],), value)
        given = numbers_given(self.signature)
        for spec in self.signature.specs():
            if "number" in spec:
                kind = "float" if type(spec["value"]) is float else "int"
                self._sources[spec["number"]] = Number("given", kind, (), given[spec["number"]])

    def _typed(self, expression: numbers.Expression) -> Number:
        return typed(expression, self._sources)

    def _keep(self, number: Number, dtype: DType, said: str) -> int:
        """Where a call puts a number before it begins."""
        place = self._take(_WORD)
        self._stored.append(Stored(number, dtype, place, said))
        return place

    def _computed(self, expression: Any) -> tuple[DType, Place]:
        """A number that is a result."""
        number = self._typed(expression)
        dtype = {"bool": dtypes.bool_, "int": dtypes.i64, "float": dtypes.f64}[number.kind]
        return dtype, Place("context", self._keep(number, dtype, numbers.said(expression)))

    def _update(self) -> None:
        """What the numbers become behind a call."""
        for name, expression in self._parts["updates"].items():
            number, held = self._typed(expression), self._sources[name]
            if number.kind != held.kind:
                raise ExportError(
                    f"the step makes {name}, a number of kind {held.kind}, one of {number.kind}"
                )
            dtype = dtypes.f64 if held.kind == "float" else dtypes.i64
            place = self._keep(number, dtype, numbers.said(expression))
            self._after.append((held.value.offset, place, _WORD))
        if self._parts["tables"]:
            calls = self._sources[CALLS]
            place = self._keep(Number("add", "int", (calls, constant(1))), dtypes.i64, CALLS)
            self._after.append((calls.value.offset, place, _WORD))

    def _decided(self) -> tuple[Decided, ...]:
        found: list[Decided] = []
        for each in self._parts["decided"]:
            said, line = numbers.said(each["expression"]), each["line"]
            number, wanted = self._typed(each["expression"]), constant(each["value"])
            if number.kind != wanted.kind:
                raise ExportError(f"{said} is no {wanted.kind}, which the step decides by")
            found.append(Decided(
                number, wanted,
                f"the step was exported where {said} is {each['value']!r}"
                f"{f' at {line}' if line else ''}, and now it is another. Cure: export it again "
                "for such numbers",
            ))
        return tuple(found)

    # --- the graph -----------------------------------------------------------------------------

    def _input(self, number: int, source: Mapping[str, Any]) -> Source:
        ((kind, value),) = source.items()
        if kind == "weight":
            if value in self._places:
                return Place("context", self._places[value])
            return value, self._arrays[value]
        if kind == "argument":
            return self.about.leaves[value]
        expression = self._parts["computed"][value]
        dtype, made = self.graph.inputs[number].tensor_type.dtype, self._typed(expression)
        fits = {"float": ("f64", "f32"), "int": ("i64", "f64", "f32"), "bool": ("bool",)}
        if dtype.name not in fits[made.kind]:
            raise ExportError(
                f"the step computes {numbers.said(expression)} as {dtype.name}, which a library "
                "does not. Cure: pass it as an argument"
            )
        return Place("context", self._keep(made, dtype, numbers.said(expression)))

    def _outputs_of_graph(self) -> tuple[int | Place, ...]:
        """What is written goes into the state: by the program, or, where the program does not read
        it, behind the call."""
        found: dict[int, int | Place] = {
            result.number: i for i, result in enumerate(self.about.results)
            if result.kind == "output"
        }
        for write in self.signature.writes:
            number, name = write["output"], write["weight"]
            if number in found:
                raise ExportError(f"an output of the program is a result, and written to {name}")
            place = self._places[name]
            if number not in Plan.of(self._step.variant).mutated:
                aside = self._take(self._arrays[name].nbytes)
                self._after.append((place, aside, self._arrays[name].nbytes))
                place = aside
            found[number] = Place("context", place)
        if sorted(found) != list(range(len(self.graph.outputs))):
            raise ExportError("an output of the program is no result")
        return tuple(found[i] for i in range(len(found)))


def _fixed(entry: Entry) -> tuple[int, ...]:
    return tuple(int(size) for size in entry.shape)  # type: ignore[arg-type]
