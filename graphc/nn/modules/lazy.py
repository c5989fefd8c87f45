"""Layers that find their input size in the first forward."""

from __future__ import annotations

from typing import Any

from ...frontend.context import local
from ...frontend.grad_mode import no_grad
from ..parameter import UninitializedParameter, is_lazy
from .module import Module


class LazyModuleMixin:
    """Makes parameters in the first forward (or load), and then becomes `cls_to_become`."""

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        module: Any = self
        self._load_hook = module._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = module.register_forward_pre_hook(
            type(self)._infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        module: Any = self
        for name, value in module._graphc_persistent().items():
            if value is not None:
                kept = value if is_lazy(value) or keep_vars else value.detach()
                destination[prefix + name] = kept

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Take the shapes of what is being loaded."""
        module: Any = self
        for name, value in module._graphc_persistent().items():
            given = state_dict.get(prefix + name)
            if value is not None and given is not None and is_lazy(value) and not is_lazy(given):
                with no_grad():
                    value.materialize(given.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize parameters from the inputs of forward; layers define it."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer waits for its shape."""
        module: Any = self
        values = (*module._parameters.values(), *module._buffers.values())
        return any(is_lazy(value) for value in values)

    @staticmethod
    def _infer_parameters(module: Any, args: Any, kwargs: Any = None) -> None:
        trace = local.trace
        if trace is not None and module.has_uninitialized_params():
            trace.end_segment(
                f"the first call of {type(module).__name__}, which makes its parameters,",
                "call the module once outside of the compiled function",
            )
            trace.passing = True
            with trace.suspended():
                module.initialize_parameters(*args, **(kwargs or {}))
        else:
            module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(
                f"module {module._get_name()} has not been fully initialized"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class LazyLayer(LazyModuleMixin, Module):
    """A lazy layer with a weight, perhaps a bias, and torch's initialisation of both."""

    def _make_lazy(self, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
