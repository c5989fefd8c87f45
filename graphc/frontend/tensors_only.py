"""What users see when a list or a NumPy array is given where a Tensor is wanted."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from .autocast import public_calls
from .context import local
from .errors import located
from .layouts import NotDense
from .overriding import first_met
from .refused import not_a_tensor
from .tensor import Tensor
from .wrapped import unwrapped, wraps


def tensors_only(functions: dict[str, Any], module: str, prefix: str = "") -> dict[str, Any]:
    """A public module's names, functions of Tensors raising torch's TypeError for other things.

    Calls that succeed pay for one more Python call. Pickles name the functions in `module`, and
    messages as `prefix` and their name.
    """
    made: dict[int, Any] = {}
    for name, function in functions.items():
        if not _takes_tensors(function):
            continue
        original = unwrapped(function)
        if "<locals>" in original.__qualname__:  # Python's errors for wrong arguments show it
            original.__qualname__ = original.__name__
        call = made.get(id(function))
        if call is None:
            call = made[id(function)] = _explained(function, prefix)
        if name == function.__name__ or call.__module__ != module:
            call.__module__, call.__qualname__ = module, name
    return {name: made.get(id(f), f) for name, f in functions.items()}


def _takes_tensors(value: Any) -> bool:
    return isinstance(value, FunctionType) and "Tensor" in (
        unwrapped(value).__annotations__.values()
    )


def _explained(function: Callable[..., Any], prefix: str) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        instead: Callable[..., Any] | None
        try:
            return function(*args, **kwargs)
        except NotDense as error:
            instead = _of_its_layout(error, function.__name__)  # called without this error
        except (AttributeError, TypeError, KeyError):
            again = first_met(args, kwargs)
            wrong = None if again else not_a_tensor(function, args, kwargs)
            if wrong is None and not again:
                raise
            instead = public if again else None
        if instead is not None:
            return instead(*args, **kwargs)
        raise TypeError(located(f"{prefix}{function.__name__}(): {wrong}"))

    public_calls.add(call.__code__)
    quick = function.__dict__.get("quick")  # as autocast.listed() calls it
    public = call if quick is None else _first_tried(quick, call)
    return public


def _of_its_layout(error: NotDense, name: str) -> Callable[..., Any]:
    """What a function is of tensors that have no dense memory. Raises NotImplementedError."""
    found = error.tensor._graphc_functions.get(name)
    if found is None:
        raise error.tensor._graphc_refusal(name, error.tensor) from None
    return found  # type: ignore[no-any-return]


def _first_tried(quick: Callable[[Tensor], Any], call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def short(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and local.autocast is None and (
            isinstance(args[0], Tensor) and (found := quick(args[0])) is not None
        ):
            return found
        return call(*args, **kwargs)

    return short
