"""Hooks of nn.Module: handles, and the forward call that runs them."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ...frontend.function import Function
from ...frontend.grad_mode import is_grad_enabled
from ...frontend.tensor import Tensor

_ids = itertools.count()


class HookHandle:
    """Removes its hook: `handle.remove()`, or at the end of a `with` block."""

    def __init__(self, registry: Any, hook_id: int) -> None:
        self._registry = registry
        self.id = hook_id

    @staticmethod
    def register(
        registry: OrderedDict[int, Callable[..., Any]], hook: Callable[..., Any],
        prepend: bool = False,
    ) -> HookHandle:
        """Add a hook to a registry."""
        hook_id = next(_ids)
        registry[hook_id] = hook
        if prepend:
            registry.move_to_end(hook_id, last=False)
        return HookHandle(registry, hook_id)

    def remove(self) -> None:
        """Take the hook out; a second call does nothing."""
        self._registry.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """module.forward between its hooks, in torch's order."""
    for hook_id, hook in list(module._forward_pre_hooks.items()):
        if hook_id in module._forward_pre_hooks_with_kwargs:
            result = hook(module, args, kwargs)
            if result is not None:
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {result}."
                    )
                args, kwargs = result
        else:
            result = hook(module, args)
            if result is not None:
                args = result if isinstance(result, tuple) else (result,)
    backward = _BackwardHooks(module) if _has_backward_hooks(module) else None
    if backward is not None:
        args = backward.watch_inputs(args)
    output = module.forward(*args, **kwargs)
    for hook_id, hook in list(module._forward_hooks.items()):
        if hook_id in module._forward_hooks_with_kwargs:
            result = hook(module, args, kwargs, output)
        else:
            result = hook(module, args, output)
        if result is not None:
            output = result
    return output if backward is None else backward.watch_outputs(output)


def _has_backward_hooks(module: Any) -> bool:
    return bool(module._backward_hooks or module._backward_pre_hooks) and is_grad_enabled()


class _BackwardHooks:
    """Calls full backward hooks: identity nodes round the forward see both ends' gradients."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.grad_output: tuple[Any, ...] = ()

    def watch_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not places:
            return args
        watched = _Identity.apply(self._input_grads, *(args[i] for i in places))
        watched = watched if isinstance(watched, tuple) else (watched,)
        out = list(args)
        for i, tensor in zip(places, watched, strict=True):
            out[i] = tensor
        self.input_places, self.input_count = places, len(args)
        return tuple(out)

    def _input_grads(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        full: list[Any] = [None] * self.input_count
        for i, grad in zip(self.input_places, grads, strict=True):
            full[i] = grad
        for hook in list(self.module._backward_hooks.values()):
            result = hook(self.module, tuple(full), self.grad_output)
            if result is not None:
                full = list(result) if isinstance(result, tuple) else [result]
        return tuple(full[i] for i in self.input_places)

    def watch_outputs(self, output: Any) -> Any:
        single = isinstance(output, Tensor)
        outputs = (output,) if single else output
        if not isinstance(outputs, tuple):
            raise RuntimeError(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(output)}"
            )
        places = [i for i, o in enumerate(outputs) if isinstance(o, Tensor) and o.requires_grad]
        if not places:
            return output
        watched = _Identity.apply(self._output_grads, *(outputs[i] for i in places))
        watched = watched if isinstance(watched, tuple) else (watched,)
        out = list(outputs)
        for i, tensor in zip(places, watched, strict=True):
            out[i] = tensor
        return out[0] if single else tuple(out)

    def _output_grads(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        self.grad_output = grads
        for hook in list(self.module._backward_pre_hooks.values()):
            result = hook(self.module, self.grad_output)
            if result is not None:
                self.grad_output = result if isinstance(result, tuple) else (result,)
        if not getattr(self, "input_places", None):
            for hook in list(self.module._backward_hooks.values()):
                hook(self.module, (), self.grad_output)
        return self.grad_output


class _Identity(Function):
    """The identity, whose backward passes gradients through a callback."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.callback = callback
        views = tuple(tensor.view_as(tensor) for tensor in tensors)
        return views if len(views) > 1 else views[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.callback(grads))
