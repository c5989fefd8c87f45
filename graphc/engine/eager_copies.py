"""Row-major copies of much memory that lies otherwise: compiled code for all sizes, as long as the
numbers that lie next to each other in both are known where they are few.

NumPy calls a function for each stretch of neighbours, which are the 16 or 64 of a head where a
model puts its heads side by side, or the two that a number is repeated to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..ir import ops
from ..ir.dim import DimEnv, Size
from ..ir.graph import Builder, Graph
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from .eager_cuts import grouped
from .eager_form import Form, Shape, Types
from .eager_kernels import Sized, code_for, pattern_of

_MOST_DIMS = 5
_SHORT = 256  # numbers next to each other up to which the code knows how many
_HINT, _WIDE_HINT, _PITCH_HINT = 7, 1001, 2001  # examples of sizes and, above them, of pitches
Ready = Callable[..., Any]


class Walk(NamedTuple):
    """`sizes` of the result's dims; `memory`: a name and a size of each dim of the memory, the
    farthest apart first, of which the sizes `taken` are read: those of the result's dims `order`
    (the last may be one number of each row); other dims repeat what there is."""

    sizes: Shape
    memory: Shape
    taken: Shape
    order: tuple[int, ...]


def prepare(op: Op, types: Types, attrs: Attrs, results: Types, ready: Ready) -> Ready | None:
    """What runs a reshape that is a copy, or a copy in the order of its dims, of LARGE memory of
    real numbers; None: `ready`."""
    (x,) = types
    in_order, shape = op.name == "cast", results[0].shape
    known: dict[Any, Sized | None] = {}

    def copied(array: np.ndarray) -> Any:
        if array.flags.c_contiguous:
            return ready(array)
        code = known.get(array.strides, known)
        if code is known:
            code = known[array.strides] = _made(x, array, in_order, shape)
        return ready(array) if code is None else code.run([array])[0]  # type: ignore[union-attr]

    return copied


def _made(type_: TensorType, array: np.ndarray, in_order: bool, shape: Any) -> Sized | None:
    walk = walked(array, in_order)
    if walk is None:
        return None
    form = Form((walk.memory, walk.sizes), {})
    key = "copy", pattern_of(form.inputs), pattern_of([walk.taken]), walk.order, type_.dtype
    engine = code_for(key, form, lambda: _graph(walk, type_))
    return None if engine is None else _Copy(engine, form, [shape])


class _Copy(Sized):
    """The code for one way to lie in memory, which is given an address."""

    def given(self, arrays: Sequence[np.ndarray]) -> Any:
        return None

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self.engine.runner(arrays) is None:  # not by native code: NumPy may as well
            return [np.ascontiguousarray(arrays[0]).reshape(self.shapes[0])]
        return super().run(arrays)


def walked(array: np.ndarray, in_order: bool) -> Walk | None:
    """How an array is walked; None: NumPy copies it as fast. `in_order`: its dims lie in their
    order, or it is repeated, where the copy is row-major."""
    found = grouped(array.shape, [array])
    if found is None or len(found[0]) > _MOST_DIMS or len(found[0]) < 2:
        return None
    sizes, groups = found[0], [group[0] for group in found[1]]
    order = sorted([g for g, step in enumerate(groups) if step], key=lambda g: -groups[g])
    if not order or (in_order and order != sorted(order) and 0 not in groups):
        return None
    last = len(groups) - 1
    across = order[-1] != last and groups[last] != 0
    if across and not (order == [1, 0] and groups[0] == 1 and array.itemsize > 1):
        return None  # ir/memory.py
    names = [f"n{g}" for g in range(len(groups))]
    if sizes[last] <= _SHORT and not across:
        names[last] = ""
    named: Shape = tuple(zip(names, sizes, strict=True))
    memory = [named[order[0]]]
    taken = [named[g] for g in order]
    steps = [groups[g] for g in order]
    if steps[-1] != 1:
        steps.append(1)
        taken.append(("", 1))
    for (outer, inner), (name, size) in zip(pairwise(steps), taken[1:], strict=True):
        pitch, rest = divmod(outer, inner)
        if rest or pitch < size:
            return None
        memory.append((name, size) if pitch == size else (f"p{len(memory)}", pitch))
    return Walk(named, tuple(memory), tuple(taken), tuple(order))


def _graph(walk: Walk, type_: TensorType) -> Graph:
    env = DimEnv()
    known: dict[str, Size] = {}
    across = walk.order == (1, 0)
    least = _WIDE_HINT if across else _HINT
    for at, (name, size) in enumerate(walk.sizes):
        if name and size > 1:
            known[name] = env.new(name, least + 4 * at)
    for name, size in walk.memory:
        if name and size > 1 and name not in known:
            known[name] = env.new(name, _PITCH_HINT + 1000 * len(known))

    def of(shape: Shape) -> tuple[Size, ...]:
        return tuple([known[name] if name and size > 1 else size for name, size in shape])

    builder = Builder(env)
    memory, taken = of(walk.memory), of(walk.taken)
    node: Any = builder.input(TensorType(type_.dtype, memory))
    if memory != taken:
        rank = len(taken)
        node = builder.emit(ops.slice, node, starts=(0,) * rank, stops=taken, steps=(1,) * rank)
    order, sizes = walk.order, of(walk.sizes)
    if len(taken) > len(order):
        node = builder.emit(ops.reshape, node, shape=taken[:-1])
    there = sorted(order)
    if list(order) != there:
        node = builder.emit(ops.permute, node, dims=tuple([order.index(g) for g in there]))
    if len(there) < len(sizes):
        ones = tuple([size if g in there else 1 for g, size in enumerate(sizes)])
        node = builder.emit(ops.reshape, node, shape=ones)
        node = builder.emit(ops.expand, node, shape=sizes)
    return builder.build((node,), "copy")
