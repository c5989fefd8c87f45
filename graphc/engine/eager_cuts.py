"""Operands of compiled code that are cut out of wider rows (a half of the columns, all but one),
read where they lie: the code knows their pitch, so that nothing is copied before it.

Dims that every operand walks as one are one. An operand's memory is then rows of a pitch, of which
the code takes the first columns, along no more dims than `spread` has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..ir import ops
from ..ir.dim import DimEnv, Size
from ..ir.graph import Builder, Graph, attrs_key
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from .built import Engine, concrete_shape
from .eager_form import LONG, WIDE, Form, Shape, Types, with_long_sums
from .eager_forms import COLUMNS, ROWS
from .eager_kernels import LONG_HINT, Sized, code_for, pattern_of

_MOST_DIMS = 4
_HINT, _WIDE_HINT, _PITCH_HINT = 7, 1001, 2001  # examples of sizes and, above them, of pitches
Emit = Callable[[Builder, list[Any]], Any]


class Walk(NamedTuple):
    """How operands are walked: `sizes` of the dims; of each operand a name and a size of each dim
    of its memory, and the name of the size that is taken of it ("": 1)."""

    sizes: Shape
    memory: tuple[Shape, ...]
    taken: tuple[tuple[str, ...], ...]


class Cuts:
    """Pointwise code on operands of known types, by how they lie in memory."""

    def __init__(self, key: Any, types: Types, shape: Any, result: Any, emit: Emit) -> None:
        """`key`: what is computed; `shape`: what the operands come to; `result`: the result's;
        `emit`: the result's node of the operands'."""
        self._key, self._types, self._shape, self._result = key, types, shape, result
        self._emit = emit
        self._known: dict[Any, _Cut | None] = {}

    def run(self, arrays: Sequence[np.ndarray]) -> np.ndarray | None:
        """The result, row-major; None: of arrays that lie otherwise."""
        strides = tuple([array.strides for array in arrays])
        known = self._known.get(strides, self._known)
        if known is self._known:
            known = self._known[strides] = self._made(arrays)
        return None if known is None else known.run(arrays)[0]  # type: ignore[union-attr]

    def _made(self, arrays: Sequence[np.ndarray]) -> _Cut | None:
        walk = walked(self._shape, arrays)
        if walk is None:
            return None
        form = Form((*walk.memory, walk.sizes), {})
        key = (
            "cut", self._key, pattern_of(form.inputs), walk.taken,
            tuple([t.dtype for t in self._types]),
        )
        engine = code_for(key, form, lambda: _graph(walk, self._types, self._emit))
        return None if engine is None else _Cut(engine, form, self._result, walk)


def of_operator(op: Op, types: Types, attrs: Attrs, shape: Any) -> Cuts:
    """Those of an operator whose result is of this shape."""
    key = op.name, attrs_key(attrs)
    return Cuts(key, types, shape, shape, lambda builder, nodes: builder.emit(op, *nodes, **attrs))


class Reduced:
    """A reduction of what is cut out of rows."""

    def __init__(self, op: Op, types: Types, attrs: Attrs, result: Any) -> None:
        self._op, self._types, self._result = op, types, result
        self._dims: Any = attrs["dims"]
        self._known: dict[Any, _Cut | None] = {}

    def run(self, array: np.ndarray) -> np.ndarray | None:
        """The result; None: of an array that lies otherwise."""
        known = self._known.get(array.strides, self._known)
        if known is self._known:
            known = self._known[array.strides] = self._made(array)
        return None if known is None else known.run([array])[0]  # type: ignore[union-attr]

    def _made(self, array: np.ndarray) -> _Cut | None:
        found = _steps(array, array.ndim)
        if found is None:
            return None
        groups: list[tuple[bool, int, int]] = []  # whether it is reduced, size, step
        for d, (size, step) in enumerate(zip(array.shape, found, strict=True)):
            if size == 1:
                continue
            here = d in self._dims, size, step
            if groups and groups[-1][0] == here[0] and groups[-1][2] == step * size:
                here = here[0], groups.pop()[1] * size, step
            groups.append(here)
        if not 1 < len(groups) <= _MOST_DIMS or groups[-1][2] != 1:
            return None
        sizes: Shape = tuple([(f"n{g}", size) for g, (_, size, _) in enumerate(groups)])
        last = sizes[-1][1]
        if not groups[-1][0] and groups[-2][0] and last >= COLUMNS and groups[-2][1] >= ROWS:
            sizes = (*sizes[:-1], (f"{WIDE}{len(groups)}", last))
        dims = tuple([g for g, group in enumerate(groups) if group[0]])
        if self._op.name == "sum" and self._types[0].dtype.is_float:
            sizes = with_long_sums(sizes, dims)
        memory, steps = [sizes[0]], [step for _, _, step in groups]
        attrs: dict[str, Any] = {"dims": dims, "keepdim": False}
        if not dims:
            return None
        for (outer, inner), (name, size) in zip(pairwise(steps), sizes[1:], strict=True):
            pitch, rest = divmod(outer, inner) if inner else (0, 0)
            if rest or pitch < size:
                return None
            memory.append((name, size) if pitch == size else (f"p{len(memory)}", pitch))
        walk = Walk(sizes, (tuple(memory),), (tuple([name for name, _ in sizes]),))
        form = Form((*walk.memory, sizes), {})
        key = (
            "cut", self._op.name, attrs_key(attrs), pattern_of(form.inputs), self._types[0].dtype,
        )

        def emit(builder: Builder, nodes: list[Any]) -> Any:
            return builder.emit(self._op, *nodes, **attrs)

        engine = code_for(key, form, lambda: _graph(walk, self._types, emit))
        return None if engine is None else _Cut(engine, form, self._result, walk)


class _Cut(Sized):
    """The code for one way to lie in memory. It is given addresses, and reads nothing between what
    is cut out."""

    def __init__(self, engine: Engine, form: Form, result: Any, walk: Walk) -> None:
        super().__init__(engine, form, [result])
        self.taken = walk.taken

    def given(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Where it is not native code that is called, copies with the same pitches."""
        found = []
        nodes = self.engine.built.graph.inputs
        for array, node, taken in zip(arrays, nodes, self.taken, strict=True):
            shape = concrete_shape(node.tensor_type, self.dims)
            once = [slice(0, 1) if step == 0 else slice(None) for step in array.strides]
            part = array[tuple(once)]
            if part.size == math.prod(shape):
                found.append(np.ascontiguousarray(part).reshape(shape))
                continue
            whole = np.zeros(shape, array.dtype)
            sizes = [self.dims[name] if name else 1 for name in taken]
            whole[tuple(map(slice, sizes))] = part.reshape(sizes)
            found.append(whole)
        return found


