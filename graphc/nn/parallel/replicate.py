"""Copies of a Module that share its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module
from .scatter_gather import _check


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """One copy of the Module per device, on the same parameters and buffers.

    Gradients of all copies arrive in the one set of parameters. `detach` cuts that.
    """
    for device in devices:
        _check(device)
    return [_copy(network, detach) for _ in devices]


def _copy(network: Module, detach: bool) -> Module:
    made: dict[int, Module] = {}
    for module in network.modules():  # parents come before their children
        twin = module.__new__(type(module))
        fields = dict(module.__dict__)
        for registry in ("_parameters", "_buffers", "_modules"):
            fields[registry] = fields[registry].copy()
        if detach:
            own = fields["_parameters"]
            for name, value in own.items():
                own[name] = None if value is None else value.detach()
        twin.__dict__.update(fields)
        made[id(module)] = twin
    for twin in made.values():
        children = twin.__dict__["_modules"]
        for name, child in children.items():
            if child is not None:
                children[name] = made[id(child)]
    return made[id(network)]
