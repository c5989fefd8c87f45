"""Ready-made parametrizations: weight_norm, spectral_norm, orthogonal."""

from __future__ import annotations

from typing import Any

from ...frontend import functions as T
from ...frontend.grad_mode import no_grad
from ...frontend.tensor import Tensor
from ..functional.activation import normalize
from ..modules.module import Module
from . import parametrize
from .orthogonal import _Orthogonal, check_map
from .spectral_norm import as_matrix, default_dim, power_iterations
from .weight_norm import combined, norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return combined(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction."""
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Parametrize a weight by length and direction (Salimans and Kingma 2016)."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_old_keys(
        state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing: Any,
        unexpected: Any, errors: Any,
    ) -> None:
        g, v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if g in state_dict and v in state_dict:
            start = f"{prefix}parametrizations.{name}.original"
            state_dict[start + "0"] = state_dict.pop(g)
            state_dict[start + "1"] = state_dict.pop(v)

    module._register_load_state_dict_pre_hook(take_old_keys)
    return module


class _SpectralNorm(Module):
    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        rank = weight.dim()
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{rank}, {rank - 1}] but "
                f"got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % rank, eps
        if rank > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = as_matrix(weight, self.dim)
                height, width = matrix.shape
                u, v = (
                    weight.new_empty(size).normal_(0, 1) for size in (height, width)
                )
                self.register_buffer("_u", normalize(u, dim=0, eps=eps))
                self.register_buffer("_v", normalize(v, dim=0, eps=eps))
                power_iterations(matrix, self._u, self._v, 15, eps, u_first=True)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iterations(
                matrix.detach(), self._u, self._v, self.n_power_iterations, self.eps,
                u_first=True,
            )
        u, v = self._u.clone(), self._v.clone()
        return weight / T.dot(u, T.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def _tensor_of(module: Module, name: str) -> Tensor:
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ValueError(
            f"Module '{module}' has no parameter or buffer with name '{name}'"
        )
    return found


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its first singular value (Miyato et al. 2018)."""
    weight = _tensor_of(module, name)
    along = default_dim(module) if dim is None else dim
    parametrize.register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, along, eps)
    )
    return module


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a matrix orthogonal (Lezcano-Casado and Martinez-Rubio 2019)."""
    weight = _tensor_of(module, name)
    kind = check_map(weight, orthogonal_map)
    parametrize.register_parametrization(
        module, name, _Orthogonal(weight, kind, use_trivialization), unsafe=True
    )
    return module
