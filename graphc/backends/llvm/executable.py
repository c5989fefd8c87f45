"""`build(program, ...)`: a Program as native code in this process, called by `Executable.run`."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphc.backends.host.entry_turns import Shelf, Turns
from graphc.backends.host.entry_whole import Places
from graphc.backends.host.watched import Steps, Watch
from graphc.backends.llvm import words
from graphc.backends.llvm.arenas import SHARED, Share
from graphc.backends.llvm.build_stats import BuildStats
from graphc.backends.llvm.frame import Frame
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.rows import Rows
from graphc.ir.dim import evaluate
from graphc.ir.interpret import Table
from graphc.ir.memory import Array, Memory

if TYPE_CHECKING:  # what only compiling needs is imported when something is compiled
    from graphc.backends.llvm.cache import ObjectCache
    from graphc.backends.llvm.callbacks import Callbacks
    from graphc.backends.llvm.target import Target
    from graphc.ir.kernel import Kernel, Leaf, Program
    from graphc.ir.kernel.program import Visit

ARENA_ALIGNMENT = 64
MOST_SIZES = 1024  # values of the dims whose memory is kept in mind

_Run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_RunHoldingGIL = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def build(
    program: Program,
    *,
    pool: Pool,
    memory: Memory,
    table: Table,
    target: Target | None = None,
    cache: ObjectCache | None = None,
    cache_dir: Path | None = None,
) -> Executable:
    """Compiles and links a program.

    `cache` (or one over `cache_dir`, or in memory) keeps the kernels' objects. Buffers lie in
    `memory`; `table` holds NumPy's functions for the operators that its Callbacks name. Raises
    ValueError for a target that is not a subset of this machine, and LLVMError.
    """
    from graphc.backends.llvm.cache import ObjectCache
    from graphc.backends.llvm.callbacks import Callbacks
    from graphc.backends.llvm.compile_program import compile_program
    from graphc.backends.llvm.target import host_target, require_runnable

    if target is not None:
        require_runnable(target)
    if cache is None:
        cache = ObjectCache(cache_dir)
    target = target or host_target()
    frame, library, stats = compile_program(program, target, pool, cache)
    callbacks = Callbacks(program, table, memory) if frame.routines else None
    return Executable(frame, library, pool, memory, lambda: program, stats, target, callbacks)


def outside(pool: Pool, by_flag: bool) -> dict[str, int]:
    """Addresses of what a program's code calls that is not its own."""
    found = {"graphc_par": pool.address}
    if by_flag:
        found |= {name: _python(name) for name in words.PYTHON}
    return found


def _python(name: str) -> int:
    """Where a function of CPython's API lies."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


class _Lease:
    """What one call needs for itself: a block of words, and an arena, which is the program's own
    where it is small, and else `shared` by all while no call has it."""

    def __init__(self, words: int, memory: Memory, share: Share) -> None:
        self.memory, self.share = memory, share
        self.block = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.block)
        self.arena = np.empty(0, np.uint8)
        self.shared = False
        self.shelf: Shelf | None = None  # of a lease that native code has for good
        self.workers = 0  # chunks that have scratch at a time; 0: there is no arena
        self.dims: tuple[int, ...] = ()  # that it was last borrowed for
        self.sizes = 0, 0, 0  # what lay_out was last given

    def lay_out(self, arena: int, scratch: int, workers: int) -> None:
        """Makes room for the arena and for scratch behind it, plus what unmasked reads may
        overrun."""
        size = arena + scratch + 3 * ARENA_ALIGNMENT
        self.sizes = arena, scratch, workers
        if size >= SHARED:
            self.arena, self.shared = self.share.take(size), True
        elif self.arena.size < size:
            self.arena = np.empty(size, np.uint8)
        place = self.memory.address(self.arena)
        if self.shared and self.shelf is not None:
            self.shelf.put(self.arena, place, size)
        start = _aligned(place)
        self.block[words.ARENA] = start
        self.block[words.SCRATCH] = _aligned(start + arena)
        self.block[words.WORKERS] = self.workers = workers

    def end(self) -> None:
        """The call is over, and the arena, which is shared, others' again."""
        self.share.give_back(self.arena)
        self.arena, self.shared, self.workers = _NO_ARENA, False, 0

    def begin(self) -> None:
        """A call begins, of somebody who has the lease for good: it has an arena until `end`."""
        if self.shared:  # something was raised at the end of the last call
            self.end()
        self.lay_out(*self.sizes)


_NO_ARENA = np.empty(0, np.uint8)


