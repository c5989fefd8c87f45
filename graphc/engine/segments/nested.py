"""Module calls inside a function that runs in segments: closed ones are versions of their own.

Open belongs to a frame: where a function's own Python is open, that of the Modules which it calls
may be closed. Such a call ends the segment, and runs as `compile(module)` would outside: guards,
forward and backward, and the Module's Python is skipped. A Module whose recording meets something
open is open as well; those that it calls are tried then. Outermost Modules come first.

Ending a segment costs: what surrounds the call is not fused with it, and its operands go through
memory. So it is done for Modules alone whose operators, which need not be recorded any longer, are
more than that costs, counted as tiers.py counts: in operators, and in numbers that are moved. A
Module is compiled once versions would have saved, in all calls of Modules so far, what compiling
costs, the start of the compiler included; those equal to it come with it, and each further version
is paid for. What a Module records is known from the first call, or from one in segments.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ...frontend.context import local
from ...frontend.saved_hooks import hooks
from ...frontend.segment_trace import SegmentTrace
from ...frontend.tensor import Tensor
from ...frontend.tree import flatten
from ...ir.graph import Node
from ...ir.record import record
from ...nn.modules.hooks import forward_between_hooks
from ...nn.modules.module import Module
from ..version.shared_builds import SharedBuilds
from .tiers import (
    BACKWARD,
    NUMBERS,
    PRICE,
    eager_work,
    operators,
    start_cost,
    version_cost,
    work,
)

LEAST = 16  # operators that cost about as much to record as ending a segment does
_CALL = 5  # operators that take as long as calling a version does
_TWIN = 8  # what the second of equal Modules costs to compile, as a part of the first
_PLAIN = (bool, int, float, str, bytes, type(None))


@record(eq=False, frozen=False)
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
    paid: int = 0  # versions of it that were counted
    calls: int = 0  # that versions have run

    @property
    def likeness(self) -> Any:
        """Equal for Modules whose versions are likely to be the same native code."""
        return self.function, self.kind, self.nodes, self.work


class NestedModules:
    """The Modules that one function calls."""

    def __init__(self, compile: Callable[..., Any], native: Any) -> None:
        """`compile`: makes a CompiledFunction of one; `native`: `seconds` in compiled code and in
        compiling."""
        self.compile, self.native = compile, native
        self.found: dict[tuple[int, Any], NestedModule] = {}
        self.shared = SharedBuilds()
        self.compiled = 0  # operators
        self.work = 0  # that versions would have saved so far
        self.alike: set[Any] = set()  # Modules that have versions

    def call(self, function: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """function(module, *args, **kwargs): a Module's call, or its forward between hooks."""
        known = self.found.get((id(module), function))
        if known is None or known.module() is not module:
            known = self._new(function, module)
        trace = local.trace
        if known.open or not _can_end(trace):
            return function(module, *args, **kwargs)
        if not known.nodes:
            return self._counted(known, trace, module, args, kwargs)
        if known.compiled is None:
            _weigh_operands(known, args, kwargs)
            if known.open or not self._affords(known):
                return function(module, *args, **kwargs)
        if not _are_plain(args, kwargs):
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
        _weigh(known, operators(nodes), work(nodes)[0], trace.flushes != ends)
        _weigh_operands(known, args, kwargs)
        return result

    def count(self, function: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """function(module, *args, **kwargs) in eager mode, whose operators are counted."""
        counted = local.counted
        known = self.found.get((id(module), function)) or self._new(function, module)
        if counted is None or known.nodes:
            self._lost(known)
            return function(module, *args, **kwargs)
        start, again, demands = len(counted.ran), counted.again, counted.demands
        result = function(module, *args, **kwargs)
        ran = counted.ran[start:]
        number = len(ran) - (counted.again - again)
        _weigh(known, number, eager_work(ran)[0], counted.demands != demands)
        self._lost(known)
        return result

    def know(self, trace: Any) -> None:
        """Take over what a recording has met that began as one graph."""
        for met in trace.met or ():
            module = met.module()
            if module is None:
                continue
            function = forward_between_hooks if met.between_hooks else Module._graphc_call_named
            known = self.found.get((id(module), function)) or self._new(function, module)
            if not known.nodes:
                known.path, nodes = met.path, trace.noted[met.nodes]
                _weigh(known, operators(nodes), work(nodes)[0], met.ended)
            self._lost(known)
        trace.met = trace.noted = None

    def _lost(self, known: NestedModule) -> None:
        """Count what a version would have saved in a call."""
        if not known.open:
            self.work += max(known.work - _CALL, 0) * (BACKWARD if local.grad else 1)

    def _affords(self, known: NestedModule) -> bool:
        """Whether versions would have saved so much by now that making one is no great part."""
        self._lost(known)
        if known.likeness in self.alike:  # at once: all of a stack, in the same stage of a call
            return True
        return (self.compiled + self._cost(known) + start_cost()) * PRICE <= self.work

    def _cost(self, known: NestedModule) -> int:
        cost = version_cost(known.nodes * (BACKWARD if local.grad else 1), local.grad)
        return cost // _TWIN if known.likeness in self.alike else cost

    def _pay(self, known: NestedModule) -> None:
        """Count the versions that were made: changing sizes and flags need more than one."""
        count = known.compiled.compile_count
        if count > known.paid:
            self.compiled += (count - known.paid) * self._cost(known)
            known.paid = count
            self.alike.add(known.likeness)

    # --- the version ---------------------------------------------------------------------------

    def _version(
        self, known: NestedModule, module: Any, trace: Any, args: Any, kwargs: Any
    ) -> Any:
        if known.compiled is None:
            self.compiled += start_cost()
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
            self._pay(known)
            if known.compiled.segments is not None:
                known.open = "its own Python is open"
        known.calls += 1
        return result


def _weigh(known: NestedModule, nodes: int, work: int, ended: bool) -> None:
    """Say how many operators a Module records, and whether it comes into question."""
    known.nodes, known.work = max(nodes, 1), work
    if ended:
        known.open = "a segment ends in it"
    elif nodes < LEAST:
        known.open = _TOO_SMALL.format(nodes)


def _weigh_operands(known: NestedModule, args: Any, kwargs: Any) -> None:
    """Say whether a Module comes into question whose operands have to go through memory."""
    if not known.open and known.nodes < LEAST + 2 * _numbers((args, kwargs)) // NUMBERS:
        known.open = _TOO_SMALL.format(known.nodes)


_TOO_SMALL = "its {} operators are no more than ending a segment costs"


def _can_end(trace: Any) -> bool:
    """Whether a segment may end here, or there is none."""
    if local.saved_hooks or hooks.busy:  # a version saves what it likes
        return False
    return trace is None or (isinstance(trace, SegmentTrace) and trace.may_end)


def _are_plain(args: Any, kwargs: Any) -> bool:
    return all(
        isinstance(leaf, Tensor) or type(leaf) in _PLAIN for leaf in flatten((args, kwargs))[0]
    )


def _numbers(values: Any) -> int:
    """How many numbers the tensors among these hold."""
    return sum(math.prod(t.shape) for t in flatten(values)[0] if isinstance(t, Tensor))
