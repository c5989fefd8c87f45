"""Hooks on what the tape saves: pack when an operation is recorded, unpack when backward reads it.

Eager nodes keep arrays, traced ones graph nodes; hooks see Tensors. `Unpacking.gradient` is the
gradient for which a value is being unpacked, which a recomputation under a trace must wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from .context import callout, local
from .functionalize import saved_place

if TYPE_CHECKING:
    from graphc.ir.dim import DimEnv

    from .nodes import OpNode
    from .tensor import Tensor
    from .trace import Trace

Pack = Callable[[Any], Any]


class _Hooks(threading.local):
    """Beside those in force (context.py). `disabled`: the message why there are none."""

    disabled: str | None = None
    busy = False  # inside a hook: what it saves itself is not packed

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Inside, nothing is packed."""
        before, local.saved_hooks = local.saved_hooks, ()
        try:
            yield
        finally:
            local.saved_hooks = before


hooks = _Hooks()


class Unpacking(threading.local):
    """The gradient that the value being unpacked is for, as a Tensor; whether the running backward
    pass gives gradients to chosen tensors only; and whether what ran in forward runs again for it,
    which torch lets read nothing that has changed since."""

    gradient: Any = None
    limited: bool = False
    again: bool = False


unpacking = Unpacking()


class Packed:
    """What a pack hook returned, in the place of a saved value."""

    __slots__ = ("held", "original", "unpack")

    def __init__(self, held: Any, unpack: Pack) -> None:
        self.held = held
        self.unpack = unpack
        # under a trace, the value that was packed, where `unpack` gives it back as it was
        self.original: Any = None


def is_own(hook: Any) -> bool:
    """Whether a hook is graphc's own: these give back what was packed, equal in value."""
    module: str = getattr(hook, "__module__", None) or ""
    return module.startswith(_PACKAGE)


_PACKAGE = __name__.split(".")[0] + "."


def pack(tensor: Tensor) -> Packed:
    """Hand a tensor to the innermost pack hook."""
    function, unpack = local.saved_hooks[-1]
    saved_grad, local.grad = local.grad, False
    hooks.busy = True
    try:
        return Packed(callout(function)(tensor), unpack)
    finally:
        hooks.busy = False
        local.grad = saved_grad


def unpack(packed: Packed) -> Tensor:
    """The tensor again. Raises TypeError where the hook gives anything else."""
    from_hook: Any = callout(packed.unpack)(packed.held)
    if not hasattr(from_hook, "_graphc_storage"):
        raise TypeError(
            "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
            f"{type(from_hook).__name__}"
        )
    tensor: Tensor = from_hook
    return tensor


def pack_node(node: OpNode, wrap: Callable[[Any], Tensor], env: DimEnv | None = None) -> None:
    """Replace what a node has saved by what the pack hook makes of it; `wrap` makes Tensors.
    `env` is that of a trace, whose nodes save more than their rules read."""
    if env is not None:
        node.forget_unread(env)
    assert node.saved_in is not None and node.saved_out is not None
    node.saved_in = tuple([_packed(v, wrap, env) for v in node.saved_in])
    node.saved_out = tuple([_packed(v, wrap, env) for v in node.saved_out])
    node.stamps = ()
    node.packed = True


def _packed(value: Any, wrap: Callable[[Any], Tensor], env: DimEnv | None) -> Packed | None:
    if value is None:
        return None
    tensor = wrap(value)
    found = Packed(tensor, _as_it_is) if _is_number(value, env) else pack(tensor)
    if env is not None and is_own(found.unpack):
        found.original = tensor._graphc_traced.value
    return found


def _is_number(value: Any, env: DimEnv | None) -> bool:
    """Whether a saved value is a number of Python's (the 3 of x**3), which hooks do not see."""
    if env is not None:
        node = value[0]
        return node.op.name in ("full", "const") and not node.shape
    # promote.operand() makes such arrays
    return isinstance(value, np.ndarray) and value.ndim == 0 and not value.flags.writeable


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def unpacked(value: Any, trace: Trace | None) -> Any:
    """A saved value as the tape of `trace` (None: eager) keeps it."""
    if not isinstance(value, Packed):
        return value
    tensor = unpack(value)
    if trace is None:
        return tensor._graphc_array
    state = tensor if tensor._graphc_trace is trace else trace.shadow(tensor)
    return saved_place(trace.read(state), state)
