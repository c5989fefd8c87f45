"""Several launches of one kernel as one, which are independent (`plan/together.py`): each block
finds out from the launch's arguments whose block it is. They are all there, as words of 8 bytes:
the buffers of every launch, then, for every launch, its first block, its number of blocks and its
dims. So they are patched like any launch's, and nothing has to lie in memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.source import Source, Stage
from graphc.ir.dim import Size, maximum, substitute, unwrap
from graphc.ir.kernel import Kernel, Launch
from graphc.ir.record import replaced

_WORDS = 4096 // 8  # that a launch may have, on every architecture
_HEAD = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\((.*?)\) \{')
_OF_ONE = {"blockIdx.x": "own_block", "gridDim.x": "own_blocks"}


def fits(kernel: Kernel, source: Source) -> int:
    """How many launches of a kernel one may stand for: 1 where they have scratch, or sizes that its
    text leaves open."""
    if source.scratch != 0 or source.sizes:
        return 1
    return max(1, (_WORDS - 1) // (len(kernel.params) + len(kernel.dims) + 2))


def batched(kernel: Kernel, source: Source, count: int) -> Source:
    """What launches so many of a kernel's at once; its functions take the words and the status."""
    text = source.text.removeprefix(PRELUDE)
    for variable, own in _OF_ONE.items():
        text = text.replace(variable, own)
    one = r"__device__ inline void \1_one(\2, const i64 own_block, const i64 own_blocks) {"
    parts = [PRELUDE, _HEAD.sub(one, text)]
    stages = []
    for stage in source.stages:
        name = f"{stage.name}_x{count}"
        parts.append(_wrapper(kernel, stage, name, count))
        stages.append(replaced(stage, name=name))
    return Source("\n".join(parts), tuple(stages))


def _wrapper(kernel: Kernel, stage: Stage, name: str, count: int) -> str:
    params, row = len(kernel.params), len(kernel.dims) + 2
    rows = f"words.at + {count * params}"
    buffers = [f"({c_type(p.dtype)}*)buffers[{n}]" for n, p in enumerate(kernel.params)]
    dims = [f"row[{2 + n}]" for n in range(len(kernel.dims))]
    arguments = ", ".join((*buffers, *dims, "status", "at - row[0]", "row[1]"))
    bounds = f"__launch_bounds__({stage.threads}) " if stage.threads > 256 else ""
    head = f'extern "C" __global__ void {bounds}{name}'
    return f"""\
struct {name}_words {{ i64 at[{count * (params + row)}]; }};
{head}(const __grid_constant__ {name}_words words, i64* status) {{
  const i64* const rows = {rows};
  const i64 blocks = rows[{(count - 1) * row}] + rows[{(count - 1) * row + 1}];
  for (i64 at = blockIdx.x; at < blocks; at += gridDim.x) {{
    int low = 0, high = {count};
    while (high - low > 1) {{
      const int half = (low + high) / 2;
      if (rows[half * {row}] <= at) low = half; else high = half;
    }}
    const i64* const row = rows + low * {row};
    const i64* const buffers = words.at + low * {params};
    {stage.name}_one({arguments});
    __syncthreads();
  }}
}}
"""


def words(stage: Stage, launches: Sequence[Launch]) -> tuple[tuple[Size, ...], Size]:
    """What follows the buffers of a stage's launches, and their number of blocks together, over the
    program's dims."""
    found: list[Size] = []
    first: Size = 0
    for launch in launches:
        dims = dict(zip(launch.kernel.dims, launch.dims, strict=True))
        blocks = maximum(1, substitute(stage.blocks, dims))
        found += [first, blocks, *launch.dims]
        first = unwrap(first + blocks)
    return tuple(found), first
