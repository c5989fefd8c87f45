"""The world outside the program: what is written to it each call writes again, in order.

Printed lines, warnings and log records are repeated effects: the real function is called again, at
each call, with its real arguments. They may say run-time numbers, not the values of tensors. What
decides whether anything is said at all (the levels of loggers, filters that make a warning an
error) is a guarded read.
"""

from __future__ import annotations

import functools
import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...frontend.number_expr import PYTHON as PYTHON_VALUES
from ...frontend.texts import asked, is_text, is_traced_value
from ...ir.late import late
from . import operators
from .kinds import Kind, content_of, is_machinery, is_plain, kind_of
from .observer import Observer
from .places import MISSING
from .rule import Rule

if TYPE_CHECKING:
    import logging
else:
    logging = late("logging")


def _says(observer: Observer, value: Any) -> Any:
    """What an effect says in place of a value: numbers as they are at each call, the rest as
    text; MISSING where that is no text of its own."""
    if is_plain(value) or is_traced_value(value):
        return value
    if _holds_tensors(value, 0):
        return MISSING
    return operators.converted(observer, value, "s")


def _holds_tensors(value: Any, depth: int) -> bool:
    kind = kind_of(type(value))
    if kind is Kind.TENSOR or depth > 4:
        return True
    if kind in (Kind.ARRAY, Kind.OPEN, Kind.ITERATOR):
        return True
    if content_of(type(value)) is None:
        return False
    items = [*value, *dict.values(value)] if isinstance(value, dict) else list(value)
    return any(_holds_tensors(item, depth + 1) for item in items)


# --- printed lines ---------------------------------------------------------------------------


