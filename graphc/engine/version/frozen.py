"""What a version computes of constants, once: the prologue of an inference program.

Captured tensors that nobody differentiates (weights and statistics of a model that answers) hardly
ever change. What hangs on them alone is computed before the first call, and again when their
memory was written to: each Storage counts writes, `.data`'s siblings their own. A tensor whose
memory others can write to without that count (NumPy's arrays, other processes) is no constant.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import backends
from ...config import Config
from ...frontend.captured import TensorInput, TracedGraph
from ...frontend.storage import Shared, Storage, contiguous_strides, siblings
from ...frontend.tensor import Tensor, from_array
from ...ir.graph import Graph
from ...ir.record import replaced
from .. import pipeline
from ..built import Built, Engine


class Constants:
    """The tensors that a prologue reads, and those that it makes, which are inputs of the version's
    graph like other captured ones."""

    def __init__(self, sources: Sequence[TensorInput], prologue: Built) -> None:
        self.sources: list[Any] = [source.tensor for source in sources]
        self.types = [(source.type.static_shape, source.type.dtype.numpy) for source in sources]
        self.prologue, self._engine = prologue, Engine.of(prologue)
        self.made: list[Tensor] = []
        self.runs = 0
        self._lock = threading.Lock()
        self._storages: list[Storage] = []
        self._counted: list[Storage] = []  # whose writes count
        self._versions: list[int] = []
        self._shared: tuple[int, int] = (-1, -1)
        self._made_before: list[int] = []
        self._fits = False
        outputs = self._engine.output_types
        self.made = [from_array(np.zeros(t.static_shape, t.dtype.numpy)) for t in outputs]
        self.renew()

    def renew(self) -> None:
        """Compute all of it again if what it hangs on has changed. Every call asks."""
        if (
            self._fits and (Shared.changes, Shared.rewound) == self._shared
            and [tensor._storage for tensor in self.sources] == self._storages
            and [storage.version for storage in self._counted] == self._versions
        ):
            return
        with self._lock:
            self._renew()

    def _renew(self) -> None:
        before = self._storages, self._counted, self._versions, self._made_before
        rewound, fitted = self._shared[1], self._fits
        # all that is compared is noted before memory is read: a write in between counts
        self._shared = Shared.changes, Shared.rewound
        self._storages = [tensor._storage for tensor in self.sources]
        roots = list(dict.fromkeys([storage.root for storage in self._storages]))
        others = [siblings(root) for root in roots]
        self._made_before = [made for made, _ in others]
        living = [each for _, some in others for each in some]
        self._counted = list(dict.fromkeys([*roots, *living]))
        self._versions = [storage.version for storage in self._counted]
        self._fits = not any(is_shared(tensor) for tensor in self.sources)
        now = self._storages, self._counted, self._versions, self._made_before
        if fitted and self._fits and before == now and rewound == self._shared[1]:
            return
        arrays = [tensor._array for tensor in self.sources]
        if any(
            (array.shape, array.dtype) != type_
            for array, type_ in zip(arrays, self.types, strict=True)
        ):
            self._fits = False  # the version's guards refuse the call
            return
        _, results = self._engine.call(arrays, {})
        self.runs += 1
        # in new memory: a call on another thread may be reading the old
        for tensor, array in zip(self.made, results, strict=True):
            tensor._array = array
            tensor._storage = Storage(array)


def is_shared(tensor: Tensor) -> bool:
    """Whether somebody may write to a tensor's memory without a count."""
    root = tensor._storage.root
    return root.exposed or root.segment is not None


def frozen(
    traced: TracedGraph, name: str, config: Config, backend: str, places: Sequence[int]
) -> tuple[TracedGraph, Constants] | None:
    """A recording whose graph reads constants that are computed apart; None where that gains
    nothing. `places`: inputs that the function itself renews."""
    differentiated = traced.backward is not None and traced.backward.outputs
    if differentiated or config.check or not _is_wanted(traced.graph):
        return None
    from ...ir.passes.freeze import freeze

    written = _written(traced)
    numbers = [
        source.number for source in traced.inputs
        if type(source) is TensorInput and source.kind == "tensor" and source.tensor is not None
        and source.number not in places and not is_shared(source.tensor)
        and source.tensor._storage.root not in written
    ]
    found = freeze(traced.graph, numbers, backends.get(backend).machine)
    if found is None:
        return None
    prologue = pipeline.build(
        found.prologue, config=config, name=f"{name}_constants", backend=backend
    )
    sources: list[Any] = [traced.inputs[i] for i in found.reads]
    constants = Constants(sources, prologue)
    first = len(traced.inputs)
    inputs = [
        TensorInput(
            "tensor", tensor, found.main.inputs[i],
            contiguous_strides(found.main.inputs[i].shape), -1, i,
        )
        for i, tensor in enumerate(constants.made, first)
    ]
    return replaced(traced, graph=found.main, inputs=(*traced.inputs, *inputs)), constants


def _is_wanted(graph: Graph) -> bool:
    """Whether there may be something to gain: convolutions, whose weights can be laid out."""
    return any(node.op.name == "conv" for node in graph.nodes)


def _written(traced: TracedGraph) -> set[Storage]:
    """The memory that a call writes to, or puts elsewhere."""
    tensors: list[Any] = [traced.inputs[each.input].tensor for each in traced.mutations]  # type: ignore[union-attr]
    tensors += [each.tensor for each in traced.rebinds]
    tensors += [each.tensor for each in traced.flags]
    return {tensor._storage.root for tensor in tensors if tensor is not None}
