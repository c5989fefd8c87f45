"""How the right operand of a product is laid out in panels of the machine's tiles, in operators:
what is made once, and the view of it that the product reads (`kernel/templates/operand.py`)."""

from __future__ import annotations

from collections.abc import Iterable

from ..dim import Size, product, unwrap
from ..graph import Builder, Node
from ..kernel.steps import panel_shape
from ..kernel.templates.operand import PanelShape
from ..machine import Tiling
from ..op import get
from ..record import record
from .lower.contraction import widens_operand


@record
class Panels:
    """Of a right operand of known sizes: its dims that are columns of the product, those that are
    summed over, and what its panels are like."""

    free: tuple[int, ...]
    contract: tuple[int, ...]
    shape: PanelShape

    def made(self, builder: Builder, value: Node) -> Node:
        """The value as [panels, words of k, columns, values of a word], without the last where a
        word is a value; zeros for what the last panel and the last words have too many."""
        columns, group = self.shape
        n, k = size_of(value, self.free), size_of(value, self.contract)
        rows = builder.emit(get("permute"), value, dims=(*self.free, *self.contract))
        rows = builder.emit(get("reshape"), rows, shape=(n, k))
        high = (-n % columns, -k % group)
        if any(high):
            none = (0, 0)
            rows = builder.emit(get("pad"), rows, low=none, high=high, interior=none, value=0.0)
        panels, words = -(-n // columns), -(-k // group)
        last = () if group == 1 else (group,)
        split = builder.emit(get("reshape"), rows, shape=(panels, columns, words, *last))
        return builder.emit(get("permute"), split, dims=(0, 2, 1, 3)[: 3 + len(last)])

    def rows(self, builder: Builder, packed: Node, value: Node) -> Node:
        """The panels as a view [n, *k] of the value that they were made of."""
        want = size_of(value, self.free), size_of(value, self.contract)
        panels, words = packed.shape[:2]
        assert isinstance(panels, int) and isinstance(words, int)
        rows = builder.emit(get("permute"), packed, dims=(0, 2, 1, 3)[: len(packed.shape)])
        lies = panels * self.shape.columns, words * self.shape.group
        rows = builder.emit(get("reshape"), rows, shape=lies)
        if lies != want:
            rows = builder.emit(get("slice"), rows, starts=(0, 0), stops=want, steps=(1, 1))
        inner = [value.shape[d] for d in self.contract]
        return builder.emit(get("reshape"), rows, shape=(want[0], *inner))


def narrowed(node: Node) -> tuple[Node, Node]:
    """What a product multiplies: its operands, or the halves that both of them widen."""
    left, right = node.inputs
    if all(node.dtype.is_float and widens_operand(x) for x in (left, right)):
        halves = left.inputs[0], right.inputs[0]
        if halves[0].dtype is halves[1].dtype:
            return halves
    return left, right


def panels_for(node: Node, tiling: Tiling, rows: int) -> Panels | None:
    """The panels that a product of about so many rows would read its right operand in; None where
    it has no use for any."""
    left, right = narrowed(node)
    contract: tuple[int, ...] = node.attrs["contract_b"]
    free = tuple([d for d in range(len(right.shape)) if d not in contract])
    if node.attrs["batch_b"] or not all(isinstance(s, int) for s in right.shape):
        return None
    shape = panel_shape(left.dtype, right.dtype, tiling, rows, size_of(right, free))
    return None if shape is None else Panels(free, contract, shape)


def rows_of(node: Node) -> Size:
    """How many rows a product without batches has."""
    left, contract = node.inputs[0], node.attrs["contract_a"]
    return unwrap(product(s for d, s in enumerate(left.shape) if d not in contract))


def size_of(value: Node, dims: Iterable[int]) -> int:
    """Elements of some dims, whose sizes are known."""
    found = unwrap(product(value.shape[d] for d in dims))
    assert isinstance(found, int)
    return found
