"""Pruning: masks on parameters, applied before each forward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...frontend import functions as T
from ...frontend.tensor import Tensor
from ..modules.module import Module

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]


class BasePruningMethod:
    """A way to choose a mask; an instance is the hook that applies it."""

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of a tensor, given that of earlier prunings."""
        raise NotImplementedError

    def apply_mask(self, module: Any) -> Tensor:
        """The masked tensor."""
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prune a parameter of a module, on top of what is pruned already."""
        before = [
            (key, hook) for key, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        for key, hook in before:
            del module._forward_pre_hooks[key]
            container = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(original.shape):
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        if not before:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            default = T.ones_like(original)
        else:
            default = getattr(module, name + "_mask").detach().clone()
        mask = method.compute_mask(scores.detach(), default_mask=default)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Any = None
    ) -> Tensor:
        """A pruned copy of a tensor."""
        scores = t if importance_scores is None else importance_scores
        default = T.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module: Any) -> None:
        """Make the pruned values the parameter."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several prunings of one parameter, one after another."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        for method in args:
            self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add one of the same parameter."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found "
                f"'{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The newest method's mask of what is left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            others = [d for d in range(t.dim()) if d != method.dim % t.dim()]
            alive = mask.sum(others) != 0
            left = (slice(None),) * (method.dim % t.dim()) + (alive,)
        else:
            left = (slice(None),) * t.dim()
        new = method.compute_mask(t[left], default_mask=mask[left])
        mask[left] = new.to(dtype=mask.dtype)
        return mask


def _amount(amount: Any, size: int) -> int:
    """How many to prune: a number of them, or a share."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (isinstance(amount, float) and amount > 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )
    if isinstance(amount, int) and amount > size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune={size}"
        )
    return amount if isinstance(amount, int) else round(amount * size)


class Identity(BasePruningMethod):
    """Prunes nothing."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask as it was."""
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes single elements at random."""

    def __init__(self, amount: Any) -> None:
        _amount(amount, 2**62)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with `amount` more zeros."""
        count = _amount(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[T.rand_like(t).view(-1).topk(count)[1]] = 0
        return mask


class L1Unstructured(RandomUnstructured):
    """Prunes the single elements of least magnitude."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with `amount` more zeros."""
        count = _amount(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[t.abs().reshape(-1).topk(count, largest=False)[1]] = 0
        return mask


def _keep_channels(t: Tensor, dim: int, kept: Tensor) -> Tensor:
    mask = T.zeros_like(t)
    mask[(slice(None),) * (dim % t.dim()) + (kept,)] = 1
    return mask


class RandomStructured(BasePruningMethod):
    """Prunes whole channels at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _amount(amount, 2**62)
        self.amount, self.dim = amount, dim

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        return T.rand(t.shape[self.dim], device=t.device).topk(t.shape[self.dim] - count)[1]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with `amount` more channels of zeros."""
        if t.dim() <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found "
                f"tensor of shape {tuple(t.shape)} with {t.dim()} dims"
            )
        count = _amount(self.amount, t.shape[self.dim])
        if not count:
            return default_mask
        return default_mask * _keep_channels(t, self.dim, self._chosen(t, count))


class LnStructured(RandomStructured):
    """Prunes the whole channels of least n-norm."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        norms: Any = t.norm(self.n, others)
        return norms.topk(t.shape[self.dim] - count)[1]


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The product of both masks."""
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise AssertionError("mask and default_mask must have the same shape")
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Put a mask of ones on a parameter."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune single elements at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: Any, importance_scores: Any = None
) -> Module:
    """Prune the single elements of least magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prune whole channels at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> Module:
    """Prune the whole channels of least n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune by a given mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]], pruning_method: Any, importance_scores: Any = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one vector."""
    given = list(parameters)
    scores = importance_scores or {}
    values = [scores.get((module, name), getattr(module, name)) for module, name in given]
    masks = [
        getattr(module, name + "_mask", T.ones_like(getattr(module, name)))
        for module, name in given
    ]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    container.add_pruning_method(method)
    final = container.compute_mask(
        T.cat([value.detach().reshape(-1) for value in values]),
        T.cat([mask.reshape(-1) for mask in masks]),
    )
    place = 0
    for module, name in given:
        parameter = getattr(module, name)
        count = parameter.numel()
        custom_from_mask(module, name, final[place : place + count].view_as(parameter))
        place += count


def is_pruned(module: Module) -> bool:
    """Whether the module, or one inside, has a pruned parameter."""
    return any(
        isinstance(hook, BasePruningMethod)
        for each in module.modules() for hook in each._forward_pre_hooks.values()
    )


def remove(module: Any, name: str) -> Any:
    """Make the pruned values the parameter. Raises ValueError where nothing is pruned."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )
