"""Random graphs as a user's Python loops leave them: one body, recorded many times.

What may stand in the way is drawn, too: first steps from zeros, a step that differs, references to
states of several steps ago or of the first step, parts at uneven distances, loops inside loops.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.autodiff import joint_graph
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.types import TensorType

_UNARY = ("tanh", "sigmoid", "neg", "sin", "square")
_BINARY = ("add", "sub", "mul", "maximum")


class Unrolled:
    """Records loops in one graph."""

    def __init__(self, seed: int, steps: tuple[int, int] = (4, 12)) -> None:
        self.rng = random.Random(seed)
        self.steps = steps
        self.builder = Builder()
        self.rows, self.columns = self.rng.choice([1, 2, 3]), self.rng.choice([1, 2, 4])
        self.outputs: list[Expr] = []
        for _ in range(self.rng.choice([1, 1, 2])):
            self.loop()

    def graph(self) -> Graph:
        graph = self.builder.build([x.node for x in self.outputs], "unrolled")
        return joint_graph(graph) if self.rng.random() < 0.6 else graph

    def input(self, *shape: int) -> Expr:
        return Expr(self.builder, self.builder.input(TensorType(dtypes.f64, shape)))

    def number(self, value: float) -> Expr:
        return Expr(self.builder, self.builder.const(value, dtypes.f64))

    # --- a loop ---------------------------------------------------------------------------------

    def loop(self) -> None:
        rng = self.rng
        self.count = rng.randint(*self.steps)
        self.states = [self.beginning() for _ in range(rng.choice([1, 1, 2, 3]))]
        self.weights = [self.input(self.columns, self.columns) for _ in range(2)]
        self.sources = [self.source() for _ in range(rng.choice([0, 1, 1, 2]))]
        self.before = self.input(self.rows, self.columns)
        recipe = [self.instruction() for _ in range(rng.randint(1, 9))]
        odd = rng.randrange(self.count) if rng.random() < 0.2 else None
        self.history: list[list[Expr]] = [list(self.states)]
        shown: list[Expr] = []
        for step in range(self.count):
            values = self.body(step, recipe)
            if step == odd:
                values[-1] = ops.exp(values[-1])
            self.states = [values[-1 - i] for i in range(len(self.states))]
            self.history.append(list(self.states))
            shown.append(values[-1])
        self.show(shown)

    def beginning(self) -> Expr:
        if self.rng.random() < 0.4:
            shape = (self.rows, self.columns)
            node = self.builder.emit(ops.full, shape=shape, value=0.0, dtype=dtypes.f64)
            return Expr(self.builder, node)
        return self.input(self.rows, self.columns)

    def source(self) -> tuple[Expr, int, int, int]:
        """A tensor, the dim along which steps read it, how much they read, and where they begin."""
        dim, width = self.rng.randrange(2), self.rng.choice([1, 1, 2])
        first = self.rng.choice([0, 0, 1])
        shape = [self.rows, self.columns]
        shape[dim] = self.count * width + first + self.rng.choice([0, 1])
        return self.input(*shape), dim, width, first

    def instruction(self) -> tuple[Any, ...]:
        kind = self.rng.choice(
            ["unary", "binary", "binary", "weight", "row", "number", "history", "first", "reduce"]
        )
        return kind, self.rng.random(), self.rng.random(), self.rng.random()

    def body(self, step: int, recipe: list[tuple[Any, ...]]) -> list[Expr]:
        values = list(self.states)
        for kind, *choices in recipe:
            x = values[int(choices[0] * len(values))]
            y = values[int(choices[1] * len(values))]
            values.append(getattr(self, f"do_{kind}")(step, x, y, choices[2]))
        if len(values) < 2 * len(self.states):
            values += [ops.tanh(x) for x in values[-len(self.states):]]
        return values

    def do_unary(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        return getattr(ops, _UNARY[int(choice * len(_UNARY))])(x)

    def do_binary(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        return getattr(ops, _BINARY[int(choice * len(_BINARY))])(x, y)

    def do_weight(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        weight = self.weights[choice < 0.5]
        return ops.dot_general(
            x, weight, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(0,)
        )

    def do_row(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        if not self.sources:
            return ops.add(x, y)
        source, dim, width, first = self.sources[int(choice * len(self.sources))]
        number = self.count - 1 - step if choice < 0.2 else step
        if 0.2 <= choice < 0.25:
            number = step * step % self.count
        starts, stops = [0, 0], list(source.shape)
        starts[dim] = first + number * width
        stops[dim] = starts[dim] + width
        part = ops.slice(source, starts=tuple(starts), stops=tuple(stops), steps=(1, 1))
        if width == 2:
            part = ops.sum(part, dims=(dim,), keepdim=True)
        return ops.add(x, part)

    def do_number(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        return ops.mul(x, self.number(1.0 + step / 8 if choice < 0.5 else choice))

    def do_history(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        back = 2 if choice < 0.7 else 3
        if step < back:
            return ops.add(x, self.before)
        return ops.add(x, self.history[step - back][0])

    def do_first(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        """The first step's state, or that of half as many steps."""
        return ops.sub(x, self.history[1 if choice < 0.8 and step else step // 2][0])

    def do_reduce(self, step: int, x: Expr, y: Expr, choice: float) -> Expr:
        return ops.sub(x, ops.amax(x, dims=(1,), keepdim=True))

    def show(self, shown: list[Expr]) -> None:
        kind = self.rng.randrange(5)
        if kind == 0:
            self.outputs.append(ops.concat(*shown, dim=self.rng.randrange(2)))
        elif kind == 1:
            total = shown[0]
            for x in shown[1:]:
                total = ops.add(total, x)
            self.outputs.append(total)
        elif kind == 2:
            shape = (1, self.rows, self.columns)
            self.outputs.append(ops.concat(*(ops.reshape(x, shape=shape) for x in shown), dim=0))
        elif kind == 3:
            self.outputs.append(shown[self.rng.randrange(len(shown))])
        self.outputs += self.states


def arrays_for(graph: Graph, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(-1, 1, [int(n) for n in x.shape])) for x in graph.inputs]
