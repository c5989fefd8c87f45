"""copy.deepcopy() of tensors: a leaf with its own memory, gradient and attributes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ..context import local
from ..errors import located
from ..storage import Storage, offset_of, strides_of
from ..tensor import INTERNAL, Tensor, alias, current, held, rebuild
from .copies import clone


def deepcopied(tensor: Tensor, memo: dict[Any, Any]) -> Any:
    """What `Tensor.__deepcopy__` gives. Raises RuntimeError for a tensor with history."""
    found = memo.get(id(tensor))
    if found is not None:
        return found
    if current(tensor)._node is not None:
        raise RuntimeError(located(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Cure: detach() it first"
        ))
    if local.trace is not None:
        found = _traced(tensor, memo)
        if found is not None:
            return found
    array = held(tensor, "copy.deepcopy()", "clone() it instead")
    traced = memo.get(tensor._storage.root)  # the copy of what shares its memory; of a segment
    storage = traced._storage if traced is not None else (
        memo.get(id(tensor._storage)) or deepcopy(tensor._storage, memo)
    )
    parts = (offset_of(array, tensor._storage), array.shape, strides_of(array))
    result = rebuild(type(tensor), storage, *parts, tensor._requires_grad, array.dtype)
    memo[id(tensor)] = result
    result._grad = deepcopy(tensor._grad, memo)
    for name, value in tensor.__dict__.items():
        if name not in INTERNAL:
            result.__dict__[name] = deepcopy(value, memo)
    return result


def _traced(tensor: Tensor, memo: dict[Any, Any]) -> Any:
    """The copy as part of a graph; None where it may share memory with another one.

    copy.deepcopy() itself notes the copy in the memo; its memory is noted here.
    """
    if tensor._trace is not None or not tensor.__dict__.keys() <= INTERNAL:
        return None
    storage: Storage = tensor._storage.root
    array = tensor._array
    if not memo.keys().isdisjoint((storage, id(storage), id(tensor._storage))) or (
        not array.flags.c_contiguous or array.size != storage.array.size
    ):
        return None
    result = alias(clone(tensor.detach()), type(tensor))
    memo[storage] = result
    if tensor.requires_grad:
        result.requires_grad_()
    gradient = tensor.grad
    if gradient is not None:
        result.grad = deepcopy(gradient, memo)
    return result
