"""Products of half precision, for all sizes: NumPy's BLAS has none, and the way through float32 and
back takes longer than the product itself.

What a product comes to is one of matrices: neighbouring dims that are all of the batch, all left or
all summed over are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..frontend.values import Link
from ..ir.chain import Link as ChainLink
from ..ir.chain import chain_of, links_of
from ..ir.memory import contiguous
from ..ir.named import NamedTuple
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from .eager_form import Form, Shape, Types, is_half, is_much


def form(types: Types, attrs: Attrs) -> Form | None:
    """A dot_general's; None where its dims do not lie together."""
    if len(attrs) > 4 or not attrs["contract_a"]:  # tf32 is asked for, or nothing is summed over
        return None
    a = _Operand.of(types[0].shape, attrs["batch_a"], attrs["contract_a"], "rows")
    b = _Operand.of(types[1].shape, attrs["batch_b"], attrs["contract_b"], "columns")
    if a is None or b is None:
        return None
    return Form((a.shape, b.shape), {
        "batch_a": a.at("many"), "batch_b": b.at("many"),
        "contract_a": a.at("inner"), "contract_b": b.at("inner"),
    })


class _Operand(NamedTuple):
    """An operand's dims, put together."""

    shape: Shape

    def at(self, wanted: str) -> tuple[int, ...]:
        return tuple([d for d, (name, _) in enumerate(self.shape) if name == wanted])

    @classmethod
    def of(
        cls, shape: Any, batch: Sequence[int], contract: Sequence[int], free: str
    ) -> _Operand | None:
        """None: dims of a kind do not lie together, or not in their order."""
        if list(batch) != sorted(batch) or list(contract) != sorted(contract):
            return None
        groups: list[tuple[str, int]] = []
        for d, size in enumerate(shape):
            name = "many" if d in batch else "inner" if d in contract else free
            if groups and groups[-1][0] == name:
                groups[-1] = name, groups[-1][1] * size
            else:
                groups.append((name, size))
        names = [name for name, _ in groups]
        if len(set(names)) < len(names) or "inner" not in names:
            return None
        if free not in names:  # a vector
            groups.append((free, 1))
        return cls(tuple(groups))


def anyhow(
    op: Op, types: Types, attrs: Attrs, results: Types, call: Callable[..., Any],
    prepare: Callable[..., Callable[..., Any]],
) -> Callable[..., Any]:
    """`call`, of row-major arrays, for operands that lie in another order: a turned one is another
    product of what lies there."""
    known: dict[Any, Callable[..., Any] | None] = {}  # by the orders of dims; None: `call`

    def keeps_rows(order: list[int], side: str) -> bool:
        """Whether dims that are summed over by neither keep their order, which is the result's."""
        taken = *attrs[f"batch_{side}"], *attrs[f"contract_{side}"]
        shape = types[side == "b"].shape
        free = [d for d in order if d not in taken and shape[d] != 1]
        return free == sorted(free)

    def turned(orders: list[list[int]]) -> Callable[..., Any] | None:
        found = [
            TensorType(t.dtype, tuple([t.shape[d] for d in order]))
            for t, order in zip(types, orders, strict=True)
        ]
        moved = {
            name: tuple([orders[name[-1] == "b"].index(d) for d in dims])
            for name, dims in attrs.items()
        }
        if orders == [sorted(order) for order in orders] or form(found, moved) is None:
            return None
        if not all(map(keeps_rows, orders, "ab")):
            return None
        return prepare(op, found, moved, results)

    def product(*arrays: np.ndarray) -> Any:
        if arrays[0].flags.c_contiguous and arrays[1].flags.c_contiguous:
            return call(arrays)
        orders = [_order(x) for x in arrays]
        key = tuple(map(tuple, orders))
        if key not in known:
            known[key] = turned(orders)
        run = known[key]
        if run is None:
            return call([contiguous(x) for x in arrays])
        return run(*[contiguous(x.transpose(o)) for x, o in zip(arrays, orders, strict=True)])

    return product


def _order(array: np.ndarray) -> list[int]:
    """Its dims from those widest apart to those next to each other."""
    if array.flags.c_contiguous or 0 in array.strides:
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda d: -array.strides[d])


# --- with what is around it: a layer of halves adds its bias before it rounds ---------------------


class Layer(NamedTuple):
    """A product of halves that are widened, to which a row may be added, rounded."""

    form: Form
    links: tuple[ChainLink, ...]  # for the form's shapes


def layer(inputs: Types, links: Sequence[Any]) -> Layer | None:
    """What such a chain is; None: it is something else."""
    dots = [at for at, link in enumerate(links) if link.op.name == "dot_general"]
    if len(dots) != 1 or {link.op.name for link in links} - {"cast", "dot_general", "add"}:
        return None
    first = len(inputs)
    dot = links[dots[0]]

    def widened(source: int) -> int | None:
        """The input that an operand is."""
        link = links[source - first] if source >= first else None
        if link is None or link.op.name != "cast" or link.sources[0] >= first:
            return None
        return int(link.sources[0]) if is_half(inputs[link.sources[0]]) else None

    a, b = (widened(source) for source in dot.sources)
    if a is None or b is None or a == b:
        return None
    types = inputs[a], inputs[b]
    found = form(types, dot.attrs)
    if found is None or dot.attrs["batch_a"] or not is_much(types, dot.attrs):
        return None
    columns = next(size for name, size in found.inputs[1] if name == "columns")
    shapes: list[Shape | None] = [None] * first
    shapes[a], shapes[b] = found.inputs
    for link in links[dots[0] + 1 :]:
        for source in link.sources:
            row = widened(source) if source < first + dots[0] else None
            if row is not None and row not in (a, b) and inputs[row].shape == (columns,):
                shapes[row] = (("columns", columns),)
            elif source < first + dots[0]:
                return None
    if None in shapes or links[-1].op.name != "cast":
        return None
    made = [
        ChainLink(x.op, found.attrs if x is dot else x.attrs, tuple(x.sources)) for x in links
    ]
    return Layer(Form(tuple(shapes), {}), tuple(made))  # type: ignore[arg-type]


def layer_of(op: Op, types: Types) -> tuple[Op, Form] | None:
    """The same of a chain's operator, as one of matrices."""
    found = layer(types, links_of(op))
    return None if found is None else (chain_of(found.links, len(types)), found.form)


def layer_of_links(types: Types, links: Sequence[Link]) -> Layer | None:
    """The same of a chain that is yet to be made."""
    return layer(types, links) if any(link.op.name == "dot_general" for link in links) else None
