"""From the arrays of a native call to what the user holds: views, aliases, flags, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from ...frontend.captured import Input, Output, TensorInput
from ...frontend.dispatch import apply
from ...frontend.grad_mode import no_grad
from ...frontend.history import edge, requires_grad
from ...frontend.nodes import Edge, SpentNode
from ...frontend.tensor import Tensor, from_array
from ...frontend.views import Chain
from ...ir.dim import Dim, evaluate
from ..built import Engine
from ..capture.argument_writes import Given
from ..orders import put_back
from .call import Call
from .sources import array_of, owner_of, tensor_of


class Version(Protocol):
    """What makes results of a call's outputs has to know of the version that was called."""

    inputs: list[Input]
    engine: Engine
    records: dict[int, Output]  # outputs of the graph that are given back, by id
    spent: list[Output]  # results that are used up
    leaves: dict[int, list[Tensor]]  # what waits for these, by id
    changes_history: bool
    forwarded: set[int]  # inputs that lie in the memory of others, which the call may write to


class Results:
    """Turns Output records into Tensors; one record is one Tensor.

    A version's Python does not run: all that a call gives is made, from what a recording says. The
    tensors of a segment are the user's already, and become concrete in place (segment_close.py).
    """

    def __init__(self, version: Version, call: Call) -> None:
        self.version, self.call = version, call
        # where what the call wrote to is about to have another history
        self.behind = {
            id(output): edges_of(self._leaves(output)) for output in version.spent
        } if version.changes_history else {}
        self.bases: dict[int, Tensor] = {}
        self.made: dict[int, Any] = {}

    def leaf(self, output: Output) -> Any:
        if output.kind == "object":
            found: Any = output.tensor
            return found.of(self.call.given) if type(found) is Given else found
        if output.kind == "number":
            assert output.number is not None
            return self.call.said[id(output.number)]
        if output.method:
            return getattr(self.tensor(output.owner or output), output.method)()
        return self.tensor(output)

    def tensor(self, output: Output) -> Tensor:
        found: Tensor | None = self.made.get(id(output))
        if found is None:
            found = self.made[id(output)] = self._make(output)
            if output.outdated:
                found._graphc_seen = found._graphc_storage.version - 1
        return found

    def handed_out(self) -> list[tuple[Output, Tensor]]:
        """Graph outputs that the user holds."""
        records = self.version.records
        return [(records[key], tensor) for key, tensor in self.made.items() if key in records]

    def written(self, index: int) -> Tensor:
        """The tensor into whose memory graph output `index` was written."""
        source = self.version.inputs[self.version.engine.mutated[index]]
        assert isinstance(source, TensorInput)
        return tensor_of(source, self.call.arguments)

    def _leaves(self, output: Output) -> Sequence[Tensor]:
        """What waits for a result that is used up."""
        known = self.version.leaves.get(id(output))
        if known is not None:
            return known
        arguments = self.call.arguments
        return [owner_of(tensor, index, arguments) for index, tensor in output.behind]

    def _make(self, output: Output) -> Tensor:
        if output.kind == "input":
            return owner_of(output.tensor, output.argument, self.call.arguments)
        if output.kind == "alias":
            if output.row is not None:
                with no_grad() if output.unrecorded else nullcontext():
                    return self._row(output, output.row)
            source = self.version.inputs[output.index]
            assert isinstance(source, TensorInput)
            base = tensor_of(source, self.call.arguments)
            if source.kind == "storage":  # the views lead on from the whole memory
                base = base.as_strided((array_of(source, base).size,), (1,), 0)
            if output.detached:
                base = base.data if output.untracked else base.detach()
            if output.unrecorded:
                with no_grad():
                    return self._views(base, output.chain)
            return self._views(base, output.chain)
        if output.kind == "view":
            result = self._view(output)
        else:
            result = from_array(self._array(output))
            result._graphc_storage.inference = output.inference
            result._graphc_storage.version = output.versions
        of_base = output.unrecorded and output.base is not None  # a view made in no_grad mode
        if output.requires_grad and not of_base:
            # history.attach() gives those that can still be differentiated their own node
            early = self.behind.get(id(output))
            result._graphc_node = SpentNode(
                result._graphc_type, output.made_by,
                partial(edges_of, self._leaves(output)) if early is None else lambda: early
            )
            if output.unrecorded:  # its base has the history, and is not given back
                with no_grad():
                    result = result.view(result.shape)
        return result

    def _array(self, output: Output) -> np.ndarray:
        array = self.call.results[output.index]
        return array if output.order is None else put_back(array, output.order)

    def _view(self, output: Output) -> Tensor:
        """One of several results on the same memory."""
        if output.row is not None:
            with no_grad():
                result = self._row(output, output.row)
        elif output.base is not None:
            base, chain = output.base
            with no_grad():
                result = self._views(self.tensor(base), chain)
        else:
            memory = self.bases.get(output.index)
            if memory is None:
                memory = self.bases[output.index] = from_array(self._array(output))
                memory._graphc_storage.inference = output.inference
                memory._graphc_storage.version = output.versions
            with no_grad():
                result = self._views(memory, output.chain)
            if result is memory:
                result = memory.detach()
            elif output.requires_grad:  # what it is a view of has no history
                result._base, result._graphc_chain = None, ()
            if output.untracked:
                result._graphc_storage = memory._graphc_storage.sibling()
        result._graphc_no_grad_view = output.unrecorded
        return result

    def _row(self, output: Output, row: tuple[Output, int, tuple[int, ...]]) -> Tensor:
        """A view of x[i], from what x is and the places that the call has computed."""
        of, dim, places = row
        index: list[Any] = [slice(None)] * dim
        index += [from_array(self.call.results[place]) for place in places]
        result = self._views(self.tensor(of)[tuple(index)], output.chain)
        return result.detach() if output.detached else result

    def _views(self, base: Tensor, chain: Chain) -> Tensor:
        result = base
        for op, attrs in chain:
            concrete = {key: _concrete(value, self.call.dims) for key, value in attrs.items()}
            result = apply(op, result, **concrete)
        return result


def edges_of(tensors: Sequence[Tensor]) -> tuple[Edge | None, ...]:
    """Where gradients of leaves go."""
    return tuple([edge(t) if requires_grad(t) else None for t in tensors])


def _concrete(value: Any, dims: dict[str, int]) -> Any:
    if isinstance(value, Dim):
        return evaluate(value, dims)
    if isinstance(value, tuple):
        return tuple(_concrete(v, dims) for v in value)
    return value
