"""compare(fn, *args): a function eager and compiled, from the same state, and where they part."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..compile import CompiledFunction, compile
from ..frontend.context import local
from .locate import Origin, origin
from .runs import ERROR, RESULT, Runs
from .seen import Closeness, Difference, difference
from .walk import streams


@dataclass(frozen=True)
class Comparison:
    """What compare() found; true where eager and compiled agree, str() is the report.

    Of the first difference: `call` counts from 1, `kind` is "values" (of a result), "effects",
    "random state" or "error", `place` is what differs, `line` the user's, `kernel` the native
    kernel that is wrong, `graph` the smallest graph that shows it; "" where there is none. `notes`
    says what the comparison could not copy or look into.
    """

    name: str
    calls: int
    how: str
    agrees: bool = True
    call: int = 0
    kind: str = ""
    place: str = ""
    detail: str = ""
    line: str = ""
    kernel: str = ""
    reason: str = ""
    graph: str = ""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.agrees

    def __str__(self) -> str:
        head = f"{self.name}(): "
        if self.agrees:
            lines = [f"{head}{_counted(self.calls)}, eager and compiled ({self.how}), agree"]
        else:
            lines = [f"{head}call {self.call} differs in {self.kind}: {self.place} {self.detail}"]
            lines += [f"  at {self.line}"] if self.line else []
            lines += [f"  in kernel {self.kernel}"] if self.kernel else []
            lines += [f"  {self.reason}"] if self.reason else []
            lines += [f"  the compiled side ran as {self.how}"]
            lines += ["the smallest graph that shows it:", self.graph] if self.graph else []
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def assert_agrees(self) -> None:
        """Raise AssertionError with the report unless eager and compiled agree."""
        if not self.agrees:
            raise AssertionError(str(self))


def compare(
    fn: Callable[..., Any], *args: Any, calls: int = 3, rtol: float | None = None,
    atol: float | None = None, **kwargs: Any,
) -> Comparison:
    """Call `fn(*args, **kwargs)` several times eagerly and as often compiled, from the same state,
    and say where they first differ: in results, changed state, what is printed, random streams.

    All that the function can reach (arguments, closures, globals that it names, Modules,
    optimizers, generators) is put back before each run and at the end. `fn` is compiled anew, as
    the compiled function that it may be. Numbers must be as close as torch.testing.assert_close
    asks for, or as rounding alone can tell; with `rtol` and `atol` as close as these say; NaN
    agrees with NaN. Of a call that raises, the exception and what it printed are compared, and it
    is the last. Raises TypeError where something that it moves cannot be put back.
    """
    _check(fn, calls, rtol, atol)
    function, renewed = _uncompiled(fn)
    closeness = Closeness(rtol, atol)
    runs = Runs(function, args, kwargs, calls)
    name = str(getattr(function, "__name__", "") or type(function).__name__)
    try:
        eager = list(runs.eager())
        runs.snapshot.restore()
        if moved := runs.snapshot.moved():
            raise TypeError(
                f"compare() runs {name}() again from the same state, and {moved} cannot be put "
                "back to where it was. Cure: make it inside the function, or use a list"
            )
        compiled = renewed()
        seen = list(runs.run(compiled))  # all, before noisy runs begin from the same state
        raised = str(runs.raised or "").split("\n")[0]
        found, call = _first_difference(runs, eager, seen, closeness)
        notes = tuple(f"not copied: {each}" for each in runs.snapshot.uncopied)
        how = _how(compiled)
        if found is None:
            return Comparison(name, calls, how, notes=notes)
        if found.path == ERROR:
            where = Origin(reason=raised)
        else:
            where = origin(runs, _engine(renewed()), found.path, call)
    finally:
        runs.end()
    return Comparison(
        name, calls, how, False, call + 1, _kind(found.path), found.path, found.detail,
        *where, notes=notes,
    )


def _check(fn: Any, calls: int, rtol: float | None, atol: float | None) -> None:
    if not callable(fn):
        raise TypeError(
            f"compare() takes a function or a Module, got the {type(fn).__name__} {fn!r}. Cure: "
            "compare(fn, x), not compare(fn(x))"
        )
    if type(calls) is not int or calls < 1:
        raise ValueError(
            f"calls={calls!r} is no whole number from 1 on. Cure: calls=3; what fn itself calls "
            "calls goes into functools.partial"
        )
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol={rtol!r} and atol={atol!r}. Cure: give both, or neither")
    if local.trace is not None:
        raise RuntimeError("compare() inside a compiled function. Cure: call it outside")


def _uncompiled(fn: Any) -> tuple[Any, Callable[[], Any]]:
    """The function without compile(), and what compiles it anew."""
    found = _engine(fn)
    options: dict[str, Any] = {}
    plain = fn
    if isinstance(found, CompiledFunction):
        plain = getattr(fn, "_orig_mod", None) or found.function
        options = {
            "dynamic": found.dynamic, "backend": found.backend, "fullgraph": found.fullgraph,
        }

    def renewed() -> Any:
        compiled = compile(plain, **options)
        _engine(compiled).always_compiled = True
        return compiled

    return plain, renewed


def _engine(compiled: Any) -> Any:
    """The CompiledFunction behind a compiled Module."""
    return getattr(type(compiled), "_compiled_function", compiled)


def _first_difference(
    runs: Runs, eager: list[Any], seen: list[Any], closeness: Closeness
) -> tuple[Difference | None, int]:
    for call, (want, have) in enumerate(zip(eager, seen, strict=False)):
        found = difference(want, have, closeness, functools.partial(runs.noisy, call))
        if found is not None:
            return found, call
    return None, 0


def _kind(path: str) -> str:
    if path == ERROR:
        return "error"
    if path.startswith(RESULT):
        return "values"
    drawn = any(path.startswith(name) for name, _ in streams())
    return "random state" if drawn else "effects"


def _how(compiled: Any) -> str:
    engine = _engine(compiled)
    if engine.segments is None:
        return f"one graph, {engine.compile_count} version{'s' if engine.compile_count > 1 else ''}"
    segments = engine.segments
    return f"{segments.compile_count} compiled segments"


def _counted(calls: int) -> str:
    return f"{calls} call{'s' if calls > 1 else ''}"
