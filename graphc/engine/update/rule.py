"""How one parameter is updated, as native code for parameters of any shape.

An optimizer's `_update` is recorded once, on flat tensors of a symbolic size. What Python computes
of the group's numbers and of the count of steps, Python computes at each step, as eager mode does;
the rest is one loop over the elements, each operation rounded by itself: the bits of eager mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ... import config
from ...frontend import functions as T
from ...frontend.captured import NumberInput, TensorInput, TracedGraph
from ...frontend.errors import TraceError
from ...frontend.grad_mode import no_grad
from ...frontend.number_expr import PYTHON, NumberExpr, spelled
from ...frontend.numbers import LiftedNumber
from ...frontend.tensor import Tensor
from ...frontend.trace import Trace
from ...ir.dtypes import DType
from ...ir.types import TensorType
from .. import pipeline

_LENGTH = 7  # of the tensors that are recorded; any that is not special

# where a run-time number comes from: a group's option, or one of its items; a state
Source = tuple[str, int]
OPTION, ITEM = -1, 0  # ITEM + i: the i-th of a tuple


class Numbers(NamedTuple):
    """Stands for a number, or a tuple of numbers, among the options of a Kind."""

    types: tuple[type, ...]
    several: bool


class Kind(NamedTuple):
    """What decides the recording, besides decisions on numbers."""

    owner: type  # the class whose `_update` it is
    options: tuple[tuple[str, Any], ...]  # of the group; its numbers are Numbers
    dtype: DType
    states: tuple[str, ...]
    counts: tuple[str, ...]  # which of these are numbers of the host


class Flat(Trace):
    """A recording in which every number that a tensor meets is an input: Python computes it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._operands: dict[tuple[NumberExpr, DType], Tensor] = {}

    def number_operand(self, expression: NumberExpr, dtype: DType) -> Tensor:
        """A 0-d input with the number, rounded to `dtype` as eager mode rounds it."""
        if not expression.lifted:
            return super().number_operand(expression, dtype)
        found = self._operands.get((expression, dtype))
        if found is None:
            number = len(self.inputs)
            node = self.builder.input(TensorType(dtype, ()), f"number{number}")
            self.inputs.append(NumberInput(node, expression, number))
            found = self._operands[expression, dtype] = self.wrap(node)
        return found


class Count:
    """A state without dimensions (the count of steps), in float32, whose value the host knows."""

    def __init__(self, trace: Flat, name: str, value: float) -> None:
        self._trace = trace
        self.number: Any = trace.lift_number(value, (name, OPTION))
        self.writes = 0

    def _rounded(self, value: Any) -> Any:
        numbers = self._trace.numbers
        lifted = type(value) is LiftedNumber
        given = value.expression if lifted else numbers.leaf("constant", value, value)
        return LiftedNumber(self._trace, numbers.combine("float32", given))

    def _write(self, value: Any) -> Count:
        self.number = self._rounded(value)
        self.writes += 1
        return self

    def add_(self, other: Any) -> Count:
        """The sum of two float32 numbers in float64 is rounded to the same as their sum."""
        return self._write(self.number + self._rounded(other))

    def mul_(self, other: Any) -> Count:
        """As add_."""
        return self._write(self.number * self._rounded(other))

    def fill_(self, value: Any) -> Count:
        """The number itself."""
        return self._write(value)

    def item(self) -> Any:
        """The number now."""
        return self.number

    def to(self, dtype: DType) -> Tensor:
        """An operand of the recording."""
        operand: Tensor = self.number.as_operand(dtype)
        return operand


class Formulas:
    """Python's computations on run-time numbers, as steps over slots."""

    def __init__(self, wanted: Sequence[NumberExpr], sources: Sequence[Source]) -> None:
        self._start: list[Any] = [None] * len(sources)
        self._steps: list[tuple[Callable[..., Any], tuple[int, ...], int]] = []
        self._slots: dict[int, int] = {}
        self._sources = {source: i for i, source in enumerate(sources)}
        self._wanted = [self._slot(expression) for expression in wanted]

    def _slot(self, expression: NumberExpr) -> int:
        found = self._slots.get(id(expression))
        if found is None:
            found = self._slots[id(expression)] = self._place(expression)
        return found

    def _place(self, expression: NumberExpr) -> int:
        if expression.op == "source":
            return self._sources[expression.args[0]]
        if expression.op == "constant":
            self._start.append(expression.args[0])
            return len(self._start) - 1
        arguments = tuple([self._slot(argument) for argument in expression.args])
        self._start.append(None)
        self._steps.append((PYTHON[expression.op], arguments, len(self._start) - 1))
        return len(self._start) - 1

    def values(self, given: Sequence[Any]) -> list[Any]:
        """What was wanted, for these values of the sources. Raises what Python raises."""
        slots = self._start.copy()
        slots[: len(given)] = given
        for function, arguments, place in self._steps:
            slots[place] = function(*[slots[i] for i in arguments])
        return [slots[place] for place in self._wanted]


