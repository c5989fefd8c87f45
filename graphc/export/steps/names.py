"""What the state of a step is called: as state_dict() of the model and of the optimizer say it.

Parameters and buffers have the dotted names of the one Module that the step reaches; where there
are several, the variable's name stands before. State of an optimizer is
"optimizer.state.PARAMETER.KEY" (of several optimizers, the variable's name instead of "optimizer").
A GradScaler's is "scaler.scale" and "scaler._growth_tracker".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from graphc.amp.grad_scaler import GradScaler
from graphc.engine.capture.places import Place
from graphc.engine.capture.reached import reached
from graphc.frontend.random_state import Generator, default_generator
from graphc.frontend.tensor import Tensor
from graphc.nn.modules.module import Module
from graphc.optim.lr_scheduler.base import LRScheduler
from graphc.optim.optimizer import Optimizer

GENERATOR = "generator"


class Named(NamedTuple):
    """A tensor's name, and what it is: "parameter", "buffer", "optimizer", "generator", "other"."""

    name: str
    kind: str
    tensor: Tensor


class StepNames:
    """The names of all that a step reaches, as it is now."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        found = reached(function, args, dict(kwargs), _is_named)
        if isinstance(function, Module):
            found.setdefault("", function)
        self.modules = _outer({n: v for n, v in found.items() if isinstance(v, Module)})
        self.optimizers = _with_prefixes(found, Optimizer, "optimizer")
        self.schedules = _with_prefixes(found, LRScheduler, "schedule")
        for number, schedule in enumerate(self.schedules.values()):
            owner = schedule.optimizer
            if all(known is not owner for known in self.optimizers.values()):
                self.optimizers[f"optimizer{number or ''}"] = owner
        self._found: dict[int, Named] = {}
        self._taken: dict[str, int] = {}
        self.order: list[str] = []  # of all state_dict()s
        self.tied: dict[str, str] = {}
        for prefix, module in self.modules.items():
            self._module(prefix, module)
        for prefix, optimizer in self.optimizers.items():
            self._optimizer(prefix, optimizer)
        for prefix, scaler in _with_prefixes(found, GradScaler, "scaler").items():
            for key in ("scale", "_growth_tracker"):  # as its state_dict says
                value = vars(scaler).get("_" + key.removeprefix("_"))
                if isinstance(value, Tensor):
                    self._add(value, f"{prefix}.{key}", "optimizer")
        self._generators(found)
        for name, value in found.items():
            if isinstance(value, Tensor):
                self._add(value, name, "other")

    def of(self, tensor: Tensor) -> Named | None:
        """The name of a tensor; None for one that hangs nowhere."""
        return self._found.get(id(tensor))

    def new(self, tensor: Tensor, name: str, kind: str = "other") -> Named:
        """Name a tensor that has no name."""
        return self._add(tensor, name, kind)

    def state(self) -> list[Named]:
        """What the state_dict()s of the Modules hold, in their order."""
        known = {named.name: named for named in self._found.values()}
        return [known[name] for name in self.order if name in known]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that have a name, by that."""
        return {named.name: named.tensor for named in self._found.values()}

    def option(self, group: Any, key: str, index: int | None) -> str | None:
        """What a number of a param group is called, or one that a schedule keeps."""
        end = key if index is None else f"{key}.{index}"
        for prefix, optimizer in self.optimizers.items():
            for i, each in enumerate(optimizer.param_groups):
                if each is group:
                    return f"{prefix}.param_groups.{i}.{end}"
        for prefix, schedule in self.schedules.items():
            if vars(schedule) is group:
                return f"{prefix}.{end}"
        return None

    # --- what there is -------------------------------------------------------------------------

    def _add(self, tensor: Tensor, name: str, kind: str) -> Named:
        found = self._found.get(id(tensor))
        if found is None:
            count = self._taken[name] = self._taken.get(name, 0) + 1
            unique = name if count == 1 else f"{name}#{count}"
            found = self._found[id(tensor)] = Named(unique, kind, tensor)
        return found

    def _module(self, prefix: str, module: Module) -> None:
        parameters = {id(value) for value in module.parameters()}
        kept = module.state_dict(keep_vars=True)
        for name, tensor in kept.items():
            if not isinstance(tensor, Tensor):
                continue
            kind = "parameter" if id(tensor) in parameters else "buffer"
            full = prefix + name
            named = self._add(tensor, full, kind)
            self.order.append(full)
            if named.name != full:
                self.tied[full] = named.name
        for name, tensor in module.named_buffers():  # also those that state_dict() leaves out
            self._add(tensor, prefix + name, "buffer")

    def _optimizer(self, prefix: str, optimizer: Optimizer) -> None:
        for i, group in enumerate(optimizer.param_groups):
            for j, parameter in enumerate(dict.__getitem__(group, "params")):
                owner = self._add(parameter, f"{prefix}.params.{i}.{j}", "parameter").name
                for store, state in _states(optimizer, parameter):
                    for key, value in state.items():
                        if isinstance(value, Tensor):
                            self._add(value, f"{prefix}.{store}.{owner}.{key}", "optimizer")
            for key, value in dict.items(group):
                if isinstance(value, Tensor):
                    self._add(value, f"{prefix}.param_groups.{i}.{key}", "optimizer")

    def _generators(self, found: Mapping[str, Any]) -> None:
        self._add(default_generator.state, GENERATOR, "generator")
        for name, value in found.items():
            if isinstance(value, Generator) and value is not default_generator:
                self._add(value.state, name, "generator")


def _is_named(value: Any) -> bool:
    return isinstance(value, Optimizer | Generator | LRScheduler | GradScaler)


def scalers(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[GradScaler]:
    """The enabled scalers that a step reaches."""
    found = reached(function, args, dict(kwargs), _is_named).values()
    return [each for each in found if isinstance(each, GradScaler) and each.is_enabled()]


def _states(optimizer: Optimizer, parameter: Tensor) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What an optimizer keeps of a parameter, with the attribute's name."""
    for store, states in vars(optimizer).items():
        if isinstance(states, dict) and dict.__contains__(states, parameter):
            state = dict.__getitem__(states, parameter)
            if isinstance(state, dict):
                yield store.removeprefix("_graphc_"), state


def _outer(found: Mapping[str, Module]) -> dict[str, Module]:
    """The Modules that are no part of another, and have state, with what their names begin with."""
    below = {
        id(child.__dict__) for root in found.values() for child in root.modules()
        if child.__dict__ is not root.__dict__
    }
    seen: set[int] = set()
    outer: dict[str, Module] = {}
    for name, module in found.items():
        if id(module.__dict__) in below or id(module.__dict__) in seen:
            continue
        seen.add(id(module.__dict__))
        if any(isinstance(v, Tensor) for v in module.state_dict(keep_vars=True).values()):
            outer[f"{name}." if name else ""] = module
    return {"": next(iter(outer.values()))} if len(outer) == 1 else outer


def _with_prefixes(found: Mapping[str, Any], kind: type, one: str) -> dict[str, Any]:
    """The objects of a class, by what names begin with."""
    distinct: dict[int, tuple[str, Any]] = {}
    for name, value in found.items():
        if isinstance(value, kind):
            distinct.setdefault(id(value), (name or one, value))
    values = list(distinct.values())
    return {one: values[0][1]} if len(values) == 1 else dict(values)


def said_place(place: Place) -> str:
    """A place in the user's words: what a method's object has is "self.steps"."""
    path = re.sub(r"^[\w.]+\.__self__\b", "self", place.path)
    return re.sub(r"^self\['([A-Za-z_]\w*)'\]", r"self.\1", path)
