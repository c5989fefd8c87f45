"""What was compiled, as the runtime sees it: how a call of native code goes, of versions, segments
and their backwards alike; and how much was compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..backends import Backend, Executable
from ..backends.host.watched import Steps
from ..config import Config
from ..frontend.placement import Place
from ..frontend.random_state import turns_of
from ..frontend.storage import Storage, readers
from ..frontend.values import Eager
from ..ir import dtypes, forks
from ..ir.dim import Guard, evaluate
from ..ir.graph import Graph
from ..ir.memory import contiguous, write
from ..ir.named import NamedTuple
from ..ir.types import TensorType
from .native_run import Calls, Runner, memory_for
from .on_host import OnHost
from .orders import NO_ORDERS, Orders, turned

if TYPE_CHECKING:
    from ..ir.kernel import Program

Allocate: TypeAlias = Callable[[tuple[int, ...], Any], np.ndarray]
Written: TypeAlias = Iterable[tuple[Storage, int]]  # a storage, and how many writes it sees


class CompileCounter:
    """How many versions were compiled in this process."""

    count = 0


class Stages(NamedTuple):
    """What is made of a graph on the way to code. `program.outputs_in_place` says which outputs
    are written into an input's buffer."""

    optimised: Graph
    fused: Graph
    program: Program


class Built:
    """A compiled graph and everything that was made on the way, for explain().

    `make` gives the stages: of code that an earlier process has kept, they are made when they are
    asked for. `times` are seconds per stage. `assumed`: what the stages decided about symbolic
    sizes, which the graph they were given does not say: the code is for sizes of which it holds.
    """

    def __init__(
        self, name: str, graph: Graph, executable: Executable, backend: Backend, config: Config,
        make: Callable[[], Stages], times: dict[str, float] | None = None,
        assumed: tuple[Guard, ...] = (),
    ) -> None:
        """`graph`: as traced."""
        self.name, self.graph, self.executable = name, graph, executable
        self.backend, self.config, self.make = backend, config, make
        self.times: dict[str, float] = {} if times is None else times
        self.assumed = assumed

    @cached_property
    def stages(self) -> Stages:
        """What was made on the way."""
        return self.make()

    @property
    def optimised(self) -> Graph:
        """After the passes over whole graphs."""
        return self.stages.optimised

    @property
    def fused(self) -> Graph:
        """After fusion."""
        return self.stages.fused

    @property
    def program(self) -> Program:
        """What the backend was given."""
        return self.stages.program

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], dims: Sequence[int] = ()
    ) -> None:
        """One call; `dims` are the values of those of `graph.env.hints`."""
        self.executable.run(inputs, outputs, dims)


