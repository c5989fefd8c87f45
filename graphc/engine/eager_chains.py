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
from ..ir.chain import attrs_of, key_of
from ..ir.dtypes import from_numpy
from ..ir.graph import Builder, Graph, attrs_key
from ..ir.types import TensorType
from .eager_cuts import Cuts
from .eager_form import Form, Types, is_middling, with_long_sums
from .eager_forms import spread
from .eager_kernels import Sized, code_for, pattern_of, sized
from .eager_products import Layer, layer_of_links

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
# done again for each number that they are repeated for: one instruction, with the same bits
_AGAIN = _EXACT | frozenset("neg add sub mul".split())
# whose bits are the same, of one number
_ALONE = _EXACT | frozenset("neg add sub mul div sqrt lt where".split())


class Chain(Sized):
    """A chain on inputs of known types."""

    def __init__(
        self, engine: Any, form: Form, constants: Sequence[np.ndarray], shape: tuple[int, ...]
    ) -> None:
        super().__init__(engine, form, [shape])
        self._constants = list(constants)
        self.cuts: Cuts | None = None  # the same on what is cut out of rows

    def __call__(self, arrays: Sequence[np.ndarray]) -> np.ndarray | None:
        """The result on the arrays; None where one is neither row-major nor cut out of rows."""
        for array in arrays:
            if not array.flags.c_contiguous:
                given = [*arrays, *self._constants]
                return None if self.cuts is None else self.cuts.run(given)
        return self.run([*arrays, *self._constants])[0]


def chain(
    types: Types, constants: Sequence[np.ndarray], links: Sequence[Link], in_place: bool = False
) -> Chain | None:
    """The last link's result on inputs of these types, behind which the constants are, written to
    the first, if `in_place`; None where the operators had better run one by one."""
    shape: Any = links[-1].result.shape
    if config.current().eager_kernels == "0":
        return None
    inputs = [*types, *[TensorType(from_numpy(c.dtype), ()) for c in constants]]
    product = layer_of_links(inputs, links)
    if product is not None and not in_place:
        return _layer(inputs, constants, product, shape)
    if not is_long(links):
        return None
    try:
        whole = np.broadcast_shapes(*[t.shape for t in inputs])  # type: ignore[arg-type]
    except ValueError:  # they meet in what is no operator on elements
        return None
    rows = Rows.of(inputs, links, whole)
    if shape not in (whole, ()) and (rows is None or shape not in (rows.kept, rows.shape)):
        return None
    if rows is None and not all(_is_known(link, inputs, links, whole) for link in links):
        return None
    if any(t.dtype.is_complex for t in [*inputs, *[link.result for link in links]]):
        return None
    form = spread(inputs if rows is None else [*inputs, TensorType(inputs[0].dtype, rows.kept)], {})
    if form is None:
        return None
    summed: tuple[int, ...] = ()
    if rows is not None:
        summed = tuple([at for at, (name, _) in enumerate(form.inputs[-1]) if not name])
        form = form._replace(inputs=form.inputs[:-1])
    if any(link.op.name == "sum" for link in links):
        over = summed if rows is not None else range(len(whole))
        form = form._replace(inputs=tuple([with_long_sums(s, over) for s in form.inputs]))
    described = [(link.op.name, key_of(link), link.sources) for link in links]
    key = (
        "chain", in_place, pattern_of(form.inputs), tuple([t.dtype for t in inputs]),
        tuple(described), summed,
    )
    mutated = {0: 0} if in_place else None
    engine = code_for(key, form, lambda: _graph(form, inputs, links, summed), mutated)
    if engine is None:
        return None
    found = Chain(engine, form, constants, shape)
    if rows is None and not in_place:
        found.cuts = Cuts(
            ("chain", tuple(described)), inputs, whole, shape,
            lambda builder, nodes: _linked(builder, nodes, links),
        )
    return found


