"""The smallest whole Backend: loops in Python, two routines of its own, and nothing else.

It has no template, lacks some operators, and its memory may be one that the host cannot address.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.backends import Host
from graphc.backends.numpy.ops import TABLE
from graphc.ir import dtypes
from graphc.ir.dim import Size, evaluate
from graphc.ir.failure import check_error
from graphc.ir.graph import Node
from graphc.ir.kernel import (
    BufferRef,
    Kernel,
    Launch,
    Leaf,
    Program,
    Routine,
    Template,
    leaves,
    run_steps,
)
from graphc.ir.kernel.program import Visit, unseen
from graphc.ir.kernel.routine import HostRoutine
from graphc.ir.kernel.text import kernel_symbol
from graphc.ir.machine import Machine
from graphc.ir.types import TensorType

from ...ir.machines import TINY
from .emit import emit
from .memory import FarMemory

Array = np.ndarray[Any, Any]
LACKING = frozenset({"lgamma", "digamma", "erfinv"})  # operators that its loops have no code for
DTYPES = {dtype.name: dtype for dtype in dtypes.ALL}


def softmax(x: Array, *, dim: int) -> Array:
    """Along the last dim."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(q: Array, k: Array, v: Array, *, causal: bool, scale: float) -> tuple[Array, Array]:
    """Without a mask."""
    scores = (q @ np.swapaxes(k, -1, -2)) * scale
    return softmax(scores, dim=-1) @ v, np.log(np.exp(scores).sum(-1))


ROUTINES: dict[str, Callable[..., Any]] = {"softmax": softmax, "attention": attention}


class LoopsBackend:
    """See Backend."""

    machine = TINY

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self._known: dict[str, Callable[..., None]] = {}

    def claims(self, node: Node, machine: Machine) -> bool:
        """softmax along the last dim, attention without a mask; of 32-bit floats."""
        if node.op.name == "softmax":
            return node.dtype is dtypes.f32 and node.attrs["dim"] == len(node.shape) - 1
        if node.op.name == "attention":
            plain = len(node.inputs) == 3 and not node.attrs["causal"]
            return node.inputs[0].dtype is dtypes.f32 and plain
        return False

    def computes(self, node: Node) -> bool:
        return node.op.name not in LACKING

    def renders(self, template: Template) -> bool:
        return False

    def emit(self, kernel: Kernel) -> str:
        return emit(kernel)

    def build(self, program: Program, host: Host) -> Executable:
        return Executable(program, self.memory, host, self._known)

    def adapt(self, host: Host) -> None:
        """One thread."""

    def draws(self, host: Host) -> dict[str, Any]:
        return {}

    def findings(self, host: Host) -> tuple[()]:
        """Nothing but NumPy."""
        return ()


class KernelStats(NamedTuple):
    symbol: str
    cached: bool


class Stats(NamedTuple):
    seconds: Mapping[str, float]
    kernels: Sequence[KernelStats]
    remarks: Sequence[str] = ()


