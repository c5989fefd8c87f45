"""The steps that a replayed function has come to (replayed.py), views and products among them, as
one operator of the history: arrays in between, and one node behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.ir import ops
from graphc.ir.autodiff import vjp_program
from graphc.ir.op import Attrs, Op
from graphc.ir.sequence import Part, sequence_of
from graphc.ir.slots import steps_of

from .anomaly import Anomaly
from .eager import Signature, record_sequence
from .history import edge, requires_grad
from .nodes import OpNode, beyond, next_sequence
from .programs import GradientPlan
from .replayed_steps import DETACH, Arrays, Step, is_several, without_detached
from .storage import note_read, reads_later
from .tensor import Tensor
from .values import Eager
from .worlds import is_flat

_MOST = 64  # steps
_FEW = 4096  # numbers of what is computed, or copied, once more


_OFTEN = 20  # runs that take as long as writing one function


class Sequenced:
    """Steps as one operator, with a history of one node."""

    def __init__(
        self, arrays: Any, op: Op, attrs: Attrs, signature: Signature, plan: GradientPlan,
        needs: tuple[bool, ...], kind: type[OpNode], constants: list[Tensor], order: list[int],
        tensors: int,
    ) -> None:
        """`arrays`: what runs it on so many tensors, without a history; `plan`: of its gradient,
        for operands that learn as `needs` says; `order`: which of the tensors and constants each
        operand is."""
        self.arrays, self.op, self.attrs, self.signature, self.kind = (
            arrays, op, attrs, signature, kind
        )
        self.plan, self.needs = plan, needs
        self.constants, self.order, self.tensors = constants, order, tensors
        self.given: int | None = None  # how many operands show as the function's
        self.flat = False  # whether it has a step of a piecewise constant slope
        # operands that the rule reads and no step has kept: they may be written to before
        self.copied: frozenset[int] = frozenset()
        self._faces: list[tuple[int, GradientPlan]] = []
        self._runs = 0
        self._written: Callable[[list[Tensor]], list[Tensor] | None] | None = None

    def shows(self, result: int, kind: type[OpNode]) -> None:
        """A result's node is to be of another kind: one that does nothing is put before it."""
        type_ = self.signature.results[result]
        plan = GradientPlan(
            ops.reshape, (type_,), (type_,), {"shape": type_.shape}, (True,)
        )
        plan.kind = kind
        self._faces.append((result, plan))

    def run(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """The results; None: not of such tensors."""
        if self._written is not None:
            return self._written(tensors)
        self._runs += 1
        if self._runs == _OFTEN:
            self._written = _written(self)
        return self.run_slowly(tensors)

    def run_slowly(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """The same, whatever has a history and whoever watches it."""
        every = [*tensors, *self.constants]
        inputs = tuple([every[i] for i in self.order])
        for i in self.copied:
            if inputs[i]._graphc_storage.inference:  # which no history may keep
                return None
        found: list[Tensor] | None = self.arrays.run(tensors)
        if found is None:
            return None
        node: Any = record_sequence(
            self.op, inputs, self.attrs, self.signature, found, self.kind
        )
        if node is None:
            return found
        if self.given is not None:
            node.given = self.given
        if self.flat:
            node.flat = True
        if self.copied and not node.packed:
            node.saved_in = tuple([
                x.copy("K") if i in self.copied and x is not None else x
                for i, x in enumerate(node.saved_in)
            ])
            node.stamps = tuple([s for s in node.stamps if s[2] not in self.copied])
        self.face(node, found)
        return found

    def face(self, node: OpNode, found: list[Tensor]) -> None:
        """Put the nodes of other kinds before it."""
        for i, plan in self._faces:
            face = plan.kind(plan.op, plan.attrs, ((node, i),), plan.in_types, plan.in_types)
            face.plan = plan
            face.saved_in, face.saved_out = plan.no_inputs, plan.no_outputs
            found[i]._graphc_node, found[i]._graphc_output = face, 0


def _written(sequence: Sequenced) -> Callable[[list[Tensor]], list[Tensor] | None]:
    """run() of tensors that learn as those did that it was made for, with a line for each."""
    needs, plan, signature = sequence.needs, sequence.plan, sequence.signature
    given, tensors = len(sequence.order), sequence.tensors
    names: dict[str, Any] = {
        "Anomaly": Anomaly, "arrays": sequence.arrays, "edge": edge, "requires_grad": requires_grad,
        "slowly": sequence.run_slowly, "new": object.__new__, "kind": sequence.kind,
        "sequence": next_sequence, "op": sequence.op, "plan": plan, "face": sequence.face,
        "in_types": signature.inputs, "out_types": signature.results, "given": sequence.given,
        "attrs": sequence.attrs, "late": plan.late, "note_read": note_read,
        "reads_later": reads_later,
        **{f"t{i + tensors}": c for i, c in enumerate(sequence.constants)},
        **{f"type{i}": type_ for i, type_ in enumerate(signature.inputs)},
    }
    x = [f"t{i}" for i in sequence.order]
    lines = ["if Anomaly.enabled:", "    return slowly(tensors)"]
    lines += [f"[{', '.join(f't{i}' for i in range(tensors))}] = tensors"]
    for i in range(given):
        if needs[i]:
            lines += [
                f"e{i} = {x[i]}._graphc_node",
                f"if {x[i]}._base is not None:",
                f"    if not requires_grad({x[i]}):",
                "        return slowly(tensors)",
                f"    e{i} = edge({x[i]}, type{i})",
                f"elif e{i} is not None:",
                f"    e{i} = e{i}, {x[i]}._graphc_output",
                f"elif {x[i]}._graphc_requires_grad:",
                f"    e{i} = edge({x[i]}, type{i})",
                "else:",
                "    return slowly(tensors)",
            ]
        if i in plan.inputs:
            lines += [
                f"m{i} = {x[i]}._graphc_storage",
                f"if m{i}.inference:",
                "    return slowly(tensors)",
            ]
    lines += ["found = arrays.run(tensors)", "if found is None:", "    return None"]
    lines += [f"r{i} = found[{i}]" for i in range(len(signature.results))]
    stamps = [f"(m{i}, m{i}.version, {i})" for i in plan.inputs if i not in sequence.copied]
    stamps += [f"(r{i}._graphc_storage, r{i}._graphc_storage.version, {~i})" for i in plan.outputs]
    saved_in = [
        "None" if i not in plan.inputs else f"{x[i]}._graphc_array.copy('K')"
        if i in sequence.copied else f"{x[i]}._graphc_array" for i in range(given)
    ]
    saved_out = [
        f"r{i}._graphc_array" if i in plan.outputs else "None"
        for i in range(len(signature.results))
    ]
    edges = [f"e{i}" if needs[i] else "None" for i in range(given)]
    lines += ["node = new(kind)", "node.edges = " + _tuple(edges)]
    lines += ["node.out_types, node.sequence, node.op = out_types, sequence(), op"]
    lines += ["node.attrs, node.in_types, node.plan = attrs, in_types, plan"]
    lines += ["node.given = given"] if sequence.given is not None else []
    lines += [f"node.stamps = {_tuple(stamps)}", f"node.saved_in = {_tuple(saved_in)}"]
    lines += [f"node.saved_out = {_tuple(saved_out)}"]
    if sequence.flat:
        lines.append("node.flat = True")
    read = [f"m{i}" for i in plan.inputs if i in plan.late]
    read += [f"r{i}._graphc_storage" for i in plan.outputs if ~i in plan.late]
    if plan.late:
        lines += ["node.late = late", *[f"note_read({storage})" for storage in read]]
        lines += ["reads_later(node)"] if read else []
    for i in signature.carrying:
        lines.append(f"r{i}._graphc_node = node")
        if i:
            lines.append(f"r{i}._graphc_output = {i}")
    lines += ["face(node, found)"] if len(signature.results) > 1 else []
    text = "\n".join(["def run(tensors):", *[f"    {line}" for line in [*lines, "return found"]]])
    exec(compile(text, "<graphc>", "exec", dont_inherit=True), names)
    run: Callable[[list[Tensor]], list[Tensor] | None] = names["run"]
    return run


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)},)" if items else "()"


