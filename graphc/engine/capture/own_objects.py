"""Objects of graphc's own machinery that users hold: generators, handles, contexts, storages.

Their code is not recorded. What one from before the call says of itself is asked again at each
call; its methods are called where a row says that they do under a trace what they do without. All
else that is done with one is open.
"""

from __future__ import annotations

from typing import Any

from ...frontend.nodes import OutsideHistory
from ...frontend.pending import PendingItem
from . import c_attributes
from .kinds import Kind, full_name, is_plain, kind_of
from .observer import Observer

# what graphc's own public code asks, and nobody guards: the thread's trace, who has made a step,
# what a backward pass unpacks
_INNER = frozenset("""
    graphc.frontend.context._Local graphc.frontend.saved_hooks._Hooks
    graphc.frontend.saved_hooks.Unpacking graphc.frontend.stepped.Stepped
    graphc.frontend.trace.Trace
""".split())
# classes, and those derived from them, whose methods a trace knows
_TRACED = frozenset("""
    graphc.frontend.random_state.Generator graphc.frontend.hooks.RemovableHandle
    graphc.frontend.grad_mode._Mode graphc.autograd.grad_mode._Switch
    graphc.autograd.anomaly_mode._Mode graphc.autograd.graph.saved_tensors_hooks
    graphc.amp.autocast_mode.autocast graphc.profiler.recorder.record_function
    graphc.frontend.function.FunctionCtx graphc.frontend.nodes.Node
    graphc.compile.CompiledFunction graphc.frontend.device.device
    graphc.frontend.functions.dtype_names.finfo graphc.frontend.functions.dtype_names.iinfo
""".split()) | _INNER
# attributes of contexts that entering them writes
_OF_ENTERING = frozenset(("_before", "_saved"))
_FUNCTIONS = (Kind.FUNCTION, Kind.METHOD, Kind.PARTIAL)


def _is_known(observer: Observer, obj: Any) -> bool:
    return kind_of(type(obj)) is Kind.OWN and observer.is_known(obj)


def is_inner(obj: Any) -> bool:
    """Whether an object is none that users look at."""
    return _is_one(obj, _INNER)


def _is_one(obj: Any, rows: frozenset[str]) -> bool:
    return any(full_name(base) in rows for base in type(obj).__mro__)


def attribute(observer: Observer, obj: Any, name: str) -> Any:
    """`obj.name`."""
    if type(obj) is PendingItem:
        observer.open(f"reading {name} of what {obj.method}() gives")
    if type(obj) is OutsideHistory:  # stands for what each call finds
        observer.taint("a gradient function from before the call")
        observer.open(f"reading {name} of a gradient function from before the call")
    if not observer.is_known(obj) or _is_one(obj, _INNER):
        return getattr(obj, name)
    try:
        return c_attributes.ask(observer, obj, name)
    except AttributeError:
        observer.result(hasattr, (obj, name), f"{observer.path(obj)}.{name}")
        raise


def stored(observer: Observer, obj: Any, name: str) -> None:
    """`obj.name` is about to be written or deleted."""
    if _is_known(observer, obj) and not is_inner(obj):
        observer.open(f"setting {name} of a {full_name(type(obj))}")


def called(observer: Observer, obj: Any, name: str) -> None:
    """A method is about to be called."""
    if _is_known(observer, obj) and not _is_one(obj, _TRACED):
        observer.open(f"{type(obj).__name__}.{name}()")


def used(observer: Observer, obj: Any, what: str) -> None:
    """It is about to be iterated over, or subscripted."""
    if _is_known(observer, obj):
        observer.open(f"{what} a {type(obj).__name__}")


def told(observer: Observer, obj: Any, function: Any) -> None:
    """bool() or len() of it is about to be asked."""
    if _is_known(observer, obj) and not _is_one(obj, _INNER):
        observer.result(function, (obj,), f"{function.__name__}({observer.path(obj)})")


def entered(observer: Observer, obj: Any, name: str) -> None:
    """`with obj`: what the context was made with is read."""
    if not _is_known(observer, obj):
        return
    called(observer, obj, name)
    held = getattr(obj, "__dict__", {})
    for field in list(held):
        if field not in _OF_ENTERING and (
            is_plain(held[field]) or kind_of(type(held[field])) in _FUNCTIONS
        ):
            observer.read(held, field, f"{observer.path(obj)}.{field}")
