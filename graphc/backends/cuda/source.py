"""What is emitted for a kernel: CUDA C, its launches in order, and what it was emitted for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.prelude import PRELUDE
from graphc.ir.dim import Dim, Size, evaluate

SHARED_MOST = 227 << 10  # bytes that a block may have, on sm_90
_SHARED = {80: 163 << 10, 87: 163 << 10, 90: SHARED_MOST, 100: SHARED_MOST, 103: SHARED_MOST}
_SHARED_ELSEWHERE = 99 << 10  # sm_86, sm_89, sm_120
GRID_MOST = (1 << 31) - 1
# What NVRTC takes, about: for any text, and for each character of it behind the prelude. A process
# is begun for so many seconds of its work, and gets so many texts, so that all end together.
_SECONDS_OF_TEXT, _SECONDS = 0.02, 3e-5
_WORTH, _PARTS = 0.3, 3


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture that NVRTC knows ("sm_80", "sm_90", "sm_90a"). The order of arithmetic does
    not depend on it, but for attention's on sm_90a, whose tiles are larger; which instructions a
    template uses may, and where loops keep their Locals. `limit`: bytes of shared memory that a
    block may have, where that is not the architecture's."""

    architecture: str
    limit: int | None = None

    @property
    def shared(self) -> int:
        """Bytes that a block may have."""
        if self.limit is not None:
            return self.limit
        number = re.match(r"sm_(\d+)", self.architecture)
        return _SHARED.get(int(number[1]) if number else 0, _SHARED_ELSEWHERE)


OLDEST = Target("sm_80")


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch: the function's name, its number of blocks over the kernel's dims, the threads of
    a block, and its bytes of dynamic shared memory (more than 48 KiB have to be asked for)."""

    name: str
    blocks: Size
    threads: int
    shared: int


@dataclass(frozen=True, slots=True)
class Source:
    """CUDA C and its launches, in order. Every function takes the buffers in order of params, the
    dims as i64, the values of `sizes` as i64, the status words (see the fail function in the
    prelude), and, where `scratch` is not 0, the address of so many bytes over the kernel's dims,
    aligned to 256, which hold nothing before the first launch and are free behind the last.

    `sizes`, over the kernel's dims, is what a template's text leaves open: kernels of many shapes
    have one text, which is compiled once; functions are named by it."""

    text: str
    stages: tuple[Stage, ...]
    scratch: Size = 0
    sizes: tuple[Size, ...] = ()


def batch(sources: Iterable[Source]) -> str:
    """One text of several kernels, which compiles in half of their time. Their functions keep their
    names; equal texts are one."""
    texts = dict.fromkeys(source.text.removeprefix(PRELUDE) for source in sources)
    parts = [f"inline namespace part{n} {{\n{text}}}" for n, text in enumerate(texts)]
    return "\n".join((PRELUDE, *parts, ""))


def shared_out(sources: Sequence[Source], processes: int) -> list[list[Source]]:
    """What is compiled as one text each, by so many processes: texts that take long alone, others
    together; where there is little to compile, or one process, all together."""
    seconds = {id(source): _SECONDS_OF_TEXT + _SECONDS * _own(source) for source in sources}
    whole = sum(seconds.values())
    count = min(processes, int(whole / _WORTH))
    if count < 2:
        return [list(sources)]
    share = whole / (_PARTS * count)
    groups: list[list[Source]] = []
    room = 0.0
    for source in sorted(sources, key=lambda source: -seconds[id(source)]):
        if seconds[id(source)] > room:
            groups.append([])
            room = share
        groups[-1].append(source)
        room -= seconds[id(source)]
    return groups


def _own(source: Source) -> int:
    return len(source.text.removeprefix(PRELUDE))


def grid(stage: Stage, dims: Sequence[tuple[str, int]]) -> int:
    """The number of blocks of a launch for given dims: at least one, where there is nothing to do,
    and no more than a grid may have. Blocks walk on by the size of the grid."""
    blocks = stage.blocks
    number = evaluate(blocks, dict(dims)) if isinstance(blocks, Dim) else blocks
    return min(max(1, number), GRID_MOST)
