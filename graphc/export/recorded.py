"""One call of a model as a graph, for those who want it without its Python: export, TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.engine.capture.exits import Constants
from graphc.engine.capture.recording import Recording
from graphc.engine.capture.survey import Survey
from graphc.frontend.captured import TracedGraph
from graphc.frontend.context import local
from graphc.frontend.errors import TraceError
from graphc.frontend.grad_mode import no_grad
from graphc.frontend.tensor import Tensor
from graphc.frontend.trace import Trace
from graphc.frontend.tree import flatten
from graphc.ir.dim import Dim
from graphc.nn.modules.module import Module


def name_of(model: Callable[..., Any]) -> str:
    """What a model's graph is called."""
    kind = type(model).__name__
    return kind if isinstance(model, Module) else getattr(model, "__name__", kind)


def recorded(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
    paths: Sequence[str] = (), free: Mapping[int, Mapping[int, str | Dim]] | None = None,
    whole: bool = True,
) -> tuple[TracedGraph, Trace]:
    """Trace `model(*args, **kwargs)`; what the model does to itself, and to tensors, is taken back.

    `paths`: names of the arguments' leaves; `free`: their free sizes, by leaf and dim.
    Python that one graph cannot stand for raises TraceError; unless `whole`: then it runs, on the
    values that it asks for.
    """
    leaves, _ = flatten((args, dict(kwargs)))
    name = name_of(model)
    trace = Survey(name, strict=True)
    trace.argument_names = list(paths)
    recording = Recording(name, trace, leaves, Constants())
    recording.know(model)
    with no_grad(), trace:
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                trace.add_argument(leaf, number, (free or {}).get(number))
        local.exporting = True
        try:
            result = recording.call(model, args, dict(kwargs))
            _conclude(trace, whole)
        finally:
            local.exporting = False
            recording.restore()
        traced = trace.finish(result)
    trace.close()
    return traced, trace


def _conclude(trace: Survey, whole: bool) -> None:
    try:
        trace.conclude(None)
    except TraceError:
        if whole:
            raise
