"""`explain(fn, *args)`: what a compiled function became, as a report, texts and pictures."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import graphc
from graphc.engine.built import Built
from graphc.engine.capture.survey import NoGraph
from graphc.inspect.explain_segments import (
    SegmentsExplanation,
    explain_segments,
    without_graph,
)
from graphc.inspect.explanation import Explanation
from graphc.inspect.footprint import footprint_of
from graphc.inspect.history import history_of
from graphc.inspect.timing import given_to

if TYPE_CHECKING:
    # compile.py imports the pipeline, which is watched by this package
    from graphc.engine.version.version import Specialisation


def explain(
    function: Any, *args: Any, **kwargs: Any
) -> Explanation | SegmentsExplanation:
    """What `function(*args, **kwargs)` compiles to. It is compiled if it is not yet, never run.
    Of a function that runs in segments: what its calls so far came to, and every place that is
    open for these arguments (SegmentsExplanation); so of one that fullgraph=True refuses. To find
    those, open Python runs once (a file that it writes is written); tensors and all other state
    stay as they are.

    `function`: compiled or not, a Module, or an exported program. Without the arguments that it
    needs: the version that was compiled last.
    """
    compiled = _compiled(function)
    if not hasattr(compiled, "version"):
        if hasattr(function, "lower"):
            built = function.lower(*args, **kwargs)
            return Explanation(built.name, [built])
        compiled = _compiled(graphc.compile(function))
    if compiled.segments is not None:
        places = compiled.open_places(*args, **kwargs) if args or kwargs else []
        return _with_history(explain_segments(compiled.segments, places), compiled, None)
    called = bool(args or kwargs) or _binds(function)
    version = None if called else compiled.newest
    if version is None and not called:
        raise TypeError(
            f"explain() of {compiled.name}(), which was not called yet and takes arguments. "
            f"Cure: explain({compiled.name}, ...) with such arguments, or call it first"
        )
    if version is None:
        version = compiled.look_at(args, kwargs)
    if isinstance(version, NoGraph):
        found = without_graph(compiled.name, version.open, version.error, compiled.fullgraph)
        return _with_history(found, compiled, None)
    made = Explanation(
        compiled.name, _builts(version), version.guards.records,
        version.compile_seconds, compiled.compile_count, footprint_of(version), version.constants,
    )
    if called:
        made.given = functools.partial(given_to, version, args, kwargs)
    return _with_history(made, compiled, version)


def _with_history(found: Any, compiled: Any, version: Specialisation | None) -> Any:
    """With what is known of all versions of the function."""
    found.history = history_of(compiled.function, compiled.versions(), version)
    return found


def _compiled(function: Any) -> Any:
    """The CompiledFunction behind a compiled Module (on its class, where it is no bound method)."""
    return getattr(type(function), "_compiled_function", function)


def _binds(function: Any) -> bool:
    """Whether a function can be called without arguments."""
    try:
        inspect.signature(getattr(function, "forward", function)).bind()
    except TypeError:
        return False
    except ValueError:  # C code without a signature
        return True
    return True


def _builts(version: Specialisation) -> list[Built]:
    plan = version.plan
    if plan is None:
        return [version.engine.built]
    parts = list(plan.parts.made.values()) or [plan.parts.whole()]
    hints = version.graph.env.hints
    engines = [p.engines.made or [p.engines.at(hints)] for p in parts if p.engines is not None]
    return [version.engine.built, *(engine.built for made in engines for engine in made)]
