"""The block of 8-byte words that a driver reads: which word holds what (see driver.py)."""

from __future__ import annotations

from graphc.ir.named import NamedTuple

ZERO, ARENA, CALLBACK, STATUS, SCRATCH, WORKERS = 0, 1, 2, 3, 7, 8
FIRST_BUFFER = 9
RUN = "graphc_run_program"
RUN_STEPS = "graphc_run_steps"
RUN_ROWS = "graphc_run_rows"
SIZES = "graphc_sizes"
# of CPython's API, what a loop that ends by a flag calls, by name: (result, parameters)
PYTHON = {
    "PyEval_SaveThread": ("ptr", ""),
    "PyEval_RestoreThread": ("void", "ptr"),
    "PyErr_CheckSignals": ("i32", ""),
}


class Layout(NamedTuple):
    """Which word of the block holds what."""

    inputs: int
    outputs: int
    constants: int
    dims: int
    words: int