def walked(shape: Sequence[int], arrays: Sequence[np.ndarray]) -> Walk | None:
    """How arrays are walked that come to `shape`; None: not along rows."""
    found = grouped(shape, arrays)
    if found is None:
        return None
    sizes, groups = found
    if not 0 < len(groups) <= _MOST_DIMS or not all(map(any, groups)):
        return None
    names = [f"n{g}" for g in range(len(groups))]
    pitches: dict[tuple[int, int], str] = {}
    memory: list[Shape] = []
    taken: list[tuple[str, ...]] = []
    for operand in range(len(arrays)):
        along = [(g, group[operand]) for g, group in enumerate(groups) if group[operand]]
        if not along:
            memory.append(())
            taken.append(())
            continue
        dims: list[tuple[str, int]] = [("", 1)] * len(groups)
        first, last = along[0][0], along[-1][0]
        dims[first] = names[first], sizes[first]
        if along[-1][1] != 1:  # one number of each row
            if last + 1 == len(groups):
                return None
            along.append((last + 1, 1))
        for (_, outer), (g, inner) in pairwise(along):
            size = 1 if g > last else sizes[g]
            pitch, rest = divmod(outer, inner)
            if rest or pitch < size:
                return None
            name = names[g]
            if pitch > size:
                name = pitches.setdefault((g, pitch), f"p{len(pitches)}")
            dims[g] = name, pitch
        memory.append(tuple(dims))
        taken.append(tuple([names[g] if group[operand] else "" for g, group in enumerate(groups)]))
    return Walk(tuple(zip(names, sizes, strict=True)), tuple(memory), tuple(taken))


def grouped(
    shape: Sequence[int], arrays: Sequence[np.ndarray]
) -> tuple[list[int], list[list[int]]] | None:
    """The sizes of the dims of `shape`, those that all arrays walk as one being one, and the steps
    of each array along each."""
    rank = len(shape)
    steps = [_steps(array, rank) for array in arrays]
    if None in steps:
        return None
    sizes: list[int] = []
    groups: list[list[int]] = []
    for d in range(rank):
        if shape[d] == 1:
            continue
        here = [each[d] for each in steps]  # type: ignore[index]
        if groups and groups[-1] == [step * shape[d] for step in here]:
            sizes[-1], groups[-1] = sizes[-1] * shape[d], here
        else:
            sizes.append(shape[d])
            groups.append(here)
    return sizes, groups


def _steps(array: np.ndarray, rank: int) -> list[int] | None:
    """Elements from one to the next along each dim, 0 where it is the same one."""
    steps = [0] * (rank - array.ndim)
    for size, stride in zip(array.shape, array.strides, strict=True):
        step, rest = divmod(stride, array.itemsize)
        if rest or step < 0:
            return None
        steps.append(0 if size == 1 else step)
    return steps


def _graph(walk: Walk, types: Types, emit: Emit) -> Graph:
    env = DimEnv()
    known: dict[str, Size] = {
        name: env.new(name, _example(name) + 4 * g) for g, (name, _) in enumerate(walk.sizes)
    }
    builder = Builder(env)
    nodes = []
    for shape, taken, type_ in zip(walk.memory, walk.taken, types, strict=True):
        for (name, _), size in zip(shape, taken, strict=True):
            if name and name not in known:
                least = 2 * LONG_HINT if size.startswith(LONG) else _PITCH_HINT
                known[name] = env.new(name, least + 4 * len(known))
        sizes = tuple([known[name] if name else size for name, size in shape])
        node = builder.input(TensorType(type_.dtype, sizes))
        stops = tuple([known[name] if name else 1 for name in taken])
        if stops != sizes:
            node = builder.emit(
                ops.slice, node, starts=(0,) * len(sizes), stops=stops, steps=(1,) * len(sizes)
            )
        nodes.append(node)
    return builder.build((emit(builder, nodes),), "cut")


def _example(name: str) -> int:
    if name.startswith(LONG):
        return LONG_HINT
    return _WIDE_HINT if name.startswith(WIDE) else _HINT
