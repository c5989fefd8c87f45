"""What each step of a compiled graph takes, measured on copies: nothing of the user's is written.

Where the version's own inputs are at hand, they are read as they are, and only what the program
writes is copied; else numbers are made up (floats are 1, integers 0), which says little of steps
whose work hangs on data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphc import backends
from graphc.backends.host.watched import Steps
from graphc.config import AGAIN
from graphc.engine.built import Built, concrete_shape
from graphc.engine.capture.streams import put_back, states
from graphc.engine.orders import turned
from graphc.engine.pipeline import host
from graphc.engine.version.call import Call
from graphc.engine.version.sources import Stale
from graphc.frontend.random_state import seed_words
from graphc.frontend.tree import flatten
from graphc.inspect.cost import Cost
from graphc.inspect.memory import memory_of
from graphc.inspect.units import bytes_text
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Branch, Leaf, ProgramStep, Repeat, leaves
from graphc.ir.memory import Buffer, contiguous, copied
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.engine.version.version import Specialisation

_SECONDS, _ROUNDS = 0.3, 30  # of measuring a part in one piece, and step by step, at most
_MOST = 4 << 30  # bytes that are allocated for it
_STATE = 626  # words of a generator's state
_INTERPRETERS = frozenset({"numpy", "eager"})


class Given(NamedTuple):
    """The inputs of a forward graph, and the sizes that they have."""

    arrays: list[Buffer]
    dims: dict[str, int]
    apart: frozenset[int]  # inputs that lie in another's memory, which is written


class Timing(NamedTuple):
    """Seconds of a call, and of each of its steps, with all their runs: the shortest of several,
    steps by themselves. `most`: bytes and floating-point operations a second that the machine does
    at most, None where nobody knows. `given`: whether on the arguments' own numbers."""

    whole: float
    steps: tuple[float, ...]
    most: tuple[float, float] | None
    given: bool

    def share(self, number: int, cost: Cost, times: int | None) -> tuple[float, str] | None:
        """How much of the machine's limit a step comes to, and of which: "copy", "flops"."""
        seconds = self.steps[number]
        if self.most is None or times is None or not seconds:
            return None
        moved = times * (cost.read + cost.written) / seconds / self.most[0]
        computed = times * cost.flops / seconds / self.most[1]
        return (moved, "copy") if moved >= computed else (computed, "flops")


