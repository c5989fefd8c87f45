"""A compiled graph as rows: one per step, with its operators, source lines and cost."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.backends.llvm.emit import kernel_symbol
from graphc.inspect.cost import Cost, callback_cost, launch_cost
from graphc.ir.dim import evaluate, product
from graphc.ir.graph import Graph, Loc, Node
from graphc.ir.kernel import Callback, Launch, Program
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.engine.pipeline import Built


Lines = tuple[tuple[str, tuple[str, ...]], ...]  # (user's line, operators recorded there)


@dataclass(frozen=True)
class Step:
    """One step of a program.

    kind: "loop", "rows", "contraction", ... (what fusion made), "copy", or "NumPy" for an operator
    that is called back. `lines`: (user's line, operators recorded there), in order. `cached`: its
    code came from the cache; None where that is not known.
    """

    name: str
    kind: str
    lines: Lines
    cost: Cost
    symbol: str
    cached: bool | None

    @property
    def ops(self) -> tuple[str, ...]:
        """The graph's operators that it computes."""
        return tuple(op for _, ops in self.lines for op in ops)


@dataclass(frozen=True)
class Memory:
    """Bytes of a call: what it is given, makes, keeps for itself, and has as constants."""

    inputs: int
    outputs: int  # without those written into an input
    arena: int
    constants: int

    @property
    def peak(self) -> int:
        """All of it: everything is there during the whole call."""
        return self.inputs + self.outputs + self.arena + self.constants


def steps_of(built: Built) -> list[Step]:
    """A row per step of the program, in the order in which they run."""
    dims = built.graph.env.hints
    cached = {
        kernel.symbol: kernel.cached
        for kernel in getattr(getattr(built.executable, "stats", None), "kernels", ())
    }
    sources = _Sources(built.fused)
    symbols: dict[int, str] = {}
    rows: list[Step] = []
    for step in built.program.steps:
        if isinstance(step, Callback):
            lines: Lines = tuple((loc, (step.op,)) for loc in map(short_path, step.locs)) or (
                ("", (step.op,)),
            )
            rows.append(Step(step.op, "NumPy", lines, callback_cost(step, dims), "", None))
            continue
        kind, lines = sources.of(step)
        symbol = symbols.get(id(step.kernel))
        if symbol is None:
            symbol = symbols[id(step.kernel)] = kernel_symbol(step.kernel)
        cost = launch_cost(step, dims)
        rows.append(Step(step.kernel.name, kind, lines, cost, symbol, cached.get(symbol)))
    return rows


def memory_of(program: Program, dims: dict[str, int]) -> Memory:
    """What a call needs for these values of the dims."""
    made = [t for i, t in enumerate(program.output_types) if i not in program.outputs_in_place]
    constants = sum(getattr(c, "nbytes", 0) for c in program.constants)
    return Memory(
        sum(_bytes(t, dims) for t in program.input_types), sum(_bytes(t, dims) for t in made),
        evaluate(program.arena_bytes, dims), constants,
    )  # fmt: skip


def _bytes(type_: object, dims: dict[str, int]) -> int:
    assert isinstance(type_, TensorType)
    return evaluate(product(type_.shape), dims) * type_.dtype.itemsize


class _Sources:
    """The fusion node behind each launch: both name their operators and lines alike."""

    def __init__(self, fused: Graph) -> None:
        self.waiting: dict[tuple[object, object], deque[Node]] = defaultdict(deque)
        for node in fused.nodes:
            if node.op.name == "fusion":
                inside = _computing(node)
                locs = dict.fromkeys(str(n.loc) for n in inside if n.loc is not None)
                self.waiting[tuple(n.op.name for n in inside), tuple(locs)].append(node)

    def of(self, step: Launch) -> tuple[str, Lines]:
        """(kind, operators by user line) of a launch."""
        nodes = self.waiting.get((step.ops, step.locs))
        if not nodes:
            return "copy", (("", step.ops),)
        node = nodes.popleft() if len(nodes) > 1 else nodes[0]
        return node.attrs["kind"], tuple(by_line(_computing(node)))


def _computing(node: Node) -> list[Node]:
    return [n for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]


def by_line(nodes: Iterable[Node]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(user's line, operators) in order of first appearance."""
    found: dict[Loc | None, list[str]] = {}
    for node in nodes:
        found.setdefault(node.loc, []).append(node.op.name)
    for loc, ops in found.items():
        yield ("" if loc is None else short_path(str(loc))), tuple(ops)


def short_path(text: str) -> str:
    """A path below the working directory without it."""
    here = os.getcwd() + os.sep
    return text[len(here) :] if text.startswith(here) else text
