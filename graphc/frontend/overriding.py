"""Calls that classes of a user's, or a mode, answer in a function's place: `__torch_function__`.

A public function does not ask whom it is called with. Once there is an instance of a subclass, an
object that passes for a tensor, or a mode, the functions get other code (graphc/overridable.py),
which hands what is not plain to ask(). Until then nobody pays for the question.

    ask(torch.add, as_it_is, args, kwargs)     # as_it_is: the function with its own code

Who is asked: the innermost mode, then the arguments' classes, subclasses before their bases, from
left to right, until one does not answer NotImplemented. While a mode answers, it is not asked, and
while Tensor's own handler does, no class is.

In a compiled function a handler runs on tensors that exist: what was recorded so far is run first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from graphc.ir import forks
from graphc.ir.dtypes import DType

from .context import local
from .device import device
from .errors import located
from .numbers import Size
from .tensor import Parameter, Tensor

# what a thread may have switched off (local.overriding_off)
NOTHING, CLASSES, ALL = 0, 1, 2
# of arguments of these types nobody is asked
_USUAL = frozenset({
    Tensor, Parameter, int, float, bool, str, type(None), DType, device, Size, slice, type(...),
})


class Types(set[type]):
    """A set that is told from others by being another one: code objects hash their constants."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


PLAIN = Types(_USUAL)  # the same; empty while there is a mode
_SEQUENCES = (list, tuple)

_CURE = "x.as_subclass(torch.Tensor) outside of the function"
_PLAIN_METHOD = (
    "Defining your `__torch_function__ as a plain method is deprecated and will be an error in "
    "future, please define it as a classmethod."
)


class _Disabled:
    """torch._C._disabled_torch_function_impl: a class that has it does not answer."""

    __name__ = "_disabled_torch_function_impl"

    def __call__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __reduce__(self) -> str:
        return "disabled"


disabled = _Disabled()


class Installed:
    """The code of the functions: whether it asks, and who changes it (graphc/overridable.py)."""

    lock = forks.rlock()
    # has the functions ask, or not; and the properties
    change: Callable[[bool, bool], None] | None = None
    now = (False, False)
    for_good = False  # whether there was anything but a mode
    modes = 0  # threads that are in one

    @classmethod
    def stay(cls) -> None:
        """There is an object that answers: functions ask from now on."""
        if not cls.for_good:
            with cls.lock:
                cls.for_good = True
                cls._adapt()

    @classmethod
    def forget(cls) -> None:
        """There is no such object any more."""
        with cls.lock:
            cls.for_good = False
            cls._adapt()

    @classmethod
    def entered(cls) -> None:
        """A thread entered its first mode."""
        with cls.lock:
            cls.modes += 1
            PLAIN.clear()
            cls._adapt()

    @classmethod
    def left(cls) -> None:
        """A thread left its last mode."""
        with cls.lock:
            cls.modes -= 1
            if not cls.modes:
                PLAIN.update(_USUAL)
            cls._adapt()

    @classmethod
    def _adapt(cls) -> None:
        # what asks for a property of a subclass is of the subclass (subclasses.py)
        wanted = cls.for_good or cls.modes > 0, cls.modes > 0
        if wanted != cls.now and cls.change is not None:
            cls.now = wanted
            cls.change(*wanted)


# --- who is asked ------------------------------------------------------------------------------


def answers(value: Any) -> bool:
    """Whether an object's class has a handler of its own; exact Tensors and Parameters have not."""
    kind = type(value)
    if kind in _USUAL:
        return False
    handler = getattr(kind, "__torch_function__", None)
    return handler is not None and handler is not disabled and not isinstance(value, type)


def those_asked(values: Iterable[Any], asks: Callable[[Any], bool] = answers) -> list[Any]:
    """The first object of each class that answers, in the order in which they are asked."""
    found: list[Any] = []
    values = [*values]
    if asks is answers and _USUAL.issuperset(map(type, values)):
        return found
    for value in values:
        kind = type(value)
        if not asks(value) or any(type(other) is kind for other in found):
            continue
        place = next(
            (i for i, other in enumerate(found) if issubclass(kind, type(other))), len(found)
        )
        found.insert(place, value)
    return found


