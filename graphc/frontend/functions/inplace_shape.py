"""Methods that give the tensor itself another shape or memory: t_, squeeze_, resize_, set_, ...

Others may be views of the tensor as it was, and follow its history by how they are made from it.
So the tensor becomes a view of what it was, a hidden tensor on the same memory (`views.base_of`).
A compiled graph cannot give a tensor that was there before another shape: a trace ends its segment
and has it done eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.memory import Buffer, write, zeros_beside

from ..context import local
from ..dispatch import check_history
from ..errors import INFERENCE_WRITE, located
from ..functionalize import TracedStorage
from ..history import edge, requires_grad
from ..nodes import BrokenNode
from ..placement import device_of
from ..storage import Storage, contiguous_strides, offset_of
from ..tensor import Tensor, current, fields, held
from ..views import check_bounds, strided
from .arguments import named, shape, shape_of
from .storages import UntypedStorage

# grad_fn's name has a number for each form of an operator, those that write behind the others
_NAMES = {
    "t": "TBackward1", "transpose": "TransposeBackward1", "swapaxes": "TransposeBackward1",
    "swapdims": "TransposeBackward1", "unsqueeze": "UnsqueezeBackward1",
    "as_strided": "AsStridedBackward1",
}
_INHERITED = (
    "_graphc_array",
    "_graphc_storage",
    "_graphc_trace",
    "_graphc_traced",
    "_graphc_node",
    "_graphc_output",
    "_graphc_no_grad_view",
)


def _reshaping(name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        state = current(self)
        trace = local.trace
        if trace is not None and (state._graphc_concrete is not None or name == "as_strided"):
            trace.end_segment(
                f"{name}_() of a tensor", f"x = x.{name}(...), which leaves the tensor as it is"
            )
            with trace.suspended():
                return method(self, *args, **kwargs)
        if state._graphc_storage.inference and not local.inference:
            raise RuntimeError(located(INFERENCE_WRITE))
        if local.grad and requires_grad(state):
            check_history(state)
        saved = local.grad
        local.grad = saved or state._graphc_node is not None
        try:
            source = state if state._base is not None else _as_it_was(state)
            seen = getattr(source, name)(*args, **kwargs)
            _take_place(state, named(seen, _NAMES.get(name) or _squeezed(*args, **kwargs)))
        finally:
            local.grad = saved
        return self

    method.__name__ = f"{name}_"
    method.__doc__ = f"{name}() of the tensor itself, on the same memory."
    return method


def _squeezed(dim: Any = None, *dims: Any) -> str:
    form = 3 if dim is None else 5 if dims or isinstance(dim, (tuple, list)) else 4
    return f"SqueezeBackward{form}"


def _as_it_was(state: Tensor) -> Tensor:
    """A hidden tensor with the place and the history of one that changes its own shape."""
    former: Tensor = object.__new__(Tensor)
    former.__dict__.update({k: v for k, v in fields(state).items() if k in _INHERITED})
    if state._graphc_trace is not None:
        former._graphc_traced = state._graphc_traced.copy()
        state._graphc_trace.adopt(former)
    state._graphc_reshaped = True
    return former


def _take_place(state: Tensor, seen: Tensor) -> None:
    """Let a tensor be the view `seen` from now on."""
    if state._graphc_trace is not None:
        state._graphc_traced = seen._graphc_traced
        state._graphc_trace.written = True
    else:
        state._graphc_array = seen._graphc_array
    state._graphc_storage = seen._graphc_storage
    _bump(state._graphc_storage.root)
    state._graphc_node, state._graphc_output = seen._graphc_node, seen._graphc_output
    state._base, state._graphc_chain = seen._base, seen._graphc_chain
    state._graphc_no_grad_view, state._graphc_accumulator = seen._graphc_no_grad_view, None
    state._graphc_seen = state._graphc_storage.version


def _bump(storage: Any) -> None:
    """Count a change that autograd must see."""
    if isinstance(storage, TracedStorage):
        storage.rebind(storage.node, tracked=True)
    else:
        storage.version += 1


def methods() -> dict[str, Callable[..., Any]]:
    """name_ -> method."""
    names = "squeeze unsqueeze transpose t swapaxes swapdims as_strided".split()
    return {f"{name}_": _reshaping(name) for name in names}


def detach_(self: Tensor) -> Tensor:
    """Forget the history, in place. Raises RuntimeError for views."""
    state = current(self)
    if state._base is not None and not state._graphc_reshaped:
        raise RuntimeError(located("Can't detach views in-place. Use detach() instead."))
    trace = local.trace
    if trace is not None and state._graphc_concrete is not None and state._graphc_node is not None:
        trace.end_segment("detach_() of a tensor that was there before", "x = x.detach()")
        with trace.suspended():
            return detach_(self)
    for tensor in (state, state if state._base is None else state._base):
        tensor._graphc_node, tensor._graphc_output, tensor._graphc_requires_grad = None, 0, False
    return self


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Another shape, row-major on the same memory; more memory, of zeros, where it is too small.

    Raises RuntimeError for a tensor that requires a gradient.
    """
    array = held(self, "resize_()", "make a new tensor")
    if requires_grad(self):
        raise RuntimeError(located("cannot resize variables that require grad"))
    want = shape_of(sizes, "resize_")
    if want == array.shape:
        return self
    count = int(np.prod(want, dtype=np.int64))
    flat = self._graphc_storage.flat(array.dtype)[offset_of(array, self._graphc_storage) :]
    if count > flat.size:
        grown = zeros_beside(flat, (count,))
        write(grown[: flat.size], flat)
        flat = grown
        self._graphc_storage = Storage(grown)
        self._base, self._graphc_chain = None, ()
    self._graphc_array = flat[:count].reshape(want)
    _bump(self._graphc_storage)
    return self


