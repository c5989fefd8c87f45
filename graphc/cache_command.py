"""`python -m graphc cache list|explain|clear`: what earlier processes have kept."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from graphc import backends, config
from graphc.backends.host.store import Stored, clear, stored
from graphc.engine import pipeline

ACTIONS = {
    "list": "the files by kind, and the newest programs",
    "explain": "each program: its kernels, its memory, whether it still is what would be compiled",
    "clear": "remove all of it; nothing is lost but time",
}
_KINDS = {
    ".program": "linked programs", ".o": "compiled kernels", ".limits": "measured limits",
    ".cubin": "kernels for GPUs", ".pool": "linked thread pools",
    ".linked": "linked code beside programs", ".timed": "timed choices for GPUs",
    ".target": "what LLVM says of the CPU", ".modules": "graphc's own modules, for starts",
}
_SHOWN = 20  # programs that `list` names


def main(action: str) -> int:
    """One action; the exit status."""
    directory = config.current().cache_dir
    if directory is None:
        print("nothing is kept: GRAPHC_CACHE_DIR=off, or there is no home")
        return 0
    if action == "clear":
        count, size = clear(directory)
        print(f"removed {count} files, {_bytes(size)}, from {directory}")
        return 0
    for line in _explained() if action == "explain" else _listed(directory, stored(directory)):
        print(line)
    return 0


def _listed(directory: Path, files: list[Stored]) -> Iterator[str]:
    yield f"{directory}: {len(files)} files, {_bytes(sum(each.size for each in files))}"
    kinds: dict[str, list[Stored]] = defaultdict(list)
    for each in files:
        kinds[each.kind].append(each)
    for kind, found in sorted(kinds.items()):
        total = _bytes(sum(each.size for each in found))
        yield f"  {len(found):5} {_KINDS.get(kind, kind)}, {total}"
    programs = sorted(_programs(), key=lambda each: -each.used)
    for program in programs[:_SHOWN]:
        yield f"  {program.title}, used {ago(program.used)}"
    if len(programs) > _SHOWN:
        yield f"  ... and {len(programs) - _SHOWN} programs more"


def _explained() -> Iterator[str]:
    programs = sorted(_programs(), key=lambda each: -each.used)
    if not programs:
        yield "no programs are kept"
    for program in programs:
        yield f"{program.title}, used {ago(program.used)}"
        yield from (f"    {line}" for line in program.lines)


def _programs() -> Iterator[backends.KeptProgram]:
    keeper = getattr(backends.get(backends.DEFAULT), "keeper", None)
    found = None if keeper is None else keeper(pipeline.host(config.current()))
    if found is not None:
        yield from found.programs()


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def ago(moment: float) -> str:
    """How long ago, in the largest unit."""
    seconds = max(time.time() - moment, 0.0)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' * (count > 1)} ago"
    return "just now"
