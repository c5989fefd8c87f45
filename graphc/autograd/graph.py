"""torch.autograd.graph: nodes of the backward graph, hooks on them and on what they save."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from ..frontend.autograd import passing
from ..frontend.context import callout, local
from ..frontend.history import edge, requires_grad
from ..frontend.hooks import RemovableHandle
from ..frontend.nodes import GradientEdge as GradientEdge
from ..frontend.nodes import Node as Node
from ..frontend.saved_hooks import hooks, is_own
from ..frontend.tensor import Tensor, current


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge of a tensor that requires a gradient; grad() and backward() take it as an input."""
    state = current(tensor)
    if not requires_grad(state):
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does "
                           "not require gradients")
    return GradientEdge(*edge(state))


def increment_version(tensor: Any) -> None:
    """Say that a tensor, or each of several, was written to in a way that autograd cannot see."""
    for each in (tensor,) if isinstance(tensor, Tensor) else tensor:
        current(each)._graphc_storage.version += 1


class saved_tensors_hooks:
    """Within the block, `pack_hook(tensor)` is kept for backward in the place of every saved
    tensor, and `unpack_hook` of it is what backward reads."""

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self._eager: ExitStack | None = None

    def __enter__(self) -> None:
        if hooks.disabled is not None:
            raise RuntimeError(hooks.disabled)
        trace = local.trace
        # a segment's backward is recorded at its end; the user's hook is due in each pass
        if trace is not None and not is_own(self.unpack_hook) and trace.runs_eagerly(_HOOKS):
            self._eager = ExitStack()
            self._eager.enter_context(trace.eager(_HOOKS))
        local.saved_hooks = (*local.saved_hooks, (self.pack_hook, self.unpack_hook))

    def __exit__(self, *exc: object) -> None:
        local.saved_hooks = local.saved_hooks[:-1]
        if self._eager is not None:
            self._eager.close()
            self._eager = None


_HOOKS = "hooks on saved tensors"


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors in the CPU's memory, where they are already."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: tensor.clone(), lambda packed: packed)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the block, saved_tensors_hooks raises RuntimeError with this message."""
    before = hooks.disabled
    hooks.disabled = error_message
    try:
        yield
    finally:
        hooks.disabled = before


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Within the block, saved tensors are kept as copies: writes after that do not matter."""
    with saved_tensors_hooks(lambda tensor: tensor.clone(), lambda packed: packed):
        yield


class _MultiHandle(RemovableHandle):
    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        """Forget the hooks."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> _MultiHandle:
    """In each backward pass, call fn(gradients) when those of all `tensors` are known ("all";
    None for one that gets none), or fn(gradient) for the first of them ("any")."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock, count = threading.Lock(), len(tensors)
    arrived: WeakKeyDictionary[Any, tuple[dict[int, Tensor], int]] = WeakKeyDictionary()

    def hook_of(i: int) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            by = passing.by
            if by.trace is not None:  # whether all have arrived is known of a real pass alone
                by.trace.end_segment(
                    "a hook on the gradients of several tensors",
                    "register a hook on each tensor, or leave out fullgraph=True",
                )
            with lock:
                if by not in arrived:
                    last = 1 if mode == "any" else sum([by.runs(*place) for place in places])
                    arrived[by] = {}, last
                found, last = arrived[by]
                found[i] = gradient
                ends = len(found) == last
            if ends:
                callout(fn)(
                    gradient if mode == "any" else [found.get(k) for k in range(count)]
                )

        return hook

    handle = _MultiHandle([t.register_hook(hook_of(i)) for i, t in enumerate(tensors)])
    # in segments, hooks have ended one: what there is now has its own history
    places = [edge(t if t._graphc_trace is None else current(t)) for t in tensors]
    return handle
