"""conv_last: a convolution whose channels are last in memory, and whose weights lie in panels.

x [N, *S, C], w [panels, *K, C/groups, columns], result [N, *O, outputs]: output channel o is column
o % columns of panel o // columns; what the last panel has too many belongs to nobody. Where a word
has a `group` of channels, w is [panels, *K, words, columns * group]. It is what is made of a
convolution in a program that only answers (passes/freeze/), so it has no gradient.
"""

from __future__ import annotations

from typing import Any

from ..dim import DimEnv
from ..op import Attrs, Op, register
from ..rounding import LINEAR
from ..types import TensorType, Type
from ._rules import ops, permute, reshape
from ._types import FLOATS, Types, fail, require_dtype, require_one_dtype, sizes_text
from .contract import conv_output_shape, require_window


def _type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, w = types
    require_dtype("conv_last", require_one_dtype("conv_last", types), FLOATS)
    rank = len(x.shape) - 2
    if not 1 <= rank <= 3 or len(w.shape) != rank + 3:
        fail(f"conv_last: Expected input [N, *S, C] and weight [panels, *K, C/groups, columns], "
             f"got {sizes_text(x.shape)} and {sizes_text(w.shape)}")
    require_window("conv_last", attrs, rank)
    panels, *window, words, width = w.shape
    if attrs["group"] < 1 or not env.equal(width % attrs["group"], 0):
        fail(f"conv_last: columns of {sizes_text(w.shape)} are no words of {attrs['group']}")
    channels, columns = words * attrs["group"], width // attrs["group"]
    if attrs["groups"] < 1 or not env.equal(channels * attrs["groups"], x.shape[-1]):
        fail(f"conv_last: Given groups={attrs['groups']}, expected input {sizes_text(x.shape)} to "
             f"have {channels} channels in each")
    have, outputs = panels * columns, attrs["outputs"]
    if outputs < 1 or outputs % attrs["groups"] or not env.at_most(outputs, have):
        fail(f"conv_last: {outputs} outputs of a weight {sizes_text(w.shape)}")
    spatial = conv_output_shape(x.shape[1:-1], tuple(window), attrs, env)
    return TensorType(x.dtype, (x.shape[0], *spatial, outputs))


def _plain(x: Any, w: Any, *, outputs: int, group: int, **attrs: Any) -> Any:
    """As a conv."""
    rank = x.type.rank
    panels, *window, words, width = w.type.shape
    columns, channels = width // group, words * group
    filters = reshape(w, (panels, *window, words, columns, group))
    filters = permute(filters, (0, rank, rank - 1, rank + 1, *range(1, rank - 1)))
    filters = reshape(filters, (panels * columns, channels, *window))
    filters = ops.slice(
        filters, starts=(0,) * rank, stops=(outputs, channels, *window), steps=(1,) * rank
    )
    found = ops.conv(permute(x, (0, rank - 1, *range(1, rank - 1))), filters, **attrs)
    return permute(found, (0, *range(2, rank), 1))


register(
    Op(
        "conv_last", "composite", _type, None, _plain, arity=2,
        attrs=("outputs", "stride", "pad_low", "pad_high", "dilation", "groups", "group"),
        nondifferentiable="made where nothing is differentiated", domain=(-2.0, 2.0),
        cost=None, rounding=LINEAR, takes_complex=False,
        doc="conv with the channels of x [N,*S,C] and of the result last; w [panels,*K,C/groups,"
        "columns], of words of a `group` of channels.",
    )
)
