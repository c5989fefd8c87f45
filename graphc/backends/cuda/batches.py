"""Several launches of one kernel as one: each block looks up in a table whose block it is, and
which buffers and dims that launch has. The launches are independent (`plan/together.py`).

A table has a row of i64 for each launch: its first block, its number of blocks, the addresses of
its buffers in order of params, its dims. Blocks number differently in each stage, so each stage has
a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.source import Source, Stage, grid
from graphc.ir.kernel import Kernel

_SUFFIX = "_batch"
_HEAD = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\((.*?)\) \{')


class Arguments(NamedTuple):
    """One launch: addresses in order of the kernel's params, and its dims."""

    addresses: Sequence[int]
    dims: Sequence[int]


def batched(kernel: Kernel, source: Source) -> Source:
    """The kernel's functions for many launches, each with the parameters (const i64* table, i64
    launches, i64* status). Raises NotImplementedError for one that needs scratch of its own."""
    if source.scratch != 0:
        raise NotImplementedError(f"{kernel.name}: its launches cannot share their scratch")
    text = source.text.removeprefix(PRELUDE)
    for variable in ("blockIdx.x", "gridDim.x"):
        text = text.replace(variable, _OF_ONE[variable])
    text = _HEAD.sub(
        r"__device__ inline void \1_one(\2, const i64 own_block, const i64 own_blocks) {", text
    )
    wrappers = [_wrapper(kernel, stage) for stage in source.stages]
    stages = tuple(replace(stage, name=stage.name + _SUFFIX) for stage in source.stages)
    return Source("\n".join((PRELUDE, text, *wrappers)), stages)


_OF_ONE = {"blockIdx.x": "own_block", "gridDim.x": "own_blocks"}


def _wrapper(kernel: Kernel, stage: Stage) -> str:
    buffers = [
        f"({c_type(param.dtype)}*)row[{2 + number}]" for number, param in enumerate(kernel.params)
    ]
    words = [f"row[{2 + len(buffers) + number}]" for number in range(len(kernel.dims))]
    arguments = ", ".join((*buffers, *words, "status", "at - row[0]", "row[1]"))
    width = width_of(kernel)
    return f"""\
extern "C" __global__ void {stage.name}{_SUFFIX}(const i64* table, i64 launches, i64* status) {{
  const i64* const end = table + (launches - 1) * {width};
  const i64 blocks = end[0] + end[1];
  for (i64 at = blockIdx.x; at < blocks; at += gridDim.x) {{
    i64 low = 0, high = launches;
    while (high - low > 1) {{
      const i64 half = (low + high) / 2;
      if (table[half * {width}] <= at) low = half; else high = half;
    }}
    const i64* const row = table + low * {width};
    {stage.name}_one({arguments});
    __syncthreads();
  }}
}}
"""


def width_of(kernel: Kernel) -> int:
    """The words of a table's row."""
    return 2 + len(kernel.params) + len(kernel.dims)


def tables(
    kernel: Kernel, source: Source, launches: Sequence[Arguments]
) -> list[tuple[list[int], int]]:
    """For each stage of what `batched` gave: the words of its table, and the blocks of its grid."""
    found: list[tuple[list[int], int]] = []
    for stage in source.stages:
        words: list[int] = []
        first = 0
        for addresses, dims in launches:
            blocks = grid(stage, list(zip(kernel.dims, dims, strict=True)))
            words += [first, blocks, *addresses, *dims]
            first += blocks
        found.append((words, grid(replace(stage, blocks=first), ())))
    return found