def sequenced(
    steps: list[Step], results: list[int], values: Sequence[Tensor], tensors: int,
    made: Sequence[tuple[Step, Tensor]], owned: bool, in_rows: bool, by_any_name: bool,
) -> Sequenced | None:
    """Steps on so many tensors as one operator, `values` being all of the call that is known, and
    `made` the first result of each step with its history; None: they had better stay as they are.
    `by_any_name`: what made several results may be called what made the first."""
    if len(steps) > _MOST or any(map(_is_apart, steps)) or (
        len(steps) == 1 and not is_several(steps[0])
    ):
        return None
    arrays = Arrays.of(*without_detached(steps, results, tensors), tensors, owned, in_rows)
    each = iter(made)
    nodes = [None if step.op is DETACH else next(each)[1]._graphc_node for step in steps]
    kinds: dict[int, Any] = {
        i: type(values[number]._graphc_node) for i, number in enumerate(results)
        if values[number]._graphc_type.dtype.differentiable
    }
    constants = [s for step in steps for s in step.sources if type(s) is not int]
    flat = any(node is not None and is_flat(node) for node in nodes[:-1])
    if arrays is None or any(map(requires_grad, constants)) or not all(
        issubclass(kind, OpNode) for kind in kinds.values()
    ) or not kinds or (flat and sum(map(requires_grad, values[:tensors])) != 1):
        return None
    inputs = [*values[:tensors], *constants]
    order, sources = _operands(steps, inputs, _shown(nodes[-1], values[:tensors]))
    operands = [inputs[i] for i in order]
    kept_in, kept_out = _kept(steps, nodes, tensors)
    more = len(operands) - tensors
    op = sequence_of(
        [
            Part(None if step.op is DETACH else step.op, step.attrs, mine)
            for step, mine in zip(steps, sources, strict=True)
        ], len(operands), [i + more for i in results], [i + more for i in results if i in kept_out],
    )
    signature = Signature(op, tuple([t._graphc_type for t in operands]), {})
    needs = tuple(map(requires_grad, operands))
    plan = GradientPlan(op, signature.inputs, signature.results, {}, needs)
    signature.plans[needs] = plan
    found = Sequenced(
        arrays, op, {}, signature, plan, needs, kinds[min(kinds)], constants, order, tensors
    )
    found.given, found.flat = tensors, flat
    for i, kind in kinds.items():
        if kind is not kinds[min(kinds)] and not by_any_name:
            found.shows(i, kind)
    copied = frozenset([i for i in plan.inputs if order[i] < tensors and order[i] not in kept_in])
    found.copied = copied
    if (copied or _computes_again(plan, signature, needs)) and any(
        t._graphc_array.size > _FEW for t in values
    ):
        return None
    return found


