"""Optimizer: param groups, state, and how both look under a trace.

Under a trace a float in a param group is a run-time input (a LiftedNumber), so a learning-rate
schedule never recompiles; state tensors that a step creates are made for real, outside the
recording, so that the first trace is already the steady one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from itertools import chain, count
from typing import Any

from ..frontend import functions as T
from ..frontend import state_version
from ..frontend.clear_grad import clear_grad
from ..frontend.context import local
from ..frontend.grad_mode import enable_grad, no_grad
from ..frontend.hooks import RemovableHandle, add_hook
from ..frontend.tensor import Tensor
from ..frontend.watched import Watched, WatchedDefault, WatchedOrdered
from .loaded_state import like_param
from .step_hooks import as_update, run_hooks_in
from .step_hooks import register_optimizer_step_post_hook as register_optimizer_step_post_hook
from .step_hooks import register_optimizer_step_pre_hook as register_optimizer_step_pre_hook


class GroupSource:
    """Where a lifted number comes from: an entry of a param group or of a schedule's attributes, or
    one of its items."""

    __slots__ = ("group", "index", "key")

    def __init__(self, group: dict[str, Any], key: str, index: int | None) -> None:
        self.group, self.key, self.index = group, key, index

    def __hash__(self) -> int:
        return hash((id(self.group), self.key, self.index))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, GroupSource) and self.group is other.group
            and self.key == other.key and self.index == other.index
        )

    def fetch(self) -> Any:
        """The number now."""
        value = dict.__getitem__(self.group, self.key)
        return value if self.index is None else value[self.index]

    def item(self) -> tuple[dict[str, Any], str, Any]:
        """The item of a dictionary that the number is of: it, its key and what is there now."""
        return self.group, self.key, dict.get(self.group, self.key)

    def is_told_by(self, held: Any, value: Any) -> bool:
        """Whether the number is this object for as long as the item is that one."""
        if self.index is None:
            return held is value
        return type(held) is tuple and self.index < len(held) and held[self.index] is value

    @property
    def name(self) -> str:
        """What a graph calls it: "lr", "betas[0]"."""
        return self.key if self.index is None else f"{self.key}[{self.index}]"

    def __repr__(self) -> str:
        return f"param_groups[...][{self.key!r}]"


class ParamGroup(Watched):
    """A param group: a dict whose floats are run-time inputs of a trace."""

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        trace = local.trace
        if trace is None:
            return value
        if trace.late.changes(self, key, value):
            return trace.late.value(self, key)
        if (id(self), key) in trace.written_numbers:
            return value  # what this call itself has put there
        if type(value) is float:
            return trace.lift_number(value, GroupSource(self, key, None))
        if _floats(value):
            return tuple(
                trace.lift_number(item, GroupSource(self, key, i)) for i, item in enumerate(value)
            )
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The value, lifted under a trace; the default where there is none."""
        return self[key] if dict.__contains__(self, key) else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value, lifted under a trace; set to the default where there is none."""
        if not dict.__contains__(self, key):
            self[key] = default
        return self[key]

    def __setitem__(self, key: str, value: Any) -> None:
        trace = local.trace
        if trace is not None:
            if self in trace.late:
                trace.end_segment(
                    "writing to a param group after a schedule's step",
                    "write to it before scheduler.step()",
                )
            trace.written_numbers.add((id(self), key))
        old = dict.get(self, key)
        if not _replaces_lifted(value, old):
            state_version.bump()
        dict.__setitem__(self, key, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take over the items of a mapping or of pairs."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other or dict.__eq__(self, other)

    def __reduce__(self) -> Any:
        return (ParamGroup, (dict(self),))

    def __deepcopy__(self, memo: dict[int, Any]) -> ParamGroup:
        return ParamGroup({key: deepcopy(value, memo) for key, value in dict.items(self)})


def _replaces_lifted(value: Any, old: Any) -> bool:
    """A float for a float (or a tuple of as many) is a run-time input: no guard depends on it."""
    if type(value) is float:
        return type(old) is float
    return _floats(value) and _floats(old) and len(value) == len(old)


def _floats(value: Any) -> bool:
    return type(value) is tuple and bool(value) and all(type(item) is float for item in value)


_HOOKS = tuple(f"_optimizer_{name}_hooks" for name in (
    "step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre",
    "load_state_dict_post",
))
# hooks of every optimizer


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Base class of all optimizers (torch.optim.Optimizer)."""

    _optimizer_step_pre_hooks: Any
    _optimizer_step_post_hooks: Any
    _optimizer_state_dict_pre_hooks: Any
    _optimizer_state_dict_post_hooks: Any
    _optimizer_load_state_dict_pre_hooks: Any
    _optimizer_load_state_dict_post_hooks: Any

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        run_hooks_in(type(self))
        self.defaults = defaults
        self.state = WatchedDefault()
        self.param_groups: list[ParamGroup] = []
        for hooks in _HOOKS:
            setattr(self, hooks, WatchedOrdered())
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type(params).__name__}"
            )
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    @classmethod
    def __subclasses__(cls) -> list[type]:
        if cls is Optimizer:  # LightningCLI finds optimizers by name here, none imported before
            vars(sys.modules[__package__])  # gets all of its names
        return type.__subclasses__(cls)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "_is_wrapped", False):
            cls.step = as_update(step)  # type: ignore[method-assign]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own options."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = dict.__getitem__(param_group, "params")
        names: list[str] | None = None
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
        else:
            params = list(params)
            named = [isinstance(param, tuple) for param in params]
            if any(named) and not all(named):
                raise ValueError(
                    "all optimizer params should be with/without names. Some param names are "
                    "missing"
                )
            if params and named[0]:
                names, params = [n for n, _ in params], [p for _, p in params]
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is "
                                f"{type(param).__name__}")
            if not (param.is_leaf or self.defaults.get("differentiable")):
                raise ValueError("can't optimize a non-leaf Tensor")
        group = ParamGroup({**param_group, "params": params})
        if names is not None:
            dict.__setitem__(group, "param_names", names)
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            dict.setdefault(group, name, default)
        if len({id(param) for param in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information",
                stacklevel=3,
            )
        if self.param_groups and ("param_names" in self.param_groups[0]) != (names is not None):
            have = "without" if names is not None else "with"
            give = "with" if names is not None else "without"
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{give} names to the optimizer {have} names"
            )
        known = {id(p) for existing in self.param_groups for p in existing["params"]}
        if any(id(param) in known for param in params):
            raise ValueError("some parameters appear in more than one parameter group")
        state_version.bump()
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear every gradient: None, or zeros."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param.grad = None  # whatever it was: a recording need not look
                else:
                    clear_grad(param)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; subclasses define it."""
        raise NotImplementedError

    def _graphc_new_state(
        self, param: Tensor, store: str = "state", **makers: Callable[[Tensor], Any]
    ) -> Any:
        """The parameter's state, with what is missing made for real (also under a trace, unless
        the parameter itself is made there). `store`: the attribute that has it; a maker looks at
        the parameter it is given and at options alone: it serves others, too."""
        trace = local.trace
        if trace is not None and trace.states is not None:
            return trace.states.new(self, param, store, makers)
        state: dict[str, Any] = getattr(self, store)[param]
        missing = {key: make for key, make in makers.items() if key not in state}
        if not missing:
            return state
        if trace is None or param._graphc_trace is trace:
            for key, make in missing.items():
                state[key] = make(param)
            return state
        with made_for_real(trace, param, state, missing):
            for key, make in missing.items():
                state[key] = make(param)
        return state

    def _graphc_has_state(self, param: Tensor, store: str) -> bool:
        """Whether a store has a state of the parameter's."""
        trace = local.trace
        if trace is not None and trace.states is not None:
            return bool(trace.states.has(self, param, store))
        return param in getattr(self, store)

    def _graphc_forget_state(self, param: Tensor, store: str) -> None:
        """Remove the parameter's state from a store, for real."""
        trace = local.trace
        if trace is not None and trace.states is not None:
            trace.states.forget(self, param, store)
        else:
            getattr(self, store).pop(param, None)

    # --- state dict ---------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State by parameter number and param groups, in torch's layout."""
        for before in list(self._optimizer_state_dict_pre_hooks.values()):
            before(self)
        numbers: dict[int, int] = {}
        groups = []
        counter = count()
        for group in self.param_groups:
            packed = {key: value for key, value in dict.items(group) if key != "params"}
            for param in group["params"]:
                if id(param) not in numbers:
                    numbers[id(param)] = next(counter)
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): (
                dict(value) if isinstance(value, Watched) else value
            )
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for after in list(self._optimizer_state_dict_post_hooks.values()):
            replaced = after(self, result)
            result = result if replaced is None else replaced
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state_dict, whose tensors are the state from now on, as in torch (copy it to
        load it twice). Raises ValueError where the groups differ."""
        given = dict(state_dict)
        for before in list(self._optimizer_load_state_dict_pre_hooks.values()):
            replaced = before(self, given)
            given = given if replaced is None else replaced
        groups, saved = self.param_groups, deepcopy(given["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        numbers = chain.from_iterable(s["params"] for s in saved)
        params = chain.from_iterable(g["params"] for g in groups)
        by_number = dict(zip(numbers, params, strict=True))
        state = WatchedDefault()
        for key, value in given["state"].items():
            if key in by_number:
                state[by_number[key]] = Watched({
                    name: like_param(by_number[key], item, name) for name, item in value.items()
                })
            else:
                state[key] = value
        for group, packed in zip(groups, saved, strict=True):
            for key, value in packed.items():
                if key != "params":
                    group[key] = value
        self.state = state
        state_version.bump()
        for after in list(self._optimizer_load_state_dict_post_hooks.values()):
            after(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults, "state": self.state, "param_groups": self.param_groups
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        run_hooks_in(type(self))
        self.__dict__.update(state)
        for hooks in _HOOKS:
            self.__dict__.setdefault(hooks, WatchedOrdered())

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(optimizer, args, kwargs) before each step."""
        return add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(optimizer, args, kwargs) after each step."""
        return add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer) before state_dict."""
        return add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer, state_dict) -> None or another state_dict."""
        return add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer, state_dict) -> None or another state_dict, before loading."""
        return add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """hook(optimizer) after load_state_dict."""
        return add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {dict.__getitem__(group, key)}\n"
        return text + ")"