def among(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments, and what lists and tuples of them hold."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in _SEQUENCES:
            found += value
        elif type(value) not in _USUAL:
            found.append(value)
    return found


def first_met(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call that fails is the first with an object of a class that answers, and is to be
    made again. Nothing tells of such a class before."""
    if Installed.for_good or local.overriding_off or not those_asked(among(args, kwargs)):
        return False
    Installed.stay()
    return True


def ask(
    function: Callable[..., Any], as_it_is: Callable[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any], looked_at: Iterable[Any] | None = None,
) -> Any:
    """A call of a public function: whoever answers it does, else the function itself."""
    off = local.overriding_off
    if off == ALL:
        return as_it_is(*args, **kwargs)
    if skipped():
        with DisableTorchFunctionSubclass():
            return as_it_is(*args, **kwargs)
    asked: list[Any] = []
    if off == NOTHING:
        asked = those_asked(among(args, kwargs) if looked_at is None else looked_at)
    if not asked and not local.function_modes:
        return as_it_is(*args, **kwargs)
    return handed_on(function, asked, args, kwargs)


def skipped() -> bool:
    """Whether this call is the one that nobody is to answer (torch.overrides)."""
    if not local.overriding_skips:
        return False
    local.overriding_skips = False
    return True


def handed_on(
    function: Callable[..., Any], asked: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What a mode, or the first of the objects `asked` that does, makes of a call.

    Raises TypeError where nobody answers.
    """
    types = tuple([type(value) for value in asked])
    with _in_eager_mode(types):
        modes = local.function_modes
        if modes and local.overriding_off != ALL:
            local.function_modes = modes[:-1]
            try:
                found = modes[-1].__torch_function__(function, types, args, kwargs)
            finally:
                local.function_modes = modes
            if found is not NotImplemented:
                return found
        for value in asked:
            handler = value.__torch_function__
            if getattr(handler, "__self__", None) is value:
                warnings.warn(_PLAIN_METHOD, UserWarning, stacklevel=4)
            found = handler(function, types, args, kwargs)
            if found is not NotImplemented:
                return found
    raise TypeError(located(_nobody(function, types)))


def _in_eager_mode(types: tuple[type, ...]) -> AbstractContextManager[Any]:
    if local.trace is None:
        return nullcontext()
    who = types[0].__name__ if types else type(local.function_modes[-1]).__name__
    return outside_of_segments(f"{who}.__torch_function__")


def outside_of_segments(what: str) -> AbstractContextManager[Any]:
    """A context in which nothing is recorded, for a function that may run in segments."""
    trace = local.trace
    return nullcontext() if trace is None else trace.eager(what, _CURE)


def name_of(function: Any) -> str:
    """What messages call a function."""
    found = NAMES.get(function)
    return found or f"{function.__module__}.{getattr(function, '__name__', function)}"


def _nobody(function: Any, types: tuple[type, ...]) -> str:
    kinds = [f"tensor subclass {kind}" for kind in types]
    if local.function_modes and local.overriding_off != ALL:
        kinds.insert(0, f"mode object {local.function_modes[-1]!r}")
    return (
        f"no implementation found for '{name_of(function)}': all __torch_function__ handlers "
        f"returned NotImplemented: {', '.join(kinds)}. Cure: let one of them answer, or call "
        "super().__torch_function__(func, types, args, kwargs) for what it does not know"
    )


# --- Tensor's own handler ----------------------------------------------------------------------

# what is stored in a tensor is given as it is; graphc/overridable.py fills it, and torch's names
UNWRAPPED: set[Any] = set()
NAMES: dict[Any, str] = {}


def usual_handler(
    cls: Any, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
) -> Any:
    """Tensor.__torch_function__: the function's result, its tensors being of the subclass."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        found = func(*args, **(kwargs or {}))
        return found if func in UNWRAPPED else converted(found, cls)


def converted(found: Any, cls: type[Tensor]) -> Any:
    """The tensors among results as a subclass."""
    if cls is Tensor:
        return found
    if isinstance(found, Tensor):
        return found if isinstance(found, cls) else found.as_subclass(cls)
    if isinstance(found, (tuple, list)):
        items = [converted(item, cls) for item in found]
        return found._make(items) if hasattr(found, "_make") else type(found)(items)
    return found


# --- switches ----------------------------------------------------------------------------------


class _Switch:
    """Sets what the thread has switched off; may be used again."""

    _to = NOTHING

    def __init__(self) -> None:
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(local.overriding_off)
        local.overriding_off = max(local.overriding_off, self._to)

    def __exit__(self, *error: object) -> None:
        local.overriding_off = self._before.pop()


class DisableTorchFunctionSubclass(_Switch):
    """Inside, no class answers; modes do."""

    _to = CLASSES


class DisableTorchFunction(_Switch):
    """Inside, neither a class nor a mode answers."""

    _to = ALL


def push_mode(mode: Any) -> None:
    """A mode is the innermost one of this thread."""
    if local.trace is not None:
        local.trace.end_segment(f"entering {type(mode).__name__}", "enter it around the call")
    if not local.modes_entered:
        Installed.entered()
    local.function_modes = (*local.function_modes, mode)
    local.modes_entered += 1


def pop_mode() -> Any:
    """The innermost mode, which is no longer one. Raises RuntimeError where there is none."""
    if not local.function_modes:
        raise RuntimeError("trying to pop from empty mode stack")
    *rest, last = local.function_modes
    local.function_modes = tuple(rest)
    local.modes_entered -= 1
    if not local.modes_entered:
        Installed.left()
    return last


setattr(Parameter, "__torch_function__", disabled)  # noqa: B010  # mypy knows only Tensor's
