"""The meaning of the kernel IR: a NumPy interpreter of Kernels and Programs.

`table` maps an elementwise operator's name to function(*arrays, **attrs), as the NumPy backend's
TABLE does; a Program's Routines are looked up in the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dim import Dim, Size, evaluate
from ..dtypes import DType, bool_, from_numpy
from ..types import TensorType
from .lanes import Array, CheckFailed, Lanes, Table
from .nest import Kernel
from .program import BufferRef, Launch, Leaf, Program, Routine, Visit, run_steps, unseen
from .routine import HostRoutine
from .templates import Attention, SumTemplate
from .templates.partial import store_partials

__all__ = ["CheckFailed", "run_kernel", "run_program"]


def run_kernel(
    kernel: Kernel, buffers: Sequence[Array], dims: Sequence[int], table: Table
) -> None:
    """Run one kernel on flat arrays, one per parameter, written in place.

    Raises CheckFailed; IndexError where an access falls outside its buffer.
    """
    env = dict(zip(kernel.dims, dims, strict=True))
    memory: dict[str, Array] = {}
    for param, buffer in zip(kernel.params, buffers, strict=True):
        size = evaluate(param.size, env)
        if buffer.size < size or buffer.dtype != param.dtype.numpy:
            raise ValueError(
                f"{param.name} of kernel {kernel.name} is {param.dtype.name}[{size}], "
                f"got {buffer.dtype}[{buffer.size}]"
            )
        memory[param.name] = buffer[:size]
    with np.errstate(all="ignore"):
        for stage in kernel.stages:
            Lanes(memory, env, table).block(stage)
        if isinstance(kernel.template, Attention):
            kernel.template.run(memory, env)
        elif kernel.template is not None:
            _run_contraction(kernel.template, memory, env, table)


def _run_contraction(
    template: SumTemplate, memory: dict[str, Array], env: Mapping[str, int], table: Table
) -> None:
    """The sums of every batch, and the epilogue over (m, n) as lanes."""
    m, n = evaluate(template.m, env), evaluate(template.n, env)
    lanes = Lanes(memory, env, table)
    lanes.env["m"] = np.arange(m).reshape(-1, 1)
    lanes.env["n"] = np.arange(n).reshape(1, -1)
    for b, acc in enumerate(template.sums(memory, env)):
        lanes.env["b"], lanes.env["acc"] = b, acc.reshape(m, n)
        if m and n:
            lanes.block(template.epilogue)
    values = {
        stmt: template.as_rows(np.stack([np.broadcast_to(x, (m, n)) for x in found]))
        for stmt, found in lanes.partials.items()
    }
    store_partials(values, memory)


# --- programs ---------------------------------------------------------------------------------


def run_program(
    program: Program, inputs: Sequence[Array], table: Table,
    dims: Mapping[str, int] | None = None, before: Visit = unseen, after: Visit = unseen,
) -> list[Array]:
    """Run a planned graph; returns its outputs. Inputs that outputs are written into change.

    `dims` are read off the inputs' shapes where they are not given. `before` and `after` are called
    around each leaf. Raises CheckFailed.
    """
    env = dict(dims or {})
    for type_, array in zip(program.input_types, inputs, strict=True):
        for size, got in zip(_tensor(type_).shape, array.shape, strict=True):
            if isinstance(size, Dim) and str(size) in program.dims:
                env.setdefault(str(size), got)
    spaces = _Spaces(program, inputs, env)

    def leaf(number: int, step: Leaf) -> None:
        before(number, step, spaces.fetch)
        if isinstance(step, Launch):
            _run_launch(step, spaces, table)
        else:
            _run_routine(step, spaces, env, table)
        after(number, step, spaces.fetch)

    run_steps(program.steps, env, lambda ref: bool(spaces.flat(ref, bool_, 1)[0]), leaf)
    return spaces.outputs


def _run_launch(step: Launch, spaces: _Spaces, table: Table) -> None:
    env = spaces.env
    flat = [
        spaces.flat(ref, param.dtype, _launch_size(param.size, step, env))
        for ref, param in zip(step.buffers, step.kernel.params, strict=True)
    ]
    try:
        run_kernel(step.kernel, flat, [evaluate(d, env) for d in step.dims], table)
    except CheckFailed as failed:
        failed.locs = step.locs
        raise


def _tensor(type_: object) -> TensorType:
    if not isinstance(type_, TensorType):
        raise TypeError(f"expected a tensor type, got {type_!r}")
    return type_


def _launch_size(size: Size, step: Launch, env: Mapping[str, int]) -> int:
    values = [evaluate(d, env) for d in step.dims]
    return evaluate(size, dict(zip(step.kernel.dims, values, strict=True)))


class _Spaces:
    """The memory of one call: where each BufferRef points."""

    def __init__(
        self, program: Program, inputs: Sequence[Array], env: dict[str, int]
    ) -> None:
        self.env = env
        self.arena = np.full(evaluate(program.arena_bytes, env) + 64, 0xA5, np.uint8)
        self.inputs = [np.asarray(x, order="C") for x in inputs]  # 0-d stays 0-d
        for index in program.outputs_in_place.values():
            if self.inputs[index] is not inputs[index] and inputs[index].ndim:
                raise ValueError(f"input {index} is written in place and is not contiguous")
        self.constants = [np.ascontiguousarray(c) for c in program.constants]
        self.outputs: list[Array] = []
        for i, type_ in enumerate(program.output_types):
            tensor = _tensor(type_)
            source = program.outputs_in_place.get(i)
            if source is not None:
                self.outputs.append(self.inputs[source])
            else:
                shape = tuple(evaluate(s, env) for s in tensor.shape)
                self.outputs.append(np.zeros(shape, tensor.dtype.numpy))

    def flat(self, ref: BufferRef, dtype: DType, size: int) -> Array:
        start = evaluate(ref.offset, self.env)
        if ref.space == "arena":
            return self.arena[start : start + size * dtype.itemsize].view(dtype.numpy)
        space = {"input": self.inputs, "output": self.outputs, "const": self.constants}[ref.space]
        return space[ref.index].reshape(-1).view(dtype.numpy)[start // dtype.itemsize :]

    def fetch(self, ref: BufferRef, dtype: np.dtype[Any], elements: int) -> Array:
        return self.flat(ref, from_numpy(dtype), elements)[:elements]


def _run_routine(
    step: Routine, spaces: _Spaces, env: Mapping[str, int], table: Table
) -> None:
    arrays: list[Array] = []
    for ref, type_ in zip(step.inputs, step.input_types, strict=True):
        arrays.append(_shaped(spaces, ref, _tensor(type_), env))
    results = HostRoutine(step, table).results(arrays, env)
    for ref, type_, value in zip(step.outputs, step.output_types, results, strict=True):
        _shaped(spaces, ref, _tensor(type_), env)[...] = value


def _shaped(spaces: _Spaces, ref: BufferRef, type_: TensorType, env: Mapping[str, int]) -> Array:
    shape = tuple(evaluate(s, env) for s in type_.shape)
    size = int(np.prod(shape, dtype=np.int64))
    return spaces.flat(ref, type_.dtype, size)[:size].reshape(shape)