class Rule:
    """Native code of one Kind, for numbers that are decided upon as these were."""

    def __init__(
        self, kind: Kind, traced: TracedGraph, counts: Sequence[Count], sources: Sequence[Source],
        mutated: dict[int, int],
    ) -> None:
        """Raises TraceError where the recording is no loop over the elements."""
        built = pipeline.build(
            traced.graph, config=config.current(), mutated=mutated,
            name=f"{kind.owner.__name__}_step", any_size=True,
        )
        rows = getattr(built.executable, "rows", lambda: None)()
        if rows is None or built.assumed or traced.graph.env.guards:
            raise TraceError(f"{kind.owner.__name__} does not update elements one by one")
        self.rows = rows
        self.address = built.backend.memory.address
        numbers = [i for i in traced.inputs if isinstance(i, NumberInput)]
        self.dtypes = [i.type.dtype.numpy for i in numbers]
        places = {i.number: place for place, i in enumerate(numbers)}
        # per word of a row: the tensor (0 the parameter, 1 its gradient, then states), or ~number
        self.columns = [
            ~places[i.number] if isinstance(i, NumberInput) else i.index  # type: ignore[union-attr]
            for i in traced.inputs
        ]
        self.columns += [self.columns[mutated[i]] for i in range(len(mutated))]
        self.writes = [
            (traced.inputs[mutation.input].index, mutation.versions)  # type: ignore[union-attr]
            for mutation in traced.mutations
        ]
        self.count_writes = [count.writes for count in counts]
        self._decided = [spelled(guard.value) for guard in traced.numbers]
        self._formulas = Formulas([
            *(guard.expression for guard in traced.numbers),
            *(i.expression for i in numbers),
            *(count.number.expression for count in counts),
        ], sources)
        self._ends = len(self._decided), len(self._decided) + len(numbers)

    def numbers(self, given: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
        """(the inputs that are numbers, the new counts); None: the rule is for other numbers.
        Raises what Python raises."""
        found = self._formulas.values(given)
        first, second = self._ends
        for now, was in zip(found, self._decided, strict=False):
            if spelled(now) != was:
                return None
        return found[first:second], found[second:]


def record(kind: Kind, given: dict[Source, float]) -> Rule:
    """The rule for these numbers, by source. Raises TraceError where there is none."""
    trace = Flat(f"{kind.owner.__name__}_step")
    tensors = [T.ones(_LENGTH, dtype=kind.dtype) for _ in range(2 + len(kind.states))]
    counts: list[Count] = []
    with trace, no_grad():
        state: dict[str, Any] = {}
        for i, (name, tensor) in enumerate(zip(kind.states, tensors[2:], strict=True)):
            if name in kind.counts:
                state[name] = Count(trace, name, given[name, OPTION])
                counts.append(state[name])
            else:
                trace.add_argument(tensor, 2 + i, {0: "n"})
                state[name] = tensor
        for i in range(2):
            trace.add_argument(tensors[i], i, {0: "n"})
        stand_in: Any = object.__new__(kind.owner)
        stand_in.__dict__.update(state={tensors[0]: state}, _graphc_begun=defaultdict(dict))
        group = {key: _lifted(trace, key, value, given) for key, value in kind.options}
        stand_in._graphc_update(group, tensors[0], tensors[1])
        traced = trace.finish(None)
    if tuple(state) != kind.states or stand_in._graphc_begun:
        raise TraceError(f"{kind.owner.__name__} makes state")
    _check(kind, traced)
    mutated = {mutation.output: mutation.input for mutation in traced.mutations}
    return Rule(kind, traced, counts, tuple(given), mutated)


def _lifted(trace: Flat, key: str, value: Any, given: dict[Source, float]) -> Any:
    if type(value) is not Numbers:
        return value
    if not value.several:
        return trace.lift_number(given[key, OPTION], (key, OPTION))
    return tuple([
        trace.lift_number(given[key, ITEM + i], (key, ITEM + i)) for i in range(len(value.types))
    ])


def _check(kind: Kind, traced: TracedGraph) -> None:
    """Raises TraceError unless all that a recording does is to write to its arguments."""
    written = [mutation.input for mutation in traced.mutations]
    plain = all(
        isinstance(i, NumberInput) or (isinstance(i, TensorInput) and i.kind == "argument")
        for i in traced.inputs
    )
    outputs = sorted(mutation.output for mutation in traced.mutations)
    if (
        not plain or traced.rebinds or traced.grads or traced.flags or traced.grad_reads
        or traced.overlaps or outputs != list(range(len(traced.graph.outputs)))
        or any(traced.inputs[i].index == 1 for i in written)  # type: ignore[union-attr]
    ):
        raise TraceError(f"{kind.owner.__name__} does more than to update a parameter")
