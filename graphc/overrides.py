"""torch.overrides: who answers calls of torch's functions, and which of them can be answered."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from . import overridable
from .frontend import functions as T
from .frontend import overriding
from .frontend.context import local
from .frontend.overriding import answers, handed_on, those_asked
from .frontend.tensor import Tensor
from .overridable import MODULES

__all__ = [
    "enable_reentrant_dispatch", "get_ignored_functions", "get_overridable_functions",
    "get_testing_overrides", "handle_torch_function", "has_torch_function", "is_tensor_like",
    "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function",
]

# --- for functions that want to be answered for --------------------------------------------------


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode, or the class of one of the objects, answers a call now."""
    if overriding.skipped():
        return False
    off = local.overriding_off
    if local.function_modes and off != overriding.ALL:
        return True
    return off == overriding.NOTHING and any(answers(value) for value in relevant_args)


def has_torch_function_unary(obj: Any) -> bool:
    """has_torch_function() of one object."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """has_torch_function() of several objects."""
    return has_torch_function(args)


def _has_handler(value: Any) -> bool:
    """Whether a class is among `types`, if another one is asked: Tensor is, too."""
    return type(value) is Tensor or answers(value)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What a mode, or the first of the objects that does not answer NotImplemented, makes of a call
    of `public_api`. Raises TypeError where nobody answers."""
    asked = [] if local.overriding_off else those_asked(relevant_args, _has_handler)
    return handed_on(public_api, asked, args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """A decorator: the function is answered for by what `dispatcher` gives for its arguments."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def asking(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(asking, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return asking

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor, or would pass for one by `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def redispatch_function(func: Callable[..., Any], types: Any, args: Any, kwargs: Any = None) -> Any:
    """The function as it is written: nobody answers for it, and whoever does answers for the
    functions that it calls."""
    local.overriding_skips = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        local.overriding_skips = False


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """For __torch_dispatch__, which is not here: nothing changes inside."""
    yield


# --- modes ---------------------------------------------------------------------------------------


class TorchFunctionMode:
    """A context whose `__torch_function__` answers all calls of torch's functions inside it, of
    this thread; while it does, itself is not asked, and the mode around it is."""

    inner: TorchFunctionMode

    def __init__(self) -> None:
        """Modes without options take none."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """What a mode answers to a call. Raises NotImplementedError."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        overriding.push_mode(self)
        return self

    def __exit__(self, *error: object) -> None:
        overriding.pop_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """The mode itself. Deprecated: `with Mode():`."""
        warnings.warn(
            "`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`",
            stacklevel=2,
        )
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    """The innermost mode of this thread; None outside of modes."""
    return local.function_modes[-1] if local.function_modes else None


def _get_current_function_mode_stack() -> list[Any]:
    """The modes of this thread, innermost last."""
    return [*local.function_modes]


_push_mode = overriding.push_mode
_pop_mode = overriding.pop_mode


@contextlib.contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    """Inside, the innermost mode is not one."""
    mode = overriding.pop_mode()
    try:
        yield mode
    finally:
        overriding.push_mode(mode)


@contextlib.contextmanager
def _enable_torch_function() -> Iterator[None]:
    """Inside, whoever answers is asked, also where that is switched off outside."""
    before, local.overriding_off = local.overriding_off, overriding.NOTHING
    try:
        yield
    finally:
        local.overriding_off = before


# --- which functions ------------------------------------------------------------------------------

@functools.cache
def _overridable() -> tuple[dict[Any, list[Any]], dict[Any, str]]:
    """Public functions that can be answered for, by where they are, and all that are, with their
    names."""
    functions: dict[Any, list[Any]] = {}
    names: dict[Any, str] = {}
    for module, home in MODULES.items():
        place = importlib.import_module(home)
        for name, function in overridable.public(module):
            if module == "torch.autograd":
                continue
            names[function] = f"{module}.{name}"
            if name[0] != "_" and name[-1] != "_":
                functions.setdefault(place, []).append(function)
    for name, method in overridable.methods():
        if name == method.__name__ or method not in names:
            names[method] = f"torch.Tensor.{name}"
        functions.setdefault(Tensor, []).append(method)
    for name, own in overridable.properties():
        names[own.__get__] = f"torch.Tensor.{name}.__get__"
        names[own.__set__] = f"torch.Tensor.{name}.__set__"
        functions[own] = [own.__get__]
    return functions, names


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that can be answered for, by module; methods by Tensor, and the `__get__` of
    each property by the property."""
    return {place: [*found] for place, found in _overridable()[0].items()}


def resolve_name(f: Any) -> str | None:
    """The name of a function that a handler may get: evaluated, it is the function. None for
    others."""
    return _overridable()[1].get(f)


@functools.cache
def _ignored() -> frozenset[Any]:
    found = [getattr(T, name, None) for name in overridable.UNASKED]
    found += [getattr(Tensor, name, None) for name in overridable.UNASKED_METHODS]
    return frozenset(each for each in found if each is not None)


def get_ignored_functions() -> set[Any]:
    """Public functions that nobody answers for."""
    return {*_ignored()}


def get_default_nowrap_functions() -> set[Any]:
    """What Tensor's own handler gives as it is: tensors that are stored in a tensor."""
    return {vars(Tensor)["grad"].__get__}


@functools.cache
def _methods() -> frozenset[Any]:
    return frozenset(_overridable()[0][Tensor])


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether it belongs to Tensor; of a property, its `__get__`."""
    return func in _methods() or getattr(func, "__name__", "") == "__get__"


@functools.cache
def _stand_ins() -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for place, functions in _overridable()[0].items():
        for function in functions:
            if isinstance(place, property):
                found[function] = _stand_in(inspect.signature(lambda self: -1))
            else:
                found.setdefault(function, _stand_in(inspect.signature(function)))
    return found


def _stand_in(signature: inspect.Signature) -> FunctionType:
    def stand_in(*args: Any, **kwargs: Any) -> int:
        signature.bind(*args, **kwargs)
        return -1

    stand_in.__signature__ = signature  # type: ignore[attr-defined]
    return stand_in  # type: ignore[return-value]


def get_testing_overrides() -> dict[Any, Any]:
    """For each function that can be answered for, one of the same parameters that gives -1."""
    return dict(_stand_ins())
