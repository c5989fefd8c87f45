"""Devices that tensors may lie on, by the Backend that has them: eager mode there is a compiled
program of one operator for each signature, kept.

    register("apart", "far")        # the device "apart:0" in the memory of the backend "far"
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from .. import backends, config
from ..backends.host.memory import HOST
from ..frontend import placement
from ..frontend.errors import TraceError, located
from ..ir import forks
from ..ir.dim import DimEnv
from ..ir.dtypes import from_numpy
from ..ir.graph import Builder, attrs_key
from ..ir.memory import Buffer
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from . import multiplier, pipeline
from .built import Built, Engine
from .capture.kinds import is_part_of_machinery
from .capture.observer import running

_PROGRAMS = 20_000


def register(kind: str, backend: str) -> None:
    """Make the memory of a backend a device of this type. Raises InvalidBackend, and ValueError
    where the device is registered."""
    name = backends.canonical(backend)
    found = backends.get(name)
    is_part_of_machinery(found, found.memory)
    place = placement.register(kind, found.memory, Operators(name).run, name)
    if found.machine.by_counter:  # so it has all arithmetic that this takes
        place.by_counter = lambda: pipeline.by_counter(config.current(), found)


def backend_at(place: placement.Place | None, asked: str) -> str:
    """The name of the backend whose code runs on tensors of a device, where the user asked for
    one. Raises RuntimeError where that one has another memory, TraceError where there is none."""
    if place is None and asked == backends.DEFAULT:
        return asked
    memory = backends.get(asked).memory
    if memory is (HOST if place is None else place.memory):
        return asked
    if place is None:
        raise RuntimeError(located(
            f"backend {asked!r} computes on tensors on {memory.place}. Cure: move them there "
            f"(.to({memory.place!r})), or leave backend= out"
        ))
    if place.backend is None:
        raise TraceError(located(f"there is no code for tensors on {place.device}"))
    if asked != backends.DEFAULT:
        raise RuntimeError(located(
            f"backend {asked!r} does not run on tensors on {place.device}. Cure: leave backend= out"
        ))
    return place.backend


class Operators:
    """A backend's eager mode."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._programs: dict[Any, Engine] = {}
        self._lock = forks.lock()

    def run(self, op: Op, buffers: list[Buffer], attrs: Attrs) -> Any:
        """An operator on buffers of the backend's memory: its result, or a tuple of them."""
        types = tuple([TensorType(from_numpy(b.dtype), b.shape) for b in buffers])
        key = (op, types, attrs_key(attrs), multiplier.in_force())
        engine = self._programs.get(key)
        if engine is None:
            observer = running.observer
            with nullcontext() if observer is None else observer.unobserved():
                engine = Engine.of(self._build(op, types, attrs))
            if "graphs" not in attrs:
                with self._lock:
                    if len(self._programs) >= _PROGRAMS:
                        self._programs.clear()
                    self._programs[key] = engine
        _, results = engine.call(buffers, {})
        return results[0] if engine.built.name == op.name else tuple(results)

    def _build(self, op: Op, types: tuple[TensorType, ...], attrs: Attrs) -> Built:
        builder = Builder(DimEnv())
        node = builder.emit(op, *[builder.input(type_) for type_ in types], **attrs)
        several = not isinstance(node.type, TensorType)
        outputs = builder.results(node) if several else (node,)
        name = f"{op.name}_results" if several else op.name
        graph = builder.build(outputs, name)
        settings = config.current()._replace(max_autotune=0)
        return pipeline.build(graph, config=settings, name=name, backend=self.backend)
