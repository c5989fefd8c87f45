"""Parametrizations: an attribute computed from other parameters at each access."""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ...frontend.grad_mode import no_grad
from ...frontend.tensor import Parameter, Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_depth = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrized attribute is computed once."""
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


def _set_original(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the original (or originals) they start from."""

    def __init__(
        self, modules: Sequence[Module], original: Tensor, unsafe: bool = False
    ) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = tuple(original.shape), original.dtype
        with no_grad():
            new = _first_value(self, original)
        single = isinstance(new, Tensor)
        if not single and not isinstance(new, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = single
        self.ntensors = 1 if single else len(new)
        if single:
            if original.dtype is not new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: "
                    f"{new.dtype}"
                )
            with no_grad():
                if new is not original:
                    original.data = new.detach()
            _set_original(self, "original", original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors. Got "
                        f"element {i} of the sequence with type {type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                _set_original(self, f"original{i}", part)
        if not unsafe:
            self._check(shape, dtype)

    def _check(self, shape: tuple[int, ...], dtype: Any) -> None:
        value = self()
        if not isinstance(value, Tensor):
            raise ValueError(
                f"A parametrization must return a tensor. Got {type(value).__name__}."
            )
        if value.dtype is not dtype:
            raise ValueError(
                "Registering a parametrization may not change the dtype of the tensor, unless "
                f"`unsafe` flag is enabled.\nunparametrized dtype: {dtype}\nparametrized dtype: "
                f"{value.dtype}"
            )
        if tuple(value.shape) != shape:
            raise ValueError(
                "Registering a parametrization may not change the shape of the tensor, unless "
                f"`unsafe` flag is enabled.\nunparametrized shape: {shape}\nparametrized shape: "
                f"{tuple(value.shape)}"
            )

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the attribute has this value. They get the memory of what the
        last inverse returns."""
        with no_grad():
            new: Any = value
            for module in reversed(list(self)):
                inverse = getattr(module, "right_inverse", None)
                if inverse is None:
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                new = inverse(new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ValueError(
                        f"`right_inverse` should return a tensor. Got {type(new).__name__}"
                    )
                _put(self.original, new, "The tensor", "original")
                return
            if not isinstance(new, Sequence):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors. "
                    f"Got {type(new).__name__}."
                )
            if len(new) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(new)}."
                )
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a sequence of tensors or reference-type "
                        f"opaques. Got element {i} of type {type(part).__name__}."
                    )
                _put(getattr(self, f"original{i}"), part, f"Tensor {i}", f"original{i}")

    def forward(self) -> Any:
        steps = list(self)
        if self.is_tensor:
            value = steps[0](self.original)
        else:
            value = steps[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for step in steps[1:]:
            value = step(value)
        return value


def _first_value(steps: ParametrizationList, value: Any) -> Any:
    """What the originals start as; what has no inverse is taken for the identity."""
    for module in reversed(list(steps)):
        inverse = getattr(module, "right_inverse", None)
        if inverse is not None:
            with suppress(NotImplementedError):
                value = inverse(value)
    return value


def _put(original: Tensor, value: Tensor, what: str, name: str) -> None:
    """Give an original, which optimizers may hold already, the memory of a value."""
    if value.dtype is not original.dtype:
        raise ValueError(
            f"{what} returned by `right_inverse` has dtype {value.dtype} "
            f"while `{name}` has dtype {original.dtype}"
        )
    original.set_(value)


def _parametrized_class(module: Module) -> None:
    """Give the module a class of its own, which may carry properties."""
    base = type(module)

    def getstate(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict()."
        )

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        twin = self.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin

    module.__class__ = type(
        f"Parametrized{base.__name__}", (base,),
        {"__getstate__": getstate, "__deepcopy__": deepcopy, "parametrization_base": base},
    )


def _add_property(module: Module, name: str) -> None:
    def read(self: Any) -> Any:
        if not _cache_depth:
            return self.parametrizations[name]()
        key = id(self), name
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute module.tensor_name by a module from a parameter `original`."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original: Any = getattr(module, tensor_name)
        steps = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _parametrized_class(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = steps
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _append(module: Module, name: str, parametrization: Module, unsafe: bool) -> None:
    steps: Any = module.parametrizations[name]
    if not unsafe:
        now = getattr(module, name)
        after = parametrization(now)
        if not isinstance(after, Tensor):
            raise ValueError(
                f"A parametrization must return a tensor. Got {type(after).__name__}."
            )
        for what in ("dtype", "shape"):
            if getattr(after, what) != getattr(now, what):
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, "
                    f"unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: "
                    f"{getattr(now, what)}\nparametrization(module.{name}).{what}: "
                    f"{getattr(after, what)}"
                )
        inverse = getattr(parametrization, "right_inverse", None)
        if inverse is not None:
            with suppress(NotImplementedError):
                _check_inverse(name, now, inverse(after))
    steps.append(parametrization)
    steps.unsafe |= unsafe


def _check_inverse(name: str, now: Tensor, back: Any) -> None:
    """Hold what an inverse returns to the tensor that it is the inverse of."""
    if not isinstance(back, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what in ("dtype", "shape"):
        if getattr(back, what) != getattr(now, what):
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}, unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: "
                f"{getattr(now, what)}\nreturned {what}: {getattr(back, what)}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module (or one attribute of it) is computed by parametrizations."""
    parametrizations = module._modules.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the attribute a parameter again: of its present value, or the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    steps: Any = module.parametrizations[tensor_name]
    if steps.is_tensor:
        original = steps.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            original.data = value.detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _set_original(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type_before_parametrizations(module)
    return module


def type_before_parametrizations(module: Module) -> Any:
    """The module's class as it was before it was parametrized."""
    return getattr(type(module), "parametrization_base", type(module))


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give another module copies of the parametrizations and of the originals."""
    if not is_parametrized(from_module):
        return to_module
    names = (
        list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    )
    for name in names:
        steps: Any = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            with no_grad():
                setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for step in steps:
            register_parametrization(to_module, name, copy.deepcopy(step), unsafe=steps.unsafe)
        theirs: Any = to_module.parametrizations[name]
        originals = collections.OrderedDict(steps.named_parameters(recurse=False))
        for key, value in originals.items():
            setattr(theirs, key, value)
    return to_module
