"""Make a failing case small: fewer outputs, nodes replaced by inputs or operands, smaller sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.doubt.case import Case, Style
from graphc.doubt.evaluate import Evaluator
from graphc.doubt.rebuild import rebuild
from graphc.ir.autodiff import joint_graph
from graphc.ir.dim import Dim, evaluate
from graphc.ir.graph import Graph, Node
from graphc.ir.record import replaced
from graphc.ir.types import TensorType

Array = np.ndarray[Any, Any]
Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, seconds: float = 60.0) -> Case:
    """The smallest case found for which `fails` still says so, within about `seconds`."""
    deadline = time.monotonic() + seconds

    def still(candidate: Case) -> bool:
        try:
            return fails(candidate)
        except Exception:  # a candidate that is no case at all
            return False

    if case.forward is not None:
        plain = replaced(case, forward=None)
        case = plain if still(plain) else case
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for step in (_fixed_sizes, _fewer_outputs, _earlier_outputs, _cuts, _bypasses,
                     _fewer_writes, _fewer_inputs, _smaller_sizes):
            case, better = _repeat(case, step, still, deadline)
            progress = progress or better
    return case


def _repeat(
    case: Case, step: Callable[[Case], Iterator[Case | None]], still: Fails, deadline: float
) -> tuple[Case, bool]:
    """Take a step's candidates as long as one of them still fails."""
    better = False
    while True:
        for candidate in _safely(step(case)):
            if time.monotonic() > deadline:
                return case, better
            if candidate is not None and still(candidate):
                case, better = candidate, True
                break
        else:
            return case, better


def _safely(candidates: Iterator[Case | None]) -> Iterator[Case | None]:
    """The candidates that can be made; a size that does not fit is no reason to stop."""
    while True:
        try:
            yield next(candidates)
        except StopIteration:
            return


def _subject(case: Case) -> Graph:
    """What is shrunk: the graph before it was differentiated, if the case is about that."""
    return case.forward if case.forward is not None else case.graph


def _with(
    case: Case, keep: Sequence[Node], outputs: Sequence[Node] | None = None,
    mutated: Mapping[int, int] | None = None, cut: Mapping[Node, Array] | None = None,
    **options: Any,
) -> Case | None:
    """The case on a rebuilt graph; `cut` gives the arrays of nodes that become inputs."""
    try:
        graph, table = rebuild(_subject(case), keep, outputs, **options)
    except Exception:
        return None
    styles = {table[n]: s for n, s in case.styles.items() if n in table}
    for node, array in (cut or {}).items():
        # a given array has the size of the example alone
        symbolic = bool(case.graph.env.hints)
        styles[table[node]] = Style() if symbolic else Style("given", array=array)
    if case.forward is None:
        return Case(case.seed, graph, styles, dict(mutated or {}))
    joint = joint_graph(graph)
    for node in joint.inputs[len(graph.inputs):]:
        styles[node] = Style()
    return Case(case.seed, joint, styles, {}, graph)


def _frozen(case: Case) -> Case:
    """The case with its inputs' arrays given, so that they stay when inputs are renumbered."""
    dims = dict(case.graph.env.hints)
    pairs = zip(case.graph.inputs, case.arrays(dims), strict=True)
    if dims:
        return case
    return replaced(case, styles={n: Style("given", array=a) for n, a in pairs})


def _fixed_sizes(case: Case) -> Iterator[Case | None]:
    """Numbers in place of named dims; then the inputs' values as they are."""
    dims = case.graph.env.hints
    if dims:
        subject = _subject(case)
        kept = list(subject.inputs)

        def change(node: Node) -> tuple[object, dict[str, object]]:
            return _sized(node, lambda n: evaluate(n, dims) if isinstance(n, Dim) else n)

        fixed = _with(case, kept, mutated=case.mutated, change=change)
        if fixed is not None:
            fixed.graph.env.hints.clear()
            fixed.graph.env.guards.clear()
            styles = {
                n: replaced(s, limit=evaluate(s.limit, dims)) for n, s in fixed.styles.items()
            }
            yield replaced(fixed, styles=styles)
    elif any(s.array is None for s in case.styles.values()):
        yield _frozen(case)


def _sized(node: Node, size: Callable[[Any], Any]) -> tuple[object, dict[str, object]]:
    """An input's type and a node's attributes with each size mapped."""
    type_ = node.type
    if isinstance(type_, TensorType):
        type_ = TensorType(type_.dtype, tuple(size(n) for n in type_.shape))
    return type_, {k: _mapped(k, v, size) for k, v in node.attrs.items()}


_SIZES = frozenset("shape stops size input_shape weight_shape plane_shape n k high".split())


