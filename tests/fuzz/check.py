"""Compile one case and compare it with the oracle; gives a Failure, or None."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc import backends
from graphc.config import Config
from graphc.doubt.case import Case
from graphc.doubt.oracle import Oracle
from graphc.engine import pipeline
from graphc.engine.built import Built
from graphc.ir.dim import evaluate
from graphc.ir.graph import Graph
from graphc.ir.memory import Buffer, Memory
from graphc.ir.text_parse import parse_graph
from tests.fuzz.gradient import check_gradient

Array = np.ndarray[Any, Any]
_RED_ZONE = 64  # bytes on each side of every buffer
_FILL = 0xA5


@dataclass
class Failure:
    """What went wrong. `kind` is one word; shrinking keeps it."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass
class Tally:
    """What has been run."""

    ops: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)


def check(
    case: Case, config: Config, tally: Tally | None = None, interpret: float = 0.05,
    backend: str = backends.DEFAULT,
) -> Failure | None:
    """Run a case through everything. `interpret`: how often the kernel interpreter runs too;
    `backend`: whose code, in whose memory."""
    tally = tally if tally is not None else Tally()
    rng = random.Random(case.seed)
    if case.forward is not None:
        message = check_gradient(case, tally.events)
        if message:
            return Failure("gradient", message)
    try:
        built = pipeline.build(
            case.graph, config=config, mutated=dict(case.mutated), backend=backend
        )
    except Exception as error:
        return Failure("build", trace(error))
    failure = run_built(case, built, "native", rng, tally)
    if failure is None and rng.random() < interpret:
        failure = _interpreted(case, config, rng, tally)
    if failure is None and rng.random() < 0.1:
        failure = _round_trip(case)
    return failure


def trace(error: BaseException) -> str:
    """An exception and the last places it went through."""
    lines = traceback.format_exception(error)
    return f"{type(error).__name__}: {error}\n" + "".join(lines[-6:])


def _interpreted(case: Case, config: Config, rng: random.Random, tally: Tally) -> Failure | None:
    if any(_elements(n.shape, case.graph.env.hints) > 3000 for n in case.graph.inputs):
        return None
    try:
        built = pipeline.build(
            case.graph, config=config, mutated=dict(case.mutated), backend="numpy"
        )
    except Exception as error:
        return Failure("build", trace(error))
    tally.events["interpreted"] += 1
    return run_built(case, built, "interpreter", rng, Tally())


def _round_trip(case: Case) -> Failure | None:
    try:
        again = str(parse_graph(str(case.graph)))
    except Exception as error:
        return Failure("text", trace(error))
    return None if again == str(case.graph) else Failure("text", f"parses back as\n{again}")


# --- running ---------------------------------------------------------------------------------


def run_built(
    case: Case, built: Built, where: str, rng: random.Random, tally: Tally
) -> Failure | None:
    """The sizes of the hints, then others that the guards allow."""
    hints = dict(case.graph.env.hints)
    failure = _run(case, built, hints, where, tally)
    if failure is not None or not hints:
        return failure
    for dims in _other_sizes(hints, rng):
        if all(guard.check(dims) for guard in built.fused.env.guards):
            tally.events["second size"] += 1
            return _run(case, built, dims, where, tally)
    tally.events["guards allow no second size"] += 1
    return None


def _other_sizes(hints: Mapping[str, int], rng: random.Random) -> list[dict[str, int]]:
    tries = [{k: rng.choice((2, 3, 4, 6, 7, 9, 15, 24, 40)) for k in hints} for _ in range(12)]
    tries += [{k: v + 1 for k, v in hints.items()}, {k: v * 2 for k, v in hints.items()}]
    return [t for t in tries if t != hints]


