"""A graph of a file as steps over numbered values, and their run.

build.py has resolved all names: a step knows the numbers of its inputs and of its outputs, and
which values nobody reads after it. A subgraph (of If, Loop, Scan) is a Program that is given the
values that it reads of the graphs around it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....frontend.tensor import Tensor
from ..errors import OnnxError, refuse
from .carried import Carried, Kind
from .numbers import MOST, Numbers, sizes_of
from .rows.carried import handled
from .table import Node, Operator

ABSENT = -1  # an optional input that is left out, an output that nobody wants


@dataclass(eq=False)
class Step:
    """One node."""

    node: Node
    operator: Operator
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    spent: tuple[int, ...] = ()  # values that nobody reads after it


@dataclass(eq=False)
class Program:
    """A graph."""

    name: str
    inputs: tuple[str, ...] = ()
    outside: tuple[int, ...] = ()  # which values of the graph around it it reads
    held: tuple[int, ...] = ()  # numbers of the tensors that the Module holds
    arriving: tuple[int, ...] = ()  # the numbers here of outside values, inputs, held tensors
    kinds: dict[int, Kind] = field(default_factory=dict)  # of held tensors that carry another type
    constants: dict[int, Any] = field(default_factory=dict)  # value -> Numbers, or a Tensor
    steps: list[Step] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # of the outputs
    size: int = 0  # how many values there are

    def __deepcopy__(self, memo: object) -> Program:
        return self  # nobody changes one


@dataclass(eq=False)
class Call:
    """A subgraph with the values around it that it reads: what If, Loop and Scan call."""

    program: Program
    around: tuple[Any, ...]
    tensors: Sequence[Tensor]
    training: bool | None

    def __call__(self, *inputs: Any) -> list[Any]:
        return run(self.program, self.tensors, inputs, self.around, self.training)


def run(
    program: Program, tensors: Sequence[Tensor], inputs: Sequence[Any],
    around: Sequence[Any] = (), training: bool | None = None,
) -> list[Any]:
    """The outputs: Tensors, Numbers, lists (sequences) and None (empty optionals)."""
    values: list[Any] = [None] * program.size
    if len(inputs) != len(program.inputs):
        refuse(
            f"the graph {program.name!r} takes {len(program.inputs)} inputs, and is given "
            f"{len(inputs)}", "the file is damaged",
        )
    given = (*around, *inputs, *[tensors[i] for i in program.held])
    for at, value in zip(program.arriving, given, strict=True):
        values[at] = value
    for at, kind in program.kinds.items():
        values[at] = Carried(values[at], kind)
    for at, constant in program.constants.items():
        values[at] = constant
    for step in program.steps:
        try:
            made = _step(step, values, tensors, training)
        except (AttributeError, KeyError, AssertionError) as error:
            # a sequence or nothing at all where a tensor is wanted
            raise OnnxError(
                f"{step.node.where} cannot be computed of its inputs ({error}). "
                "Cure: load another copy of the file"
            ) from error
        except Exception as error:
            error.add_note(f"in the ONNX graph {program.name!r}: {step.node.where}")
            raise
        for at, value in zip(step.outputs, made, strict=False):
            if at != ABSENT:
                values[at] = value
        for at in step.spent:
            values[at] = None
    return [values[at] for at in program.outputs]


def _step(
    step: Step, values: list[Any], tensors: Sequence[Tensor], training: bool | None
) -> Sequence[Any]:
    operator, node = step.operator, step.node
    given: list[Any] = [None if at == ABSENT else values[at] for at in step.inputs]
    if operator.shapes:
        of: Any = given[0]  # a Tensor, or Numbers
        given[0] = sizes_of(of.shape)
    if operator.folded is not None and given and _all_numbers(given):
        found = operator.folded(node, *given)
        if found is not None:
            return found if isinstance(found, (tuple, list)) else (found,)
    like = next((x for x in given if isinstance(x, Tensor)), None)
    ready = given if operator.raw else [
        _as_wanted(x, i in operator.numbers, like) for i, x in enumerate(given)
    ]
    if node.inner:
        node = node.with_calls(lambda inner: _call(inner, values, tensors, training))
    if training is not None and operator.trains:
        node = dataclasses.replace(node, training=training)
    if not operator.raw and any(_is_carried(x) for x in ready):
        made = handled(operator, node, ready)
    else:
        made = operator.compute(node, *ready)
    return made if isinstance(made, tuple) else (made,)


def _is_carried(value: Any) -> bool:
    return type(value) is Carried or (type(value) is list and any(map(_is_carried, value)))


def _all_numbers(given: Sequence[Any]) -> bool:
    return all(x is None or type(x) is Numbers for x in given)


def _call(
    value: Program, values: list[Any], tensors: Sequence[Tensor], training: bool | None
) -> Call:
    """A subgraph with what it reads of the values here."""
    return Call(value, tuple([values[at] for at in value.outside]), tensors, training)


def _as_wanted(value: Any, numbers: bool, like: Any) -> Any:
    if numbers and type(value) is Carried:
        return numbers_of(value.tensor)
    if numbers and isinstance(value, Tensor):
        return numbers_of(value)
    if not numbers and type(value) is Numbers:
        return value.tensor(like)
    if type(value) is list and not numbers:
        return [x.tensor(like) if type(x) is Numbers else x for x in value]
    return value


def numbers_of(tensor: Tensor) -> Numbers:
    """A tensor's values, which a recording ends for."""
    kind = tensor.dtype.numpy
    return Numbers(np.asarray(tensor.detach().tolist(), kind).reshape(-1).tolist(),
                   tuple(map(int, tensor.shape)), kind)


def as_tensors(values: Sequence[Any], like: Any) -> list[Any]:
    """What a Module gives back: Tensors, in lists where there are sequences."""
    return [
        value.tensor if type(value) is Carried
        else as_tensors([value.tensor(like)], like)[0] if type(value) is Numbers
        else as_tensors(value, like) if type(value) is list else value
        for value in values
    ]


def small(array: np.ndarray) -> bool:
    """Whether a constant is kept as Numbers."""
    return array.size <= MOST
