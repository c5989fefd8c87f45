"""Calling a module with other parameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...frontend import state_version
from ..modules.module import Module


def _place(module: Module, name: str) -> tuple[dict[str, Any], str]:
    """The registry and the key of a dotted name. Raises KeyError."""
    path, _, key = name.rpartition(".")
    owner = module.get_submodule(path)
    for registry in (owner._parameters, owner._buffers):
        if key in registry:
            return registry, key
    raise KeyError(name)


@contextmanager
def _swapped(module: Module, tensors: dict[str, Any], tie: bool, strict: bool) -> Iterator[None]:
    wanted = dict(tensors)
    names: dict[int, list[str]] = {}
    everything = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    for name, value in everything:
        names.setdefault(id(value), []).append(name)
    if strict:
        known = {name for name, _ in everything}
        wrong, missing = sorted(set(wanted) - known), sorted(known - set(wanted))
        if wrong or missing:
            raise RuntimeError(
                f"Error(s) in swapping tensors of {type(module).__name__}: unexpected keys "
                f"{wrong}, missing keys {missing}"
            )
    if tie:
        for same in names.values():
            given = [tensors[name] for name in same if name in tensors]
            if len({id(value) for value in given}) > 1:
                raise ValueError(f"functional_call got multiple values for keys {same}, which are "
                                 "tied. Consider using tie_weights=False")
            for name in same if given else ():
                wanted[name] = given[0]
    saved = []
    try:
        for name, value in wanted.items():
            try:
                registry, key = _place(module, name)
            except (KeyError, AttributeError):
                raise AttributeError(
                    f"{type(module).__name__} has no parameter or buffer `{name}`"
                ) from None
            saved.append((registry, key, registry[key]))
            dict.__setitem__(registry, key, value)
        state_version.bump()
        yield
    finally:
        for registry, key, value in reversed(saved):
            dict.__setitem__(registry, key, value)
        state_version.bump()


def _functional_call(
    module: Module, parameters_and_buffers: dict[str, Any], args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:
    given = () if args is None else args
    given = given if isinstance(given, tuple) else (given,)
    with _swapped(module, parameters_and_buffers, tie_weights, strict):
        return module(*given, **(kwargs or {}))


def functional_call(
    module: Module, parameters_and_buffers: dict[str, Any], args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with other tensors as parameters and buffers (deprecated name)."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be "
        "removed in a future version of PyTorch. Please use `torch.func.functional_call` instead "
        "which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