def given_to(
    version: Specialisation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Given | None:
    """What a call of a version with these arguments would read; None: it does not fit."""
    from_call = Call(flatten((args, kwargs))[0], (args, kwargs))
    kept = states(version.draws)
    fresh: list[Any] = []
    try:
        fresh = version.check(from_call)
        version.fetch(from_call)
    except Stale:
        return None
    finally:
        for tensor in fresh:  # zeros for gradients that are not there
            tensor._grad = None
        put_back(kept)
    place = version.engine.place
    arrays: Iterable[Buffer] = turned(from_call.arrays, version.engine.orders)
    if place is not None:
        arrays = [place.bring(buffer) for buffer in arrays]
    return Given(list(arrays), dict(from_call.dims), frozenset(version.forwarded))


def timing_of(built: Built, given: Given | None) -> Timing | str:
    """What a graph takes; a text where that is not measured: the reason."""
    reason = _unfit(built, given)
    if reason:
        return reason
    dims = dict(built.graph.env.hints) if given is None else given.dims
    program, memory = built.program, built.backend.memory
    written = set(program.outputs_in_place.values())
    if given is None:
        inputs = [_made_up(built, type_, dims) for type_ in program.input_types]
    else:
        inputs = [
            copied(buffer) if i in written or i in given.apart else contiguous(buffer)
            for i, buffer in enumerate(given.arrays)
        ]
    outputs = [
        inputs[program.outputs_in_place[i]] if i in program.outputs_in_place
        else memory.allocate(concrete_shape(_tensor(type_), dims), _tensor(type_).dtype.numpy)
        for i, type_ in enumerate(program.output_types)
    ]
    sizes = [dims[name] for name in program.dims]
    try:
        whole = _shortest(lambda: _called(built, inputs, outputs, sizes))
        steps = _steps(built, inputs, outputs, sizes)
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        # numbers that were made up are out of range, or a call on the user's raises
        return f"not measured: a call raises {type(error).__name__}: {error}"
    return Timing(whole, steps, _ceilings(built), given is not None)


def _unfit(built: Built, given: Given | None) -> str:
    """Why a graph is not measured; "" if it is."""
    if any(built.backend is backends.get(name) for name in _INTERPRETERS & {*_asked_for()}):
        return "not measured: its backend interprets"
    if built.config.check >= AGAIN:
        return "not measured: GRAPHC_CHECK compares each call with NumPy"
    if Steps.watch is not None:
        return "not measured: a profiler is running"
    memory = memory_of(built, built.graph.env.hints)
    size = memory.outputs + (memory.inputs if given is None else 0)
    if size > _MOST:
        return f"not measured: it would take {bytes_text(size)} of memory"
    if given is None and any(_by_data(step) for step in built.program.steps):
        return "not measured: a loop ends by its data. Cure: explain() with arguments"
    return ""


def _asked_for() -> list[str]:
    return [backends.name_of(found) for found in backends.loaded()]


def _by_data(step: ProgramStep) -> bool:
    """Whether how long it takes is decided by numbers."""
    if isinstance(step, Repeat):
        return step.flag is not None or any(map(_by_data, (*step.test, *step.steps)))
    return isinstance(step, Branch) and any(map(_by_data, (*step.then, *step.otherwise)))


def _tensor(type_: object) -> TensorType:
    assert isinstance(type_, TensorType)
    return type_


def _made_up(built: Built, type_: object, dims: Mapping[str, int]) -> Buffer:
    """Ones, zeros for integers, a seeded generator's state."""
    tensor = _tensor(type_)
    shape = tuple(evaluate(size, dims) for size in tensor.shape)
    dtype = tensor.dtype.numpy
    buffer = built.backend.memory.allocate(shape, dtype)
    integer = tensor.dtype.is_integer
    value = np.asarray(0 if integer else 1).astype(dtype)
    if integer and shape == (_STATE,) and dtype == np.int64:
        value = seed_words(0)
    built.backend.memory.write(buffer, value)
    return buffer


def _called(
    built: Built, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Sequence[int]
) -> None:
    built.run(inputs, outputs, sizes)
    built.backend.memory.synchronise()


def _shortest(run: Callable[[], None]) -> float:
    run()
    best, end = float("inf"), time.perf_counter() + _SECONDS
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        run()
        stopped = time.perf_counter()
        best = min(best, stopped - started)
        if stopped > end:
            break
    return best


def _steps(
    built: Built, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Sequence[int]
) -> tuple[float, ...]:
    """Seconds by step, all its runs in a call together."""
    count = sum(1 for _ in leaves(built.program.steps))
    spent, started, synchronise = [0.0] * count, 0.0, built.backend.memory.synchronise
    best = [float("inf")] * count

    def before(number: int, step: Leaf, fetch: object) -> None:
        nonlocal started
        started = time.perf_counter()

    def after(number: int, step: Leaf, fetch: object) -> None:
        synchronise()
        spent[number] += time.perf_counter() - started

    end = time.perf_counter() + _SECONDS
    for _ in range(_ROUNDS):
        spent[:] = [0.0] * count
        built.executable.trace(inputs, outputs, before, after, sizes)
        best = list(map(min, best, spent))
        if time.perf_counter() > end:
            break
    return tuple(best)


def _ceilings(built: Built) -> tuple[float, float] | None:
    """What the machine does at most, measured at the first question."""
    ask: Any = getattr(built.backend, "ceilings", None)
    if ask is None:
        return None
    found = ask(host(built.config))
    return None if found is None else (found.bytes, found.flops)
