"""Every distinct kernel of a program to an object, once, and all of them linked."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from graphc.backends.llvm.build_stats import BuildStats, KernelStats
from graphc.backends.llvm.cache import ObjectCache, source_digest
from graphc.backends.llvm.draw import draw_of, draw_text
from graphc.backends.llvm.driver import emit_driver, ends_by_flag
from graphc.backends.llvm.emit import emit, kernel_checks
from graphc.backends.llvm.executable import outside
from graphc.backends.llvm.frame import Frame, Scratch
from graphc.backends.llvm.libraries import emit_library, is_apart, template_libraries
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.short import is_short
from graphc.backends.llvm.side_by_side import side_by_side
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.words import Layout
from graphc.ir.dim import Size, evaluate, is_static
from graphc.ir.kernel import Attention, Kernel, Launch, Leaf, Program, Routine, leaves
from graphc.ir.kernel.blocking import Blocking
from graphc.ir.kernel.plan_contraction import plan_template
from graphc.ir.kernel.text import kernel_symbol, print_kernel, symbol_of

T = TypeVar("T")


class _Made(NamedTuple):
    """Objects, and the seconds that they took: to their text (0: it was known), and from there."""

    data: tuple[bytes, ...]
    emitting: float
    compiling: float


def compile_program(
    program: Program, target: Target, pool: Pool, cache: ObjectCache
) -> tuple[Frame, Library, BuildStats]:
    """Compiles what the cache lacks, the pool among it, and links it with the driver."""
    source_digest()
    jobs: list[Callable[[], Any]] = [partial(program_objects, program, target, cache)]
    if not pool.built:
        jobs.append(pool.prepare)
    with cache.behind():
        frame, objects, stats = side_by_side(jobs)[0]
        start = time.perf_counter()
        library = Library(objects, outside(pool, frame.by_flag))
        stats.link = time.perf_counter() - start
    return frame, library, stats


def program_objects(
    program: Program, target: Target, cache: ObjectCache, alone: bool = False
) -> tuple[Frame, list[bytes], BuildStats]:
    """The objects of a program, the driver's last, which need not run on this machine. `alone`:
    nor where Python is."""
    stats = BuildStats()
    steps = list(leaves(program.steps))
    kernels = [step.kernel for step in steps if isinstance(step, Launch)]
    compiler = _Compiler(kernels, _draws(steps), target, cache, stats)

    def driven() -> tuple[Frame, bytes]:
        start = time.perf_counter()
        text, layout, told = _driver(program, target, compiler.symbols, alone)
        driver = cache.compile(text, target, opt_level=0)
        stats.driver = time.perf_counter() - start
        return _frame(program, layout, steps, target, told), driver

    (frame, driver), objects = compiler.objects(driven)
    return frame, [*objects, driver], stats


def told_of(program: Program, target: Target) -> str:
    """A digest of all that a program's code is made of."""
    kernels = {
        id(step.kernel): step.kernel for step in leaves(program.steps) if isinstance(step, Launch)
    }
    symbols = {number: kernel_symbol(kernel) for number, kernel in kernels.items()}
    return _driver(program, target, symbols)[2]


def _driver(
    program: Program, target: Target, symbols: Mapping[int, str], alone: bool = False
) -> tuple[str, Layout, str]:
    """The driver's text, its block's layout, and a digest of the program: kernels are in it by
    their texts' digests. `symbols`: the kernels', by identity."""
    checked: dict[int, bool] = {}
    names: list[str] = []
    checks: list[bool] = []
    for step in leaves(program.steps):
        if isinstance(step, Routine):
            names.append("")
            checks.append(not step.claimed)
            continue
        number = id(step.kernel)
        if number not in checked:
            checked[number] = bool(kernel_checks(step.kernel))
        names.append(symbols[number])
        checks.append(checked[number])
    text, layout = emit_driver(program, names, checks, target, alone)
    digest = hashlib.sha256(text.encode())
    for constant in program.constants:
        assert isinstance(constant, np.ndarray)
        digest.update(constant.tobytes())
    return text, layout, digest.hexdigest()


def _frame(
    program: Program, layout: Layout, steps: Sequence[Leaf], target: Target, told: str
) -> Frame:
    return Frame(
        program.name, len(program.input_types), len(program.output_types), program.dims,
        program.arena_bytes, _scratch(steps, target), layout,
        tuple(np.ascontiguousarray(c) for c in program.constants), ends_by_flag(program),
        any(isinstance(step, Routine) and not step.claimed for step in steps),
        is_short(program), told, _early_outputs(program),
    )


def _draws(steps: Iterable[Leaf]) -> list[str]:
    """The kinds of the draws among the steps: what the backend claims."""
    found = [
        draw_of(step.op, dict(step.attrs)) for step in steps
        if isinstance(step, Routine) and step.claimed
    ]
    return list(dict.fromkeys(draw.kind for draw in found if draw is not None))


def _can_fail(leaf: Leaf, known: dict[int, bool]) -> bool:
    if isinstance(leaf, Routine):
        return not leaf.claimed
    number = id(leaf.kernel)
    if number not in known:
        known[number] = bool(kernel_checks(leaf.kernel))
    return known[number]


def _early_outputs(program: Program) -> frozenset[int]:
    """See Frame."""
    behind = 0
    known: dict[int, bool] = {}  # of kernels, by identity
    for number, step in enumerate(program.steps, 1):
        if any(_can_fail(leaf, known) for leaf in leaves([step])):
            behind = number
    return frozenset(
        buffer.index for leaf in leaves(program.steps[:behind])
        for buffer in (leaf.buffers if isinstance(leaf, Launch) else leaf.outputs)
        if buffer.space == "output"
    )


