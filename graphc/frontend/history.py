"""What made a tensor: whether operations on it are recorded, and where its gradient goes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from graphc.ir.types import TensorType

from .errors import STALE_VIEW, located
from .nodes import AccumulateGrad, DroppedGrad, Edge, Node
from .views import base_of
from .write_nodes import AsStridedBackward

if TYPE_CHECKING:
    from .tensor import Tensor


def requires_grad(tensor: Tensor) -> bool:
    """Whether operations on it are recorded. For a view whose base was written to, looks again."""
    base = tensor._base
    if base is None:
        return tensor._graphc_node is not None or tensor._graphc_requires_grad
    if base._base is not None:
        base = base_of(tensor)
    if tensor._graphc_seen != tensor._graphc_storage.version and not tensor._graphc_no_grad_view:
        _follow_base(tensor, base)
    return (
        tensor._graphc_node is not None or tensor._graphc_requires_grad
        or base._graphc_node is not None or base._graphc_requires_grad
    )


def gradient_kind(tensor: Tensor) -> bool | None:
    """Whether it requires a gradient; None: one that nobody gets (a view made in no_grad mode)."""
    if not requires_grad(tensor):
        return False
    return True if tensor._graphc_node is not None or tensor._graphc_requires_grad else None


def history(tensor: Tensor) -> Node | None:
    """What made a tensor; None for a leaf. Raises RuntimeError for a view made in no_grad mode
    whose memory was written to since: its history would be the base's."""
    if requires_grad(tensor) and is_outdated(tensor):
        raise RuntimeError(located(STALE_VIEW))
    return tensor._graphc_node


def is_outdated(tensor: Tensor) -> bool:
    """Whether a view made in no_grad mode lies in memory that was written to since."""
    return tensor._graphc_no_grad_view and tensor._base is not None and (
        tensor._graphc_seen != tensor._graphc_storage.version
    )


def _follow_base(view: Tensor, base: Tensor) -> None:
    """After a write to shared memory, a view's history is its base's, then the view."""
    view._graphc_seen = view._graphc_storage.version
    view._graphc_node, view._graphc_output = None, 0
    if requires_grad(base):
        view._graphc_node = AsStridedBackward(
            view._graphc_chain, edge(base), base._graphc_type, view._graphc_type
        )


def edge(tensor: Tensor, type_: TensorType | None = None) -> Edge:
    """Where the gradient of a tensor that requires one goes. `type_`: its type, if at hand.

    The caller has called requires_grad() since the last write to the tensor's memory.
    """
    node = tensor._graphc_node
    if node is not None:
        return node, tensor._graphc_output
    if tensor._base is not None:
        history(tensor)
        if not tensor._graphc_requires_grad:
            return DroppedGrad((), (tensor._graphc_type if type_ is None else type_,)), 0
    reference = tensor._graphc_accumulator
    accumulator = None if reference is None else reference()
    if accumulator is None:
        accumulator = AccumulateGrad(tensor, tensor._graphc_type if type_ is None else type_)
        tensor._graphc_accumulator = weakref.ref(accumulator)
    return accumulator, 0
