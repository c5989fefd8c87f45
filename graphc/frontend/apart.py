"""Functions that torch has under several names: an object for each, which handlers tell apart.

torch.mul is not Tensor.mul, and neither is torch.multiply: `__torch_function__` gets the one that
was called, under its name.
"""

from __future__ import annotations

from collections import Counter
from types import FunctionType
from typing import Any

from .tensor import Tensor


def renamed(function: FunctionType, name: str, module: str) -> FunctionType:
    """The same function by another name."""
    made = FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__, made.__doc__ = function.__kwdefaults__, function.__doc__
    made.__dict__.update(function.__dict__)
    made.__annotations__ = function.__annotations__
    made.__module__, made.__qualname__ = module, name
    return made


def methods_apart() -> None:
    """Give each method of Tensor that is another one's function too an object of its own; Python's
    operators stay what they are."""
    methods = {n: f for n, f in vars(Tensor).items() if isinstance(f, FunctionType)}
    uses = Counter(map(id, methods.values()))
    for name, function in methods.items():
        if uses[id(function)] > 1 and name != function.__name__ and (
            name[:2] != "__" or name == "__invert__"
        ):
            setattr(Tensor, name, renamed(function, name, function.__module__))


def functions_apart(names: dict[str, Any], module: str) -> dict[str, Any]:
    """A module's namespace, whose functions are neither methods of Tensor nor one another."""
    taken = {id(value) for value in vars(Tensor).values()}
    uses = Counter(id(value) for value in names.values())
    found = {}
    for name, value in names.items():
        found[name] = value
        if isinstance(value, FunctionType) and (
            id(value) in taken or (uses[id(value)] > 1 and name != value.__name__)
        ):
            found[name] = renamed(value, name, module)
    return found
