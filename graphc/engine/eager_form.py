"""The shape that an operator on many numbers is spelled in, so that one kernel serves all sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.chain import is_chain, links_of
from ..ir.named import NamedTuple
from ..ir.op import Attrs, Op
from ..ir.types import TensorType

_MUCH = 1 << 18  # products of halves from which on the code is worth a call
LARGE = 1 << 16  # elements of an operand from which on the code is worth a call
# more than so many are enough where NumPy takes several passes, or its own inner loops are slow:
# so many have code that runs those (eager_rows.py)
_FEW = 1 << 12
_SLOW = frozenset(
    "softmax log_softmax layer_norm batch_norm cross_entropy nll_loss gelu silu softplus sigmoid "
    "relu erf erfc sum amax amin".split()
)
_PARTS = {"bf16": 16, "f16": 32}  # of it are enough, which NumPy widens and rounds one by one

WIDE = "wide_"  # names of sizes that are no small ones begin so
LONG = "long_"  # names of sizes along which so much is summed that it is done in stretches
Shape = tuple[tuple[str, int], ...]  # a name and a size of each dim; sizes of 1 stay as they are
Types = Sequence[TensorType]


class Form(NamedTuple):
    """The shapes of an operator's inputs, and its attributes for those."""

    inputs: tuple[Shape, ...]
    attrs: Attrs
    # of the gradient of a convolution's input: that input, from which the first operand's sizes
    # follow
    image: Shape | None = None


def with_long_sums(shape: Shape, dims: Sequence[int]) -> Shape:
    """A shape of which `dims` are summed, the long ones named so."""
    last = len(shape) - 1
    return tuple([
        (f"{LONG}{name}", size)
        if d in dims and name and size >= (_LONG_ROW if d == last else _LONG_COLUMN)
        else (name, size)
        for d, (name, size) in enumerate(shape)
    ])


_LONG_ROW, _LONG_COLUMN = 1 << 14, 1 << 10  # the lanes of a row share it


def elements(type_: TensorType) -> int:
    return math.prod(type_.shape)  # type: ignore[arg-type]


def is_many(type_: TensorType) -> bool:
    """Whether it has so many numbers that a call of compiled code is nothing beside them."""
    return elements(type_) * _PARTS.get(type_.dtype.name, 1) >= LARGE


def is_middling(type_: TensorType) -> bool:
    """Whether it has so many that a call is nothing beside several passes of NumPy's."""
    return is_many(type_) or (elements(type_) > _FEW and not is_half(type_))


def is_half(type_: TensorType) -> bool:
    return type_.dtype.is_float and type_.dtype.bits == 16


def is_much(types: Types, attrs: Attrs) -> bool:
    """Whether a dot_general is one of halves that is worth a call."""
    a, b = types
    if not is_half(a) or not is_half(b):
        return False
    left_out = (*attrs["batch_b"], *attrs["contract_b"])
    columns: Any = [size for d, size in enumerate(b.shape) if d not in left_out]
    return elements(a) * math.prod(columns) >= _MUCH


def is_large(op: Op, types: Types, attrs: Attrs) -> bool:
    """Whether there is much to do: many numbers, or products of a convolution, or of halves."""
    if op.name == "dot_general":
        return is_much(types, attrs)
    if is_chain(op) and any(link.op.name == "dot_general" for link in links_of(op)):
        return True  # none is made of fewer
    if op.family in _MOVES:  # a half is as quick as any number
        return any(elements(t) >= LARGE for t in types)
    if op.family == "cast":
        (given,), to = types, attrs["dtype"]
        if (given.dtype.name, to.name) == ("bf16", "f32"):  # whose bits NumPy moves
            return elements(given) >= LARGE
        return is_many(given) or is_many(TensorType(to, given.shape))
    if any(is_many(t) for t in types):
        return True
    if (op.name in _SLOW or is_chain(op)) and any(is_middling(t) for t in types):
        return True
    if op.pointwise and len(types) > 1:  # a row and a column
        whole: Any = np.broadcast_shapes(*[t.shape for t in types])  # type: ignore[arg-type]
        return is_many(TensorType(types[-1].dtype, whole))
    if op.name in _SPARSE:  # places are those of entries
        width: Any = types[1].shape[1]
        return bool(elements(types[2]) * width >= LARGE)
    return op.name in _PRODUCTS and _products(op, types, attrs) >= _PRODUCTS_OF_ONE * LARGE


_MOVES = frozenset({"movement", "index"})
_PRODUCTS_OF_ONE = 64  # products that take as long as a number of what is elementwise
_PRODUCTS = frozenset({"conv", "conv_input_grad", "attention"})
_SPARSE = frozenset({"sparse_product", "sparse_sampled"})


def _products(op: Op, types: Types, attrs: Attrs) -> int:
    """About how many are made. Of a convolution: each weight meets each place of an image that the
    window stops at, or each of the image's gradient. Of attention: each row meets each key."""
    if op.name == "attention":
        keys: Any = types[1].shape[-2]
        return elements(types[0]) * keys
    image, steps = elements(types[0]), 1
    if op.name == "conv":
        steps = math.prod(attrs["stride"])
    channels: Any = types[0].shape[1]
    return image // max(channels, 1) // steps * elements(types[1])
