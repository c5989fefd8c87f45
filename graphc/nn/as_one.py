"""Functions of tensors that eager mode runs as one compiled graph, where they have much to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import config
from ..engine.marks import DEFAULT, Compilers
from ..frontend.context import local
from ..frontend.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
)
from ..frontend.near import are_near
from ..frontend.tensor import Parameter, Tensor, from_array
from ..frontend.values import Eager

Dims = dict[int, dict[int, str]]  # names of a tensor's open dims, by its number
_TENSORS = frozenset({Tensor, Parameter})


def may_be_one(*tensors: Tensor) -> bool:
    """Whether nobody records, counts or watches operators, and all of these are eager mode's own,
    on the CPU."""
    if local.trace is not None or local.counted is not None or local.autocast is not None or (
        Eager.prepare is None or Eager.whole is None or local.instead or local.saved_hooks
        or config.current().eager_kernels == "0" or Compilers.stance is not DEFAULT
    ):
        return False
    return all(
        type(x) in _TENSORS and x._graphc_trace is None and are_near(x, tensors[0])
        for x in tensors
    )


class AsOne:
    """A function of tensors as one graph for all sizes that `dims` names. Each kind of call is
    recorded with tensors that are nobody's: the graph keeps what it was recorded with, and its
    code is not to hang on the sizes that came first."""

    def __init__(self, function: Callable[..., Any], dims: Dims, likely: int = 32) -> None:
        """`likely`: what an open size is when a graph is recorded."""
        assert Eager.whole is not None
        self.compiled, self._dims = Eager.whole(function, dims), dims
        self._met: set[Any] = set()
        self._likely = likely

    def __call__(self, *tensors: Tensor) -> Any:
        kind = is_grad_enabled(), is_inference_mode_enabled(), tuple(map(_kind, tensors))
        if kind not in self._met:
            self.compiled(*[
                _stranger(x, self._dims.get(i, {}), self._likely) for i, x in enumerate(tensors)
            ])
            self._met.add(kind)
        return self.compiled(*tensors)


def _kind(x: Tensor) -> tuple[Any, ...]:
    """What a call's graph hangs on, but for sizes."""
    array = x._graphc_array
    if is_plain(x) and array.flags.c_contiguous:
        return type(x), False, True, x._graphc_storage.inference, tuple(range(array.ndim))
    return type(x), x.requires_grad, x.is_leaf, x.is_inference(), _order(array)


def is_plain(x: Tensor) -> bool:
    """Whether a tensor is a leaf that learns nothing."""
    return x._graphc_node is None and x._base is None and not x._graphc_requires_grad


def _order(array: np.ndarray) -> tuple[int, ...]:
    """The axes as they lie in memory."""
    strides = array.strides
    return tuple(sorted(range(array.ndim), key=lambda axis: -strides[axis]))


def _stranger(like: Tensor, open_axes: Mapping[int, str], likely: int) -> Tensor:
    """Zeros of a tensor's kind, of a likely size where that is open."""
    array = like._graphc_array
    sizes = [likely if i in open_axes else size for i, size in enumerate(array.shape)]
    order = _order(array)
    memory = np.zeros([sizes[axis] for axis in order], array.dtype)
    with inference_mode(like.is_inference()), enable_grad():
        made = from_array(memory.transpose(np.argsort(order)), like.requires_grad)
        if type(like) is Parameter:
            return Parameter(made, like.requires_grad)
        return made if like.is_leaf else made.view_as(made)
