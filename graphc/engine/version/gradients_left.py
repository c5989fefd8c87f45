"""The gradients that a call leaves in `.grad`, and the memory that they may have.

Each takes the place of one that the call before has left. Small ones take turns: what was replaced
is kept as a spare, which native code finds (backends/host/entry_grads.py). Large ones are written
where the one before lies, if nobody else can see it, and if the code can no longer fail by then: a
call that fails has left everything as it was. Where few bytes are written sooner, native code finds
all: those are spares, the others are written in place.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.host.allocator import ALIGNMENT, address_of
from ...backends.host.entry import Gradient
from ...frontend.captured import TensorInput
from ...frontend.storage import contiguous_strides
from ...frontend.tensor import Parameter, Tensor
from ..built import Built, concrete_shape
from ..native_run import can_be_borrowed
from ..orders import inverse

if TYPE_CHECKING:
    from .version import Specialisation

SPARED = 1 << 27  # bytes of a call's gradients: where there are more, making them costs little
OVERWRITTEN = 1 << 25  # from here on the time that it takes to look at each is little, too
_SOONER = OVERWRITTEN >> 4  # bytes of spares beside those that are written in place


def gradients_of(version: Specialisation, dims: Mapping[str, int]) -> list[Gradient]:
    """All that a call leaves, where each is an array by itself; else none."""
    traced, found = version.traced, list[Gradient]()
    outputs = Counter(output.index for output in traced.outputs())
    reads = any(type(i) is TensorInput and i.kind == "grad" for i in version.inputs)
    if version.plan is not None or reads:
        return []
    for write in traced.grads:
        value = write.value
        if (
            value is None or write.argument >= 0 or type(write.tensor) not in (Tensor, Parameter)
            or value.kind != "value" or value.requires_grad or value.outdated or value.behind
            or value.index in version.engine.mutated or outputs[value.index] != 1
        ):
            return []
        type_ = version.engine.output_types[value.index]
        shape = concrete_shape(type_, dims)
        dtype, order, steps = type_.dtype.numpy, value.order, None
        if order is not None:
            rows: Any = contiguous_strides(shape)
            steps = tuple([rows[i] * dtype.itemsize for i in order])
            shape = tuple([shape[i] for i in order])
        found.append(Gradient(
            write.tensor, value.index, dtype, shape, value.versions, value.inference,
            order=order, steps=steps,
        ))
    several = len({id(each.tensor) for each in found}) < len(found)
    return [] if several else found


def size_of(gradients: Iterable[Gradient]) -> int:
    """Their bytes."""
    return sum(math.prod(each.shape) * each.dtype.itemsize for each in gradients)


def overwriting(version: Specialisation, dims: Mapping[str, int]) -> list[Gradient]:
    """The gradients that are written where those before them lie."""
    engine = version.engine
    if type(engine.built) is not Built or engine.place is not None:
        return []
    executable: Any = engine.built.executable  # borrowed from, it says more
    if not version.traced.grads or not can_be_borrowed(executable):
        return []
    found = gradients_of(version, dims)
    if size_of(found) < OVERWRITTEN:
        return []
    return [each for each in found if executable.writes_late(each.output)]


def found_natively(
    version: Specialisation, dims: Mapping[str, int], overwritten: Iterable[Gradient]
) -> list[Gradient]:
    """Those whose memory native code finds: all, or none."""
    late = {each.output for each in overwritten}
    found = [
        each._replace(in_place=each.output in late) for each in gradients_of(version, dims)
    ]
    spares = size_of(each for each in found if not each.in_place)
    return found if spares <= (_SOONER if late else SPARED) else []


def former_memory(gradients: Iterable[Gradient]) -> dict[int, np.ndarray]:
    """By output, the array of the gradient before, where it can be written to."""
    found = {}
    for gradient in gradients:
        array = _lone_array(gradient)
        if array is not None:
            order = gradient.order
            found[gradient.output] = array if order is None else array.transpose(inverse(order))
    return found


def _lone_array(gradient: Gradient) -> np.ndarray | None:
    """The array of a `.grad` that nobody but its tensor refers to, of the right type. References
    are the one that is meant, the variable here and getrefcount's argument."""
    old = gradient.tensor._grad
    if type(old) is not Tensor or getrefcount(old) > 3 or len(vars(old)) != 2:  # array, storage
        return None
    storage, array = old._graphc_storage, old._graphc_array
    if storage.array is not array or getrefcount(storage) > 3 or getrefcount(array) > 4:
        return None
    if (
        storage._root is not None or storage.exposed or storage.segment is not None
        or storage.away or type(array) is not np.ndarray
    ):
        return None
    block: Any = array.base
    if block is not None and (
        type(block) is np.ndarray or not isinstance(block, np.ndarray) or getrefcount(block) > 3
    ):
        return None
    if any(map(weakref.getweakrefcount, (old, storage, array))):
        return None
    flags = array.flags
    in_order = (
        flags.c_contiguous if gradient.steps is None else array.strides == gradient.steps
    )
    fits = (
        array.shape == gradient.shape and array.dtype == gradient.dtype and in_order
        and flags.writeable and address_of(array) % ALIGNMENT == 0
    )
    return array if fits else None
