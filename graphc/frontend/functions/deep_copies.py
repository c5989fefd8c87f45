"""copy.deepcopy() of tensors: a leaf with its own memory, gradient and attributes; and pickling."""

from __future__ import annotations

import copyreg
from copy import deepcopy
from typing import Any

from ..context import local
from ..errors import located
from ..history import requires_grad
from ..storage import Storage, offset_of, strides_of
from ..tensor import INTERNAL, Parameter, Tensor, alias, current, fields, held, rebuild
from .copies import clone


def deepcopied(tensor: Tensor, memo: dict[Any, Any]) -> Any:
    """What `Tensor.__deepcopy__` gives. Raises RuntimeError for a tensor with history."""
    found = memo.get(id(tensor))
    if found is not None:
        return found
    if current(tensor)._graphc_node is not None:
        raise RuntimeError(located(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Cure: detach() it first"
        ))
    if local.trace is not None:
        found = _traced(tensor, memo)
        if found is not None:
            return found
    array = held(tensor, "copy.deepcopy()", "clone() it instead")
    traced = memo.get(
        tensor._graphc_storage.root
    )  # the copy of what shares its memory; of a segment
    storage = traced._graphc_storage if traced is not None else (
        memo.get(id(tensor._graphc_storage)) or deepcopy(tensor._graphc_storage, memo)
    )
    parts = (offset_of(array, tensor._graphc_storage), array.shape, strides_of(array))
    result = rebuild(type(tensor), storage, *parts, tensor._graphc_requires_grad, array.dtype)
    memo[id(tensor)] = result
    result._grad = deepcopy(tensor._grad, memo)
    for name, value in fields(tensor).items():
        if name not in INTERNAL:
            fields(result)[name] = deepcopy(value, memo)
    for name, value in _slots_of(tensor).items():
        setattr(result, name, deepcopy(value, memo))
    return result


def parameter_deepcopied(parameter: Any, memo: dict[Any, Any]) -> Any:
    """What `Parameter.__deepcopy__` gives: its values alone. torch copies neither its gradient nor
    what a user has set on it."""
    if id(parameter) not in memo:
        copied = parameter.data.clone()
        memo[id(parameter)] = type(parameter)(copied, parameter.requires_grad)
    return memo[id(parameter)]


setattr(Parameter, "__deepcopy__", parameter_deepcopied)  # noqa: B010  # as in printing.py


def reduced(tensor: Tensor, protocol: Any) -> Any:
    """What `Tensor.__reduce_ex__` gives."""
    array = held(tensor, "pickling", "pickle it outside the compiled function")
    parts = (offset_of(array, tensor._graphc_storage), array.shape, strides_of(array))
    own, slots = own_state(tensor)
    place = (type(tensor), tensor._graphc_storage, *parts, requires_grad(tensor), array.dtype)
    return (rebuild, place, (own, slots) if slots else own or None)


def own_state(tensor: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a user has set on a tensor, and in the slots of its class."""
    own = {name: value for name, value in fields(tensor).items() if name not in INTERNAL}
    return own, _slots_of(tensor)


def _slots_of(tensor: Tensor) -> dict[str, Any]:
    """What a tensor of a user's class has in `__slots__`."""
    if type(tensor) is Tensor or type(tensor) is Parameter:
        return {}
    names: list[str] = copyreg._slotnames(type(tensor))  # type: ignore[attr-defined]
    return {name: getattr(tensor, name) for name in names if hasattr(tensor, name)}


METHODS = {"__deepcopy__": deepcopied, "__reduce_ex__": reduced}


def _traced(tensor: Tensor, memo: dict[Any, Any]) -> Any:
    """The copy as part of a graph; None where it may share memory with another one.

    copy.deepcopy() itself notes the copy in the memo; its memory is noted here.
    """
    if tensor._graphc_trace is not None or not fields(tensor).keys() <= INTERNAL:
        return None
    storage: Storage = tensor._graphc_storage.root
    array = tensor._graphc_array
    if not memo.keys().isdisjoint((storage, id(storage), id(tensor._graphc_storage))) or (
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
