"""Programs and parts that keep to a limit of memory, by computing values again.

A whole step is one program: its kernels run again (`passes/plan/rematerialise.py`). A forward part
and a backward part are cut where as many values as need be are computed again in the backward
part, those first that give the most bytes back for their arithmetic; then its kernels, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.engine.limit import Limit
from graphc.frontend.errors import MemoryLimitError
from graphc.inspect.cost import launch_cost
from graphc.inspect.footprint import footprint_of_program, refuse
from graphc.inspect.memory import bytes_of, memory_of_program
from graphc.ir.dim import evaluate, product
from graphc.ir.graph import Graph, Node, input_
from graphc.ir.kernel import Launch, Program
from graphc.ir.machine import Machine
from graphc.ir.passes.partition import Split, split
from graphc.ir.types import TensorType, TupleType

_FLOPS_PER_BYTE = 8  # of a core's arithmetic, in the time that it takes to move a byte


def plan_within(
    make: Callable[..., Program], limit: Limit, machine: Machine, threads: int
) -> Program:
    """The program that `make` plans, in a form that keeps to the limit. Raises MemoryLimitError."""
    def peak(program: Program) -> int:
        return memory_of_program(program, machine, {}, threads).peak

    def work(launch: Launch) -> int:
        cost = launch_cost(launch, {}, machine)
        return cost.flops + _FLOPS_PER_BYTE * (cost.read + cost.written)

    program = make()
    most = peak(program)
    if most > limit.room:
        arena = program.arena_bytes
        assert isinstance(arena, int)  # under a limit, all sizes are known
        program = make(room=max(0, arena - (most - limit.room)), work=work)
    if peak(program) > limit.room:
        raise refuse(footprint_of_program(program, machine, {}, threads, limit), limit.bytes)
    return program


def split_within(
    graph: Graph, forward_inputs: int, forward_outputs: int, attempt: Callable[[Split], object]
) -> Split:
    """A joint graph cut in two parts that keep to a limit, with as few costly values computed again
    as will do. `attempt` plans both parts, or raises MemoryLimitError."""
    dear = _by_gain(graph, graph.inputs[forward_inputs:])

    def cut(count: int) -> Split:
        parts = split(graph, forward_inputs, forward_outputs, frozenset(dear[:count]))
        attempt(parts)
        return parts

    try:
        return cut(0)
    except MemoryLimitError:
        if not dear:
            raise
    few, enough, found = 0, len(dear), cut(len(dear))
    while enough - few > 1:
        middle = (few + enough) // 2
        try:
            found, enough = cut(middle), middle
        except MemoryLimitError:
            few = middle
    return found


def _by_gain(graph: Graph, cotangents: Sequence[Node]) -> list[Node]:
    """Costly values of the forward part, those first that are large for what computing them takes.
    Not what a generator draws: it is never drawn twice."""
    behind = set(cotangents)
    found: list[Node] = []
    for node in graph.nodes:
        if any(source in behind for source in node.inputs):
            behind.add(node)
        elif node.op is not input_ and node.op.cost is None and not node.op.impure:
            found.append(node)
    return sorted(found, key=lambda node: -_bytes(node) / max(1, _work(node)))


def _types(node: Node) -> Sequence[TensorType]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.tensor_type,)


def _bytes(node: Node) -> int:
    return sum(bytes_of(each, {}) for each in _types(node))


def _work(node: Node) -> int:
    """About how much arithmetic a costly value takes: for each element of a product or a
    convolution, what is summed up for it; else its operands."""
    results = evaluate(product(node.shape), {}) if node.op.family == "contract" else 0
    if node.op.name == "dot_general":
        left = node.inputs[0].shape
        return results * evaluate(product([left[d] for d in node.attrs["contract_a"]]), {})
    if node.op.name == "conv":
        weight = node.inputs[1].shape
        return results * evaluate(product(weight[1:]), {})
    return sum(_bytes(source) for source in node.inputs)
