"""compile(fn): guards -> trace -> pipeline -> build -> Executable. Read this file first.

A CompiledFunction keeps its versions by what they assume. A call looks for one whose guards hold
and runs it; where none does, the function is traced (its Python runs once), the graph goes
through the pipeline, and the new version runs. The first call thus has the effects of eager mode,
once: the trace itself changes nothing that lasts.

Sizes: the first size is compiled as it is; the second distinct size of an argument's dimension
makes it symbolic. Numbers: a float or int argument is compiled as it is, and is a run-time input
from its second value on (number_policy.py); floats in param groups are from the first; an
attribute that the function's own Python counts up becomes one, too.

Steady state: what a step creates on first use (`.grad`, moments) exists from the second call on.
A first trace that starts without gradients and leaves some is therefore traced again with zeros
in their place, which means the same and is what later calls will find.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import time
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import backends
from . import config as configuration
from .collecting import FEWER
from .engine.built import CompileCounter
from .engine.capture.exits import Constants
from .engine.capture.places import Place
from .engine.capture.reached import argument_names, reached
from .engine.capture.recording import FirstUse, Raised, Recording, Terms, Turned
from .engine.capture.survey import Look, NoGraph, OpenPlace, survey_for
from .engine.limit import asked_for
from .engine.marks import Compilers
from .engine.mode import USUAL, Mode, mode_of
from .engine.segments import foreseen
from .engine.twin import twin_of
from .engine.version import refused, sparse_arguments
from .engine.version.build import build
from .engine.version.refused import ERRORS, Raises, Ran, is_refusal, note_run, run_python
from .engine.version.shared_builds import SharedBuilds
from .engine.version.shortcut import MISSED, UNASKED, take
from .engine.version.sources import Stale
from .engine.version.version import Specialisation, nothing
from .engine.version.versions import Named, Versions
from .frontend import placement
from .frontend.context import local
from .frontend.errors import FINAL, TraceError
from .frontend.gradient_layout import zeros_for
from .frontend.names import Names
from .frontend.segment_trace import SegmentTrace
from .frontend.tensor import Tensor
from .frontend.tree import Structure, flatten_call, unflatten
from .inspect.compiled import Inspected
from .ir import forks
from .ir.late import late
from .nn.modules.module import Module

if TYPE_CHECKING:
    from .doubt import again as doubt
    from .engine.segments import segments as in_segments
    from .inspect import bill, recompiled
else:
    doubt, in_segments = late("graphc.doubt.again"), late("graphc.engine.segments.segments")
    bill, recompiled = late("graphc.inspect.bill"), late("graphc.inspect.recompiled")

_RESTS = 3  # attempts to make one graph of a function that ran in segments as it made its state


class CompiledFunction(Inspected):
    """A function with its compiled versions."""

    def __init__(
        self, function: Callable[..., Any], *, dynamic: bool | Named | None = None,
        backend: str = backends.DEFAULT, name: str | None = None, fullgraph: bool = False,
        mode: Mode = USUAL, shared: SharedBuilds | None = None,
    ) -> None:
        self.function, self.mode = function, mode
        self._shared = shared
        limited = mode.max_memory is not None  # which is known of one graph for known sizes
        self.fullgraph, self.dynamic = fullgraph or limited, False if limited else dynamic
        self.backend = backend
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))
        self._constants = Constants()  # of the version that is being made
        self.always_compiled = False  # segments, too, at their first meeting (compare())
        self._lock = forks.rlock()
        self.reset()
        functools.update_wrapper(self, function, updated=())
        Compilers.functions.add(self)

    def reset(self) -> None:
        """Forget every version (torch.compiler.reset)."""
        with self._lock:
            self.segments: in_segments.Segments | None = None  # once it was seen to need values
            self._resting: in_segments.Segments | None = None
            self._rests = self.compile_count = 0
            self._raises = Raises()
            self.last_miss: list[str] = []
            self.seen = False  # whether it was called
            self._versions = Versions(self.dynamic)
            self._lifted: dict[Place, None] = {}

    @property
    def __compiled_function__(self) -> Callable[..., Any]:
        """What roots.py walks into instead of this object, whose counters change."""
        return self.function

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        result, direct = UNASKED, self._versions.direct
        if direct is not None and not kwargs and self.segments is None:
            result = direct.call(args)
            if type(result) is not int:
                return result
        if self.segments is None and self._versions.shortcuts:
            result = take(self._versions, self.function, args, kwargs, direct, result)
            if result is not MISSED:
                return result
        if local.trace is not None or local.counted is not None or local.instead or (
            local.saved_hooks  # the caller's: they are for what each operator saves
        ):
            return refused.as_written(self.function, args, kwargs)
        stance = Compilers.stance
        if stance.eager or (stance.first_eager and not self.seen):
            self.seen = True
            return refused.as_written(self.function, args, kwargs)
        if self.segments is not None:
            return self.segments.call(self.function, args, kwargs)
        leaves, structure = flatten_call(args, kwargs)
        try:
            key, shapes = self._versions.key(leaves, structure)
        except sparse_arguments.SparseArgument as error:
            return sparse_arguments.around(self, error, args, kwargs)
        reasons: list[str] = []
        known, doubted = self.compile_count, configuration.current().check >= configuration.AGAIN
        for versions in self._versions.candidates(key, shapes):
            for version in versions:
                try:
                    if doubted:
                        self._again(version, (args, kwargs), leaves, structure)
                    result = version.run(leaves, (args, kwargs))
                    if version is not versions[0]:
                        self._versions.prefer(key, shapes, version)
                    self._versions.shorten(version, structure, leaves, shapes, (args, kwargs))
                    return result
                except Stale as reason:
                    reasons.append(str(reason))
                except ERRORS as error:
                    if not is_refusal(error):
                        raise
                    break
            else:
                continue
            return run_python(self.function, args, kwargs)
        if not stance.recompiles(self.name, reasons):
            return refused.as_written(self.function, args, kwargs)
        with self._lock:
            fresh: Specialisation | Ran | None = None
            if self.compile_count == known and self.segments is None:
                fresh = self._fresh((args, kwargs), leaves, structure, key, reasons)
        if fresh is None:
            return self(*args, **kwargs)  # in segments, or compiled by another thread meanwhile
        if isinstance(fresh, Ran):
            return fresh.result
        undo, fresh.undo = fresh.undo, nothing
        try:
            started, result = time.perf_counter(), fresh.run(leaves, (args, kwargs))
            if configuration.current().debug:
                bill.show(fresh, started, self.compile_count == 1)
            self._versions.shorten(fresh, structure, leaves, shapes, (args, kwargs))
            return result
        except Stale as reason:  # the recording does not stand for the very call that made it
            undo()
            if self.fullgraph:
                raise TraceError(f"compiled {self.name}(): {reason} in its first call") from None
            self._turn().give_up([str(reason)])
            return self(*args, **kwargs)
        except BaseException as error:
            undo()
            if not is_refusal(error):
                raise
        return run_python(self.function, args, kwargs)

    def _fresh(
        self, given: Any, leaves: list[Any], structure: Structure, key: Any, reasons: list[str]
    ) -> Specialisation | Ran | None:
        """A new version for a call, or its result where it went on in segments; None: neither."""
        if not self.fullgraph and self._versions.too_many(key, leaves):
            self.last_miss = reasons
            self._turn().give_up(reasons)
            return None
        if self._raises.many:
            return Ran(self._raises.run(self.function, *given))
        if self._resting is None and not (
            self.compile_count or self.fullgraph or self.always_compiled
        ) and (lines := foreseen.values_needed(self.function, *given)):
            self._resting, self.segments = (first := self._turn()), None
            return Ran(first.first_call(self.function, *given, turn=self._turn, awaited=lines))
        try:
            made = self._compile(given, leaves, structure, reasons)
            if not isinstance(made, Turned):
                return made
            self._turn().note(made.trace)
            self._rest(made.passing)
            return Ran(made.result)
        except Raised as error:
            raised = error
        except KeyboardInterrupt:  # what was recorded so far has run
            self._rest(True)
            raise
        except TraceError as error:
            if self.fullgraph and isinstance(error, FirstUse) and self._rests < _RESTS:
                self._rests += 1  # eager, and whole: the next call finds made what this one makes
                return Ran(run_python(self.function, *given))
            if self.fullgraph or refused.has_run(error) or isinstance(error, FINAL):
                raise
            segments = self._turn().opened_by(error)
            if not isinstance(error, FirstUse):
                return None
            self._rest(True)
            return Ran(segments.call(self.function, *given))
        return self._raised(raised, *given)

    def _raised(self, error: Raised, args: Any, kwargs: Any) -> Ran:
        """Let the Python run in eager mode whose recording has raised."""
        result = self._raises.run(self.function, args, kwargs)
        wrong = TraceError(f"compiled {self.name}() raises {error} where it is recorded alone")
        if self.fullgraph:
            raise wrong
        self._turn().opened_by(wrong)
        return Ran(result)

    def _turn(self) -> in_segments.Segments:
        """From now on, run in segments."""
        if self.segments is None:
            self.segments = self._resting or in_segments.Segments(
                self.name, self.backend, self._of_module, self.always_compiled, self.mode
            )
        return self.segments

    def _of_module(
        self, function: Callable[..., Any], name: str, shared: SharedBuilds
    ) -> CompiledFunction:
        """What runs a Module, the function's first argument, as versions of its own."""
        return CompiledFunction(
            function, dynamic=self.dynamic, backend=self.backend, name=name, mode=self.mode,
            shared=shared,
        )

    def _rest(self, passing: bool) -> None:
        """Where state was made for the first time, the next call is tried as one graph again."""
        if passing and self._rests < _RESTS:
            self._rests += 1
            self._resting, self.segments = self.segments, None

    # --- compilation --------------------------------------------------------------------------

    def _compile(
        self, given: Any, leaves: list[Any], structure: Structure, reasons: list[str],
        look: Look | None = None,
    ) -> Specialisation | Turned:
        self._constants = Constants()
        if look is None:
            for place in placement.places():  # what failed before does not count as this function's
                place.memory.synchronise()
        with FEWER:
            return self._versions.attempt(leaves, structure, lambda key, shapes: self._compile_for(
                given, leaves, structure, key, shapes, reasons, look
            ))

    def _compile_for(
        self, given: Any, leaves: list[Any], structure: Structure, key: Any,
        shapes: tuple[Any, ...], reasons: list[str], look: Look | None = None,
    ) -> Specialisation | Turned:
        """Trace and build. `look`: never run anything."""
        self.last_miss = reasons
        if self.compile_count and configuration.current().debug:
            names = argument_names(self.function, given[0], given[1], structure)
            recompiled.report(
                self.name, self.function, self._versions.found_by, (key, shapes), names,
                self._versions.known(key, shapes), reasons,
            )
        self._lifted.update(dict.fromkeys(self._versions.counters()))
        terms = Terms(
            self._versions.named_dims(leaves, key, shapes),
            self._versions.renewed_dims(leaves, key, shapes), tuple(self._lifted),
            frozenset(self._versions.lifting), self._constants,
        )
        started = time.perf_counter()
        recording = self._record(given, leaves, structure, terms, look)
        if isinstance(recording, Recording) and terms.symbolic and recording.traced.overlaps:
            # parts of one memory, written to: their places in it are constants
            terms = terms._replace(named={}, renewed=[])
            recording = self._record(given, leaves, structure, terms, look)
        if isinstance(recording, Recording) and recording.missing and (
            not recording.observer.looked_at_grad
        ):
            recording = self._record_steady(recording, given, leaves, structure, terms, look)
        if isinstance(recording, Turned):
            return recording
        try:
            version = build(recording, self.name, self.backend, self.mode, self._shared)
        except BaseException:
            recording.restore()
            raise
        version.compile_seconds = time.perf_counter() - started
        version.terms, version.guards.asked = terms, look is None
        version.undo = recording.restore if look is None else nothing
        self._versions.add(key, shapes, leaves, version, terms.symbolic, reasons)
        if self.fullgraph:
            self._versions.drop_oldest(key, leaves)
        self.compile_count += 1
        CompileCounter.count += 1
        return version

    def _record(
        self, call: Any, leaves: list[Any], structure: Structure, terms: Terms,
        look: Look | None = None,
    ) -> Recording | Turned:
        """One run of the Python under a trace."""
        trace: SegmentTrace = (
            survey_for(self.name, self.fullgraph, look) if self.fullgraph or look is not None
            else self._trial(terms.symbolic)
        )
        trace.renewed = {id(place.get()): dims for place, dims in terms.renewed}
        trace.names = Names(lambda: reached(self.function, *call))
        trace.argument_names = argument_names(self.function, call[0], call[1], structure)
        recording = Recording(self.name, trace, leaves, terms.constants.again())
        recording.know(self.function)
        try:
            with trace:
                for place in terms.places:
                    recording.lift(place)
                given: list[Any] = []
                for i, leaf in enumerate(leaves):
                    if isinstance(leaf, Tensor):
                        trace.add_argument(leaf, i, terms.named.get(i))
                    elif i in terms.arguments:
                        leaf = trace.lift_number(leaf, ("argument", i))
                    given.append(leaf)
                args, kwargs = unflatten(given, structure)
                recording.give(call, (args, kwargs))
                turned = recording.run(self.function, args, kwargs)
        except BaseException as error:
            (recording.take_back if trace.whole else note_run)(error, look is not None)
            raise
        if turned is not None:
            trace.rollback()
            return turned
        recording.put_back()
        trace.close()
        return recording

    def _trial(self, symbolic: bool) -> SegmentTrace:
        """A trace of the whole that goes on in segments where it meets a demand."""
        trace = SegmentTrace(self.name, lambda trace: self._turn().flush(trace), whole=True)
        trace.turned = lambda trace: self._turn().turned(trace)
        trace.tainted = "symbolic sizes" if symbolic else ""  # segments have concrete sizes
        return trace

    def _record_steady(
        self, first: Recording, call: Any, leaves: list[Any], structure: Structure,
        terms: Terms, look: Look | None,
    ) -> Recording | Turned:
        """Trace again with zeros as the gradients that the first call will leave."""
        for tensor in first.missing:
            tensor._grad = zeros_for(tensor)
        try:
            again = self._record(call, leaves, structure, terms, look)
        finally:
            for tensor in first.missing:
                tensor._grad = None
        if isinstance(again, Recording):
            again.materialise = first.missing
            again.before = [*first.before, *again.before]
        return again

    # --- looking ------------------------------------------------------------------------------

    def _again(
        self, version: Specialisation, given: Any, leaves: list[Any], structure: Structure
    ) -> None:
        """GRAPHC_CHECK=3: is this what the Python says now? Raises StaleVersionError."""
        if version.fits(leaves, given):
            with self._lock:
                doubt.check_again(version, leaves, given, lambda terms: self._record(
                    given, leaves, structure, terms, Look()
                ))

    @property
    def newest(self) -> Specialisation | None:
        """The version that was compiled last; None if there is none."""
        return self._versions.newest

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Compile for these arguments without running; gives the pipeline's Built."""
        return self.version(*args, **kwargs).engine.built

    def version(self, *args: Any, **kwargs: Any) -> Specialisation:
        """The version that a call with these arguments would run, compiled if need be."""
        found = self.look_at(args, kwargs)
        if isinstance(found, NoGraph):
            try:
                raise found.error
            finally:
                del found  # or the error's own frame would hold it, and all it met
        return found

    def look_at(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Specialisation | NoGraph:
        """The version that a call would run, compiled if need be, or why it is no one graph."""
        leaves, structure = flatten_call(args, kwargs)
        key, shapes = self._versions.key(leaves, structure)
        for found in self._versions.known(key, shapes):
            if found.fits(leaves, (args, kwargs)):
                return found
        look = Look()
        with self._lock:
            try:
                made = self._compile((args, kwargs), leaves, structure, [], look)
            except TraceError as error:
                return NoGraph(look.open, error)
        assert isinstance(made, Specialisation)  # nothing runs, not in segments either
        return made

    def open_places(self, *args: Any, **kwargs: Any) -> list[OpenPlace]:
        """What keeps a call from being one graph (survey.py): open Python runs once for it."""
        leaves, structure = flatten_call(args, kwargs)
        look = Look()
        with self._lock:
            self._versions.lifting = set()
            as_they_are = Terms({}, [], (), frozenset(), Constants())
            # what is open is on the list, whatever the Python raises on the way
            with contextlib.suppress(Exception):
                found = self._record((args, kwargs), leaves, structure, as_they_are, look)
                assert isinstance(found, Recording)
                found.restore()
        return look.open

    def __deepcopy__(self, memo: Any) -> CompiledFunction:
        # a method's copy belongs to the copy of its object
        options = {n: getattr(self, n) for n in ("dynamic", "backend", "fullgraph", "mode")}
        return CompiledFunction(copy.deepcopy(self.function, memo), **options)


def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: Any = None, mode: str | None = None, options: Any = None, disable: bool = False,
    max_memory: int | str | None = None, name: str | None = None, recompile_limit: Any = None,
) -> Any:
    """Compile a function or Module (torch.compile): as a decorator, with options, or as a call.

    A Module stays a Module: the same attributes and parameters, named `_orig_mod.weight`, as torch
    has it. `dynamic`: True makes every size symbolic, False none, None those that vary. `backend`
    is one of torch.compiler.list_backends(None). Where Python needs a tensor's value the function
    runs in segments; `fullgraph` makes that a TraceError, which names every such line and the cure.
    To find them all, Python that cannot be part of a graph runs, once: a file it writes is written.
    `mode`: "max-autotune" times how a GPU can compute each product, convolution and attention of
    known sizes, and takes the quickest way (explain() tells); with "-no-cudagraphs" there are no
    CUDA graphs. The CPU knows one mode. `options={"winograd": True}` (or the largest error that may
    be: ir/passes/winograd.py) convolves by tiles where that is faster. `max_memory`: bytes, or
    "500MB", for a call, its backward pass and all they leave: values are computed again, or it
    raises MemoryLimitError. Implies `fullgraph`, a graph per size. `recompile_limit`: as if none.
    """
    how = mode_of(mode, options)._replace(max_memory=asked_for(max_memory, dynamic))
    if model is None:
        given: Any = {"dynamic": dynamic, "backend": backend, "max_memory": max_memory}
        given |= {"fullgraph": fullgraph, "mode": mode, "options": options, "name": name}
        return functools.partial(compile, disable=disable, **given)
    if disable:
        return model
    kind = backends.canonical(Compilers.backend if backend is None else backend)
    given = {"dynamic": dynamic, "backend": kind, "fullgraph": fullgraph, "mode": how}
    if isinstance(model, Module):
        return compile_module(model, **given)
    if not callable(model):
        raise TypeError(f"compile() takes a function or a Module, got {type(model).__name__}")
    return CompiledFunction(model, name=name, **given)


def compile_module(module: Module, **options: Any) -> Module:
    """A Module of the same class, on the same state, compiled with options of CompiledFunction."""
    compiled = CompiledFunction(module, name=type(module).__name__, **options)
    again, alike = (functools.partial(f, **options) for f in (compile_module, CompiledFunction))
    return twin_of(module, compiled, (again, (module,)), alike)


class _CallableModule(types.ModuleType):
    """Importing this module binds it to `graphc.compile`, which is the function's name, too."""
    def __call__(self, model: Any = None, **options: Any) -> Any:
        return compile(model, **options)


sys.modules[__name__].__class__ = _CallableModule
