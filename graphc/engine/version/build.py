"""From a recording to a version: its graph through the pipeline, and what runs around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import backends
from ...frontend.errors import MemoryLimitError
from ...frontend.placement import Place
from ...inspect.example import example_inputs
from ...ir.graph import Graph
from .. import pipeline
from ..built import Allocate, Built, Engine
from ..capture.recording import Recording
from ..devices import backend_at
from ..limit import limit_of
from ..mode import Mode
from ..orders import NO_ORDERS, Orders, gradient_orders, ordered, orders_of, turned
from .backward import CompiledBackwardPlan
from .frozen import Constants, frozen
from .parts import Parts, behind
from .shared_builds import Native, SharedBuilds
from .version import Specialisation


def build(
    recording: Recording, name: str, backend: str, mode: Mode, shared: SharedBuilds | None
) -> Specialisation:
    """The version that a recording says. `shared`: what equal Modules were compiled to. Raises
    MemoryLimitError for one that needs more than the mode's bytes. Winograd's tiles are given up
    before."""
    try:
        return _built(recording, name, backend, mode, shared)
    except MemoryLimitError:
        if not mode.config().winograd:
            raise
        return _built(recording, name, backend, mode._replace(winograd=0.0), shared)


def _built(
    recording: Recording, name: str, backend: str, mode: Mode, shared: SharedBuilds | None
) -> Specialisation:
    traced, place = recording.traced, recording.trace.place or None
    settings, chosen = mode.config(), backend_at(place, backend)
    constants: Constants | None = None
    orders = orders_of(traced) if place is None else {}
    if place is None and chosen == backends.DEFAULT and mode.max_memory is None:
        renewed = [number for number, _ in recording.stored_inputs().items()]
        found = frozen(traced, orders, name, settings, chosen, renewed)
        if found is not None:
            traced, constants = found
    gradients: Orders = NO_ORDERS
    if place is None and constants is None:
        gradients = gradient_orders(traced)
    # where constants are computed apart, the graph is that already
    graph = traced.graph if constants is not None else (
        ordered(traced.graph, orders, traced.mutated, gradients)
    )
    options: dict[str, Any] = {
        "config": settings, "mutated": traced.mutated, "name": name, "backend": chosen,
    }
    if mode.max_memory is not None:
        options["limit"] = limit_of(traced, mode.max_memory)
    if settings.check >= 2:
        options["example"] = turned(example_inputs(traced), orders)
    allocate = backends.get(chosen).memory.allocate

    def built(make: Callable[[], Native], *parts: Any) -> Native:
        if shared is None:
            return make()
        key = *parts, tuple(traced.mutated.items()), settings, chosen, tuple(orders.items())
        key += (tuple(gradients.items()),)
        return shared.get(graph, key, make)

    plan: CompiledBackwardPlan | None = None
    if traced.backward is not None and traced.backward.outputs:
        inputs, count = traced.forward
        native = built(
            lambda: _build_joint(graph, inputs, count, options, allocate, place, orders, gradients),
            inputs, count, place,
        )
        assert native.split is not None and native.parts is not None
        outputs = native.split.forward.outputs
        plan = CompiledBackwardPlan(
            traced, native.split, native.parts, (traced.graph, inputs, count),
            lambda graph: pipeline.as_drawn(graph, settings, chosen),
        )
    else:
        native = built(lambda: Native(pipeline.build(graph, **options)))
        outputs = graph.outputs
    types = [node.tensor_type for node in outputs]
    engine = Engine(
        native.forward, types, tuple(graph.env.hints), allocate, place, traced.mutated, orders
    )
    version = Specialisation(traced, recording.observer, recording.replay, engine, plan)
    version.constants = constants
    kept = list(recording.stored), recording.order, recording.apart_from
    version.makes(recording.rebuild, *kept)
    version.follow(recording.stored_inputs(), recording.dropped_guards())
    assumed = native.forward.assumed
    version.relies(recording.observer, recording.materialise, recording.leaves, assumed)
    return version


def _build_joint(
    graph: Graph, inputs: int, outputs: int, options: dict[str, Any], allocate: Allocate,
    place: Place | None, orders: Orders, gradients: Orders,
) -> Native:
    """The forward of a joint graph, where it is cut, and its backward.

    Where several results carry a history, that backward is built when it runs: of hidden states
    and a loss, only the loss may ever be differentiated.
    """
    late = {key: options[key] for key in ("config", "backend")}
    limit = options.get("limit")

    def build(reduced: Graph) -> Built:
        room = None if limit is None else limit.of_backward(split).of_part(reduced)
        return pipeline.build(reduced, name=f"{options['name']}_backward", limit=room, **late)

    several = len(graph.inputs) - inputs > 1
    forward, reverse, split = pipeline.build_pair(graph, inputs, outputs, late=several, **options)
    missing = behind(graph, inputs, outputs)
    mutated = options["mutated"]
    of_saved = [i if kind == "input" else mutated.get(i) for kind, i in split.saved]
    in_order = {at: orders[i] for at, i in enumerate(of_saved) if i in orders}
    parts = Parts(
        split.backward, len(split.saved), build, missing, allocate, place, in_order,
        {number - outputs: order for number, order in gradients.items()},
    )
    if reverse is not None:
        parts.keep_whole(reverse)
    return Native(forward, split, parts)
