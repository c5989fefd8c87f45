"""Gradient rules for eager mode: traced once per signature, then run on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.autodiff import VjpProgram, vjp_program
from graphc.ir.device_array import DeviceArray
from graphc.ir.graph import get_
from graphc.ir.op import Attrs, Op, OpError
from graphc.ir.slots import Slots, steps_of
from graphc.ir.types import TensorType, TupleType

from .errors import raise_op_error
from .nodes import class_of
from .unsaved import NOTHING, UNSAVED
from .values import Eager

_OFTEN = 30  # runs, after which it is asked whether native code does them


class ArrayProgram(Slots):
    """A rule's Graph, to be run on arrays by the runner of their device."""

    __slots__ = (
        "from_grads", "from_in", "from_out", "graph", "native", "ready", "results", "runs", "whole"
    )

    def __init__(
        self, program: VjpProgram, inputs: int,
        whole: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        """`whole`: what does all of it at once, on the CPU."""
        super().__init__(program.graph, lambda node: node.op)
        self.whole = whole
        # per step, what runs it on the CPU, made at its first run; None: the runner does
        self.ready: list[Callable[..., Any] | None] | None = None
        self.graph = program.graph
        self.runs = 0
        self.native: Any = None  # the steps as one call (Eager.gradient)
        heads = iter(self.inputs)
        # (which gradient, saved input or saved result, slot)
        self.from_grads, self.from_in, self.from_out = (
            tuple(zip(which, heads))  # noqa: B905 (each takes as many heads as it has)
            for which in (program.grads, program.inputs, program.outs)
        )
        places = dict(zip(program.results, self.outputs, strict=True))
        self.results = tuple([places.get(i) for i in range(inputs)])

    def run(
        self,
        grads: Sequence[np.ndarray | None],
        saved_in: Sequence[np.ndarray | None],
        saved_out: Sequence[np.ndarray | None],
    ) -> list[np.ndarray | None]:
        """The gradient of each input; None where there is none."""
        near = Eager.prepare is not None and (
            Eager.elsewhere is None
            or DeviceArray not in map(type, (*grads, *saved_in, *saved_out))
        )
        if near and self.whole is not None:
            found: list[np.ndarray | None] = self.whole(grads, saved_in, saved_out)
            return found
        native = self.native if near else None
        if native is not None and native.run is not None:
            done: list[np.ndarray | None] | None = native.run(grads, saved_in, saved_out)
            if done is not None:
                return done
        values = self.start.copy()
        for i, slot in self.from_grads:
            values[slot] = grads[i]
        for i, slot in self.from_in:
            values[slot] = saved_in[i]
        for i, slot in self.from_out:
            values[slot] = saved_out[i]
        if near:
            self._fill_near(values)
        else:
            self.fill(values, Eager.elsewhere or Eager.run)
        results = [None if slot is None else values[slot] for slot in self.results]
        if near:
            if native is not None:
                if native.run is None and not native.met(
                    grads, saved_in, saved_out, results
                ):
                    self.native = None
            elif self.runs < _OFTEN:
                self.runs += 1
                if self.runs == _OFTEN and len(self.steps) > 1:
                    self.native = Eager.gradient(self)
        return results

    @staticmethod
    def runner(op: Op, arrays: list[Any], attrs: Attrs) -> Any:
        """What runs one step that is not prepared."""
        return Eager.run(op, arrays, attrs)

    def _fill_near(self, values: list[Any]) -> None:
        """fill() on the CPU, where nobody watches operators."""
        if self.ready is None:
            self.ready = self._prepared()
        for run, (op, part, slot, sources, attrs, dead) in zip(
            self.ready, self.steps, strict=True
        ):
            if part is not None:
                values[slot] = values[sources[0]][part]
            elif run is not None:
                values[slot] = run(*[values[s] for s in sources])
            else:
                values[slot] = Eager.run(op, [values[s] for s in sources], attrs)
            for s in dead:
                values[s] = None

    def _prepared(self) -> list[Callable[..., Any] | None]:
        prepare = Eager.prepare
        assert prepare is not None
        found: list[Callable[..., Any] | None] = []
        for node in steps_of(self.graph):
            plain = node.op.view or node.graphs or node.op is get_
            type_ = node.type
            results = type_.elements if isinstance(type_, TupleType) else (type_,)
            found.append(None if plain else prepare(
                node.op, tuple([x.tensor_type for x in node.inputs]), dict(node.attrs), results
            ))
        return found


class GradientPlan:
    """What to save for one signature and set of inputs that need a gradient, and how to use it."""

    __slots__ = ("attrs", "in_types", "inputs", "kind", "late", "no_inputs", "no_outputs", "op",
                 "outputs", "programs")

    def __init__(
        self,
        op: Op,
        in_types: tuple[TensorType, ...],
        out_types: tuple[TensorType, ...],
        attrs: Attrs,
        needs: tuple[bool, ...],
    ) -> None:
        self.op = op
        self.kind = class_of(op)  # of its nodes
        self.in_types = in_types
        self.attrs = attrs
        try:
            program = vjp_program(op, in_types, attrs, needs)
        except OpError as error:
            raise_op_error(error)
        self.inputs, self.outputs = program.inputs, program.outs
        self.late = UNSAVED.get(op.name, NOTHING)
        self.no_inputs: tuple[Any, ...] = (None,) * len(in_types)
        self.no_outputs: tuple[Any, ...] = (None,) * len(out_types)
        # (needs, which results have a gradient) -> program
        self.programs: dict[Any, ArrayProgram] = {}

    def program(self, needs: tuple[bool, ...], given: tuple[bool, ...]) -> ArrayProgram:
        """The rule for these needs, when only the `given` results have a gradient."""
        found = self.programs.get((needs, given))
        if found is None:
            traced = vjp_program(self.op, self.in_types, self.attrs, needs, given)
            whole = Eager.rule and Eager.rule(self.op, self.in_types, self.attrs, needs, given)
            found = ArrayProgram(traced, len(self.in_types), whole)
            self.programs[needs, given] = found
        return found