@contextmanager
def made_for_real(
    trace: Any, param: Tensor, state: dict[str, Any], missing: Iterable[str]
) -> Iterator[None]:
    """Around the making of a parameter's state, which a trace that fails takes back."""
    with trace.suspended(), no_grad():
        yield
    trace.names.state(param, state)

    def undo() -> None:
        for key in missing:
            state.pop(key, None)

    trace.on_rollback(undo)


def run_closure(closure: Callable[[], Any] | None) -> Any:
    """The closure's loss, with gradients on."""
    if closure is None:
        return None
    trace = local.trace
    with enable_grad(), nullcontext() if trace is None else trace.forward_again():
        return closure()


def with_grad(group: ParamGroup) -> Iterable[tuple[Tensor, Tensor]]:
    """Pairs (parameter, gradient) of the parameters that have one."""
    for param in group["params"]:
        grad = param.grad
        if grad is not None:
            yield param, grad


def scalar_dtype() -> Any:
    """That of step counts and the like: float64 where that is the default dtype, else float32."""
    return T.float64 if T.get_default_dtype() is T.float64 else T.float32


def no_steps(param: Tensor) -> Tensor:
    """The count of a parameter's steps, before the first."""
    return T.zeros((), dtype=scalar_dtype())


def step_number(step: Any) -> Any:
    """The step count for bias corrections: a Python float, or float64 arithmetic under a trace."""
    plain = local.trace is None or not isinstance(step, Tensor)
    return step.item() if plain else step.double()


def scalar_like(value: Any, tensor: Tensor) -> Any:
    """A number for arithmetic with a tensor, which it must not promote: 0-d ones are cast."""
    return value.to(tensor.dtype) if isinstance(value, Tensor) else value


def one_element(lr: Any) -> None:
    """Raises ValueError for a rate that is a tensor of several elements."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")


def check(lr: Any, eps: float = 0.0, weight_decay: Any = 0.0, betas: Any = ()) -> None:
    """Raises ValueError for hyperparameters out of their range."""
    one_element(lr)
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")
    if not eps >= 0.0:
        raise ValueError(f"Invalid epsilon value: {eps}")
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
    if not weight_decay >= 0.0:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")
