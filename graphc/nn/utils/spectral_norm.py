"""Spectral normalisation by a forward hook (the old form)."""

from __future__ import annotations

from typing import Any

from ...frontend import functions as T
from ...frontend.grad_mode import no_grad
from ...frontend.tensor import Parameter, Tensor
from ..functional.activation import normalize
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module


def default_dim(module: Any) -> int:
    """The dim of a weight's outputs."""
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The weight with `dim` as rows and all else as columns."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.dim()) if d != dim))
    return weight.flatten(1)


def power_iterations(
    matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float, u_first: bool = False
) -> None:
    """Move u and v towards the first singular vectors, in place."""
    with no_grad():
        for _ in range(count):
            if u_first:
                u.copy_(normalize(T.mv(matrix, v), dim=0, eps=eps))
            v.copy_(normalize(T.mv(matrix.t(), u), dim=0, eps=eps))
            if not u_first:
                u.copy_(normalize(T.mv(matrix, v), dim=0, eps=eps))


class SpectralNorm:
    """The hook that divides a weight by its first singular value."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0,
        eps: float = 1e-12,
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        """The weight now."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            power_iterations(matrix.detach(), u, v, self.n_power_iterations, self.eps)
            u, v = u.clone(), v.clone()
        return weight / T.dot(u, T.mv(matrix, v))

    def remove(self, module: Any) -> None:
        """Make the weight a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        for suffix in ("_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(
            module, self.name,
            self.compute_weight(module, do_power_iteration=module.training),
        )

    @staticmethod
    def apply(
        module: Any, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Put a hook on a module. Raises RuntimeError for a second one of the same name."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    "Cannot register two spectral_norm hooks on the same parameter " + name
                )
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        with no_grad():
            matrix = as_matrix(weight, dim)
            height, width = matrix.shape
            u, v = (
                normalize(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps)
                for size in (height, width)
            )
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)  # before the first forward
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(_note_version(made))
        return made


def _note_version(hook: SpectralNorm) -> Any:
    def note(module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        local_metadata.setdefault("spectral_norm", {})[hook.name + ".version"] = hook._version

    return note


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its first singular value (Miyato et al. 2018)."""
    SpectralNorm.apply(
        module, name, n_power_iterations, default_dim(module) if dim is None else dim, eps
    )
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Take the spectral normalisation off. Raises ValueError where there is none."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"spectral_norm of '{name}' not found in {module}")
