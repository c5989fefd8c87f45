"""Hooks of nn.Module: handles, and the forward call that runs them."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ...frontend import state_version
from ...frontend.context import local
from ...frontend.function import Function
from ...frontend.grad_mode import is_grad_enabled
from ...frontend.hooks import RemovableHandle
from ...frontend.tensor import Tensor

_ids = itertools.count()


class HookHandle(RemovableHandle):
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
        state_version.bump()
        hook_id = next(_ids)
        registry[hook_id] = hook
        if prepend:
            registry.move_to_end(hook_id, last=False)
        return HookHandle(registry, hook_id)

    def remove(self) -> None:
        """Take the hook out; a second call does nothing."""
        self._registry.pop(self.id, None)
        state_version.bump()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


# hooks of all modules, by kind; "calls" counts those that a call has to look at
EVERYWHERE: dict[str, Any] = {
    kind: OrderedDict() for kind in (
        "forward", "forward_pre", "backward", "backward_pre", "buffer", "module", "parameter",
        "calls",
    )
}
_kwargs_ids: set[int] = set()
_always_ids: set[int] = set()


class _GlobalHandle(HookHandle):
    """Of a hook of all modules, which "calls" mentions too."""

    def remove(self) -> None:
        """Take the hook out; a second call does nothing."""
        EVERYWHERE["calls"].pop(self.id, None)
        super().remove()


def _everywhere(kind: str, hook: Callable[..., Any]) -> HookHandle:
    handle = HookHandle.register(EVERYWHERE[kind], hook)
    EVERYWHERE["calls"][handle.id] = hook
    return _GlobalHandle(EVERYWHERE[kind], handle.id)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> HookHandle:
    """hook(module, args, output) after the forward of every module."""
    handle = _everywhere("forward", hook)
    if with_kwargs:
        _kwargs_ids.add(handle.id)
    if always_call:
        _always_ids.add(handle.id)
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> HookHandle:
    """hook(module, args) before the forward of every module."""
    return _everywhere("forward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> HookHandle:
    """hook(module, grad_input, grad_output) of every module."""
    return _everywhere("backward", hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> HookHandle:
    """hook(module, grad_output) of every module."""
    return _everywhere("backward_pre", hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> HookHandle:
    """hook(module, name, buffer) -> None or another buffer, at each registration."""
    return HookHandle.register(EVERYWHERE["buffer"], hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> HookHandle:
    """hook(module, name, submodule) -> None or another module, at each registration."""
    return HookHandle.register(EVERYWHERE["module"], hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> HookHandle:
    """hook(module, name, parameter) -> None or another parameter, at each registration."""
    return HookHandle.register(EVERYWHERE["parameter"], hook)


def run_registration_hooks(kind: str, module: Any, name: str, value: Any) -> Any:
    """What is registered once the hooks have seen it."""
    for hook in list(EVERYWHERE[kind].values()):
        replaced = hook(module, name, value)
        value = value if replaced is None else replaced
    return value


def _hooks(module: Any, kind: str) -> list[tuple[int, Callable[..., Any]]]:
    """Those of all modules, then the module's own."""
    return [*EVERYWHERE[kind].items(), *getattr(module, f"_{kind}_hooks").items()]


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """module.forward between its hooks, in torch's order."""
    for hook_id, hook in _hooks(module, "forward_pre"):
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
    called: set[int] = set()
    try:
        if local.nested is not None:
            output = local.nested(forward_between_hooks, module, args, kwargs)
        elif local.trace is not None:
            with local.trace.between_hooks(module):
                output = module.forward(*args, **kwargs)
        else:
            output = module.forward(*args, **kwargs)
        for hook_id, hook in _hooks(module, "forward"):
            called.add(hook_id)
            output = _forward_hook(module, hook_id, hook, args, kwargs, output)
    except Exception:
        for hook_id, hook in _hooks(module, "forward"):
            always = hook_id in module._forward_hooks_always_called or hook_id in _always_ids
            if always and hook_id not in called:
                _forward_hook(module, hook_id, hook, args, kwargs, None)
        raise
    return output if backward is None else backward.watch_outputs(output)


