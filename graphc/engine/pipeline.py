"""From a Graph to native code: kept by an earlier process, or made by the compiler's stages.

`build` is for one Graph, `build_pair` for a joint forward and backward graph. stages.py, and all
that it needs, is imported where something has to be compiled.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphc import backends
from graphc.backends import Backend, Host, Keeper
from graphc.backends.host.matrix_unit import Wanted
from graphc.backends.numpy.ops import HOST
from graphc.collecting import FEWEST
from graphc.config import Config, current
from graphc.engine.built import Built, Stages
from graphc.engine.multiplier import is_tuned, multiplier
from graphc.ir.digest import UndigestedError, graph_digest
from graphc.ir.graph import Graph

if TYPE_CHECKING:
    from graphc.engine.limit import Limit
    from graphc.ir.machine import Machine
    from graphc.ir.passes.partition import Split

Wanted.unit = current().amx == "1"

Array = np.ndarray[Any, Any]
Writes: TypeAlias = Mapping[int, int]
# (an optimised graph, its name, its writes, what compiles it, within which memory)
Kept: TypeAlias = "Callable[[Graph, str, Writes, Callable[[], Built], Limit | None], Built]"


def build(
    graph: Graph,
    *,
    config: Config,
    mutated: Writes | None = None,
    name: str | None = None,
    backend: str = backends.DEFAULT,
    example: Sequence[Array] | None = None,
    any_size: bool = False,
    limit: Limit | None = None,
) -> Built:
    """Compile a Graph.

    `mutated` maps an output's number to that of the input whose memory it is written into.
    `backend` is a registered one's name: "numpy" interprets the same Program. `example` are inputs
    for GRAPHC_CHECK=2; without them small random ones are drawn, in which every integer is 0.
    `any_size`: nothing is to be assumed of symbolic sizes, so that the code can be kept.
    `limit`: raises MemoryLimitError for a graph that needs more.
    """
    chosen, called, writes = backends.get(backend), name or graph.name, mutated or {}

    def make() -> Built:
        from graphc.engine import stages

        return stages.build(graph, config, writes, called, chosen, example, limit)

    with FEWEST:
        return _kept(config, chosen, False, graph, called, writes, make, limit, any_size)


def build_pair(
    graph: Graph,
    forward_inputs: int,
    forward_outputs: int,
    *,
    config: Config,
    mutated: Writes | None = None,
    name: str | None = None,
    backend: str = backends.DEFAULT,
    example: Sequence[Array] | None = None,
    late: bool = False,
    limit: Limit | None = None,
) -> tuple[Built, Built | None, Split]:
    """Compile a joint graph as a forward and a backward one (None if it is to be built `late`).

    Its first `forward_inputs` inputs and `forward_outputs` outputs are the forward's. `mutated`
    names forward outputs. The Split says what the forward saves for the backward.
    """
    with FEWEST:
        from graphc.engine import stages

        chosen = backends.get(backend)
        return stages.build_pair(
            graph, forward_inputs, forward_outputs, config, mutated or {}, name or graph.name,
            chosen, example, late, functools.partial(_kept, config, chosen, True), limit,
        )


# --- what is kept ------------------------------------------------------------------------------


def _kept(
    config: Config, backend: Backend, optimised: bool, graph: Graph, name: str, mutated: Writes,
    make: Callable[[], Built], limit: Limit | None = None, any_size: bool = False,
) -> Built:
    """The graph's code as an earlier process has kept it, else what `make` gives, to be kept.
    `optimised`: the graph is that already."""
    start = time.perf_counter()
    keeper = _keeper(config, backend) if any_size or not graph.env.hints else None
    if keeper is None:
        return make()
    try:
        key = _key(config, backend, optimised, graph, mutated, limit)
    except UndigestedError:
        return make()

    @functools.cache
    def staged() -> Stages:
        from graphc.engine import stages

        quiet = config._replace(debug=0)
        return stages.staged(graph, quiet, mutated, name, backend, optimised, limit)

    executable = keeper.find(key, name, lambda: staged().program)
    if executable is None:
        built = make()
        if not built.assumed:
            keeper.keep(key, built.executable)
        return built
    times = {"kept": time.perf_counter() - start}
    if config.debug:
        seconds = f"{1e3 * times['kept']:.1f} ms"
        print(f"graphc: {name}: {seconds} (kept by an earlier process)", file=sys.stderr)
    return Built(name, graph, executable, backend, config, staged, times)


def _keeper(config: Config, backend: Backend) -> Keeper | None:
    """Who keeps code; None where nothing is kept: somebody wants to see how it is compiled."""
    watched = config.check or config.debug > 1 or config.dump is not None
    keeper = getattr(backend, "keeper", None)
    return None if watched or keeper is None else keeper(host(config))


def _key(
    config: Config, backend: Backend, optimised: bool, graph: Graph, mutated: Writes,
    limit: Limit | None,
) -> bytes:
    """Of all that the code depends on besides the backend's own. Raises UndigestedError."""
    room = None if limit is None else (limit.room, config.threads)  # each has scratch memory
    switches = config.random, config.winograd
    parts = graph_digest(graph), optimised, switches, list(mutated.items()), room
    return hashlib.sha256(repr(parts).encode()).digest()


# --- what a Config means to backends -----------------------------------------------------------


def host(config: Config) -> Host:
    """What backends may use of this process."""
    return Host(
        config.threads, config.cache_dir, HOST, config.cuda_graphs, multiplier(config),
        is_tuned(config),
    )


def machine(config: Config, backend: Backend) -> Machine:
    """The backend's Machine. Who keeps code keeps it, too: no compiler is asked for it then."""
    _keeper(config, backend)
    return backend.machine


def draws(config: Config) -> Mapping[str, Callable[..., Any]]:
    """Random numbers of the CPU in native code."""
    return backends.get("llvm").draws(host(config))


def adapt(config: Config) -> None:
    """The number of threads has changed."""
    for backend in backends.loaded():
        backend.adapt(host(config))


def by_counter(config: Config, backend: Backend) -> bool:
    """Whether a backend's random numbers come from a counter."""
    if config.random != "auto":
        return config.random == "counter"
    return backend.machine.by_counter


def as_drawn(graph: Graph, config: Config, backend: str) -> Graph:
    """The graph as it may be run by itself, with the random numbers of a backend's code."""
    if not by_counter(config, backends.get(backend)):
        return graph
    from graphc.ir.passes.counter_random import counter_random
    from graphc.ir.rewrite import apart

    return counter_random(apart(graph))