def _layer(
    inputs: Types, constants: Sequence[np.ndarray], layer: Layer, shape: tuple[int, ...]
) -> Chain | None:
    described = [(link.op.name, attrs_key(link.attrs), link.sources) for link in layer.links]
    form = layer.form
    key = "layer", pattern_of(form.inputs), tuple([t.dtype for t in inputs]), tuple(described)
    engine = code_for(key, form, lambda: _graph(form, inputs, layer.links, ()))
    return None if engine is None else Chain(engine, form, constants, shape)


class Rows:
    """Of a chain in which sums leave some dims: what those come to has the shape `kept`, or without
    the dims that are summed `shape`, which meets nothing else but numbers."""

    def __init__(self, kept: tuple[Any, ...], shape: tuple[Any, ...]) -> None:
        self.kept, self.shape = kept, shape

    @classmethod
    def of(
        cls, inputs: Types, links: Sequence[Link], whole: tuple[int, ...]
    ) -> Rows | None:
        """None: there are none, or what is made of them is no chain."""
        sums = [link for link in links if link.op.name == "sum" and link.result.shape]
        dims = {tuple(link.attrs["dims"]) for link in sums}
        if len(dims) != 1:
            return None
        (summed,) = dims
        kept = tuple([1 if d in summed else size for d, size in enumerate(whole)])
        found = cls(kept, tuple([size for d, size in enumerate(whole) if d not in summed]))
        if kept == whole or found.shape == whole:
            return None
        return found if found._hold(inputs, links, whole) else None

    def _hold(self, inputs: Types, links: Sequence[Link], whole: tuple[int, ...]) -> bool:
        shapes: list[Any] = [t.shape for t in inputs]
        without = [False] * len(inputs)  # whether the summed dims are left out
        for link in links:
            given = [shapes[s] for s in link.sources]
            lacking = [without[s] for s in link.sources]
            shape = link.result.shape
            left_out = any(lacking)
            if link.op.name == "sum":
                known = link.result.dtype.is_float and given == [whole] and shape in (
                    self.kept, self.shape)
                left_out = shape != self.kept
            elif left_out:
                known = link.op.name in _ALONE and shape == self.shape and all(
                    mine or not sizes for mine, sizes in zip(lacking, given, strict=True)
                )
            elif shape == self.kept:
                known = link.op.name in _ALONE
            else:
                known = _is_known(link, inputs, links, whole)
            if not known:
                return False
            shapes.append(shape)
            without.append(left_out)
        return True


def is_long(links: Sequence[Link]) -> bool:
    """Whether what they go through has many numbers."""
    return any(is_middling(link.result) for link in links)


def _is_known(
    link: Link, inputs: Types, links: Sequence[Link], whole: tuple[int, ...]
) -> bool:
    """Whether compiled code does what NumPy does to fewer numbers, to the bit; but for a sum."""
    if link.op.divides and link.result.dtype.is_integer:
        return False  # what divides by 0 is NumPy's to say
    if link.result.shape == whole:
        return link.op.name in _KNOWN
    if link.op.name == "sum":
        source = link.sources[0]
        given = inputs[source] if source < len(inputs) else links[source - len(inputs)].result
        return link.result.shape == () and given.shape == whole and given.dtype.is_float
    return link.op.name in (_ALONE if link.result.shape == () else _AGAIN)


def _graph(
    form: Form, types: Types, links: Sequence[Any], summed: tuple[int, ...]
) -> Graph:
    """`summed`: the form's dims over which there are sums that leave others."""
    env, inputs, _ = sized(form, types)
    builder = Builder(env)
    nodes: list[Any] = [builder.input(t) for t in inputs]
    return builder.build((_linked(builder, nodes, links, summed),), "chain")


def _linked(
    builder: Builder, given: Sequence[Any], links: Sequence[Any], summed: tuple[int, ...] = ()
) -> Any:
    nodes = list(given)
    for link in links:
        sources = [nodes[s] for s in link.sources]
        attrs = attrs_of(link, sources[0].tensor_type if sources else None)
        if link.op.name == "sum" and link.result.shape:
            attrs = {"dims": summed, "keepdim": True}
        nodes.append(builder.emit(link.op, *sources, **attrs))
    return nodes[-1]