def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """resize_() to the shape of another tensor."""
    return resize_(self, *shape(the_template))


def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Stand for the memory of a tensor or storage, or a part of it, from now on.

    Raises RuntimeError for a leaf that requires a gradient, another dtype, or a part outside.
    """
    trace = local.trace
    if trace is not None:
        trace.end_segment("set_()", "x.copy_(source), which keeps x's own memory")
        with trace.suspended():
            return set_(self, source, storage_offset, size, stride)
    if local.grad and requires_grad(self):
        check_history(self)
    kind = self._graphc_array.dtype
    if source is not None and not hasattr(source, "_graphc_storage"):
        raise TypeError(located(
            f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}"
        ))
    if isinstance(source, Tensor) and source._graphc_array.dtype != kind:
        raise RuntimeError(located(
            f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}"
        ))
    if source is not None and device_of(self._graphc_array) != (there := device_of(
        source._graphc_storage.array
    )):
        raise RuntimeError(located(
            f'Attempted to set the storage of a tensor on device "{self.device}" to a storage on '
            f'different device "{there}".  This is no longer allowed; the devices must match.'
        ))
    version = self._graphc_storage.version + 1
    self._graphc_array, storage = _placed(self._graphc_array, source, storage_offset, size, stride)
    self._graphc_storage = storage.sibling()
    self._graphc_storage.version = version
    self._base, self._graphc_chain, self._graphc_node = None, (), None
    if local.grad and isinstance(source, Tensor) and requires_grad(source):
        message = "the derivative for 'set_' is not implemented."
        self._graphc_node, self._graphc_output = (
            BrokenNode(message, (edge(source),), (self._graphc_type,)),
            0,
        )
    return self


def _placed(
    before: Buffer, source: Any, offset: int, size: Any, stride: Any
) -> tuple[np.ndarray, Storage]:
    """The array and the storage that set_() is given."""
    if source is None:
        empty = zeros_beside(before, (0,))
        return empty, Storage(empty)
    if isinstance(source, Tensor) and size is None:
        return source._graphc_array, source._graphc_storage
    if not isinstance(source, (Tensor, UntypedStorage)):
        raise TypeError(located(f"set_(): source must be a tensor or a storage, not {source!r}"))
    storage: Storage = source._graphc_storage
    flat = storage.root.flat(before.dtype)
    sizes = (flat.size - offset,) if size is None else shape_of((size,))
    steps: Any = contiguous_strides(sizes) if stride is None else shape_of((stride,))
    check_bounds(sizes, steps, offset, flat.size)
    return strided(flat[offset:], sizes, steps), storage
