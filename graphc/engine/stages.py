"""Graph -> passes -> fused Graph -> Program -> Executable: the compiler's stages, in order.

`build` does all of it for one Graph, `build_pair` for a joint forward and backward graph; both are
called by pipeline.py, where nothing is kept of an earlier process. After every pass one hook
verifies, compares values, prints and dumps, as the Config asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphc import backends
from graphc.backends import Backend
from graphc.backends.numpy.ops import TABLE
from graphc.config import AGAIN, Config
from graphc.engine.built import Built, Stages
from graphc.engine.limit import Limit
from graphc.engine.pipeline import Kept, as_drawn, by_counter, host
from graphc.inspect.observer import Observer
from graphc.ir import passes
from graphc.ir.graph import Graph, Node
from graphc.ir.late import late
from graphc.ir.passes.absorb import absorb
from graphc.ir.passes.alone import alone
from graphc.ir.passes.counter_random import counter_random
from graphc.ir.passes.cse import cse
from graphc.ir.passes.dce import dce
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.fold import fold
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.given_last import given_last
from graphc.ir.passes.layout import layout
from graphc.ir.passes.lower import lower
from graphc.ir.passes.lower.attention import whole_template
from graphc.ir.passes.lower.contraction import whole_convolution
from graphc.ir.passes.pack import pack
from graphc.ir.passes.pairs import pairs
from graphc.ir.passes.partition import Split, split
from graphc.ir.passes.plan import plan
from graphc.ir.passes.roll import roll
from graphc.ir.passes.simplify import simplify
from graphc.ir.passes.specialise import specialise
from graphc.ir.passes.winograd import winograd
from graphc.ir.record import replaced
from graphc.ir.rewrite import apart, assumed

if TYPE_CHECKING:
    from graphc.doubt import checked
    from graphc.engine import within
    from graphc.inspect import value_check
else:  # where a call is compared, or kept to a number of bytes
    checked = late("graphc.doubt.checked")
    within = late("graphc.engine.within")
    value_check = late("graphc.inspect.value_check")

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """One stage of the pipeline, and why it is where it is."""

    name: str
    function: Callable[..., Any]  # to and including `fuse` a pass: Graph -> Graph
    reason: str


# Runs where `by_counter` says so.
COUNTER = Step("counter_random", counter_random, "before all: draws become plain arithmetic")
# Whole-graph passes; a joint graph is cut after them and before fusion.
ROLL = Step("roll", roll, "first: all that follows then sees one step of an unrolled loop")
GIVEN_LAST = Step("given_last", given_last, "before rewriting, which sees through its permutes")
DECOMPOSE = Step("decompose", decompose, "after it, primitives and what a backend claims")
OPTIMISE: tuple[Step, ...] = (
    ROLL,
    GIVEN_LAST,
    DECOMPOSE,
    Step("pairs", pairs, "after decompose, whose primitives it knows; then all rules apply"),
    Step("fold", lambda graph: fold(graph, TABLE), "rules match numbers, so compute them first"),
    Step("simplify", simplify, "canonical spelling: cse and fuse then meet one form of each thing"),
    Step("cse", cse, "after rewriting, which makes unequal spellings equal"),
    Step("dce", dce, "drops what rewriting and merging left unused, before fusion counts uses"),
    Step("layout", layout, "no rule undoes its permutes; a joint graph then saves what lies so"),
)
# Runs where the Config allows its errors.
WINOGRAD = Step("winograd", winograd, "before layout, which sees what is left, and keeps its order")
# For one Machine, and what its backend renders.
ALONE = Step("alone", alone, "after layout, which gives some gradients another order of channels")
ABSORB = Step("absorb", absorb, "before pack, which lays out the weights that it puts together")
PACK = Step("pack", pack, "before fusion, to which layouts are operators like others")
FUSE = Step("fuse", fuse, "what a kernel computes is decided on the final operators")
LOWER = Step("lower", lower, "before planning: kernels say what scratch they need, what can fail")
PLAN = Step("plan", plan, "last: lifetimes are known once the kernels are")


def build(
    graph: Graph, config: Config, mutated: Mapping[int, int], name: str, backend: Backend,
    example: Sequence[Array] | None, limit: Limit | None = None,
) -> Built:
    """See pipeline.build."""
    observer = Observer(config, name, TABLE, example)
    specialised = specialise(apart(graph))
    times: dict[str, float] = {}
    with _blamed(observer, specialised, mutated):
        observer.begin(specialised)
        optimised = _run(_optimise(config, backend), specialised, observer, times)
        built = _finish(graph, optimised, observer, times, mutated, backend, limit)
    built.assumed = assumed(graph, built.fused)
    return built


def staged(
    graph: Graph, config: Config, mutated: Mapping[int, int], name: str, backend: Backend,
    optimised: bool = False, limit: Limit | None = None,
) -> Stages:
    """What `build` comes to on the way, of a graph whose code is at hand. `optimised`: the graph
    is that already."""
    observer = Observer(config, name, TABLE)
    if not optimised:
        steps = _optimise(config, backend)
        return _lowered(_run(steps, specialise(apart(graph)), observer, {}), observer, {}, mutated,
                        backend, limit)
    return _lowered(apart(graph), observer, {}, mutated, backend, limit)


def build_pair(
    graph: Graph, forward_inputs: int, forward_outputs: int, config: Config,
    mutated: Mapping[int, int], name: str, backend: Backend, example: Sequence[Array] | None,
    late: bool, kept: Kept, limit: Limit | None = None,
) -> tuple[Built, Built | None, Split]:
    """See pipeline.build_pair. `kept`: code of an optimised graph that an earlier process has made,
    or that of this one, to be kept."""
    observer = Observer(config, name, TABLE, example)
    specialised = specialise(apart(graph))
    times: dict[str, float] = {}
    with _blamed(observer, specialised, {}):
        observer.begin(specialised)
        optimised = _run(_optimise(config, backend), specialised, observer, times)
    start = time.perf_counter()
    if limit is None:
        parts = split(optimised, forward_inputs, forward_outputs)
    else:
        quiet = config._replace(debug=0, dump=None, check=0)

        def both(parts: Split) -> None:
            rooms = limit.of_forward(parts), limit.of_backward(parts)
            staged(parts.forward, quiet, mutated, parts.forward.name, backend, True, rooms[0])
            staged(parts.backward, quiet, {}, parts.backward.name, backend, True, rooms[1])

        parts = within.split_within(optimised, forward_inputs, forward_outputs, both)
    times["partition"] = time.perf_counter() - start
    forward_example, backward_example = observer.split_example(parts, forward_inputs)

    def built(
        part: Graph, inputs: Sequence[Array] | None, spent: dict[str, float],
        writes: Mapping[int, int], limit: Limit | None,
    ) -> Built:
        watch = Observer(config, part.name, TABLE, inputs)

        def make() -> Built:
            with _blamed(watch, part, writes):
                watch.begin(part)
                return _finish(part, apart(part), watch, spent, writes, backend, limit)

        built = kept(part, part.name, writes, make, limit)
        built.assumed = assumed(graph, built.fused) if graph.env.hints else ()
        return built

    ahead, behind = (None, None) if limit is None else (
        limit.of_forward(parts), limit.of_backward(parts)
    )
    forward = built(parts.forward, forward_example, times, mutated, ahead)
    if late:
        return forward, None, parts
    return forward, built(parts.backward, backward_example, {}, {}, behind), parts


@contextmanager
def _blamed(observer: Observer, graph: Graph, mutated: Mapping[int, int]) -> Iterator[None]:
    """Say for which graph and inputs a value changed."""
    try:
        yield
    except value_check.ValueChangedError as error:
        if error.case is None and observer.values is not None:
            values = observer.values
            error.case = checked.case_of(graph, values.inputs, mutated, values.dims)
        raise


def _optimise(config: Config, backend: Backend) -> list[Step]:
    given: dict[Any, dict[str, Any]] = {
        roll: {"machine": backend.machine}, decompose: {"claimed": _kept(backend)},
        layout: {"machine": backend.machine},
        given_last: {"machine": backend.machine, "winograd": config.winograd},
    }
    steps = [
        step._replace(function=partial(step.function, **given[step.function]))
        if step.function in given else step for step in OPTIMISE
    ]
    if config.winograd:
        steps.insert(len(steps) - 1, WINOGRAD._replace(function=_in_tiles(config, backend)))
    return [COUNTER, *steps] if by_counter(config, backend) else steps


def _in_tiles(config: Config, backend: Backend) -> passes.Pass:
    return partial(
        winograd, machine=backend.machine, limit=config.winograd, claimed=_claimed(backend)
    )


def _claimed(backend: Backend) -> Callable[[Node], bool]:
    return lambda node: backend.claims(node, backend.machine)


def _kept(backend: Backend) -> Callable[[Node], bool]:
    """Which composites are not decomposed: what a backend claims, or renders as a template."""
    claimed = _claimed(backend)

    def kept(node: Node) -> bool:
        template = whole_template(node) or whole_convolution(node)
        return claimed(node) or (template is not None and backend.renders(template))

    return kept


def _run(
    steps: Sequence[Step], graph: Graph, observer: Observer, times: dict[str, float]
) -> Graph:
    def after(name: str, before: Graph, result: Graph, seconds: float) -> None:
        times[name] = times.get(name, 0.0) + seconds
        observer.after_pass(name, before, result)

    return passes.run([(step.name, step.function) for step in steps], graph, after)


@contextmanager
def _timed(step: Step, times: dict[str, float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    times[step.name] = time.perf_counter() - start


def _finish(
    graph: Graph,
    optimised: Graph,
    observer: Observer,
    times: dict[str, float],
    mutated: Mapping[int, int],
    backend: Backend,
    limit: Limit | None,
) -> Built:
    """From the optimised graph to the backend's code."""
    stages = _lowered(optimised, observer, times, mutated, backend, limit)
    executable = backend.build(stages.program, host(observer.config))
    times.update(executable.stats.seconds)
    built = Built(
        observer.name, graph, executable, backend, observer.config, lambda: stages, times
    )
    observer.finish(built)
    if observer.config.check >= AGAIN:
        meaning = as_drawn(graph, observer.config, backends.name_of(backend))
        meaning = _in_tiles(observer.config, backend)(apart(meaning))  # whose errors are allowed
        built.executable = checked.Checked(
            executable, backend, stages.program, meaning, mutated, TABLE
        )
    return built


def _lowered(
    optimised: Graph, observer: Observer, times: dict[str, float], mutated: Mapping[int, int],
    backend: Backend, limit: Limit | None = None,
) -> Stages:
    """From the optimised graph to the program."""
    machine, claimed = backend.machine, _claimed(backend)

    def routine(node: Node) -> bool:
        return claimed(node) or not backend.computes(node)

    steps = (
        ALONE._replace(function=lambda graph: alone(graph, machine)),
        ABSORB._replace(function=lambda graph: absorb(graph, machine)),
        PACK._replace(function=lambda graph: pack(graph, machine)),
        FUSE._replace(function=lambda graph: fuse(graph, machine, routine, tuple(mutated))),
    )
    fused = _run(steps, optimised, observer, times)
    with _timed(LOWER, times):
        kernels = lower(fused, machine, backend.renders)
    observer.lowered(kernels)
    with _timed(PLAN, times):
        make = partial(plan, fused, kernels, machine, mutated=mutated, claimed=claimed)
        program = make() if limit is None else within.plan_within(
            make, limit, machine, observer.config.threads
        )
        program = replaced(program, name=observer.name, dims=tuple(fused.env.hints))
    observer.program(program, optimised, fused, machine)
    return Stages(optimised, fused, program)
