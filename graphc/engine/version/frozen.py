"""What a version computes of constants, once: the prologue of an inference program.

Captured tensors that nobody differentiates (weights and statistics of a model that answers) hardly
ever change. What hangs on them alone is computed before the first call, and again when their
memory was written to: each Storage counts writes, `.data`'s siblings their own. A tensor whose
memory others can write to without that count (NumPy's arrays, other processes) is no constant; nor
is one that is written to between most calls.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import backends
from ...config import Config
from ...frontend.captured import TensorInput, TracedGraph
from ...frontend.storage import Shared, Storage, contiguous_strides, siblings
from ...frontend.tensor import Tensor, from_array
from ...ir import forks
from ...ir.graph import Graph
from ...ir.named import NamedTuple
from ...ir.record import replaced
from .. import pipeline
from ..built import Built, Engine
from ..orders import Orders, ordered

LEAST = 1 << 18  # elements of weights, of a program that does not convolve
RESTLESS = 8  # runs of a prologue, from which on they are to be few beside the calls
_CALLS = 4  # for each run, at least

# tensors that turned out to be written to between most calls, by their id
_restless: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()


class _Seen(NamedTuple):
    """What memory was like when it was read last."""

    shared: tuple[int, int]  # changes to who may write to what, as counted in the whole process
    storages: list[Storage]  # of the tensors
    counted: list[Storage]  # whose writes are writes to them: roots, and siblings that live
    versions: list[int]
    siblings: list[int]  # how many there have been, of each root


class Constants:
    """The tensors that a prologue reads, and those that it makes, which are inputs of the version's
    graph like other captured ones."""

    def __init__(self, sources: Sequence[TensorInput], prologue: Built, orders: Orders) -> None:
        """`orders`: of the sources."""
        self.sources: list[Any] = [source.tensor for source in sources]
        self.types = [(source.type.static_shape, source.type.dtype.numpy) for source in sources]
        self.prologue, self._engine = prologue, Engine.of(prologue, orders=orders)
        self.runs, self.calls = 0, 0
        self._lock = forks.lock()
        self._seen: _Seen | None = None  # None: to be looked at by the next call
        outputs = self._engine.output_types
        self.made = [from_array(np.zeros(t.static_shape, t.dtype.numpy)) for t in outputs]
        self.renew()

    def renew(self) -> bool:
        """Compute all of it again if what it hangs on has changed; every call asks. False: it is no
        constant any more, as others can write to it uncounted now, or every call does."""
        seen = self._seen
        self.calls += 1
        if (
            seen is not None and (Shared.changes, Shared.rewound) == seen.shared
            and [tensor._graphc_storage for tensor in self.sources] == seen.storages
            and [storage.version for storage in seen.counted] == seen.versions
        ):
            return True
        with self._lock:
            return self._renew()

    def _renew(self) -> bool:
        now, before = self._look(), self._seen  # before memory is read: a write in between counts
        if any(is_shared(tensor) for tensor in self.sources):
            self._seen = None
            return False
        if before is not None and now == before._replace(shared=now.shared) and (
            now.shared[1] == before.shared[1]
        ):
            self._seen = now  # what was shared is something else
            return True
        if self.runs >= RESTLESS and self.calls < _CALLS * self.runs:
            _restless.update({id(tensor): tensor for tensor in self.sources})
            return False
        arrays = [tensor._graphc_array for tensor in self.sources]
        if any(
            (array.shape, array.dtype) != type_
            for array, type_ in zip(arrays, self.types, strict=True)
        ):
            self._seen = None  # the version's guards refuse the call
            return True
        _, results = self._engine.call(arrays, {})
        self.runs += 1
        # in new memory: a call on another thread may be reading the old
        for tensor, array in zip(self.made, results, strict=True):
            tensor._graphc_array = array
            tensor._graphc_storage = Storage(array)
        self._seen = now  # last of all: other threads go by it
        return True

    def _look(self) -> _Seen:
        shared = Shared.changes, Shared.rewound
        storages = [tensor._graphc_storage for tensor in self.sources]
        roots = list(dict.fromkeys([storage.root for storage in storages]))
        others = [siblings(root) for root in roots]
        living = [each for _, some in others for each in some]
        counted = list(dict.fromkeys([*roots, *living]))
        versions = [storage.version for storage in counted]
        return _Seen(shared, storages, counted, versions, [made for made, _ in others])


def is_shared(tensor: Tensor) -> bool:
    """Whether somebody may write to a tensor's memory without a count."""
    root = tensor._graphc_storage.root
    return root.exposed or root.segment is not None


def frozen(
    traced: TracedGraph, orders: Orders, name: str, config: Config, backend: str,
    places: Sequence[int],
) -> tuple[TracedGraph, Constants] | None:
    """A recording whose graph reads constants that are computed apart; None where that gains
    nothing. `orders`: of its inputs, in which that graph reads them; `places`: inputs that the
    function itself renews."""
    differentiated = traced.backward is not None and traced.backward.outputs
    if differentiated or config.check:
        return None
    written = _written(traced)
    numbers = [
        source.number for source in traced.inputs
        if type(source) is TensorInput and source.kind == "tensor" and source.tensor is not None
        and source.number not in places and not is_shared(source.tensor)
        and id(source.tensor) not in _restless
        and source.tensor._graphc_storage.root not in written
    ]
    if not _is_wanted(traced.graph, numbers):
        return None
    from ...ir.passes.freeze import freeze

    machine = pipeline.machine(config, backends.get(backend))
    graph = ordered(traced.graph, orders, traced.mutated)
    found = freeze(graph, numbers, machine, config.winograd)
    if found is None:
        return None
    prologue = pipeline.build(
        found.prologue, config=config, name=f"{name}_constants", backend=backend
    )
    sources: list[Any] = [traced.inputs[i] for i in found.reads]
    read = {at: orders[i] for at, i in enumerate(found.reads) if i in orders}
    constants = Constants(sources, prologue, read)
    first = len(traced.inputs)
    inputs = [
        TensorInput(
            "tensor", tensor, found.main.inputs[i],
            contiguous_strides(found.main.inputs[i].shape), -1, i,
        )
        for i, tensor in enumerate(constants.made, first)
    ]
    return replaced(traced, graph=found.main, inputs=(*traced.inputs, *inputs)), constants


def _is_wanted(graph: Graph, numbers: Sequence[int]) -> bool:
    """Whether there may be something to gain: sums of products, whose weights can be laid out. Of
    few, that is less than it takes to find out in a process that needs no compiler."""
    if any(node.op.name == "conv" for node in graph.nodes):
        return bool(numbers)
    weights = 0
    for number in numbers:
        sizes = [size for size in graph.inputs[number].tensor_type.shape if isinstance(size, int)]
        if len(sizes) == len(graph.inputs[number].tensor_type.shape):
            weights += math.prod(sizes)
    return weights >= LEAST and any(node.op.name == "dot_general" for node in graph.nodes)


def _written(traced: TracedGraph) -> set[Storage]:
    """The memory that a call writes to, or puts elsewhere."""
    tensors: list[Any] = [traced.inputs[each.input].tensor for each in traced.mutations]  # type: ignore[union-attr]
    tensors += [each.tensor for each in traced.rebinds]
    tensors += [each.tensor for each in traced.flags]
    return {tensor._graphc_storage.root for tensor in tensors if tensor is not None}
