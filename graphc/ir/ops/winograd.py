"""Winograd's convolution in three steps (`cook_toom.py`): what passes/winograd.py makes of one.

winograd_input takes tiles of an image with its channels last, which overlap, winograd_filter the
filters; a product for each of the size * size places of a tile sums over the channels, and
winograd_output puts the tiles of the result together. The first dim of what lies between is the
place. Made after gradients are, so there is none.

An infinity or NaN spreads to all of its tile's results, as places of a tile are subtracted.
"""

from __future__ import annotations

from ..cook_toom import has_transforms
from ..dim import DimEnv
from ..op import Attrs, Op, TypeRule, register
from ..rounding import DELICATE
from ..types import TensorType, Type
from ._types import FLOATS, Types, fail, require_dtype, require_length, sizes_text


def _require(name: str, x: TensorType, rank: int, tile: int, window: int) -> int:
    """The places of a tile along a dim."""
    require_dtype(name, x.dtype, FLOATS)
    if not has_transforms(tile, window):
        fail(f"{name}: there is no F({tile}, {window})")
    if x.rank != rank:
        fail(f"{name}: Expected {rank} dims, got {sizes_text(x.shape)}")
    return tile + window - 1


def _tiles(name: str, attrs: Attrs) -> tuple[int, int]:
    """How many tiles cover the results."""
    require_length(name, "output", attrs["output"], 2)
    rows, columns = attrs["output"]
    if rows < 1 or columns < 1:
        fail(f"{name}: no results of {sizes_text(attrs['output'])}")
    return -(-rows // attrs["tile"]), -(-columns // attrs["tile"])


def _input_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,), name = types, "winograd_input"
    size = _require(name, x, 4, attrs["tile"], attrs["window"])
    require_length(name, "pad_low", attrs["pad_low"], 2)
    if min(attrs["pad_low"]) < 0:
        fail(f"{name}: negative padding is not supported, got {attrs['pad_low']}")
    n, _, _, channels = x.shape
    return TensorType(x.dtype, (size * size, n, *_tiles(name, attrs), channels))


def _filter_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (w,), name = types, "winograd_filter"
    outputs, channels, *window = w.shape
    if len(window) != 2 or window[0] != window[1] or not isinstance(window[0], int):
        fail(f"{name}: Expected square filters [O, C, K, K], got {sizes_text(w.shape)}")
    size, width = _require(name, w, 4, attrs["tile"], window[0]), attrs["columns"]
    if width < 1:
        fail(f"{name}: panels of {width} columns")
    wide, deep = (channels, outputs) if attrs["flip"] else (outputs, channels)
    return TensorType(w.dtype, (size * size, (wide + (width - 1)) // width, deep, width))


def _output_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (p,), name = types, "winograd_output"
    size = _require(name, p, 5, attrs["tile"], attrs["window"])
    places, n, rows, columns, channels = p.shape
    if (places, rows, columns) != (size * size, *_tiles(name, attrs)):
        fail(f"{name}: {sizes_text(p.shape)} are not the tiles of {sizes_text(attrs['output'])}")
    return TensorType(p.dtype, (n, *attrs["output"], channels))


def _register(name: str, infer: TypeRule, attrs: tuple[str, ...], doc: str) -> None:
    register(Op(
        name, "window", infer, arity=1, attrs=attrs, cost=None, rounding=DELICATE,
        takes_complex=False, domain=(-2.0, 2.0),
        nondifferentiable="made after the gradients are", doc=doc,
    ))


_register(
    "winograd_input", _input_type, ("tile", "window", "pad_low", "output"),
    "B^T d B of the tiles of x [N,H,W,C] -> [size*size,N,rows,columns,C]; zeros beside the image.",
)
_register(
    "winograd_filter", _filter_type, ("tile", "flip", "columns"),
    "G g G^T of w [O,C,K,K] in panels -> [size*size,O/columns,C,columns], zeros in the last one's "
    "rest; if `flip`, of w turned by 180 degrees, with O and C exchanged.",
)
_register(
    "winograd_output", _output_type, ("tile", "window", "output"),
    "A^T p A of products [size*size,N,rows,columns,O] -> [N,*output,O].",
)
