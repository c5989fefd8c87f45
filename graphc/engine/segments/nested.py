"""Module calls inside a function that runs in segments: closed ones are versions of their own.

Open belongs to a frame: where a function's own Python is open, that of the Modules which it calls
may be closed. Such a call ends the segment, and runs as `compile(module)` would outside: guards,
forward and backward, and the Module's Python is skipped. A Module whose recording meets something
open is open as well; those that it calls are tried then. Outermost Modules come first.

Ending a segment costs: what surrounds the call is not fused with it, and its operands go through
memory. So it is done for Modules alone whose operators, which need not be recorded any longer, are
more than that costs, counted as tiers.py counts: in operators, and in numbers that are moved. The
budget for compiling is that of tiers.py, too.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...frontend.context import local
from ...frontend.saved_hooks import hooks
from ...frontend.segment_trace import SegmentTrace
from ...frontend.tensor import Tensor
from ...frontend.tree import flatten
from ...ir.graph import Node
from ..version.shared_builds import SharedBuilds
from .tiers import NUMBERS, PRICE, VERSION, work

LEAST = 16  # operators that cost about as much to record as ending a segment does
_TWIN = 4  # what the second of equal Modules costs to compile, as a part of the first
_BACKWARD = 3  # a forward that is differentiated comes to so many times its operators
_PLAIN = (bool, int, float, str, bytes, type(None))


@dataclass(eq=False)
class NestedModule:
    """What is known of the calls of one Module."""

    function: Callable[..., Any]
    module: weakref.ref[Any]
    kind: str  # its class
    path: str = ""
    nodes: int = 0  # that its forward records; 0: not known yet
    work: int = 0
    open: str = ""  # why it is no version of its own
    compiled: Any = None  # its CompiledFunction
    calls: int = 0  # that versions have run

    @property
    def likeness(self) -> Any:
        """Equal for Modules whose versions are likely to be the same native code."""
        return self.function, self.kind, self.nodes, self.work


@dataclass(eq=False)
class NestedModules:
    """The Modules that one function calls. `compile`: makes a CompiledFunction of one."""

    compile: Callable[..., Any]
    native: Any  # `seconds` in compiled code and in compiling
    found: dict[tuple[int, Any], NestedModule] = field(default_factory=dict)
    shared: SharedBuilds = field(default_factory=SharedBuilds)
    compiled: int = 0  # operators
    work: int = 0  # that was run without being compiled

    def call(self, function: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """function(module, *args, **kwargs): a Module's call, or its forward between hooks."""
        known = self.found.get((id(module), function))
        if known is None or known.module() is not module:
            known = self._new(function, module)
        trace = local.trace
        if known.open or not _can_end(trace) or not _are_plain(args, kwargs):
            return function(module, *args, **kwargs)
        if not known.nodes:
            return self._counted(known, trace, module, args, kwargs)
        if known.compiled is None and not self._affords(known):
            return function(module, *args, **kwargs)
        return self._version(known, module, trace, args, kwargs)

    def used(self) -> Iterator[NestedModule]:
        """The Modules that run as versions of their own."""
        return (known for known in self.found.values() if known.calls and not known.open)

    def closed(self) -> Iterator[NestedModule]:
        """The Modules that do, or will once the budget allows it."""
        return (known for known in self.found.values() if known.nodes and not known.open)

    # --- what a Module comes to ----------------------------------------------------------------

    def _new(self, function: Callable[..., Any], module: Any) -> NestedModule:
        key = id(module), function
        reference = weakref.ref(module, lambda _: self.found.pop(key, None))
        known = self.found[key] = NestedModule(function, reference, type(module).__name__)
        return known

    def _counted(self, known: NestedModule, trace: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Run a Module's Python in the segment, and count what it records."""
        if trace is None:  # plain eager code records nothing
            return known.function(module, *args, **kwargs)
        outer = trace.noted
        if outer is None:
            trace.noted = []
        start, ends = len(trace.noted), trace.flushes
        try:
            result = known.function(module, *args, **kwargs)
            nodes: list[Node] = trace.noted[start:]
        finally:
            trace.noted = outer
        known.path = trace.names.module(module, trace.module)
        known.nodes, (known.work, _) = max(len(nodes), 1), work(nodes)
        if trace.flushes != ends:
            known.open = "a segment ends in it"
        elif len(nodes) < LEAST + _numbers((args, kwargs, result)) // NUMBERS:
            known.open = f"its {len(nodes)} operators are no more than ending a segment costs"
        return result

    def _affords(self, known: NestedModule) -> bool:
        """Whether so much was run without a version that making one is no great part of it."""
        factor = _BACKWARD if local.grad else 1
        self.work += known.work * factor
        twins = [k for k in self.found.values() if k.compiled and k.likeness == known.likeness]
        cost = known.nodes * factor // _TWIN if twins else known.nodes * factor + VERSION
        # without a SHARE: a version saves nearly all that its operators cost
        if (self.compiled + cost) * PRICE > self.work:
            return False
        self.compiled += cost
        return True

    # --- the version ---------------------------------------------------------------------------

    def _version(
        self, known: NestedModule, module: Any, trace: Any, args: Any, kwargs: Any
    ) -> Any:
        if known.compiled is None:
            known.compiled = self.compile(known.function, known.kind, self.shared)
        outer, local.nested = local.nested, None
        started = time.perf_counter()
        try:
            if trace is None:
                result = known.compiled(module, *args, **kwargs)
            else:
                trace.flush()
                with trace.suspended():
                    result = known.compiled(module, *args, **kwargs)
        finally:
            local.nested = outer
            self.native.seconds += time.perf_counter() - started
            if known.compiled.segments is not None:
                known.open = "its own Python is open"
        known.calls += 1
        return result


def _can_end(trace: Any) -> bool:
    """Whether a segment may end here, or there is none."""
    if hooks.stack or hooks.busy:  # a version saves what it likes
        return False
    return trace is None or (isinstance(trace, SegmentTrace) and trace.may_end)


def _are_plain(args: Any, kwargs: Any) -> bool:
    return all(
        isinstance(leaf, Tensor) or type(leaf) in _PLAIN for leaf in flatten((args, kwargs))[0]
    )


def _numbers(values: Any) -> int:
    """How many numbers the tensors among these hold."""
    return sum(math.prod(t.shape) for t in flatten(values)[0] if isinstance(t, Tensor))
