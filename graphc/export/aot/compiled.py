"""The programs of a library: for each kind of CPU, and for free sizes of 1, one of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.backends import DEFAULT
from graphc.backends.host.interface import Code, Place
from graphc.config import Config
from graphc.engine import pipeline
from graphc.engine.built import Engine
from graphc.export.aot.bounds import Ranges, bounds
from graphc.export.aot.data import Data
from graphc.export.aot.described import MOST_BYTES, Described, outputs_of
from graphc.export.aot.scratch import scratch
from graphc.export.errors import ExportError
from graphc.export.program import ExportedProgram
from graphc.ir.dim import Guard
from graphc.ir.graph import Graph
from graphc.ir.late import late
from graphc.ir.machine import Machine

_stages = late("graphc.engine.stages")
_freeze = late("graphc.ir.passes.freeze")
_specialise = late("graphc.ir.passes.specialise")
_rewrite = late("graphc.ir.rewrite")
_kernel = late("graphc.ir.kernel")
_program = late("graphc.ir.kernel.program")

MOST_ONES = 3  # free sizes that may be 1: each doubles the programs
Stored = Callable[[str, np.ndarray], Place]  # a name and an array: where it lies
Source = int | Place | tuple[str, np.ndarray]  # a library's input, a place, a weight by name


def ones_of(graph: Graph, about: Described) -> list[frozenset[str]]:
    """The sets of free sizes that are 1 for which there is a program of its own: the graph stands
    for no size of 1."""
    open_names = [
        size.name for size in about.sizes if size.least == 1 and size.name in graph.env.hints
    ]
    if len(open_names) > MOST_ONES:
        raise ExportError(
            f"{len(open_names)} free sizes may be 1 ({', '.join(open_names)}), and a library holds "
            f"code for {MOST_ONES} at most. Cure: aot(..., sizes={{{open_names[0]!r}: (2, ...)}})"
        )
    # those of size 1 alone have no other code
    always = {size.name for size in about.sizes if size.most == 1}
    found = [
        frozenset(names) for count in range(len(open_names) + 1)
        for names in itertools.combinations(open_names, count)
    ]
    return [names for names in found if always & set(open_names) <= names]


def code(
    program: ExportedProgram, arrays: Mapping[str, np.ndarray], about: Described,
    ones: frozenset[str], backend: Any, config: Config, freeze: bool, stored: Stored, data: Data,
) -> Code:
    """The code for one kind of CPU, that of `backend`. `stored` says where weights lie. Raises
    ExportError for what it cannot do without Python."""
    variant = program.variant_at(dict.fromkeys(ones, 1))
    graph, signature = variant.graph, variant.signature
    if ones - variant.ones:
        graph = _specialise.at_sizes(graph, dict.fromkeys(ones, 1))
    guards = [*graph.env.guards]
    outputs = outputs_of(about, program.signature, graph, signature, ones)
    arguments = signature.argument_inputs()
    sources: list[Source] = [
        about.leaves[arguments[i]] if name is None else (name, arrays[name])
        for i, name in enumerate(signature.weights)
    ]
    if freeze:
        graph, made = _frozen(graph, sources, backend.machine, config)
        sources += made
    return compiled(
        graph, guards, sources, outputs, {}, about, ones, backend, config, stored, data
    )


def compiled(
    graph: Graph, guards: Iterable[Guard], sources: Sequence[Source],
    outputs: tuple[int | Place, ...], mutated: Mapping[int, int], about: Described,
    ones: frozenset[str], backend: Any, config: Config, stored: Stored, data: Data,
) -> Code:
    """The code of a graph. `sources` and `outputs`: what its inputs and outputs are to the library;
    `mutated`: which output goes into which input's memory. Raises ExportError for what it cannot
    do without Python."""
    quiet = config._replace(debug=0, check=0, dump=None)
    stages = _stages.staged(graph, quiet, mutated, graph.name, backend)
    planned = stages.program
    _refuse_routines(planned)
    ranges = {
        size.name: (1, 1) if size.name in ones else
        (max(size.least, 2) if size.name in graph.env.hints else size.least, size.most)
        for size in about.sizes
    }
    _check_arena(planned, ranges)
    used = _inputs_read(planned)
    inputs: list[int | Place | None] = []
    for i, source in enumerate(sources):
        if isinstance(source, int | Place):
            inputs.append(source)
        else:
            inputs.append(stored(*source) if i in used else None)
    return Code(
        ones, planned, tuple(inputs), tuple(data.add(each) for each in planned.constants),
        outputs, scratch(planned, backend.machine, ranges),
        (*guards, *_rewrite.assumed(graph, stages.fused)),
    )


def _frozen(
    graph: Graph, sources: list[Any], machine: Machine, config: Config
) -> tuple[Graph, list[tuple[str, np.ndarray]]]:
    """The graph that reads what hangs on weights alone ready made, and that, by names."""
    constants = [i for i, source in enumerate(sources) if not isinstance(source, int)]
    found = _freeze.freeze(graph, constants, machine, config.winograd)
    if found is None:
        return graph, []
    quiet = config._replace(debug=0, check=0, dump=None)
    prologue = pipeline.build(
        found.prologue, config=quiet, name=f"{graph.name}_constants", backend=DEFAULT
    )
    arrays = [sources[i][1] for i in found.reads]
    _, results = Engine.of(prologue).call(arrays, {})
    return found.main, [(f"laid_out.{i}", each) for i, each in enumerate(results)]


def _refuse_routines(program: Any) -> None:
    """What calls NumPy, by name and line."""
    found: dict[str, None] = {}
    for leaf in _kernel.leaves(program.steps):
        if isinstance(leaf, _kernel.Routine) and not leaf.claimed:
            place = next((loc for loc in leaf.locs if loc), "")
            found[f"{leaf.op}{f' ({place})' if place else ''}"] = None
    if found:
        raise ExportError(
            f"the program computes by NumPy, which a library does not have: {', '.join(found)}. "
            "Cure: compute these outside of what is exported"
        )


def _inputs_read(program: Any) -> set[int]:
    """The inputs that some step reads."""
    found: set[int] = set()

    def note(ref: Any) -> Any:
        if ref.space == "input":
            found.add(ref.index)
        return ref

    _program.rebound(program.steps, note)
    return found


def _check_arena(program: Any, ranges: Ranges) -> None:
    low, high = bounds(program.arena_bytes, ranges)
    if low < 0 or high > MOST_BYTES:
        raise ExportError(
            f"the program needs up to {high:.3g} bytes of memory. Cure: aot(..., sizes={{...}}) "
            "with smaller sizes"
        )
