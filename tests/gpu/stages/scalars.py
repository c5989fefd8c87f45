"""Each elementwise operator of each dtype by itself: what it makes of the edges of its dtypes, and
how far its floats are off. The emulator has the C library's functions, a device has its own."""

from __future__ import annotations

import numpy as np

from graphc.backends.cuda.driver import DEFAULT_STREAM, Function, pack
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir.op import Op
from graphc.ir.rounding import EXACT

from ...backends.cells import ELEMENTWISE, Cell, cells
from ...backends.cuda.test_scalar import DTYPES, differs, sources, tried
from ..bed import Bed
from ..results import Record
from ..results import tried as trying

_SAMPLES = 1 << 16
_SHOWN = 3  # wrong numbers of a cell


def run(bed: Bed, record: Record) -> None:
    """A line for each cell that is wrong, and one for each function: the worst error in units of
    the last place (CUDA's documentation names the bounds). A rehearsal has a few operators."""
    chosen = ELEMENTWISE if bed.large else ELEMENTWISE[:: len(ELEMENTWISE) // 6]
    found = [(op, cell) for op in chosen for cell in cells(op, DTYPES)]
    functions = bed.functions(sources(chosen), *(f"cell_{cell.name}" for _, cell in found))
    wrong = 0
    for op, cell in found:
        function = functions[f"cell_{cell.name}"]
        with trying(record, cell.name):
            wrong += _edges(bed, record, function, cell)
            if cell.result.name in ("f32", "f64") and len(cell.inputs) == 1 and _rounds(op, cell):
                record(cell.name, ulps=_worst(bed, function, cell))
    record("cells", right=len(found) - wrong, wrong=wrong)


def _rounds(op: Op, cell: Cell) -> bool:
    return op.family != "cast" and op.rounding is not EXACT and cell.inputs[0] is cell.result


def _computed(
    bed: Bed, function: Function, arrays: list[np.ndarray], result: np.ndarray
) -> np.ndarray:
    places = [bed.put(array) for array in (*arrays, result)]
    words = (*places, result.size)
    launch = bed.driver.prepare(function, (1, 1, 1), (32, 1, 1), pack(f"{len(places)}Pq", words))
    bed.driver.launch(launch, DEFAULT_STREAM)
    bed.driver.synchronise()
    found = bed.get(places[-1], result)
    for place in places:
        bed.driver.free(place)
    return found


def _edges(bed: Bed, record: Record, function: Function, cell: Cell) -> bool:
    """Whether a number is another one than NumPy's."""
    arrays, want = tried(cell)
    got = _computed(bed, function, arrays, np.empty(arrays[0].shape, cell.result.numpy))
    wrong = differs(cell, got, want)
    if wrong.any():
        shown = {
            name: [str(x) for x in array[wrong][:_SHOWN]]
            for name, array in (*zip("abc", arrays, strict=False), ("got", got), ("want", want))
        }
        record(cell.name, wrong=int(wrong.sum()), **shown)
    return bool(wrong.any())


def _worst(bed: Bed, function: Function, cell: Cell) -> float:
    """Over the operator's domain; f32 beside f64."""
    count = _SAMPLES if bed.large else 256
    x = np.random.default_rng(0).uniform(*cell.op.domain, count).astype(cell.result.numpy)
    got = _computed(bed, function, [x], np.empty_like(x))
    with np.errstate(all="ignore"):
        want = np.asarray(TABLE[cell.op.name](x.astype("f8")))
        unit = np.spacing(np.abs(want.astype(x.dtype))).astype("f8")
        off = np.abs(got.astype("f8") - want) / unit
    return float(np.max(off[np.isfinite(off)], initial=0))
