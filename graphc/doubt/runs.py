"""The same calls from the same state: eager, compiled, eager with larger rounding errors."""

from __future__ import annotations

import contextlib
import inspect
import io
import types
import warnings
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

from ..compiler import set_stance
from ..engine.capture.reached import unwrapped
from ..engine.segments.tiers import PerformanceWarning
from ..frontend.placement import places
from .noise import rounding_errors
from .seen import Entry, look, text_entry
from .snapshot import Snapshot
from .walk import Roots, streams

RESULT = "result of call"
ERROR = "exception"
_NOISY = 4  # runs with larger rounding errors


class Runs:
    """The calls of a function. Whoever uses it calls `end` when done."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, calls: int) -> None:
        self.function, self.args, self.kwargs, self.calls = function, args, kwargs, calls
        self.roots = (*_named(function, args, kwargs), *streams())
        self.snapshot = Snapshot(self.roots)
        self._context = copy_context()
        self.raised: Exception | None = None  # by the last call
        self._noisy: list[list[list[Entry]]] = []

    def eager(self) -> Iterator[list[Entry]]:
        """What is seen after each call in eager mode."""
        with set_stance("force_eager"):
            yield from self.run(self.function)

    def run(self, function: Callable[..., Any]) -> Iterator[list[Entry]]:
        """What is seen after each call of `function`, from the state at the beginning."""
        self.begin()
        results: list[tuple[str, Any]] = []
        for number in range(self.calls):
            extra: list[Entry] = []
            result = self._call(function, extra)
            if self.raised is not None:  # eager mode leaves tensors half way, compiled code not
                yield extra
                return
            results.append((f"{RESULT} {number + 1}", result))
            roots = (*self.roots, *results)
            yield [*extra, *self._context.run(look, roots, self.snapshot.known)]

    def begin(self) -> None:
        """The state at the beginning, context variables included."""
        self.snapshot.restore()
        self._context = copy_context()

    def call(self, function: Callable[..., Any]) -> Any:
        """One call, with what it prints kept back."""
        return self._call(function, [])

    def _call(self, function: Callable[..., Any], extra: list[Entry]) -> Any:
        result, self.raised = None, None
        with contextlib.redirect_stdout(io.StringIO()) as text, warnings.catch_warnings(
            record=True
        ) as said:
            warnings.simplefilter("ignore", PerformanceWarning)
            try:
                result = self._context.run(function, *self.args, **self.kwargs)
                for place in places():  # what fails there, fails in this call
                    place.memory.synchronise()
            except Exception as error:
                self.raised = error
        notes = tuple((w.category.__name__, str(w.message)) for w in said)
        extra += [
            Entry(ERROR, (("", _name(self.raised)),)), text_entry("printed text", text.getvalue()),
            Entry("warnings", (("", notes),)),
        ]
        return result

    def noisy(self, number: int) -> list[Any]:
        """What eager mode with larger rounding errors shows after a call."""
        if not self._noisy:
            for seed in range(_NOISY):
                with rounding_errors(seed):
                    self._noisy.append(list(self.eager()))
        return [seen[number] for seen in self._noisy if number < len(seen)]

    def end(self) -> None:
        """Leave everything as it was found."""
        self.snapshot.restore()


def _name(error: Exception | None) -> str:
    return "none" if error is None else type(error).__name__


def _named(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roots:
    """The function and its arguments, by the names that the user gave them."""
    inner, given = unwrapped(function, args)
    names = [f"argument {i + 1}" for i in range(len(args))]
    if isinstance(inner, types.FunctionType):
        code = inner.__code__
        own = code.co_varnames[: code.co_argcount][len(given) - len(args) :]
        names[: len(own)] = own[: len(names)]
        if code.co_flags & inspect.CO_VARARGS:
            star = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
            names[len(own) :] = [f"{star}[{i}]" for i in range(len(args) - len(own))]
    name = getattr(function, "__name__", "") or type(function).__name__
    return ((name, function), *zip(names, args, strict=True), *kwargs.items())
