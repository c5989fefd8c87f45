"""How many CPUs this process may use: those it may run on, or fewer where a cgroup has a quota.

A container is often given a share of a machine's time and not some of its CPUs. Threads beyond
that share stop all together until the next period begins, and whoever waits for them waits, too.

Sources: man 5 proc (cgroup, mountinfo), the kernel's Documentation/admin-guide/cgroup-v2.rst
(cpu.max) and scheduler/sched-bwc.rst (cpu.cfs_quota_us of the first version).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def available(root: Path = Path("/")) -> int:
    """At least 1. `root`: where /proc and the mounts are."""
    count = len(allowed())
    share = quota(root)
    return count if share is None else max(1, min(count, int(share)))


def allowed() -> set[int]:
    """The CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def quota(root: Path = Path("/")) -> float | None:
    """The smallest quota of the cgroups that this process is in, in CPUs; None: there is none."""
    found = [share for folder in _cgroups(root) if (share := _share(folder)) is not None]
    return min(found, default=None)


def _cgroups(root: Path) -> Iterator[Path]:
    """The folders of the process's cgroups that say something of CPUs, and those above them."""
    mounts = list(_mounts(root))
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        kind = "cgroup" if controllers else "cgroup2"
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mounted, top, place in mounts:
            if mounted == kind:
                yield from _below(root / place.lstrip("/"), PurePosixPath(path), top)


def _below(place: Path, path: PurePosixPath, top: str) -> Iterator[Path]:
    """The folders from a mount on down to a cgroup. `top`: the cgroup that is mounted there."""
    inside = path.relative_to(top) if path.is_relative_to(top) else PurePosixPath()
    folder = place
    yield folder
    for part in inside.parts:
        folder /= part
        yield folder


def _mounts(root: Path) -> Iterator[tuple[str, str, str]]:
    """Where cgroups are seen: the version, which of them, and the folder."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        if kinds[0] == "cgroup2" or (kinds[0] == "cgroup" and "cpu" in kinds[2].split(",")):
            yield kinds[0], fields[3], fields[4]


def _share(folder: Path) -> float | None:
    """The quota of one cgroup."""
    words = _words(folder / "cpu.max")
    if not words:
        words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    limit, period = words if len(words) == 2 else ("", "")
    if not (limit.isdecimal() and period.isdecimal()) or int(period) == 0:  # "max", "-1", no file
        return None
    return int(limit) / int(period)


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
