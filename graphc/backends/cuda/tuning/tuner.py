"""Which way each contraction of a program goes, by time.

Each is timed alone, on operands of its own: small random numbers, and what it writes goes nowhere.
Sizes have to be known; where they vary, and where a device has no clock, all is as without the
mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphc.backends.cuda.apart import Products, epilogue
from graphc.backends.cuda.choice import Chosen
from graphc.backends.cuda.code import Code
from graphc.backends.cuda.cublaslt import CublasError
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.errors import CudaContextLost, CudaError
from graphc.backends.cuda.executable import Executable
from graphc.backends.cuda.memory import CudaMemory
from graphc.backends.cuda.nvrtc import NvrtcError
from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.status import guarded
from graphc.backends.cuda.tuning.kept import Timed, Tried, identity, key_of
from graphc.backends.cuda.tuning.trial import Trial
from graphc.backends.cuda.tuning.ways import Way, ways_of
from graphc.ir.device_array import DeviceArray
from graphc.ir.dim import evaluate
from graphc.ir.kernel import BufferRef, Kernel, Launch, Program, leaves
from graphc.ir.kernel.text import kernel_symbol, print_kernel
from graphc.ir.memory import OutOfMemoryError
from graphc.ir.types import TensorType

_CLEARLY = 0.98  # of the usual way's time: what takes longer is not worth another way
_RANDOM = 1 << 20  # numbers of an operand that are drawn; they repeat
_REFUSED = (CublasError, CudaError, NvrtcError)
_NO_MEMORY = "there is no memory for its operands"
_SHOWN = 4  # ways that a line shows besides the one taken


class _Case(NamedTuple):
    """Equal contractions of a program, in the ways that there are, the usual one first. `key`: of
    what is kept; `why`: it is not timed."""

    steps: list[Launch]
    ways: Sequence[Way]
    key: bytes
    why: str = ""

    @property
    def kernel(self) -> Kernel:
        return self.steps[0].kernel


class Tuner:
    """Of one device. `directory`: where what is timed from now on is kept."""

    def __init__(self, memory: CudaMemory, code: Code, target: Target) -> None:
        self._memory, self._code, self._target = memory, code, target
        self.directory: Path | None = None
        self._timed = Timed()
        self._lock = threading.Lock()  # one piece of work at a time

    def chosen(
        self, program: Program, usual: Chosen, products: Products | None, only: bool
    ) -> Chosen:
        """How a program's contractions are computed. `usual`: how, where nothing is timed;
        `products`: of the library, if there is one; `only`: it does what it can do. Raises what
        failed earlier on the device."""
        same: dict[str, list[Launch]] = {}
        for step in leaves(program.steps):
            if isinstance(step, Launch) and step.kernel.template is not None:
                same.setdefault(kernel_symbol(step.kernel), []).append(step)
        ways: dict[int, Way] = {}
        said = []
        with self._lock:
            cases = [self._case(steps, usual, products, only) for steps in same.values()]
            kept = {
                case.key: found for case in cases
                if (found := self._timed.find(case.key, len(case.ways), self.directory)) is not None
            }
            new = self._measured([c for c in cases if c.key not in kept and not c.why], products)
        for case in cases:
            tried: Tried | str | None = kept.get(case.key) or new.get(case.key)
            way = case.ways[tried.taken if isinstance(tried, Tried) else 0]
            ways.update((id(step.kernel), way) for step in case.steps)
            said.append(f"{_named(case.steps)}: {_told(case, tried, case.key in kept)}")
        by_library = {id_: way.proposal for id_, way in ways.items() if way.proposal is not None}
        return Chosen(
            products.only(by_library) if by_library and products is not None else None,
            {id_: way.plan for id_, way in ways.items() if way.proposal is None}, tuple(said),
        )

    def _case(
        self, steps: list[Launch], usual: Chosen, products: Products | None, only: bool
    ) -> _Case:
        kernel = steps[0].kernel
        by_library = usual.products is not None and usual.products.take(kernel)
        first = Way(None, 0) if by_library else Way()
        if kernel.dims:
            return _Case(steps, (first,), b"", "its sizes vary")
        library = None if products is None else products.library
        ways = ways_of(kernel, self._target, library, only)
        if first.proposal is not None:
            ways = [first, *(way for way in ways if way != first)]
        if len(ways) == 1:
            return _Case(steps, ways, b"", "there is no other way")
        version = None if library is None else library.found.version
        key = key_of(
            identity(self._memory.device, version), print_kernel(kernel, name=False),
            emit(kernel, self._target).text, ways,
        )
        return _Case(steps, ways, key)

    # --- timing -------------------------------------------------------------------------------

    def _measured(
        self, cases: Sequence[_Case], products: Products | None
    ) -> Mapping[bytes, Tried | str]:
        """By key; where nothing was timed, why."""
        if not cases:
            return {}
        self._memory.synchronise()  # what had failed before would let launches do nothing
        self._load(cases)
        found: dict[bytes, Tried | str] = {}
        with suppress(OutOfMemoryError), self._trial() as trial:
            for case in cases:
                with suppress(OutOfMemoryError):
                    tried = self._tried(case, products, trial)
                    found[case.key] = tried or "the device has no clock"
                    if tried is not None:
                        self._timed.keep(case.key, tried, self.directory)
        return {case.key: found.get(case.key, _NO_MEMORY) for case in cases}

    def _load(self, cases: Sequence[_Case]) -> None:
        """All code at once, which takes less; what is refused is met again alone."""
        sources = [_source(case.kernel, way, self._target) for case in cases for way in case.ways]
        with suppress(*_REFUSED):
            self._code.load([guarded(source)[0] for source in sources])

    @contextmanager
    def _trial(self) -> Iterator[Trial]:
        """A profiler does not see it, and its memory is given back."""
        device = self._memory.device
        timer, device.timer = device.timer, None
        try:
            trial = Trial(device)
            try:
                yield trial
            finally:
                trial.close()
                device.allocator.empty_cache()
        finally:
            device.timer = timer

    def _tried(self, case: _Case, products: Products | None, trial: Trial) -> Tried | None:
        operands = _operands(self._memory, case.kernel)
        times: list[float | None] = []
        for way in case.ways:
            best = min((time for time in times if time is not None), default=float("inf"))
            try:
                with self._alone(case.kernel, way, products).again(operands, ()) as begin:
                    times.append(trial.milliseconds(begin, best))
            except _REFUSED as refused:
                if isinstance(refused, (CudaContextLost, OutOfMemoryError)):
                    raise
                times.append(None)
        known = [time for time in times if time is not None]
        if not known or 0.0 in known:
            return None
        usual, least = times[0], min(known)
        return Tried(
            tuple(times), 0 if usual and least > _CLEARLY * usual else times.index(least)
        )

    def _alone(self, kernel: Kernel, way: Way, products: Products | None) -> Executable:
        """A program of one launch, whose buffers are all inputs."""
        refs = tuple(BufferRef("input", number) for number in range(len(kernel.params)))
        types = tuple(TensorType(param.dtype, (param.size,)) for param in kernel.params)
        program = Program(kernel.name, (), types, (), (), (Launch(kernel, refs),), 0)
        chosen = Chosen(None, {id(kernel): way.plan})
        if way.proposal is not None:
            assert products is not None
            chosen = Chosen(products.only({id(kernel): way.proposal}))
        return Executable(program, self._memory, self._code, self._target, {}, "0", chosen)


def _source(kernel: Kernel, way: Way, target: Target) -> Source:
    return emit(kernel, target, way.plan) if way.proposal is None else epilogue(kernel)


def _operands(memory: CudaMemory, kernel: Kernel) -> list[DeviceArray]:
    """Buffers for a kernel. Numbers of both signs, up to 1, so that sums stay small, and tensor
    cores take the power that they do; positions are 0, and masks let everything pass."""
    rng = np.random.default_rng(0)
    found = []
    for param in kernel.params:
        size, dtype = evaluate(param.size, {}), param.dtype.numpy
        buffer = memory.allocate((size,), dtype)
        found.append(buffer)
        if not size or param.access not in ("in", "inout"):
            continue
        if not param.dtype.is_float:
            memory.write(buffer, np.full(1, dtype == np.bool_, dtype))
            continue
        drawn = min(size, _RANDOM)
        values = rng.uniform(-1, 1, drawn).astype(dtype)
        memory.write(buffer[:drawn], values)
        for start in range(drawn, size, drawn):
            part = buffer[start : start + drawn]
            memory.copy(part, buffer[: part.size])
    return found


# --- what explain() says ---------------------------------------------------------------------


def _named(steps: Sequence[Launch]) -> str:
    """"linear at train.py:12 (12 times)" """
    first = steps[0]
    where = f" at {first.locs[0]}" if first.locs else ""
    return f"{first.kernel.name}{where}" + (f" ({len(steps)} times)" if len(steps) > 1 else "")


def _told(case: _Case, tried: Tried | str | None, kept: bool) -> str:
    """What was taken, and what else was timed, the quickest first."""
    if not isinstance(tried, Tried):
        return f"{case.ways[0]}, not timed: {case.why or tried}"
    numbers = [n for n, time in enumerate(tried.times) if time is not None and n != tried.taken]
    others = sorted(numbers, key=lambda n: tried.times[n] or 0.0)
    refused = len(case.ways) - len(numbers) - 1
    line = f"{case.ways[tried.taken]} in {_ms(tried.times[tried.taken])}"
    shown = " | ".join(f"{case.ways[n]}: {_ms(tried.times[n])}" for n in others[:_SHOWN])
    more = f" | {len(others) - _SHOWN} slower ones" if len(others) > _SHOWN else ""
    return "".join((
        line, " (timed earlier)" if kept else "", f" | {shown}{more}" if shown else "",
        f" | {refused} not possible" if refused else "",
    ))


def _ms(time: float | None) -> str:
    return f"{time:.4g} ms"
