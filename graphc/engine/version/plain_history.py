"""The history of calls whose results are arrays by themselves: what all calls have in common is
worked out once, and what few passes ask for is made when it is asked for."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...frontend.captured import TensorInput
from ...frontend.history import edge, requires_grad
from ...frontend.nodes import AccumulateGrad, Edge, next_sequence
from ...frontend.tensor import Tensor
from ...ir.types import TensorType
from ..built import concrete_shape
from .backward import CompiledBackward, CompiledBackwardPlan
from .plain_results import PlainResult
from .saved import Stamp

if TYPE_CHECKING:
    from .call import Call
    from .shortcut import Shortcut
    from .version import Specialisation


class PlainHistory:
    """Makes the results of a shortcut's calls, and the node that they have in common."""

    def __init__(
        self, plan: CompiledBackwardPlan, results: Sequence[PlainResult],
        inputs: list[tuple[int, Any]], types: tuple[TensorType, ...], dims: dict[str, int],
        written: set[int],
    ) -> None:
        """`inputs`: argument number or -1, and the tensor, of each of the graph's, those that are
        tensors first; `types`: of what is differentiated; `written`: inputs that calls write to."""
        self.plan, self.results, self.types, self.dims = plan, results, types, dims
        self.inputs = inputs
        # those that a backward reads where they lie
        self.again = sorted(i for i in plan.read - written if i < len(inputs))
        # whether a backward reads what was in memory that a call writes to: `call.before`
        self.copies = not plan.read.isdisjoint(written)
        self.saved = [(kind == "input", i) for kind, i in plan.saved]
        self.by_argument = any(index >= 0 for index, _ in plan.sources)

    def of(self, call: Call) -> list[Tensor]:
        """The results of a call that has run."""
        plan, arguments, results = self.plan, call.arguments, call.results
        owners = [arguments[index] if index >= 0 else tensor for index, tensor in self.inputs]
        arrays = [tensor._graphc_array for tensor in owners]
        arrays += [array for _, array in call.numbers]
        for i, array in call.before.items():
            arrays[i] = array
        node: CompiledBackward = object.__new__(CompiledBackward)
        node.plan, node.out_types, node.dims = plan, self.types, self.dims
        node.sequence = next_sequence()
        node.inputs = arrays
        node.saved = [arrays[i] if read else results[i] for read, i in self.saved]
        made, handed = [], []
        for each in self.results:
            array = results[each.output]
            tensor = each.of(array)
            storage = tensor._graphc_storage
            if each.number >= 0:
                tensor._graphc_node, tensor._graphc_output = node, each.number
            made.append(tensor)
            handed.append((storage, storage.version, tensor._graphc_array))
        storages = [owners[i]._graphc_storage for i in self.again]
        node.facts = self, [(s, s.version) for s in storages], handed
        if self.by_argument:
            node.edges = self.edges(arguments)
        node.noted()
        return made

    def edges(self, arguments: Sequence[Any]) -> tuple[Edge | None, ...]:
        """Where gradients go. The captured tensors were leaves in the call: they may be others by
        now, and `arguments` not at hand where there are none among them."""
        found: list[Edge | None] = []
        for index, source in self.plan.sources:
            if index < 0:
                found.append((_accumulator(source), 0))
            else:
                tensor = arguments[index]
                found.append(edge(tensor) if requires_grad(tensor) else None)
        return tuple(found)

    def stamps(self, noted: list[Stamp], handed: list[Any]) -> tuple[
        dict[int, Stamp], dict[int, Stamp], dict[int, tuple[Any, int, np.ndarray]]
    ]:
        """SavingNode's stamps, input_stamps and outputs."""
        inputs = dict(zip(self.again, noted, strict=True))
        outputs = {
            each.output: kept for each, kept in zip(self.results, handed, strict=True)
        }
        saved = {}
        for at, (kind, number) in enumerate(self.plan.saved):
            if kind == "input" and number in inputs:
                saved[at] = inputs[number]
            elif kind == "output" and number in outputs:
                saved[at] = outputs[number][:2]
        read = self.plan.replay.read
        return saved, {i: stamp for i, stamp in inputs.items() if i in read}, outputs


def _accumulator(leaf: Tensor) -> AccumulateGrad:
    """edge() of a tensor that was a leaf when the call ran."""
    reference = leaf._graphc_accumulator
    found = None if reference is None else reference()
    if found is None:
        found = AccumulateGrad(leaf, leaf._graphc_type)
        leaf._graphc_accumulator = weakref.ref(found)
    return found


def finished(shortcut: Shortcut, call: Call) -> Any:
    """The end of a call that has run; a later one may have a plain history, once a write has shown
    that no pass reads the memory which calls write to (SavingNode.unread)."""
    version = shortcut.version
    result = version.finish(call)
    if shortcut.plain is not None and _is_plain(version, call.dims):
        shortcut.history = plain_history(version, shortcut.plain, call.dims)
        shortcut.plain = None
    return result


def _is_plain(version: Specialisation, dims: dict[str, int]) -> bool:
    """Whether no pass reads the memory that calls write to."""
    plan, mutated = version.plan, version.engine.mutated
    return plan is not None and (not mutated or plan.unread(dims).issuperset(mutated))


def plain_history(
    version: Specialisation, results: Sequence[PlainResult] | None, dims: dict[str, int]
) -> PlainHistory | None:
    """What makes the history of `results` of calls with these dims; None where more is to be
    done."""
    plan = version.plan
    if (
        plan is None or results is None or not _is_plain(version, dims) or version.places
        or version.changes_history or version.traced.grads
    ):
        return None
    inputs: list[tuple[int, Any]] = []
    for source in version.inputs:
        if type(source) is TensorInput:
            if source.kind not in ("argument", "tensor") or len(inputs) != source.number:
                return None
            inputs.append((source.index, source.tensor))
    leaves = {id(tensor) for index, tensor in inputs if index < 0}
    for index, tensor in plan.sources:
        if index < 0 and (
            id(tensor) not in leaves or tensor._graphc_node is not None
            or tensor._base is not None or not tensor._graphc_requires_grad
        ):
            return None
    types = tuple([TensorType(t.dtype, concrete_shape(t, dims)) for t in plan.types])
    written = set(version.engine.mutated.values())
    return PlainHistory(plan, results, inputs, types, dims, written)