class Executable:
    """A program whose kernels are Python functions."""

    def __init__(
        self, program: Program, memory: Any, host: Host, known: dict[str, Callable[..., None]]
    ) -> None:
        self.program, self.memory = program, memory
        self.functions: dict[int, Callable[..., None]] = {}
        self.routines = {
            number: HostRoutine(step, host.table)
            for number, step in enumerate(leaves(program.steps))
            if isinstance(step, Routine) and not step.claimed
        }
        kernels: dict[str, KernelStats] = {}
        for step in leaves(program.steps):
            if isinstance(step, Launch):
                symbol = kernel_symbol(step.kernel)
                kernels.setdefault(symbol, KernelStats(symbol, symbol in known))
                if symbol not in known:
                    known[symbol] = _compiled(emit(step.kernel), symbol)
                self.functions[id(step.kernel)] = known[symbol]
        self.stats = Stats({"emit": 0.0}, list(kernels.values()))
        self.constants = []
        for constant in program.constants:
            assert isinstance(constant, np.ndarray)
            self.constants.append(memory.allocate(constant.shape, constant.dtype))
            memory.write(self.constants[-1], constant)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any], dims: Sequence[int] = ()) -> None:
        self.trace(inputs, outputs, unseen, unseen, dims)

    def trace(
        self, inputs: Sequence[Any], outputs: Sequence[Any], before: Visit, after: Visit,
        dims: Sequence[int] = (),
    ) -> None:
        env = dict(zip(self.program.dims, dims, strict=True))
        size = evaluate(self.program.arena_bytes, env)
        arena = self.memory.allocate((size + 64,), np.dtype(np.uint8))
        spaces = {"input": inputs, "output": outputs, "const": self.constants, "arena": [arena]}

        def place(buffer: BufferRef, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
            start = self.memory.address(spaces[buffer.space][buffer.index])
            return self.memory.at(start + evaluate(buffer.offset, env), shape, dtype)

        def fetch(buffer: BufferRef, dtype: Any, elements: int) -> Array:
            return self._numbers(place(buffer, (elements,), np.dtype(dtype)))

        def leaf(number: int, step: Leaf) -> None:
            before(number, step, fetch)
            if isinstance(step, Launch):
                self._launch(step, env, fetch)
            else:
                self._routine(number, step, env, place)
            after(number, step, fetch)

        run_steps(self.program.steps, env, lambda ref: bool(fetch(ref, bool, 1)[0]), leaf)

    def texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        yield "py", emit(kernel)

    def _numbers(self, buffer: Any) -> Array:
        return self.memory.numbers(buffer) if isinstance(self.memory, FarMemory) else buffer

    def _launch(self, step: Launch, env: Mapping[str, int], fetch: Any) -> None:
        dims = [evaluate(size, env) for size in step.dims]
        sizes = dict(zip(step.kernel.dims, dims, strict=True))
        flat = [
            fetch(ref, param.dtype.numpy, evaluate(param.size, sizes))
            for ref, param in zip(step.buffers, step.kernel.params, strict=True)
        ]
        try:
            with np.errstate(all="ignore"):
                self.functions[id(step.kernel)](*flat, *dims)
        except _Failed as failed:
            raise check_error(str(failed), step.locs) from None

    def _routine(self, number: int, step: Routine, env: Mapping[str, int], place: Any) -> None:
        def buffers(refs: Sequence[BufferRef], types: Sequence[object]) -> list[Any]:
            return [
                place(ref, [evaluate(size, env) for size in type_.shape], type_.dtype.numpy)
                for ref, type_ in zip(refs, types, strict=True) if isinstance(type_, TensorType)
            ]

        inputs = buffers(step.inputs, step.input_types)
        outputs = buffers(step.outputs, step.output_types)
        if step.claimed:
            arrays = [self._numbers(buffer) for buffer in inputs]
            found = ROUTINES[step.op](*arrays, **dict(step.attrs))
            results = found if isinstance(found, tuple) else (found,)
            for output, result in zip(outputs, results, strict=True):
                self._numbers(output)[...] = result
        else:
            self.routines[number].run(self.memory, inputs, outputs, env)


# --- what the emitted functions call ----------------------------------------------------------


class _Failed(Exception):
    """A Check was false."""


def _failed(message: str, value: int) -> _Failed:
    return _Failed(message.replace("{value}", str(value)))


def _number(value: Size, name: str) -> Any:
    return np.array(value).astype(DTYPES[name].numpy)[()]


def _cast(value: Any, name: str) -> Any:
    return TABLE["cast"](np.asarray(value), dtype=DTYPES[name])[()]


def _call(op: str, *values: Any) -> Any:
    if op == "fma":
        return values[0] * values[1] + values[2]
    return np.asarray(TABLE[op](*map(np.asarray, values)))[()]


def _argument(kind: str, old: tuple[Any, Any], new: tuple[Any, Any]) -> tuple[Any, Any]:
    """The value and the index of the winner: the first of equals, and NaN before all; the last NaN
    where the kind says so."""
    (a, _), (b, _) = old, new
    if kind == "argmax_last" and b != b:
        return new
    better = b < a if kind == "argmin" else b > a
    return new if a == a and (better or b != b) else old


_GLOBALS = {
    "_argument": _argument, "_call": _call, "_cast": _cast, "_failed": _failed,
    "_number": _number, "_zeros": lambda size, name: np.zeros(size, DTYPES[name].numpy),
}


@functools.cache
def _compiled(text: str, symbol: str) -> Callable[..., None]:
    found: dict[str, Any] = dict(_GLOBALS)
    exec(compile(text, symbol, "exec"), found)
    function: Callable[..., None] = found[symbol]
    return function
