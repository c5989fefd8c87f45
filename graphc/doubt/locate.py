"""Where a difference comes from: the kernel, or the pass; the user's line; the smallest graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from .. import config as configuration
from ..backends import DEFAULT
from ..compiler import set_stance
from ..config import AGAIN
from ..engine import pipeline
from ..inspect.value_check import ValueChangedError
from ..ir.dim import evaluate
from ..ir.graph import Graph
from ..ir.verify import VerifyError
from .again import StaleVersionError
from .case import Case
from .checked import difference
from .reach import is_library_file, rule_of
from .runs import RESULT, Runs
from .seen import Entry, entry
from .shrink import shrink
from .walk import Visit, walk

_SECONDS = 20.0  # for shrinking, at most


class Origin(NamedTuple):
    """What is known of where a difference comes from; "" for what is not."""

    line: str = ""
    kernel: str = ""
    reason: str = ""
    graph: str = ""


def origin(
    runs: Runs, compiled: Callable[..., Any], path: str, call: int
) -> Origin:
    """Where a difference at `path` after a call comes from. `compiled`: as yet without versions."""
    error = _checked(runs, compiled, call)
    if isinstance(error, ValueChangedError):
        return _of_value(error)
    if isinstance(error, StaleVersionError):
        return Origin(str(error.loc or ""), reason=str(error))
    if error is not None:
        return Origin(reason=str(error))
    return Origin(_line_of_change(runs, path, call, _drawing(compiled, runs)))


def _checked(runs: Runs, compiled: Callable[..., Any], call: int) -> Exception | None:
    """What GRAPHC_CHECK=3 says about the calls up to this one."""
    found: list[Exception] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except (ValueChangedError, StaleVersionError, VerifyError) as error:
            found.append(error)

    with configuration.within(check=AGAIN):
        runs.begin()
        for _ in range(call + 1):
            runs.call(watched)
            if found:
                return found[0]
    return None


# --- a wrong value ---------------------------------------------------------------------------


def _of_value(error: ValueChangedError) -> Origin:
    reason = str(error).split("\n")[0]
    if error.case is None:
        return Origin(_first(error.locs), error.kernel, reason, str(error))
    case: Case = error.case
    backend = error.backend or DEFAULT

    def fails(case: Case) -> bool:
        return _fails(case, backend)

    small = shrink(case, fails, _SECONDS) if fails(case) else case
    line = _line_of(small.graph) or _first(error.locs)
    return Origin(line, error.kernel, reason, str(small.graph))


def _first(lines: Iterable[str]) -> str:
    return next((line for line in lines if line), "")


def _fails(case: Case, backend: str) -> bool:
    """Whether a backend's code for a case is something else than it means."""
    dims = dict(case.graph.env.hints)
    settings = configuration.current()._replace(check=0, debug=0, dump=None)
    built = pipeline.build(
        case.graph, config=settings, mutated=dict(case.mutated), backend=backend
    )
    memory = built.backend.memory
    arrays = case.arrays(dims)
    given = [memory.allocate(a.shape, a.dtype) for a in arrays]
    for buffer, array in zip(given, arrays, strict=True):
        memory.write(buffer, array)
    outputs = [
        given[case.mutated[i]] if i in case.mutated
        else memory.allocate([evaluate(n, dims) for n in node.shape], node.dtype.numpy)
        for i, node in enumerate(case.graph.outputs)
    ]
    built.run(given, outputs, [dims[name] for name in built.program.dims])
    return bool(difference(case.graph, arrays, [memory.read(b) for b in outputs], dims))


def _line_of(graph: Graph) -> str:
    """The user's line of the last node that computes something."""
    lines = [str(n.loc) for n in graph.nodes if n.loc is not None and n.inputs]
    return lines[-1] if lines else ""


# --- a lost effect ---------------------------------------------------------------------------


def _drawing(compiled: Any, runs: Runs) -> set[tuple[str, int]]:
    """The lines at which the compiled graph draws random numbers."""
    if getattr(compiled, "segments", None) is not None or not hasattr(compiled, "version"):
        return set()
    try:
        graph = compiled.version(*runs.args, **runs.kwargs).graph
    except Exception:  # what cannot be compiled now says nothing
        return set()
    return {
        (n.loc.file, n.loc.line) for n in graph.nodes
        if n.op.family == "random" and n.loc is not None
    }


def _line_of_change(runs: Runs, path: str, call: int, known: set[tuple[str, int]]) -> str:
    """The line at which eager mode changes what is at `path` in a call; of several the first that
    the compiled graph does not know. Of a result: the line that returns it."""
    runs.begin()
    with set_stance("force_eager"):
        for _ in range(call):
            runs.call(runs.function)
        watch = _Watch(None if path.startswith(RESULT) else _probe(runs, path))
        with watch.tracing():
            runs.call(runs.function)
    places = [place for place in watch.places if place not in known] or watch.places
    file, line = places[0] if places else watch.returned
    return f"{file}:{line}" if file else ""


def _probe(runs: Runs, path: str) -> Callable[[], Entry | None]:
    """What shows the object at `path` as it is, or the nearest one that is there already."""
    found: Visit | None = None
    for visit in walk(runs.roots, inner=False):
        near = path.startswith(visit.path) and visit.again < 0
        if near and (found is None or len(visit.path) >= len(found.path)):
            found = visit
    assert found is not None, f"{path} is in none of the roots"
    place: Visit = found

    def show() -> Entry | None:
        value, rule = place.value, rule_of(place.holder)
        if rule is not None:
            here = [part for step, part in rule.parts(place.holder) if step == place.step]
            if not here:
                return None
            value = here[0]
        now = place._replace(value=value, rule=rule_of(value))
        return entry(now, runs.snapshot.known, {})

    return show


class _Watch:
    """After which lines of the user's code something has changed."""

    def __init__(self, show: Callable[[], Entry | None] | None) -> None:
        self._show = show
        self._was = show() if show is not None else None
        self._line: tuple[str, int] = ("", 0)
        self.places: list[tuple[str, int]] = []
        self.returned: tuple[str, int] = ("", 0)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Inside, each line of the user's code is followed."""
        outer = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(outer)
            self._look()

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        return None if is_library_file(file) or file.startswith("<") else self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._look()
        self._line = frame.f_code.co_filename, frame.f_lineno
        if event == "return":
            self.returned = self._line
        return self._step

    def _look(self) -> None:
        if self._show is None:
            return
        now = self._show()
        if not _same(now, self._was):
            self._was = now
            self.places.append(self._line)


def _same(a: Entry | None, b: Entry | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.facts != b.facts or (a.values is None) != (b.values is None):
        return False
    return a.values is None or b.values is None or a.values.tobytes() == b.values.tobytes()
