"""What of the shared code a convolution comes to: see gemm_reach.py. The rows of its tiles follow
from its channels, which are known; where all sizes are, its contractions say the rest."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from graphc.backends.llvm.gemm_reach import row_classes, widths
from graphc.backends.llvm.microkernel import Tile
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.plan_convolution import Contraction, contractions

T = TypeVar("T")
Kernels = tuple[tuple[int, int], ...]  # by rows, and width in registers
_KEPT = 128  # convolutions: each is asked about for its libraries and for its code


class ConvReach(NamedTuple):
    """The kernels (`places` read the input under masks), and whether the input is copied with its
    padding, packed as it is (`packs`), and the left operand packed; and whether the input is copied
    for each tap of a line."""

    tiles: Kernels
    windows: Kernels
    places: Kernels
    dots: tuple[int, ...]
    copies: bool
    packs: bool
    left: bool
    shifts: bool = False


@lru_cache(maxsize=_KEPT)
def conv_reach(c: Convolution, tile: Tile) -> ConvReach:
    """What a convolution comes to whose steps of k are single values."""
    found = contractions(c, tile.machine)
    if found is None:
        return _of_any_size(c, tile)
    kinds = {each.kind for each in found}
    return ConvReach(
        _kernels(tile, (each for each in found if each.kind in ("tiles", "pieces"))),
        _kernels(tile, (each for each in found if each.kind in ("windows", "shifts"))),
        _kernels(tile, (each for each in found if each.kind == "places")),
        _distinct(
            rows for each in found if each.kind == "dots" for rows in row_classes(tile, each.m)
        ),
        copies=bool(kinds & {"pieces", "windows", "dots"}), packs="tiles" in kinds,
        left=any(bool(each.plan.left_packed) for each in found), shifts="shifts" in kinds,
    )


@lru_cache(maxsize=_KEPT)
def is_by_strips(c: Convolution, tile: Tile) -> bool:
    """Whether a convolution is done strip by strip (conv_strips.py)."""
    known = c.kind in ("conv", "conv_input_grad")
    found = contractions(c, tile.machine) if known else None
    return any(each.kind == "strips" for each in found or ())


def _of_any_size(c: Convolution, tile: Tile) -> ConvReach:
    g = c.geometry
    m = (g.in_channels if c.kind == "conv_input_grad" else g.out_channels) // g.groups
    rows = row_classes(tile, m)
    every = tuple((each, width) for each in rows for width in tile.widths)
    dots = c.kind == "conv_weight_grad"
    return ConvReach(every, () if dots else every, (), rows if dots else (), True, True, True)


def _kernels(tile: Tile, found: Iterable[Contraction]) -> Kernels:
    return _distinct(
        (rows, width) for each in found for rows in row_classes(tile, each.m)
        for width in widths(tile, bool(each.plan.right_in_place), each.n)
    )


def _distinct(found: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(found))