def alone(
    steps: list[Step], results: list[int], values: Sequence[Tensor], tensors: int
) -> Sequenced | None:
    """The only step, if its results are all that there is and nobody's views."""
    step = steps[0]
    if len(steps) > 1 or step.op is DETACH or step.op.view or step.op.impure or results != list(
        range(tensors, tensors + len(step.signature.results))
    ):
        return None
    arrays = Arrays.of(steps, results, tensors, False, False)
    kinds: set[Any] = {type(values[results[i]]._graphc_node) for i in step.signature.carrying}
    if arrays is None or len(kinds) != 1 or not issubclass(min(kinds), OpNode):
        return None
    constants = [s for s in step.sources if type(s) is not int]
    numbers = iter(range(tensors, tensors + len(constants)))
    order = [s if type(s) is int else next(numbers) for s in step.sources]
    inputs = [*values[:tensors], *constants]
    needs = tuple([requires_grad(inputs[i]) for i in order])
    plan = step.signature.plans.get(needs)
    if plan is None:
        return None
    return Sequenced(
        arrays, step.op, step.attrs, step.signature, plan, needs, min(kinds), constants, order,
        tensors,
    )


def _is_apart(step: Step) -> bool:
    """Whether a step is better done by itself."""
    if step.op is DETACH:
        return False
    if step.op.impure:
        return True
    types = (*step.signature.inputs, *step.signature.results)
    return any(t.dtype.is_complex for t in types) or Eager.apart(
        step.op, step.signature.inputs, step.attrs
    )


