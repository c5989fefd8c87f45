"""torch.func.functional_call, stack_module_state and replace_all_batch_norm_modules_."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..frontend.functions import NAMES
from ..frontend.tensor import Tensor
from ..nn.modules.module import Module
from ..nn.modules.normalization import _BatchNorm


def functional_call(
    module: Module, parameter_and_buffer_dicts: Any, args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:
    """torch.func.functional_call: `module(*args, **kwargs)` with these tensors in the place of
    its parameters and buffers, by name.

    Raises RuntimeError for keys that the module lacks, where `strict`; ValueError for a key that
    several of the given dictionaries have.
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        given = {}
        for part in parameter_and_buffer_dicts:
            for key in part:
                if key in given:
                    raise ValueError(f"{key} appeared in multiple dictionaries; behavior of "
                                     "functional call is ambiguous")
            given.update(part)
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    values = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, given, tie_weights, strict):
        return module(*values, **(kwargs or {}))


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Where each parameter and buffer is kept, by full name."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        start = owner._graphc_start(prefix)
        for table in (owner._parameters, owner._buffers):
            for name in table:
                found[start + name] = (table, name)
    return found


_ABSENT = object()


@contextmanager
def _swapped(
    module: Module, given: dict[str, Any], tie_weights: bool, strict: bool
) -> Iterator[None]:
    places = _places(module)
    unexpected = [key for key in given if key not in places]
    if strict:
        missing = [key for key in places if key not in given]
        if missing or unexpected:
            raise RuntimeError(
                f"Error(s) in reparametrizing for {type(module).__name__}:"
                + (f"\n\tUnexpected key(s): {_quoted(unexpected)}." if unexpected else "")
                + (f"\n\tMissing key(s): {_quoted(missing)}." if missing else "")
            )
    for key in unexpected:
        places[key] = _added(module, key)
    wanted = dict(given)
    if tie_weights:
        owners: dict[int, Any] = {}
        first: dict[int, str] = {}
        for key, value in given.items():
            table, name = places[key]
            if table.get(name) is None:
                continue
            tensor = id(table[name])
            if owners.setdefault(tensor, value) is not value:
                raise ValueError(
                    f"functional_call got multiple values for keys {[first[tensor], key]}, which "
                    "are tied. Consider using tie_weights=False"
                )
            first.setdefault(tensor, key)
        for key, (table, name) in places.items():
            if key not in wanted and id(table[name]) in owners:
                wanted[key] = owners[id(table[name])]
    saved: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for key, value in wanted.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"{value} is not an instance of torch.Tensor")
            table, name = places[key]
            saved.append((table, name, table.get(name, _ABSENT)))
            table[name] = value
        yield
    finally:
        for table, name, value in reversed(saved):
            if value is _ABSENT:
                del table[name]
            else:
                table[name] = value


def _quoted(keys: list[str]) -> str:
    return ", ".join(map(repr, sorted(keys)))


def _added(module: Module, key: str) -> tuple[dict[str, Any], str]:
    """Where a tensor goes that the module has no parameter or buffer for, as in torch."""
    path, _, name = key.rpartition(".")
    owner = module.get_submodule(path)
    if hasattr(owner, name):
        raise TypeError(
            f"attribute `{name}`: {getattr(owner, name)} is not an instance of torch.Tensor"
        )
    return owner._buffers, name


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """torch.func.stack_module_state: parameters and buffers of models of one class, stacked
    along a new first dimension, for vmap over an ensemble."""
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = {
        key: _stacked([dict(m.named_parameters())[key] for m in models])
        for key, _ in models[0].named_parameters()
    }
    buffers = {
        key: _stacked([dict(m.named_buffers())[key] for m in models])
        for key, _ in models[0].named_buffers()
    }
    return parameters, buffers


def _stacked(tensors: list[Any]) -> Any:
    flags = {t.requires_grad for t in tensors}
    if len(flags) > 1:
        raise RuntimeError("Expected all tensors to have the same requires_grad")
    stacked = NAMES["stack"](tensors).detach()
    return stacked.requires_grad_() if flags == {True} else stacked


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """torch.func.replace_all_batch_norm_modules_: batch norms without running statistics."""
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = None
            module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root
