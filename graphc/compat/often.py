"""`run --compile`: functions that compute on tensors, and are called often, are compiled.

After some steps of the program, its functions are watched for a few more (watch.py). Those that run
some operators in eager mode at each call are compiled on trial, outermost first; where one turns
out to need tensors' values, to raise, or to be another at each call, its own code is back in its
place from the next call on, and what it calls is tried. What a call does is what it did before:
CompiledFunction sees to that, whether it compiles or not.
"""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext
from types import CodeType, FunctionType
from typing import Any

from .. import backends
from ..compile import CompiledFunction, Ran
from ..engine.capture.reached import code_names
from ..engine.detour import restore, twin_of
from ..engine.marks import Compilers, marks
from ..engine.segments.segments import Segments
from ..engine.version.refused import has_run
from ..frontend.context import local
from ..frontend.errors import TraceError
from .debugged import debugged
from .watch import Count, Watch

_WARM = 24  # calls of Modules and losses, and backward passes, before the first watch
_WAIT = 64  # between two; doubles
_PASSES, _CALLS = 2, 64  # how long a watch lasts: backward passes, or calls
_OPERATORS = 4  # eager ones that a call of a function must run, to be worth a compiled call
_OPERATORS_OF_STEPS = 8  # of a function that calls compiled Modules
_PARAMETERS = 24  # of a Module: what calls larger ones takes long to compile again
_TRIAL = 8  # calls that must go well
_VERSIONS = 2  # that these may take: a size, or a number, turns out to vary
_ALIKE = 4  # functions with the same code: those of more closures come and go
# code that looks at the frames above it would see others
_LOOKS = frozenset(
    "_getframe currentframe stack locals globals vars eval exec breakpoint set_trace exc_info "
    "settrace setprofile gc".split()
)


class _Watching:
    """When the program is watched, and what came of it. A tick is a call of a Module or of a loss,
    or a backward pass."""

    def __init__(self) -> None:
        self.known: dict[CodeType, None] = {}  # of functions that are, or were, on trial
        self._lock = threading.Lock()
        self._ticks, self._due, self._wait = 0, _WARM, _WAIT
        self._watch: Watch | None = None
        self._thread = self._passes = self._calls = 0

    def tick(self, module: Any = None, compiled: bool = True) -> None:
        """A call of a Module, or of a loss (None)."""
        self._ticks += 1
        if self._watch is not None or self._ticks >= self._due:
            self._step(0, module, compiled)

    def passed(self) -> None:
        """A backward pass is about to begin."""
        self._ticks += 1
        if self._watch is not None or self._ticks >= self._due:
            self._step(1, None, False)

    def soon(self) -> None:
        """Watch again, with the next tick."""
        self._due = min(self._due, self._ticks + 1)

    def paused(self) -> Any:
        """A context in which this thread counts nothing."""
        here = self._thread == threading.get_ident()
        return self._watch if here and self._watch is not None else nullcontext()

    def _step(self, passes: int, module: Any, compiled: bool) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread's
        try:
            watch = self._watch
            if watch is None:
                self._start()
            elif self._thread == threading.get_ident():
                if compiled or passes:
                    count = 0 if module is None else sum(1 for _ in module.parameters())
                    watch.noted(count, passes)
                self._passes += passes
                self._calls += 1 - passes
                if self._passes >= _PASSES or self._calls >= _CALLS:
                    self._stop(watch)
        finally:
            self._lock.release()

    def _over(self) -> None:
        """No tick came for long."""
        if self._lock.acquire(blocking=False):
            try:
                if self._watch is not None:
                    self._stop(self._watch)
            finally:
                self._lock.release()

    def _start(self) -> None:
        watch = Watch(self._over)
        self._due = self._ticks + self._wait
        self._wait *= 2
        if watch.start():
            self._watch, self._thread = watch, threading.get_ident()
            self._passes = self._calls = 0

    def _stop(self, watch: Watch) -> None:
        watch.stop()
        self._watch, self._due = None, max(self._due, self._ticks + 1)
        for code in _chosen(watch.found, self.known):
            self.known[code] = None
            found = [f for f in gc.get_referrers(code) if _runs(f, code)]
            if len(found) <= _ALIKE:
                for function in found:
                    debugged.add(_Trial(function))


def _runs(function: Any, code: CodeType) -> bool:
    """Whether it is a function with this code of which torch.compiler was told nothing."""
    if type(function) is not FunctionType or function.__code__ is not code:
        return False
    return marks.of(function) is None and all(
        function is not getattr(known.function, "__func__", known.function)
        for known in list(Compilers.functions)
    )


def _chosen(counts: dict[CodeType, Count], known: dict[CodeType, None]) -> list[CodeType]:
    """The functions to try, but those that others of them call."""
    found = {code for code, count in counts.items() if code not in known and _fits(code, count)}
    return [code for code in counts if code in found and not found & counts[code].inside]


def _fits(code: CodeType, count: Count) -> bool:
    """Whether a compiled call of a function seems to gain."""
    if code in count.inside or not _LOOKS.isdisjoint(code_names(code)):
        return False
    steps = count.compiled or count.passes
    least = _OPERATORS_OF_STEPS if steps else _OPERATORS
    return count.operators >= least * count.calls and count.parameters <= _PARAMETERS


watching = _Watching()


class _Trial:
    """What calls of a function on trial go to."""

    def __init__(self, function: FunctionType) -> None:
        self.function, self._calls = function, 0
        self.target: Any = self
        self._twin = twin_of(function)
        self._compiled = _Often(self._twin, self)
        self.ended = self.passed = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.ended or local.trace is not None or local.counted is not None:
            return self._twin(*args, **kwargs)
        try:
            result = self._compiled(*args, **kwargs)
        except TraceError as error:  # which leaves everything as it was
            self.fail()
            if has_run(error):
                raise
            return self._twin(*args, **kwargs)
        except BaseException:
            self.fail()
            raise
        self._calls += 1
        compiled = self._compiled
        if compiled.segments is not None:
            self.fail()
        elif self._calls >= _TRIAL:
            if compiled.is_quick:
                self.passed = True
                self.target = compiled
                debugged.add(self)
            else:
                self.fail()
        return result

    def __reduce__(self) -> Any:
        return _itself, (self._twin,)

    def fail(self) -> None:
        """Leave the function as it was, for good, and try others."""
        if not self.ended:
            self.ended = True
            restore(self.function)
            watching.soon()


class _Often(CompiledFunction):
    """A compiled function that nobody asked for: it warns of nothing."""

    def __init__(self, function: FunctionType, trial: _Trial) -> None:
        self._on_trial = trial
        super().__init__(function, dynamic=None, backend=backends.DEFAULT)

    @property
    def is_quick(self) -> bool:
        """Whether its calls are one call of native code."""
        return bool(self._versions.shortcuts)

    def _fresh(self, given: Any, *rest: Any) -> Any:
        if self.compile_count >= _VERSIONS and not self._on_trial.passed:
            self._on_trial.fail()
            return Ran(self.function(*given[0], **given[1]))
        return super()._fresh(given, *rest)

    def __reduce__(self) -> Any:  # of who pickles functions by their code
        return _itself, (self.function,)

    def _turn(self) -> Segments:
        segments = super()._turn()
        segments.tiers.told = True
        if self._on_trial.passed:
            self._on_trial.fail()
        return segments


def _itself(function: Any) -> Any:
    return function
