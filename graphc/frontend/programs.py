"""Gradient rules for eager mode: traced once per signature, then run on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.autodiff import VjpProgram, vjp_program
from graphc.ir.graph import Graph
from graphc.ir.op import Attrs, Op, OpError
from graphc.ir.types import TensorType

from .errors import raise_op_error
from .values import Eager


class ArrayProgram:
    """A rule's Graph as a list of steps over numbered slots."""

    __slots__ = ("from_grads", "from_in", "from_out", "results", "slots", "steps")

    def __init__(self, program: VjpProgram, inputs: int) -> None:
        graph: Graph = program.graph
        slot = {node: i for i, node in enumerate(graph.nodes)}
        heads = [slot[node] for node in graph.inputs]
        counts = len(program.grads), len(program.grads) + len(program.inputs)
        # (slot, which gradient, saved input or saved result)
        self.from_grads = tuple(zip(heads[: counts[0]], program.grads, strict=True))
        self.from_in = tuple(zip(heads[counts[0] : counts[1]], program.inputs, strict=True))
        self.from_out = tuple(zip(heads[counts[1] :], program.outs, strict=True))
        self.slots: list[Any] = [None] * len(slot)
        self.steps: list[tuple[Op | None, tuple[int, ...], Any, int]] = []
        for node in graph.nodes:
            sources = tuple([slot[x] for x in node.inputs])
            if node.op.name == "const":
                self.slots[slot[node]] = node.attrs["value"].array
            elif node.op.name == "get":
                self.steps.append((None, sources, node.attrs["index"], slot[node]))
            elif node.op.name != "input":
                attrs = dict(node.attrs)
                if node.graphs:
                    attrs["graphs"] = node.graphs
                self.steps.append((node.op, sources, attrs, slot[node]))
        places = dict(zip(program.results, (slot[x] for x in graph.outputs), strict=True))
        self.results = tuple([places.get(i) for i in range(inputs)])

    def run(
        self,
        grads: Sequence[np.ndarray | None],
        saved_in: Sequence[np.ndarray | None],
        saved_out: Sequence[np.ndarray | None],
    ) -> list[np.ndarray | None]:
        """The gradient of each input; None where there is none."""
        slots = self.slots.copy()
        for place, i in self.from_grads:
            slots[place] = grads[i]
        for place, i in self.from_in:
            slots[place] = saved_in[i]
        for place, i in self.from_out:
            slots[place] = saved_out[i]
        run = Eager.elsewhere or Eager.run
        for op, sources, attrs, place in self.steps:
            if op is None:
                slots[place] = slots[sources[0]][attrs]
            else:
                slots[place] = run(op, [slots[s] for s in sources], attrs)
        return [None if place is None else slots[place] for place in self.results]


class GradientPlan:
    """What to save for one signature and set of inputs that need a gradient, and how to use it."""

    __slots__ = ("attrs", "in_types", "inputs", "no_inputs", "no_outputs", "op", "outputs",
                 "programs")

    def __init__(
        self,
        op: Op,
        in_types: tuple[TensorType, ...],
        out_types: tuple[TensorType, ...],
        attrs: Attrs,
        needs: tuple[bool, ...],
    ) -> None:
        self.op = op
        self.in_types = in_types
        self.attrs = attrs
        try:
            program = vjp_program(op, in_types, attrs, needs)
        except OpError as error:
            raise_op_error(error)
        self.inputs, self.outputs = program.inputs, program.outs
        self.no_inputs: tuple[Any, ...] = (None,) * len(in_types)
        self.no_outputs: tuple[Any, ...] = (None,) * len(out_types)
        # (needs, which results have a gradient) -> program
        self.programs: dict[Any, ArrayProgram] = {}

    def program(self, needs: tuple[bool, ...], given: tuple[bool, ...]) -> ArrayProgram:
        """The rule for these needs, when only the `given` results have a gradient."""
        found = self.programs.get((needs, given))
        if found is None:
            traced = vjp_program(self.op, self.in_types, self.attrs, needs, given)
            found = self.programs[needs, given] = ArrayProgram(traced, len(self.in_types))
        return found