def forward_between_hooks(module: Any, *args: Any, **kwargs: Any) -> Any:
    """What a version of its own runs of a Module whose hooks are open."""
    return module.forward(*args, **kwargs)


def _forward_hook(
    module: Any, hook_id: int, hook: Any, args: Any, kwargs: Any, output: Any
) -> Any:
    if hook_id in module._forward_hooks_with_kwargs or hook_id in _kwargs_ids:
        result = hook(module, args, kwargs, output)
    else:
        result = hook(module, args, output)
    return output if result is None else result


def _has_backward_hooks(module: Any) -> bool:
    return bool(_hooks(module, "backward") or _hooks(module, "backward_pre")) and is_grad_enabled()


def _watch(
    callback: Callable[..., Any], values: tuple[Any, ...]
) -> tuple[tuple[Any, ...], list[int]]:
    """The values with tensors that require gradients behind an identity node, and their places."""
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
    if not places:
        return values, places
    watched = _Identity.apply(callback, *[values[i] for i in places])
    out = list(values)
    for i, tensor in zip(places, watched, strict=True):
        out[i] = tensor
    return tuple(out), places


def _packed(values: Any, places: list[int], count: int) -> tuple[Any, ...]:
    full: list[Any] = [None] * count
    for i, value in zip(places, values, strict=True):
        full[i] = value
    return tuple(full)


def _replaced(kind: str, now: tuple[Any, ...], result: Any) -> tuple[Any, ...]:
    if result is None:
        return now
    changed = result if isinstance(result, tuple) else (result,)
    if len(changed) != len(now):
        raise RuntimeError(
            f"Backward {kind}, got {len(changed)}, but expected {len(now)}"
        )
    return changed


class _BackwardHooks:
    """Calls full backward hooks: identity nodes round the forward see both ends' gradients."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.grad_output: tuple[Any, ...] | None = None
        self.input_places: list[int] = []
        self.output_places: list[int] = []
        self.input_count = self.output_count = 0

    def watch_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.input_count = len(args)
        args, self.input_places = _watch(self._input_grads, args)
        return args

    def _input_grads(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.grad_output is None:  # a gradient that did not come through the outputs
            return grads
        full = _packed(grads, self.input_places, self.input_count)
        for _, hook in _hooks(self.module, "backward"):
            result = hook(self.module, full, self.grad_output)
            full = _replaced("hook returned an invalid number of grad_input", full, result)
        self.grad_output = None
        return tuple(full[i] for i in self.input_places)

    def watch_outputs(self, output: Any) -> Any:
        several = isinstance(output, tuple)
        outputs = output if several else (output,)
        self.output_count = len(outputs)
        outputs, self.output_places = _watch(self._output_grads, outputs)
        return outputs if several else outputs[0]

    def _output_grads(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        full = _packed(grads, self.output_places, self.output_count)
        for _, hook in _hooks(self.module, "backward_pre"):
            result = hook(self.module, full)
            full = _replaced("pre hook returned an invalid number of grad_output", full, result)
        self.grad_output = full
        if not self.input_places:
            self._without_input_grads(full)
        return tuple(full[i] for i in self.output_places)

    def _without_input_grads(self, grad_output: tuple[Any, ...]) -> None:
        hooks = [hook for _, hook in _hooks(self.module, "backward")]
        if hooks:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients.",
                stacklevel=2,
            )
        for hook in hooks:
            result = hook(self.module, (None,) * self.input_count, grad_output)
            if result is not None and not (
                isinstance(result, tuple) and all(item is None for item in result)
            ):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )
        self.grad_output = None


class _Identity(Function):
    """The identity, whose backward passes gradients through a callback."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.callback = callback
        views = tuple(tensor.view_as(tensor) for tensor in tensors)
        return views

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.callback(grads))
