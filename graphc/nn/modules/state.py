"""The state_dict half of nn.Module: names, saving, loading and its messages."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from ...frontend import state_version
from ...frontend.grad_mode import no_grad
from ...frontend.tensor import Parameter, Tensor
from .hooks import HookHandle

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # torch's name for it, which packages read
_Keys = namedtuple("_Keys", ["missing_keys", "unexpected_keys"])


class _IncompatibleKeys(_Keys):
    """What load_state_dict returns."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, " \
            f"unexpected_keys={self.unexpected_keys})"

    __str__ = __repr__


class StateDictMixin:
    """state_dict and load_state_dict; mixed into Module."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]
    _version: int
    _graphc_around: Any = None  # of a compiled Module: the one around it that torch has in files

    def get_extra_state(self) -> Any:
        """Extra state for the state_dict; override together with set_extra_state."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should be "
                           "overridden")

    def set_extra_state(self, state: Any) -> None:
        """Take back what get_extra_state gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should be "
                           "overridden")

    def _graphc_has_extra_state(self) -> bool:
        return type(self).get_extra_state is not StateDictMixin.get_extra_state

    def _graphc_persistent(self) -> dict[str, Tensor | None]:
        kept: dict[str, Tensor | None] = dict(self._parameters)
        for name, buffer in self._buffers.items():
            if name not in self._non_persistent_buffers_set:
                kept[name] = buffer
        return kept

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, value in self._graphc_persistent().items():
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        if self._graphc_has_extra_state():
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Parameters and persistent buffers by dotted name; tensors share memory with the model."""
        if args:
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, metadata)
            if replaced is not None:
                destination = replaced
        return destination

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Mapping[str, Any],
        strict: bool, missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys,
                 unexpected_keys, error_msgs)
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        own = self._graphc_persistent()
        local = {name: value for name, value in own.items() if value is not None}
        for name, value in local.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            self._graphc_load_one(name, value, key, state_dict[key], assign, error_msgs)
        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if self._graphc_has_extra_state():
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            for key in state_dict:
                if not key.startswith(prefix) or key == extra_key:
                    continue
                first, *rest = key[len(prefix):].split(".")
                if (rest and first not in self._modules) or (not rest and first not in local):
                    unexpected_keys.append(key)

    def _graphc_load_one(
        self, name: str, value: Tensor, key: str, given: Any, assign: bool, errors: list[str]
    ) -> None:
        if not isinstance(given, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or '
                f"Tensor-like object from checkpoint but received {type(given)}"
            )
            return
        if len(value.shape) == 0 and tuple(given.shape) == (1,):
            given = given[0]
        if tuple(given.shape) != tuple(value.shape):
            errors.append(
                f"size mismatch for {key}: copying a param with shape {given.shape} from "
                f"checkpoint, the shape in current model is {value.shape}."
            )
            return
        if value.is_meta and not given.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
                "parameter in the current model, which is a no-op. (Did you mean to pass "
                "`assign=True` to assign items in the state dictionary to their corresponding key "
                "in the module instead of copying them in place?)", stacklevel=2,
            )
        with no_grad():
            if not assign:
                value.copy_(given)
            elif isinstance(value, Parameter):
                self._parameters[name] = (
                    given if isinstance(given, Parameter)
                    else Parameter(given, requires_grad=value.requires_grad)
                )
            else:
                self._buffers[name] = given

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy values in by name. Raises RuntimeError listing missing, unexpected, mismatched."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        state_version.bump()
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None) or {}
        remaining = OrderedDict(state_dict)

        def load(module: Any, given: OrderedDict[str, Any], prefix: str) -> None:
            module = module._graphc_around or module
            local = dict(metadata.get(prefix[:-1], {}))
            if assign:
                local["assign_to_params_buffers"] = True
            module._load_from_state_dict(
                given, prefix, local, True, missing, unexpected, errors
            )
            for name, child in module._modules.items():
                if child is not None:
                    start = prefix + name + "."
                    part = [item for item in given.items() if item[0].startswith(start)]
                    load(child, OrderedDict(part), start)
            keys = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                hook(module, keys)

        load(self, remaining, "")
        if strict:
            if unexpected:
                names = ", ".join(f'"{key}"' for key in unexpected)
                errors.insert(0, f"Unexpected key(s) in state_dict: {names}. ")
            if missing:
                names = ", ".join(f'"{key}"' for key in missing)
                errors.insert(0, f"Missing key(s) in state_dict: {names}. ")
        if errors:
            raise RuntimeError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(
                    type(self).__name__, "\n\t".join(errors)
                )
            )
        return _IncompatibleKeys(missing, unexpected)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """hook(module, prefix, keep_vars), before state_dict."""
        return HookHandle.register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """hook(module, state_dict, prefix, local_metadata), after state_dict."""
        return HookHandle.register(self._state_dict_hooks, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)."""
        return HookHandle.register(self._load_state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> HookHandle:
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return self.register_load_state_dict_pre_hook(lambda module, *args: hook(*args))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """hook(module, incompatible_keys), after load_state_dict."""
        return HookHandle.register(self._load_state_dict_post_hooks, hook)
