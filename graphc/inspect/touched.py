"""Which buffers a step of a program touches, how, and how many bytes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphc.ir.dim import Size, product, substitute
from graphc.ir.kernel import BufferRef, Launch, Leaf
from graphc.ir.types import TensorType

Span = tuple[int, int]  # a stretch of the arena: where it begins, and where it has ended


def touched(step: Leaf, dims: Mapping[str, int]) -> Iterator[tuple[BufferRef, int, str]]:
    """Each buffer, its bytes, and "in", "out", "inout" or "scratch"."""
    if isinstance(step, Launch):
        env = {n: known(s, dims) for n, s in zip(step.kernel.dims, step.dims, strict=True)}
        for ref, parameter in zip(step.buffers, step.kernel.params, strict=True):
            yield ref, known(parameter.size, env) * parameter.dtype.itemsize, parameter.access
        return
    for refs, types, access in (
        (step.inputs, step.input_types, "in"), (step.outputs, step.output_types, "out")
    ):
        for ref, type_ in zip(refs, types, strict=True):
            assert isinstance(type_, TensorType)
            yield ref, known(product(type_.shape), dims) * type_.dtype.itemsize, access


def known(size: Size, dims: Mapping[str, int]) -> int:
    """A size; variables that nobody knows, as those of loops, are 0."""
    if isinstance(size, int):
        return size
    found = substitute(size, {name: dims.get(name, 0) for name in size.variables()})
    assert isinstance(found, int)
    return found


def covered(spans: Iterable[Span]) -> int:
    """The bytes of stretches that may overlap."""
    total = end = 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total