def _scratch(steps: Sequence[Leaf], target: Target) -> tuple[Scratch, ...] | None:
    """Of each template; None where its plan depends on sizes."""
    found: dict[Scratch, None] = {}
    planned: set[tuple[int, tuple[Size, ...]]] = set()
    for step in steps:
        if not isinstance(step, Launch) or step.kernel.template is None:
            continue
        if (id(step.kernel), step.dims) in planned:
            continue
        planned.add((id(step.kernel), step.dims))
        if not is_static(step.dims):
            return None
        own = {name: evaluate(n, {}) for name, n in zip(step.kernel.dims, step.dims, strict=True)}
        plan = plan_template(step.kernel.template, target.machine, own)
        if plan is not None:
            fixed = plan.chunks_at if isinstance(plan, Blocking) else 0
            sizes = int(fixed), int(plan.chunk_scratch), int(plan.slots)
            found[Scratch(*sizes)] = None
    return tuple(found)


def _how_long(kernel: Kernel | None) -> int:
    """A rank of what compiles; None: a library."""
    if kernel is None:
        return 1
    return 2 if isinstance(kernel.template, Attention) else 0


class _Compiler:
    """Objects of a program's kernels, by symbol, of the libraries they need, by name, and of its
    draws, by kind."""

    def __init__(
        self, kernels: Iterable[Kernel], draws: Iterable[str], target: Target, cache: ObjectCache,
        stats: BuildStats,
    ) -> None:
        self.target, self.cache, self.stats = target, cache, stats
        self.symbols: dict[int, str] = {}  # by identity: launches often share a kernel
        self._distinct: dict[str, Kernel] = {}
        self._jobs: dict[str, Callable[[], _Made]] = {}
        self._keys: list[str] = []  # of all objects but the second ones of libraries
        libraries: dict[str, None] = {}
        for kernel in kernels:
            if id(kernel) not in self.symbols:
                text = print_kernel(kernel, name=False)
                symbol = self.symbols[id(kernel)] = symbol_of(text)
                if symbol not in self._distinct:
                    self._distinct[symbol] = kernel
                    self._jobs[symbol] = partial(self._compile, kernel, symbol, text)
                    self._keys.append(text)
                if kernel.template is not None:
                    libraries.update(dict.fromkeys(template_libraries(kernel, target)))
        self._jobs |= {name: partial(self._library, name) for name in libraries}
        self._jobs |= {kind: partial(self._draw, kind) for kind in draws}
        self._keys += [f"library {name}" for name in libraries]
        self._keys += [f"draw {kind}" for kind in draws]

    def objects(self, beside: Callable[[], T]) -> tuple[T, list[bytes]]:
        """What is to be done beside, rather than behind, and all objects."""
        # what takes longest first, and no core is to wait for the last one
        order = sorted(
            self._jobs, key=lambda name: _how_long(self._distinct.get(name)), reverse=True
        )
        start = time.perf_counter()
        jobs: list[Callable[[], Any]] = [beside, *(self._jobs[name] for name in order)]
        # what is known is read in less time than it takes to begin a thread, which takes the GIL
        new = sum(not self.cache.has(key, self.target) for key in self._keys)
        other, *objects = side_by_side(jobs, 1 + new)
        made: dict[str, _Made] = dict(zip(order, objects, strict=True))
        wall, stats = time.perf_counter() - start, self.stats
        for symbol, kernel in self._distinct.items():
            one = made[symbol]
            size, cached = sum(map(len, one.data)), not one.emitting
            stats.kernels.append(KernelStats(symbol, kernel.name, size, cached))
        # the time that passed, in the proportion of what all threads did
        emitting = sum(one.emitting for one in made.values())
        compiling = sum(one.compiling for one in made.values())
        share = wall / max(emitting + compiling + stats.driver, 1e-9)
        stats.emit, stats.driver = emitting * share, stats.driver * share
        stats.codegen = wall - stats.emit - stats.driver
        return other, [each for name in self._jobs for each in made[name].data]

    def _compile(self, kernel: Kernel, symbol: str, text: str) -> _Made:
        # the kernel's own text is the key: a kernel that is known is not even emitted
        return self._made(text, lambda: emit(kernel, self.target, symbol))

    def _library(self, name: str) -> _Made:
        if not is_apart(name):
            return self._made(f"library {name}", lambda: emit_library(name, self.target).text())
        module = functools.cache(lambda: emit_library(name, self.target).apart(name))
        return self._made(f"library {name}", lambda: module()[0], lambda: module()[1])

    def _draw(self, kind: str) -> _Made:
        return self._made(f"draw {kind}", lambda: draw_text(kind))

    def _made(self, key: str, *makes: Callable[[], str]) -> _Made:
        """What a key stands for, in one object or several."""
        emitting = 0.0

        def timed(make: Callable[[], str]) -> str:
            nonlocal emitting
            start = time.perf_counter()
            text = make()
            emitting += time.perf_counter() - start
            return text

        start = time.perf_counter()
        data = tuple(
            self.cache.compile(key + number * "\0", self.target, make=partial(timed, make))
            for number, make in enumerate(makes)
        )
        return _Made(data, emitting, time.perf_counter() - start - emitting)
