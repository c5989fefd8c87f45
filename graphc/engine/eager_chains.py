"""What a function of eager mode comes to on many numbers, as one loop: `hardswish` is five
operators, each of which would go through memory.

Each operator rounds by itself, so the bits are those of one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import config
from ..frontend.values import Link
from ..ir.dtypes import from_numpy
from ..ir.graph import Builder, Graph, attrs_key
from ..ir.op import Attrs
from ..ir.types import TensorType
from .eager_form import Form, Types, is_many
from .eager_forms import spread
from .eager_kernels import Sized, code_for, pattern_of, sized

# of which NumPy, which else runs them, and compiled code give the same bits
_EXACT = frozenset(
    "floor ceil round trunc isnan isinf isfinite logical_not logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor bitwise_not copysign cast clamp where full".split()
)
_COMPILED = frozenset(
    "neg abs sign square relu exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal "
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid "
    "gelu silu softplus add sub mul div fmod remainder floor_divide trunc_divide maximum minimum "
    "fmax fmin atan2 eq ne lt le gt ge".split()
)
_KNOWN = _EXACT | _COMPILED


class Chain(Sized):
    """A chain on inputs of known types."""

    def __init__(
        self, engine: Any, form: Form, constants: Sequence[np.ndarray], shape: tuple[int, ...]
    ) -> None:
        super().__init__(engine, form)
        self._inputs = [tuple([size for _, size in shape]) for shape in form.inputs]
        self._constants = list(constants)
        self._shape = shape

    def __call__(self, arrays: Sequence[np.ndarray]) -> np.ndarray | None:
        """The result on the arrays; None where one is not row-major."""
        for array in arrays:
            if not array.flags.c_contiguous:
                return None
        inputs = [
            a.reshape(sizes)
            for a, sizes in zip([*arrays, *self._constants], self._inputs, strict=True)
        ]
        return self.run(inputs)[0].reshape(self._shape)


def chain(
    types: Types, constants: Sequence[np.ndarray], links: Sequence[Link], in_place: bool = False
) -> Chain | None:
    """The last link's result on inputs of these types, behind which the constants are, written to
    the first, if `in_place`; None where the operators had better run one by one."""
    shape: Any = links[-1].result.shape
    if not is_many(links[-1].result) or config.current().eager_kernels == "0":
        return None
    for link in links:  # what NumPy does to fewer numbers has its bits
        known = _KNOWN if link.result.shape == shape else _EXACT
        if link.op.name not in known or (
            link.op.divides and link.result.dtype.is_integer  # what divides by 0 is NumPy's to say
        ):
            return None
    inputs = [*types, *[TensorType(from_numpy(c.dtype), ()) for c in constants]]
    if any(t.dtype.is_complex for t in [*inputs, *[link.result for link in links]]):
        return None
    form = spread(inputs, {})
    if form is None or np.broadcast_shapes(*[t.shape for t in inputs]) != shape:  # type: ignore[arg-type]
        return None
    described = [(link.op.name, attrs_key(_attrs(link)), link.sources) for link in links]
    key = (
        "chain", in_place, pattern_of(form.inputs), tuple([t.dtype for t in inputs]),
        tuple(described),
    )
    mutated = {0: 0} if in_place else None
    engine = code_for(key, form, lambda: _graph(form, inputs, links), mutated)
    return None if engine is None else Chain(engine, form, constants, shape)


def _attrs(link: Link) -> Attrs:
    """Without sizes: what is filled with one number is that number."""
    return {**link.attrs, "shape": ()} if link.op.name == "full" else link.attrs


def _graph(form: Form, types: Types, links: Sequence[Link]) -> Graph:
    env, inputs, _ = sized(form, types)
    builder = Builder(env)
    nodes: list[Any] = [builder.input(t) for t in inputs]
    for link in links:
        nodes.append(builder.emit(link.op, *[nodes[s] for s in link.sources], **_attrs(link)))
    return builder.build((nodes[-1],), "chain")
