"""Several Modules on their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None, devices: Sequence[Any] | None = None,
) -> list[Any]:
    """[modules[i](*inputs[i], **kwargs_tup[i]), ...], one after the other on the one device."""
    if len(modules) != len(inputs):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to the number of inputs "
            f"{len(inputs)}"
        )
    keywords = kwargs_tup if kwargs_tup is not None else [{}] * len(modules)
    if len(keywords) != len(modules):
        raise AssertionError("kwargs_tup must have one entry per module")
    rows = zip(modules, inputs, keywords, strict=True)
    return [
        module(*(given if isinstance(given, list | tuple) else (given,)), **(named or {}))
        for module, given, named in rows
    ]