def _shown(last: Any, tensors: Sequence[Tensor]) -> list[int]:
    """The tensors in the order in which the last step's node shows them; else as they are given."""
    own = list(range(len(tensors)))
    if last is None:
        return own
    ends = [edge(x) if requires_grad(x) else None for x in tensors]
    found = [ends.index(place) for place in beyond(last) if place is not None and place in ends]
    rest = [i for i in own if ends[i] is None]
    return [*found, *rest] if sorted([*found, *rest]) == own else own


def _operands(
    steps: Sequence[Step], inputs: Sequence[Tensor], shown: Sequence[int]
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Which of the inputs (tensors, then constants) each operand is, and what each step reads. What
    learns and is used several times is as many operands, the last use first: their gradients meet
    others' as those of steps would."""
    tensors = len(shown)
    order = [*shown, *range(tensors, len(inputs))]
    place = {which: at for at, which in enumerate(order)}
    constants = iter(range(tensors, len(inputs)))
    sources = [
        [(True, s) if type(s) is int and s < tensors else (False, s) if type(s) is int else
         (True, next(constants)) for s in step.sources]
        for step in steps
    ]
    used: dict[tuple[int, int], int] = {}  # by step and source
    met = set[int]()
    for at in reversed(range(len(steps))):
        for i, (is_input, s) in enumerate(sources[at]):
            if not is_input:
                continue
            if s in met and requires_grad(inputs[s]):
                used[at, i] = len(order)
                order.append(s)
            else:
                used[at, i] = place[s]
            met.add(s)
    more = len(order) - tensors
    return order, [
        tuple([used[at, i] if is_input else s + more for i, (is_input, s) in enumerate(mine)])
        for at, mine in enumerate(sources)
    ]


def _kept(
    steps: Sequence[Step], nodes: Sequence[Any], tensors: int
) -> tuple[set[int], set[int]]:
    """The numbers of values whose memory a step's node has kept as an operand, and of those that
    one has kept as its result."""
    root = list(range(tensors))  # whose memory each value is in
    operands, own = set[int](), set[int]()
    for step, node in zip(steps, nodes, strict=True):
        at = len(root)
        first = step.sources[0] if step.op.view and not step.copies else None
        if type(first) is int:
            root.append(root[first])
        else:
            root += range(at, at + len(step.signature.results))
        saved_in, saved_out = (
            getattr(node, name, None) or () for name in ("saved_in", "saved_out")
        )
        late = getattr(node, "late", ())  # which may be written to
        operands.update(
            root[s] for i, (s, value) in enumerate(zip(step.sources, saved_in, strict=False))
            if value is not None and type(s) is int and i not in late
        )
        own.update(
            at + i for i, value in enumerate(saved_out) if value is not None and ~i not in late
        )
    return operands, own


def _computes_again(
    plan: GradientPlan, signature: Signature, needs: tuple[bool, ...]
) -> bool:
    """Whether the rule does what the steps have done."""
    program = vjp_program(plan.op, signature.inputs, {}, needs)
    return any(
        not node.backward and node.inputs and not node.op.view for node in steps_of(program.graph)
    )
