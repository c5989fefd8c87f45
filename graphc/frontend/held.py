"""Where a value that the tape reads lies: in memory that the user can write to, or nowhere else.

Eager mode saves tensors, not values: what `.data` writes to their memory, or to what they are views
of, a gradient rule reads. A recording knows of each value that it saves in which memory it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.graph import Node, attr_key
from graphc.ir.interpret import resolve_attrs
from graphc.ir.memory import copied
from graphc.ir.named import NamedTuple

from . import views
from .functionalize import TracedStorage
from .views import Chain

if TYPE_CHECKING:
    from .tensor import Tensor

# ("input", i) or ("output", i): memory of a graph's input or output
Place = tuple[str, int]


class Held:
    """Memory that outlives the call: the views of it that lead to a value, which `key` tells from
    other ones of the place."""

    __slots__ = ("chain", "key", "place")

    def __init__(self, place: Place, chain: Chain, key: Any) -> None:
        self.place, self.chain, self.key = place, chain, key

    def __eq__(self, other: object) -> bool:
        if type(other) is not Held:
            return NotImplemented
        return (self.place, self.key) == (other.place, other.key)

    def __hash__(self) -> int:
        return hash((self.place, self.key))

    def of(self, memory: np.ndarray, dims: Any) -> np.ndarray:
        """The value, on an array of the memory."""
        for op, attrs in self.chain:
            known = resolve_attrs(attrs, dims)
            view = views.ARRAYS[op.name](memory, known)
            memory = copied(memory).reshape(known["shape"]) if view is None else view
        return memory


class Read(NamedTuple):
    """A value that a gradient rule reads; `held`: None where nobody else has its memory."""

    node: Node
    held: Held | None = None


# of the root of a storage, and the views that lead from there to a value: where that is kept
Holds = Callable[[TracedStorage, Chain], "tuple[Place, Chain] | None"]


def read_of(node: Node, storage: TracedStorage, path: Chain, holds: Holds) -> Read:
    """A value at `path` of a storage."""
    found = holds(*storage.resolve(path))
    return Read(node) if found is None else Read(node, Held(*found, chain_key(found[1])))


def read_of_tensor(tensor: Tensor, node: Node, holds: Holds) -> Read:
    """The value of a traced tensor."""
    storage: Any = tensor._graphc_storage
    return read_of(node, storage, tensor._graphc_traced.path, holds)


def chain_key(chain: Chain) -> Any:
    """Equal for views that are the same."""
    return tuple([(op.name, *map(attr_key, attrs.values())) for op, attrs in chain])


def behind_prefix(path: Chain, prefix: Chain) -> Chain | None:
    """The views that lead from `prefix` to `path`; None where it does not begin so."""
    if chain_key(path[: len(prefix)]) != chain_key(prefix):
        return None
    return path[len(prefix) :]
