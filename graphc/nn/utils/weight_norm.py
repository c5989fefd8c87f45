"""Weight normalisation by a forward hook (the old form)."""

from __future__ import annotations

import warnings
from typing import Any

from ...frontend.tensor import Parameter, Tensor
from ..modules.module import Module
from ..parameter import UninitializedParameter


def norm_except_dim(v: Tensor, power: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dims but one (all, for -1), with the dims kept."""
    if dim == -1:
        return v.norm(power)
    kept = dim % v.dim()
    others = [d for d in range(v.dim()) if d != kept]
    if power == 2:
        return v.square().sum(others, keepdim=True).sqrt() if others else v.abs()
    return v.abs().pow(power).sum(others, keepdim=True).pow(1 / power)


def combined(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """g v / |v|."""
    return v * (g / norm_except_dim(v, 2, dim))


class WeightNorm:
    """The hook that computes a weight from its length g and its direction v."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Any:
        """The weight now."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return combined(v, g, self.dim)

    @staticmethod
    def apply(module: Any, name: str, dim: int | None) -> WeightNorm:
        """Put a hook on a module. Raises RuntimeError for a second one of the same name."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(
                    "Cannot register two weight_norm hooks on the same parameter " + name
                )
        made = WeightNorm(name, dim)
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make "
                "sure to run the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        length = norm_except_dim(weight, 2, made.dim).data
        module.register_parameter(name + "_g", Parameter(length))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, made.compute_weight(module))
        module.register_forward_pre_hook(made)
        return made

    def remove(self, module: Any) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Parametrize a weight by length and direction (Salimans and Kingma 2016)."""
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Take the weight normalisation off. Raises ValueError where there is none."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
