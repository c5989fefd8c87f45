"""A compiled graph as rows: one per step, with its operators, source lines and cost."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from graphc.engine.built import Built
from graphc.inspect.cost import Cost, launch_cost, routine_cost
from graphc.ir.dim import as_dim, evaluate
from graphc.ir.graph import Graph, Node
from graphc.ir.kernel import (
    Branch,
    BufferRef,
    Launch,
    Leaf,
    Program,
    ProgramStep,
    Repeat,
    Routine,
    leaves,
)
from graphc.ir.kernel.blocking import Blocking
from graphc.ir.kernel.plan_attention import AttentionBlocking
from graphc.ir.kernel.plan_contraction import plan_template
from graphc.ir.kernel.text import kernel_symbol
from graphc.ir.machine import Machine
from graphc.ir.record import record

Lines = tuple[tuple[str, tuple[str, ...]], ...]  # (user's line, operators recorded there)


@record
class Step:
    """One step of a program.

    kind: "loop", "rows", "contraction", ... (what fusion made), "copy", "routine" for an operator
    that the backend runs whole, or "NumPy" for one that the host runs. `lines`: (place in the
    user's code, operators recorded there), in order.
    `cached`: its code came from the cache; None where that is not known. `reads` and `writes`:
    the names of the graph's inputs among its buffers, and "output 0" or the input that an output
    is written into. `node`: of the fused graph; None for a copy. `times`: how often a call runs it;
    None where data decide. `cost` is that of one run.
    """

    name: str
    kind: str
    lines: Lines
    cost: Cost
    symbol: str
    cached: bool | None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    node: Node | None = None
    times: int | None = 1

    @property
    def ops(self) -> tuple[str, ...]:
        """The graph's operators that it computes."""
        return tuple(op for _, ops in self.lines for op in ops)


def steps_of(built: Built) -> list[Step]:
    """A row per step of the program, in the order in which they run."""
    dims = built.graph.env.hints
    cached = {kernel.symbol: kernel.cached for kernel in built.executable.stats.kernels}
    sources = _Sources(built.fused)
    symbols: dict[int, str] = {}
    rows: list[Step] = []
    for step, times in _with_times(built.program.steps, dims):
        if isinstance(step, Routine):
            lines: Lines = tuple((loc, (step.op,)) for loc in map(short_path, step.locs)) or (
                ("", (step.op,)),
            )
            kind = "routine" if step.claimed else "NumPy"
            rows.append(Step(
                step.op, kind, lines, routine_cost(step, dims), "", None,
                _buffer_names(step.inputs, built), _buffer_names(step.outputs, built),
                sources.called_back(step), times,
            ))
            continue
        node = sources.of(step)
        kind = "copy" if node is None else node.attrs["kind"]
        lines = (("", step.ops),) if node is None else tuple(by_line(_computing(node)))
        symbol = symbols.get(id(step.kernel))
        if symbol is None:
            symbol = symbols[id(step.kernel)] = kernel_symbol(step.kernel)
        cost = launch_cost(step, dims, built.backend.machine)
        reads, writes = operands(step, built.program, built.fused)
        rows.append(Step(
            step.kernel.name, kind, lines, cost, symbol, cached.get(symbol),
            tuple(n for n in reads.values() if n), tuple(n for n in writes.values() if n), node,
            times,
        ))
    return rows


def _with_times(
    steps: Iterable[ProgramStep], dims: dict[str, int], times: int | None = 1
) -> Iterator[tuple[Leaf, int | None]]:
    """Every leaf with how often it runs; None where that is known only when it does."""
    for step in steps:
        if isinstance(step, Repeat):
            inside = None
            known = step.flag is None and as_dim(step.count or 0).variables() <= dims.keys()
            if times is not None and step.count is not None and known:
                inside = times * evaluate(step.count, dims)
            yield from _with_times((*step.test, *step.steps), dims, inside)
        elif isinstance(step, Branch):
            yield from _with_times((*step.then, *step.otherwise), dims, None)
        else:
            yield step, times


def operands(
    step: Launch, program: Program, graph: Graph
) -> tuple[dict[str, str], dict[str, str]]:
    """What a kernel's parameters are bound to, by name: (those that it reads, that it writes).
    Values between kernels and constants are bound to ""."""
    reads: dict[str, str] = {}
    writes: dict[str, str] = {}
    for parameter, buffer in zip(step.kernel.params, step.buffers, strict=True):
        name = _buffer_name(buffer, program, graph)
        if parameter.access in ("in", "inout"):
            reads[parameter.name] = name
        if parameter.access in ("out", "inout"):
            writes[parameter.name] = name
    return reads, writes


def _buffer_name(buffer: BufferRef, program: Program, graph: Graph) -> str:
    index = buffer.index
    if buffer.space == "output" and index in program.outputs_in_place:
        index = program.outputs_in_place[index]
    elif buffer.space == "output":
        return f"output {index}"
    elif buffer.space != "input":
        return ""
    return graph.inputs[index].attrs["name"] or f"input {index}"


def _buffer_names(buffers: Iterable[BufferRef], built: Built) -> tuple[str, ...]:
    names = [_buffer_name(buffer, built.program, built.fused) for buffer in buffers]
    return tuple(dict.fromkeys(name for name in names if name))


def kernel_uses(program: Program, graph: Graph, machine: Machine) -> dict[int, list[str]]:
    """By the id of each kernel, a line for each of its launches: phase, Modules, operands; and how
    a machine tiles a template (for the first sizes, where they are symbolic)."""
    sources = _Sources(graph)
    found: dict[int, list[str]] = defaultdict(list)
    for number, step in enumerate(leaves(program.steps)):
        if isinstance(step, Launch):
            node = sources.of(step)
            reads, writes = operands(step, program, graph)
            bound = [f"{k} = {name}" for k, name in {**reads, **writes}.items() if name]
            where = "copy" if node is None else whereabouts([node])
            text = f"step {number}, {where}" + (f": {', '.join(bound)}" if bound else "")
            found[id(step.kernel)].append(text)
            blocking = _blocking(step, machine, graph.env.hints)
            if blocking is not None:
                found[id(step.kernel)].append(f"  {blocking}")
    return found


def _blocking(
    step: Launch, machine: Machine, hints: dict[str, int]
) -> Blocking | AttentionBlocking | None:
    if step.kernel.template is None:
        return None
    dims = zip(step.kernel.dims, step.dims, strict=True)
    return plan_template(
        step.kernel.template, machine, {name: evaluate(size, hints) for name, size in dims}
    )


def whereabouts(nodes: Iterable[Node]) -> str:
    """Phases and Modules of what steps compute: "forward, backward of blocks.0.attn"."""
    inside = [x for node in nodes for x in (_computing(node) if node.graphs else [node])]
    phases = ", ".join(dict.fromkeys(node.phase for node in inside))
    modules = dict.fromkeys(n.loc.module for n in inside if n.loc is not None and n.loc.module)
    return phases + (f" of {', '.join(modules)}" if modules else "")


class _Sources:
    """The fusion node behind each launch: both name their operators and lines alike."""

    def __init__(self, fused: Graph) -> None:
        self.waiting: dict[tuple[object, object], deque[Node]] = defaultdict(deque)
        self._add(fused)

    def _add(self, fused: Graph) -> None:
        for node in fused.nodes:
            if node.op.name == "fusion":
                inside = _computing(node)
                locs = dict.fromkeys(n.place for n in inside if n.loc is not None)
                self.waiting[tuple(n.op.name for n in inside), tuple(locs)].append(node)
                continue
            for body in node.graphs:
                self._add(body)
            place = (node.place,) if node.place else ()
            self.waiting[node.op.name, place].append(node)

    def of(self, step: Launch) -> Node | None:
        """The fusion node of a launch; None for a copy."""
        return self._next((step.ops, step.locs))

    def called_back(self, step: Routine) -> Node | None:
        """The node that NumPy runs."""
        return self._next((step.op, step.locs))

    def _next(self, key: tuple[object, object]) -> Node | None:
        nodes = self.waiting.get(key)
        if not nodes:
            return None
        return nodes.popleft() if len(nodes) > 1 else nodes[0]


def _computing(node: Node) -> list[Node]:
    return [n for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]


def by_line(nodes: Iterable[Node]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(place in the user's code, operators) in order of first appearance."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(node.place, []).append(node.op.name)
    for place, ops in found.items():
        yield short_path(place), tuple(ops)


def without_folder(text: str) -> str:
    """A text without the working directory in its paths."""
    return text.replace(os.getcwd() + os.sep, "")


def short_path(text: str) -> str:
    """A path below the working directory without it."""
    here = os.getcwd() + os.sep
    return text[len(here) :] if text.startswith(here) else text