class Engine:
    """A Built, or what runs a graph in its place, with the memory of a call."""

    def __init__(
        self, built: Any, output_types: Sequence[TensorType], dims: tuple[str, ...],
        allocate: Allocate, place: Place | None = None,
        mutated: Mapping[int, int] | None = None, orders: Orders = NO_ORDERS,
    ) -> None:
        """`place`: where the code runs; None: on the CPU. `mutated`: which output goes into which
        input's memory; `orders`: of inputs that the code has in another order (orders.py)."""
        self.built = built
        self.output_types = list(output_types)
        self.dims = dims
        self.allocate = allocate
        self.place = place
        self.mutated, self.orders = dict(mutated or {}), orders
        self.assumed: tuple[Guard, ...] = built.assumed
        self.on_host: OnHost | None = None  # of code on a device, made at its first call
        # per output: the input whose memory it goes into (-1: its own)
        self._outputs = [
            (self.mutated.get(i, -1), type_, type_.dtype.numpy)
            for i, type_ in enumerate(output_types)
        ]
        # inputs that are written to and may be the states of generators
        self.states = [
            target for target, type_, _ in self._outputs
            if target >= 0 and type_.dtype is dtypes.i64 and len(type_.shape) == 1
        ]
        self._fixed = None if dims else memory_for(self.output_types)
        # of results(): (shape, whether small, dtype) of each; None: call() does it
        self._made: list[Any] | None = None
        if self._fixed is not None and not orders and not self.mutated and place is None:
            self._made = [(*at, dtype) for at, (_, _, dtype) in zip(
                self._fixed, self._outputs, strict=True
            )]
        self._calls = Calls(built, len(output_types))

    @classmethod
    def of(
        cls, built: Any, mutated: Mapping[int, int] | None = None, orders: Orders = NO_ORDERS
    ) -> Engine:
        """A whole graph by itself, in its backend's memory."""
        types = [node.tensor_type for node in built.graph.outputs]
        dims = tuple(built.graph.env.hints)
        allocate = built.backend.memory.allocate
        return cls(built, types, dims, allocate, mutated=mutated, orders=orders)

    def call(
        self, arrays: Sequence[np.ndarray], dims: Mapping[str, int],
        parts: Iterable[int] = (), memory: Callable[[int], np.ndarray] | None = None,
        into: Mapping[int, np.ndarray] | None = None,
    ) -> tuple[list[Any], list[np.ndarray]]:
        """The native call: the inputs as the code has got them, and an array per output. `parts`:
        inputs that lie in another's memory, and are read as they were before any write. `memory`:
        of an input which is written to, where that is another than what is read. `into`: what some
        outputs are written to, which then need no new memory."""
        given = arrays
        if self.orders:
            arrays = turned(given, self.orders)
        inputs: list[Any] = [a if a.flags.c_contiguous else contiguous(a) for a in arrays]
        runner = self.runner(inputs)
        known: Mapping[int, np.ndarray] = {}
        if self.place is not None:
            known = self._known_on_host(inputs)
            inputs = [self.place.bring(buffer) for buffer in inputs]
        for i in parts:
            inputs[i] = arrays[i].copy()
        results: list[np.ndarray] = []
        scattered: list[tuple[np.ndarray, np.ndarray]] = []
        for i, (target, type_, dtype) in enumerate(self._outputs):
            if target < 0:
                if into and i in into:
                    made = into[i]
                elif runner is None or self._fixed is None:
                    made = self.allocate(concrete_shape(type_, dims), dtype)
                else:
                    shape, small = self._fixed[i]
                    made = np.empty(shape, dtype) if small else self.allocate(shape, dtype)
                results.append(made)
                continue
            results.append(inputs[target])
            real = arrays[target] if memory is None else memory(target)
            if inputs[target] is not real:
                scattered.append((real, known.get(i, inputs[target])))
        sizes = tuple([dims[name] for name in self.dims])
        if runner is None:
            self.built.run(inputs, results, sizes)
        else:
            runner([*inputs, *results], sizes)
        for real, value in scattered:
            write(real, value)
        if self.orders:
            for i, target in self.mutated.items():
                if target in self.orders:
                    results[i] = given[target]
        return inputs, results

    def results(self, arrays: Sequence[np.ndarray], dims: Mapping[str, int]) -> list[np.ndarray]:
        """call() for its results alone, which takes less time where it is of the usual kind."""
        made = self._made
        if made is not None:
            for array in arrays:
                if not array.flags.c_contiguous:
                    break
            else:
                runner = self.runner(arrays)
                if runner is not None:
                    found = [
                        np.empty(shape, dtype) if small else self.allocate(shape, dtype)
                        for shape, small, dtype in made
                    ]
                    runner([*arrays, *found], ())
                    return found
        return self.call(arrays, dims)[1]

    def turns(self, arrays: Sequence[Any]) -> AbstractContextManager[Any]:
        """What is held while a call's inputs are read and written: threads that ran from one state
        of a generator would draw the same numbers."""
        return turns_of([arrays[i] for i in self.states])

    def runner(self, inputs: Sequence[Any]) -> Runner | None:
        """What runs the code on row-major arrays of NumPy's, the inputs' and the outputs'; None:
        `built` does."""
        runner = self._calls.runner(len(inputs))
        if runner is None or self.place is not None or Steps.watch is not None:
            return None
        if Eager.elsewhere is not None and not all(type(a) is np.ndarray for a in inputs):
            return None
        return runner

    def _known_on_host(self, inputs: list[Any]) -> Mapping[int, np.ndarray]:
        """What the host itself knows of outputs that a device computes."""
        if not self.mutated:
            return {}
        if self.on_host is None:
            self.on_host = OnHost(self.built.graph, self.mutated, inputs)
        return self.on_host.values(inputs)


class Engines:
    """What a graph was compiled to: one engine for all sizes, unless compiling assumed some.

    A graph's own guards hold whenever it runs. What its compiler has assumed besides is known once
    it is compiled, which is late where that waits for the first run.
    """

    def __init__(self, graph: Graph, make: Callable[[Graph], Engine], *made: Engine) -> None:
        self.graph, self._make = graph, make
        self.made = list(made)
        self._lock = forks.lock()

    def at(self, dims: Mapping[str, int]) -> Engine:
        """One that stands for these sizes, compiled if there is none."""
        found = self._known(dims)
        if found is None:
            with self._lock:
                found = self._known(dims)
                if found is None and not self.made:  # for the sizes of the recording, if that fits
                    self.made.append(self._make(self.graph))
                    found = self._known(dims)
                if found is None:
                    from ..ir.rewrite import apart

                    found = self._make(apart(self.graph, dims))
                    self.made.append(found)
        return found

    def _known(self, dims: Mapping[str, int]) -> Engine | None:
        for engine in self.made:
            if not engine.assumed or all(guard.check(dims) for guard in engine.assumed):
                return engine
        return None


def concrete_shape(type_: TensorType, dims: Mapping[str, int]) -> tuple[int, ...]:
    """A type's shape for these dims."""
    if not dims:
        shape: Any = type_.shape  # ints
        return shape
    return tuple([s if isinstance(s, int) else evaluate(s, dims) for s in type_.shape])


def before_write(written: Written) -> None:
    """Let compiled backwards that wait keep what they will read of memory that a call writes."""
    if readers:
        for storage, versions in written:
            storage.before_write(versions > 0)


def count_writes(written: Written) -> None:
    """The writes of a call are made."""
    for storage, versions in written:
        storage.version += versions


def kept_for_backward(
    read: Iterable[int], arrays: Sequence[np.ndarray], mutated: Mapping[int, int],
    parts: Iterable[int] = (),
) -> dict[int, np.ndarray]:
    """Copies of the inputs that a backward reads and the call overwrites. `parts`: inputs that lie
    in memory which it may write to."""
    return {i: arrays[i].copy() for i in {*mutated.values(), *parts}.intersection(read)}