def _print(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    ends = kwargs.get("sep"), kwargs.get("end")
    plain = kwargs.get("file") is None and all(e is None or isinstance(e, str) for e in ends)
    texts = [_says(observer, value) for value in args] if plain else [MISSING]
    if not observer.running:  # a text needed a value: it is there already
        function(*[a if t is MISSING else t for a, t in zip(args, texts, strict=False)], **kwargs)
        return (None,)
    if any(text is MISSING for text in texts) or _is_set(observer, "stdout"):
        observer.open("print()", "take the print out of the compiled function")
        return (None,) if observer.running else None  # in a survey
    return _repeat(observer, function, tuple(texts), kwargs)


def _is_set(observer: Observer, name: str) -> bool:
    """Whether the call itself has put something in the place of one of sys's streams."""
    return name in observer.keys.get(id(vars(sys)), ())


def _repeat(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    observer.repeat(function, args, kwargs)
    return (None,)


def _environment(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """posix.putenv, posix.unsetenv: os.environ has noted the value in a dict of its own."""
    if kwargs or not all(map(is_plain, args)):
        return None
    return _repeat(observer, function, args, {})


# --- warnings --------------------------------------------------------------------------------


def _warn(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    given = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kwargs
    message, kind = given.pop("message", None), given.pop("category", None) or UserWarning
    frame = _caller(observer, given.pop("stacklevel", 1))
    source = given.pop("source", None)
    said = type(message) is str or is_text(message)
    known = said and isinstance(kind, type) and issubclass(kind, Warning)
    if not known or given or source is not None or frame is None:
        observer.open("warnings.warn() of more than a text")
        return None
    module = frame.f_globals.get("__name__") or "<string>"
    place = message, kind, module, frame.f_lineno
    if (
        asked("warnings.error", *place) if is_text(message)
        else observer.result(_is_error, place, f"whether {kind.__name__} is made an error")
    ):
        observer.open("a warning that is an error")
        return None
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    observer.know(registry, "__warningregistry__")
    observer.repeat(warnings.warn_explicit, (
        message, kind, frame.f_code.co_filename, frame.f_lineno, module, registry,
    ), {})
    return (None,)


def _is_error(text: str, kind: type[Warning], module: str, line: int) -> bool:
    """Whether the filters of warnings make this one an exception."""
    for action, message, category, place, number in warnings.filters:
        if (
            (message is None or message.match(text))
            and issubclass(kind, category)
            and (place is None or place.match(module))
            and number in (0, line)
        ):
            return action == "error"
    return getattr(warnings, "defaultaction", "default") == "error"


PYTHON_VALUES["warnings.error"] = _is_error
# what Python 3.13 says, where partials have a __get__ that gives themselves
_PARTIAL = (
    "functools.partial will be a method descriptor in future Python versions; "
    "wrap it in staticmethod() if you want to preserve the old behavior"
)


def unbound(observer: Observer, member: Any) -> Any:
    """A class's member as its instances see it, where nothing binds it to them."""
    if isinstance(member, functools.partial) and hasattr(functools.partial, "__get__"):
        _warn(observer, warnings.warn, (_PARTIAL, FutureWarning), {})
    return member


def _caller(observer: Observer, level: Any, skipped: tuple[str, ...] = ()) -> FrameType | None:
    """The frame of the user's code that a stack level names; None beyond the recorded ones."""
    frame: FrameType | None = sys._getframe(2)
    left = max(level, 1) if type(level) is int else 0
    while frame is not None and left:
        name = frame.f_code.co_filename
        if frame.f_code is observer.entry_code:
            return None
        if not is_machinery(name) and name not in skipped:
            left -= 1
            if not left:
                return frame
        frame = frame.f_back
    return None


# --- log records -----------------------------------------------------------------------------


def _enabled(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    logger, level = args[0], args[1] if len(args) > 1 else kwargs["level"]
    path = f"whether {logger.name!r} logs level {level}"
    return (observer.result(logging.Logger.isEnabledFor, (logger, level), path),)


def _logger(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if kwargs or not all(map(is_plain, args)):
        return None
    return (observer.result(function, args, f"logging.getLogger{args!r}"),)


def _log(level: int | None) -> Rule:
    def rule(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        logger, *rest = args
        if type(logger) not in (logging.Logger, logging.RootLogger):
            return _unknown(observer, f"logging by a {type(logger).__name__}")
        severity = rest.pop(0) if level is None and rest else level
        if not rest or type(severity) is not int:
            return _unknown(observer, "a call of a logger by keywords")
        return _record(observer, logger, severity, rest, dict(kwargs))

    return rule


def _of_root(name: str) -> Rule:
    def rule(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        if not logging.root.handlers:
            return _unknown(observer, f"logging.{name}(), which sets up logging,")
        observer.emptiness(observer.know(logging.root.handlers, "logging.root.handlers"))
        return _LOGGING[f"logging.Logger.{name}"](observer, function, (logging.root, *args), kwargs)

    return rule


def _unknown(observer: Observer, what: str) -> Any:
    observer.open(what)


def _record(
    observer: Observer, logger: logging.Logger, level: int, said: list[Any], kwargs: dict[str, Any]
) -> Any:
    """A log record is made, and handled, at each call."""
    path = f"whether {logger.name!r} logs level {level}"
    if not observer.result(logging.Logger.isEnabledFor, (logger, level), path):
        return (None,)
    frame = _caller(observer, kwargs.pop("stacklevel", 1), (str(logging.__file__),))
    if (
        frame is None
        or any(kwargs.values())
        or not all(is_plain(value) or is_traced_value(value) for value in said)
    ):
        return _unknown(observer, "a log record of more than plain values")
    code = frame.f_code
    observer.know(logger, f"logging.getLogger({logger.name!r})")
    observer.repeat(_handle, (
        logger, level, code.co_filename, frame.f_lineno, code.co_name, said[0], *said[1:],
    ), {})
    return (None,)


def _handle(
    logger: logging.Logger, level: int, file: str, line: int, name: str, message: Any, *args: Any
) -> None:
    logger.handle(logger.makeRecord(logger.name, level, file, line, message, args, None, name))


_LEVELS = {  # logging.DEBUG, ...
    "debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50, "log": None,
}
_LOGGING: dict[str, Rule] = {f"logging.Logger.{n}": _log(level) for n, level in _LEVELS.items()}


RULES: dict[str, Rule] = {
    "builtins.print": _print,
    "_warnings.warn": _warn,
    "posix.putenv": _environment,
    "posix.unsetenv": _environment,
}
PYTHON: dict[str, Rule] = {
    **_LOGGING,
    **{f"logging.{name}": _of_root(name) for name in _LEVELS},
    "logging.Logger.isEnabledFor": _enabled,
    "logging.getLogger": _logger,
}