def _aligned(address: int) -> int:
    return -(-address // ARENA_ALIGNMENT) * ARENA_ALIGNMENT


class Executable:
    """A compiled program. `run` may be called from several threads, and from inside itself."""

    def __init__(
        self, frame: Frame, library: Library, pool: Pool, memory: Memory,
        program: Callable[[], Program], stats: BuildStats, target: Target | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        """`program`: asked for where a call fails, or is traced. `target`: None for this machine;
        `callbacks`: None where no step is a Routine."""
        self.frame, self.library, self.pool, self.memory = frame, library, pool, memory
        self.stats = stats
        self._make_program, self._target, self._callbacks = program, target, callbacks
        self._address_of = memory.address
        self._layout = frame.layout
        prototype = _RunHoldingGIL if frame.by_flag else _Run
        self.code = library.address(words.RUN)
        self._run = prototype(self.code)
        # by the dims, and the number of threads: see _bytes
        self._sizes: dict[tuple[int, ...], tuple[int, int, int]] = {}
        self._leases: list[_Lease] = []
        self._share = Share()
        self._buffers = frame.inputs + frame.outputs

    @functools.cached_property
    def program(self) -> Program:
        """What it computes, step by step."""
        return self._make_program()

    def rows(self) -> Rows | None:
        """What runs it many times in one call, where that can be."""
        try:
            return Rows(self.frame, self.library)
        except KeyError:
            return None

    @functools.cached_property
    def target(self) -> Target:
        """What its code is made for."""
        from graphc.backends.llvm.target import host_target

        return self._target or host_target()

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], dims: Sequence[int] = ()
    ) -> None:
        """Runs the program on C-contiguous arrays of the declared dtypes and shapes.

        `outputs` are written, `dims` are the values of the program's dims. Raises what a failed
        Check names, or what a Routine raised; then nothing that the caller sees was written.
        """
        if Steps.watch is not None:
            return self._watched(Steps.watch, inputs, outputs, dims)
        lease = self._lease(inputs, outputs, dims)
        try:
            if self._run(lease.address):
                raise self.failure(lease)
        finally:
            self.give_back(lease)

    def trace(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        before: Visit,
        after: Visit,
        dims: Sequence[int] = (),
    ) -> None:
        """Like run, one step at a time, with `before` and `after` called around each Launch and
        Routine (for debugging)."""
        from graphc.backends.llvm.traced import run_traced

        lease = self._lease(inputs, outputs, dims)
        try:
            block, program = lease.block, self.program
            if not run_traced(program, self.library, self.memory, block, before, after):
                raise self.failure(lease)
        finally:
            self.give_back(lease)

    def _watched(
        self, watch: Watch, inputs: Sequence[Array], outputs: Sequence[Array], dims: Sequence[int]
    ) -> None:
        """Like run, with somebody told of each step."""
        env = dict(zip(self.frame.dims, dims, strict=True))
        with ExitStack() as step_under_way:
            def before(number: int, step: Leaf, fetch: object) -> None:
                step_under_way.enter_context(watch(step, env))

            def after(number: int, step: Leaf, fetch: object) -> None:
                step_under_way.close()

            self.trace(inputs, outputs, before, after, dims)

    def texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """LLVM assembly, and the machine's."""
        from graphc.backends.llvm.emit import emit
        from graphc.backends.llvm.jit import compile_assembly
        from graphc.ir.kernel.text import kernel_symbol

        text = emit(kernel, self.target)
        yield "ll", f"; {kernel_symbol(kernel)}\n{text}"
        yield "s", compile_assembly(text, self.target)

    def _lease(
        self, inputs: Sequence[Array], outputs: Sequence[Array], dims: Sequence[int]
    ) -> _Lease:
        """A lease, filled in for a call."""
        if len(inputs) + len(outputs) != self._buffers or len(dims) != len(self.frame.dims):
            raise ValueError(self._wrong_count(len(inputs), len(outputs), len(dims)))
        lease = self.borrow(dims)
        first = words.FIRST_BUFFER
        lease.block[first : first + self._buffers] = [
            *map(self._address_of, inputs),
            *map(self._address_of, outputs),
        ]
        return lease

    # --- calls whose inputs are fetched by native code (engine/version/shortcut.py) ---------------

    @property
    def first_input(self) -> int:
        """The word of a lease's block with the first input's address; the outputs' follow."""
        return words.FIRST_BUFFER

    @property
    def first_held(self) -> int:
        """The first of two words for each input, and one for each output, for whoever holds
        references during a call."""
        return self._layout.words

    @property
    def releases(self) -> bool:
        """Whether somebody is to let the GIL go around the code: not where it does so itself, nor
        where it is over sooner than another thread would begin."""
        return not (self.frame.by_flag or self.frame.short)

    @property
    def can_run_twice(self) -> bool:
        """Whether a call that has failed, of which nothing is seen, fails again in the same way:
        neither the host nor a signal has a part in it."""
        return not (self.frame.by_flag or self.frame.routines)

    def writes_late(self, output: int) -> bool:
        """Whether a call can no longer fail when it first writes to an output."""
        return not self.frame.by_flag and output not in self.frame.early

    def borrow(self, dims: Sequence[int]) -> _Lease:
        """A lease for a call with these dims, whose buffers are yet to be pointed to."""
        try:
            lease = self._leases.pop()  # atomic: no two calls get the same
        except IndexError:
            lease = self._new_lease()
        lease.block[words.STATUS] = 0
        workers = self.pool.threads
        if dims != lease.dims:
            first = self._layout.dims
            lease.block[first : first + len(dims)] = list(dims)
        elif lease.workers == workers:
            return lease  # as the call before has left it
        lease.lay_out(*self._bytes(tuple(dims), workers))
        lease.dims = tuple(dims)
        return lease

    def give_back(self, lease: _Lease) -> None:
        """The call is over."""
        if lease.shared:
            lease.end()
        self._leases.append(lease)

    def own_lease(self) -> _Lease:
        """A lease for whoever asks, to be laid out."""
        lease = self._new_lease()
        lease.shelf = self._share.shelf()
        return lease

    def lay_out(self, lease: _Lease, dims: Sequence[int]) -> Turns | None:
        """Make room for calls with these dims, and as many threads as there are. What each of them
        is to begin and to end with, where the arena is others' between calls; else None."""
        first = self._layout.dims
        lease.block[first : first + len(dims)] = list(dims)
        lease.lay_out(*self._bytes(tuple(dims), self.pool.threads))
        if not lease.shared:
            return None
        lease.end()
        return Turns(lease.begin, lease.end, lease.shelf or self._share.shelf())

    def is_laid_out(self, lease: _Lease) -> bool:
        """Whether it is for as many threads as there are."""
        return bool(lease.block[words.WORKERS] == self.pool.threads)

    def places(self, lease: _Lease) -> Places:
        """What native code asks of a lease before it takes it."""
        first = lease.address
        return Places(self.pool.threads_at, first + 8 * words.WORKERS, first + 8 * words.STATUS)

    def point(self, lease: _Lease, buffer: int, array: Array) -> None:
        """A buffer of the call, inputs first, is this array."""
        lease.block[words.FIRST_BUFFER + buffer] = self._address_of(array)

    def _bytes(self, dims: tuple[int, ...], workers: int) -> tuple[int, int, int]:
        """How much arena and scratch a call with these dims needs, with so many threads."""
        found = self._sizes.get((*dims, workers))
        if found is None:
            if len(self._sizes) >= MOST_SIZES:
                self._sizes.clear()
            env = dict(zip(self.frame.dims, dims, strict=True))
            arena = evaluate(self.frame.arena, env)
            scratch = self._scratch(env, workers)
            found = self._sizes[*dims, workers] = arena, scratch, workers
        return found

    def _scratch(self, env: dict[str, int], workers: int) -> int:
        if self.frame.scratch is not None:
            return self.frame.scratch_bytes(workers)
        from graphc.ir.kernel.plan_contraction import scratch_bytes

        return scratch_bytes(self.program, self.target.machine, env, workers)

    def _new_lease(self) -> _Lease:
        room = self._layout.words + self._buffers + self.frame.inputs
        lease = _Lease(room, self.memory, self._share)
        if self._callbacks is not None:
            lease.block[words.CALLBACK] = self._callbacks.address
        for position, constant in enumerate(self.frame.constants):
            lease.block[self._layout.constants + position] = self._address_of(constant)
        return lease

    def _wrong_count(self, inputs: int, outputs: int, dims: int) -> str:
        frame = self.frame
        return (
            f"program {frame.name} takes {frame.inputs} inputs, "
            f"{frame.outputs} outputs and {len(frame.dims)} dims, "
            f"got {inputs}, {outputs} and {dims}"
        )

    def failure(self, lease: _Lease) -> BaseException:
        """The exception for a call that stopped."""
        from graphc.backends.llvm.emit import kernel_checks
        from graphc.ir.failure import check_error
        from graphc.ir.kernel import Routine, leaves

        status = lease.block[words.STATUS : words.STATUS + 4]
        step = list(leaves(self.program.steps))[status[1] - 1]
        if isinstance(step, Routine):
            assert self._callbacks is not None
            return self._callbacks.take_failure()
        check = kernel_checks(step.kernel)[status[2]]
        return check_error(check.message.replace("{value}", str(status[3])), step.locs)