def _run(
    case: Case, built: Built, dims: dict[str, int], where: str, tally: Tally
) -> Failure | None:
    arrays = case.arrays(dims)
    oracle, raised = None, None
    try:
        oracle = Oracle(case.graph, arrays, dims)
    except (RuntimeError, IndexError) as error:
        raised = error
    memory = built.backend.memory
    buffers = Buffers(case, arrays, dims, memory)
    at = "".join(f" {k}={v}" for k, v in dims.items())
    try:
        built.run(buffers.inputs, buffers.outputs, [dims[n] for n in built.program.dims])
        memory.synchronise()
    except Exception as error:
        tally.events["raised"] += 1
        if raised is None:
            return Failure("raises", f"{where}{at}: {trace(error)}")
        fault = buffers.fault(failed=True)
        return Failure("memory", f"{where}{at}, after an error: {fault}") if fault else None
    fault = buffers.fault(failed=False)
    if fault:
        return Failure("memory", f"{where}{at}: {fault}")
    if raised is not None:
        oracle = Oracle.without(case.graph, arrays, dims)
        tally.events["raising operators dropped"] += oracle is not None
    if oracle is None:
        return Failure("silent", f"{where}{at}: does not raise {type(raised).__name__}: {raised}")
    wrong = oracle.compare([memory.read(buffer) for buffer in buffers.outputs])
    tally.events["second opinions"] += oracle.second_opinions
    return Failure("values", f"{where}{at}: {wrong}") if wrong else None


def _elements(shape: Sequence[Any], dims: Mapping[str, int]) -> int:
    return int(np.prod([evaluate(n, dims) for n in shape], dtype=np.int64))


class Buffers:
    """Inputs and outputs between red zones; inputs not to be written are known by heart."""

    def __init__(
        self, case: Case, arrays: Sequence[Array], dims: Mapping[str, int], memory: Memory
    ) -> None:
        self.before = arrays
        self.mutated = set(case.mutated.values())
        self.memory = memory
        self._blocks: list[tuple[str, Buffer, int, int]] = []
        self.inputs = [self._buffer(f"input {i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        for buffer, array in zip(self.inputs, arrays, strict=True):
            memory.write(buffer, array)
        self.outputs = []
        for i, node in enumerate(case.graph.outputs):
            if i in case.mutated:
                self.outputs.append(self.inputs[case.mutated[i]])
            else:
                shape = tuple(evaluate(n, dims) for n in node.shape)
                self.outputs.append(self._buffer(f"output {i}", shape, node.dtype.numpy))

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        block = self.memory.allocate((size + 3 * _RED_ZONE,), np.dtype(np.uint8))
        self.memory.write(block, np.full((), _FILL, np.uint8))
        start = _RED_ZONE + (-(self.memory.address(block) + _RED_ZONE)) % 64
        self._blocks.append((name, block, start, size))
        return self.memory.at(self.memory.address(block) + start, shape, dtype)

    def fault(self, failed: bool) -> str:
        """Which memory was written that must not be; "" if none."""
        for name, block, start, size in self._blocks:
            held = self.memory.read(block)
            if (held[:start] != _FILL).any() or (held[start + size :] != _FILL).any():
                return f"{name} was written outside its {size} bytes"
        for i, (buffer, before) in enumerate(zip(self.inputs, self.before, strict=True)):
            untouched = failed or i not in self.mutated
            if untouched and self.memory.read(buffer).tobytes() != before.tobytes():
                return f"input {i} was written"
        return ""


def count(tally: Tally, case: Case) -> None:
    """Count a case's operators and kinds."""
    graph: Graph = case.graph
    tally.ops.update(n.op.name for n in graph.nodes)
    for node in graph.nodes:
        for inner in node.graphs:
            tally.ops.update(n.op.name for n in inner.nodes)
    events = tally.events
    events["graphs"] += 1
    events["nodes"] += sum(n.op.name not in ("input", "get") for n in graph.nodes)
    events["differentiated"] += case.forward is not None
    events["symbolic"] += bool(graph.env.hints)
    events["written in place"] += bool(case.mutated)