def _mapped(name: str, value: Any, size: Callable[[Any], Any]) -> Any:
    if isinstance(value, Dim):
        return size(value)
    if name in _SIZES and isinstance(value, (int, tuple)) and not isinstance(value, bool):
        return tuple(size(v) for v in value) if isinstance(value, tuple) else size(value)
    if isinstance(value, tuple):
        return tuple(size(v) if isinstance(v, Dim) else v for v in value)
    return value


def _fewer_outputs(case: Case) -> Iterator[Case | None]:
    """One output alone, then all but one."""
    outputs = _subject(case).outputs
    kept = list(_subject(case).inputs)
    if len(outputs) > 1:
        choices = [[i] for i in range(len(outputs))]
        if len(outputs) > 2:
            choices += [[j for j in range(len(outputs)) if j != i] for i in range(len(outputs))]
        for chosen in choices:
            mutated = {new: case.mutated[old] for new, old in enumerate(chosen)
                       if old in case.mutated}
            yield _with(case, kept, [outputs[i] for i in chosen], mutated)


def _earlier_outputs(case: Case) -> Iterator[Case | None]:
    """A node's value in place of what is computed from it; the first nodes first."""
    subject = _subject(case)
    if case.mutated or len(subject.outputs) > 1:
        return
    for node in subject.nodes:
        inner = node not in subject.inputs and node not in subject.outputs
        if inner and node.inputs and isinstance(node.type, TensorType):
            yield _with(case, list(subject.inputs), [node])


def _cuts(case: Case) -> Iterator[Case | None]:
    """A node's value becomes an input; the last nodes first, as they cut off most."""
    subject = _subject(case)
    dims = dict(case.graph.env.hints)
    inner = [n for n in subject.nodes if n not in subject.inputs and isinstance(n.type, TensorType)]
    if not inner or len(inner) == 1:
        return
    evaluator = Evaluator(dims)
    for node, array in zip(case.graph.inputs, case.arrays(dims), strict=True):
        evaluator.give(node, array)
    for node in reversed(inner):
        if node in subject.outputs and len(subject.outputs) == 1:
            continue
        try:
            array = np.array(evaluator.value(node))
        except (RuntimeError, IndexError):
            continue
        yield _with(case, [*subject.inputs, node], mutated=case.mutated, cut={node: array})


def _bypasses(case: Case) -> Iterator[Case | None]:
    """A node gives way to an operand of its type."""
    subject = _subject(case)
    for node in reversed(subject.nodes):
        for source in dict.fromkeys(node.inputs):
            if source.type == node.type and isinstance(node.type, TensorType):
                yield _with(case, list(subject.inputs), mutated=case.mutated,
                            replace={node: source})


def _fewer_writes(case: Case) -> Iterator[Case | None]:
    for output in case.mutated:
        rest = {o: i for o, i in case.mutated.items() if o != output}
        yield replaced(case, mutated=rest)


def _fewer_inputs(case: Case) -> Iterator[Case | None]:
    """Without the inputs that nothing reads."""
    subject = _subject(case)
    if any(s.array is None for s in case.styles.values()):
        return
    read = {x for n in subject.nodes for x in n.inputs} | set(subject.outputs)
    kept = [n for i, n in enumerate(subject.inputs) if n in read or i in case.mutated.values()]
    if len(kept) < len(subject.inputs):
        number = {subject.inputs.index(n): i for i, n in enumerate(kept)}
        yield _with(case, kept, mutated={o: number[i] for o, i in case.mutated.items()})


def _smaller_sizes(case: Case) -> Iterator[Case | None]:
    """A size replaced by a smaller one wherever it stands, and the inputs cut to it."""
    subject = _subject(case)
    if case.graph.env.hints or any(s.array is None for s in case.styles.values()):
        return
    sizes = {n for node in subject.inputs for n in node.shape if isinstance(n, int) and n > 1}
    for old in sorted(sizes, reverse=True):
        for new in dict.fromkeys((1, 2, old // 2, old - 1)):
            if 0 < new < old:
                yield _resized(case, old, new)


def _resized(case: Case, old: int, new: int) -> Case | None:
    def change(node: Node) -> tuple[object, dict[str, object]]:
        return _sized(node, lambda n: new if n == old else n)

    subject = _subject(case)
    made = _with(case, list(subject.inputs), mutated=case.mutated, change=change)
    if made is None:
        return None
    styles = dict(made.styles)
    for node in _subject(made).inputs:
        array = styles[node].array
        assert array is not None
        styles[node] = Style("given", array=array[tuple(slice(0, n) for n in node.shape)])
    return replaced(made, styles=styles)
