"""The file of rows: what was measured, a JSON line for each time that a row was; later lines add to
earlier ones, so that rounds can be taken in several sessions of the same machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from measure import Found
from workloads import Workload

LIMITS = "limits of the machine"  # in the place of a row's name


class Limits(NamedTuple):
    """What the machine did at most: bytes copied and multiply-adds' operations, a second."""

    bytes: float
    flops: float


class Kept:
    """`rows`: by row and threads, each engine's Found. `limits`: by threads."""

    def __init__(self, path: Path | None, known: dict[str, Workload]) -> None:
        self._path = path
        self.rows: dict[tuple[str, int], dict[str, Found]] = {}
        self.limits: dict[int, Limits] = {}
        if path is None or not path.exists():
            return
        for line in path.read_text().splitlines():
            try:
                name, threads, found = json.loads(line)
            except ValueError:  # a session that was ended while it wrote
                continue
            if name == LIMITS:
                self.limits[threads] = Limits(*found)
            elif name in known:
                self._merge(name, threads, {n: Found(**entry) for n, entry in found.items()})

    def rounds(self, name: str, threads: int, engines: list[str]) -> int:
        """How many rounds each of the engines has; one that failed has them all."""
        found = self.rows.get((name, threads), {})
        counts = [len(found[engine].seconds) if engine in found else 0 for engine in engines
                  if engine not in found or not found[engine].failed]
        return min(counts, default=sys.maxsize)

    def add(self, name: str, threads: int, found: dict[str, Found]) -> None:
        """Rounds of a row."""
        self._merge(name, threads, found)
        self._append([name, threads, {n: entry.record() for n, entry in found.items()}])

    def add_limits(self, threads: int, limits: Any) -> None:
        """Of the machine."""
        self.limits[threads] = Limits(limits.bytes, limits.flops)
        self._append([LIMITS, threads, list(self.limits[threads])])

    def _merge(self, name: str, threads: int, found: dict[str, Found]) -> None:
        row = self.rows.setdefault((name, threads), {})
        for engine, entry in found.items():
            row[engine] = row[engine].and_(entry) if engine in row else entry

    def _append(self, line: list[Any]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                print(json.dumps(line), file=file)
