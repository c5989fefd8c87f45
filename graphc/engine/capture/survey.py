"""A recording that must be one graph, and is not: it goes on, to find all that is open.

Open Python runs as it would; each line where that happens is noted. A value that Python needs is
computed from what was recorded, by NumPy, and nothing is written to memory: the trace stays whole,
and what it recorded is dropped at its end. So tensors, and Python state that is understood, are
left as they were; what open Python does by itself (a file that it writes, an iterator that it
advances) happens, once. print() is left out, and generators of random numbers get their states
back.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ...backends.numpy.ops import TABLE
from ...frontend.errors import TraceError, located, unsupported_in_trace, user_location
from ...frontend.nodes import Node as GradNode
from ...frontend.segment_close import input_arrays
from ...frontend.segment_trace import SegmentTrace
from ...frontend.tensor import Tensor
from ...frontend.trace import Trace
from ...ir.graph import Graph, Loc
from ...ir.interpret import evaluate
from ...ir.named import NamedTuple

_VALUES = 64  # computed for Python in one survey: each runs what was recorded so far


class OpenPlace(NamedTuple):
    """What is open, the user's line, the cure, and the error that says so of one place alone."""

    what: str
    loc: Loc | None
    cure: str
    error: TraceError


class Look:
    """A call is looked at: recorded, and nothing is run. `open`: what its last recording met."""

    def __init__(self) -> None:
        self.open: list[OpenPlace] = []


class NoGraph(NamedTuple):
    """A call that was looked at is no one graph: all that is open, and the error that says so."""

    open: list[OpenPlace]
    error: TraceError


class Survey(SegmentTrace):
    """A trace of the whole that notes what is open and goes on.

    `strict`: the user has asked for one graph; `otherwise`: what the cure may be besides.
    """

    def __init__(self, name: str, strict: bool, otherwise: str = "") -> None:
        super().__init__(name, _never, whole=True)
        self.places: list[OpenPlace] = []
        self.tainted = "nothing is to be run"
        self.strict = strict
        self.otherwise = otherwise
        self._codes: set[CodeType] = set()  # Python that runs unseen
        self._values = 0
        self._states: dict[int, Callable[[], None]] = {}  # how generators get their states back

    def opened(self, what: str, cure: str, owner: Any = None) -> None:
        error = TraceError(located(
            f"{what} inside a function that is compiled as one graph. Cure: {cure}"
        ))
        self._note(what, cure, error)
        if owner is not None and id(owner) not in self._states:
            keep = _STATES.get(f"{type(owner).__module__}.{type(owner).__qualname__}")
            if keep is not None:
                self._states[id(owner)] = keep(owner)

    def demand(self, tensor: Tensor, what: str, cure: str) -> np.ndarray:
        self._values += 1
        self._note(what, cure, unsupported_in_trace(what, cure))
        if self._values > _VALUES:
            raise self.places[-1].error
        node = self.read(tensor if tensor._graphc_trace is self else self.shadow(tensor))
        inputs = tuple([source.node for source in self.inputs])
        graph = Graph(self.name, inputs, (node,), self.env)
        with self.suspended():
            return evaluate(graph, input_arrays(self), TABLE)[0].copy()

    def end_segment(self, what: str, cure: str = "", value: bool = False) -> None:
        Trace.end_segment(self, what, cure)

    def crosses(self, roots: list[GradNode], wanted: set[GradNode]) -> bool:
        return Trace.crosses(self, roots, wanted)

    def starts_unseen(self, code: CodeType, caller: FrameType | None) -> bool:
        """Note that Python runs unseen; False where that is known, or an open call runs it."""
        lines = {(p.loc.file, p.loc.line) for p in self.places if p.loc is not None}
        while caller is not None:
            waits = caller.f_code
            if waits in self._codes or (waits.co_filename, caller.f_lineno) in lines:
                return False
            caller = caller.f_back
        self._codes.add(code)
        return True

    def _note(self, what: str, cure: str, error: TraceError) -> None:
        loc = user_location()
        # what follows on a line mostly works on what its first open call has given
        if loc is None or loc not in [p.loc for p in self.places]:
            self.places.append(OpenPlace(what, loc, cure.removesuffix(self.otherwise), error))

    # --- the end -------------------------------------------------------------------------------

    def conclude(self, error: Exception | None) -> None:
        """Raise the error of the one place that is open, or one that lists all of them.

        `error`: what the Python raised, or what is wrong with its effects; raised if nothing was
        open.
        """
        for give_back in self._states.values():
            give_back()
        found = [p.error for p in self.places]
        last = [error] if isinstance(error, TraceError) and error not in found else []
        if not self.places:
            if error is not None:
                raise error
            return
        if len(found) + len(last) == 1:
            raise TraceError(str(found[0])) from error
        raise self._all(last) from None

    def _all(self, last: list[TraceError]) -> TraceError:
        texts = [
            f"  {p.what}{'' if p.loc is None else f' at {p.loc}'}. Cure: {p.cure}"
            for p in self.places
        ]
        texts += ["  " + str(error).replace("\n", "\n  ") for error in last]
        otherwise = f".\nCure of all: {self.otherwise.removeprefix(', or ')}" if (
            self.otherwise
        ) else ""
        return TraceError(
            f"{self.name}() is no one graph: {len(texts)} places in it are open\n"
            + "\n".join(texts) + otherwise
        )


def survey_for(name: str, strict: bool, look: Look | None) -> Survey:
    """A trace of the whole that goes on where it meets a demand, and is never run then."""
    survey = Survey(name, strict, Trace.otherwise if strict else "")
    if look is not None:
        look.open = survey.places
    return survey


def _never(trace: SegmentTrace) -> None:
    raise AssertionError("a survey is never run")


def _of_random(generator: Any) -> Callable[[], None]:
    state = generator.getstate()
    return lambda: generator.setstate(state)


def _of_random_state(generator: Any) -> Callable[[], None]:
    state = generator.get_state()
    return lambda: generator.set_state(state)


def _of_generator(generator: Any) -> Callable[[], None]:
    bits = generator.bit_generator
    state = bits.state

    def give_back() -> None:
        bits.state = state

    return give_back


# by class: keeps a generator's state, gives what puts it back
_STATES: dict[str, Callable[[Any], Callable[[], None]]] = {
    "random.Random": _of_random,
    "numpy.random.mtrand.RandomState": _of_random_state,
    "numpy.random._generator.Generator": _of_generator,
}
