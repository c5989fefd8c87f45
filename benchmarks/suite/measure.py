"""Rounds of fresh processes: in each, every engine gets one, and they take turns."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from engines import ENGINES, ON_REQUEST, OURS, OURS_LAST
from worker import HERE, ROOT, Worker
from workloads import Workload

READERS = {"onnxruntime", "openvino", "jax"}  # of what files.py writes
TURNS = 4  # of each process in a round
TIMED_STARTS = 3  # rounds whose first calls are measured: with empty caches, then with full ones


@dataclass
class Found:
    """What was measured of one engine on one row; a number of each round's process.

    seconds: the median call. cold, warm: the first call with empty caches, and with those of the
    process before. started: from the process's start to the first result, warm.
    """

    seconds: list[float] = field(default_factory=list)
    cold: float | None = None
    cold_started: float | None = None
    warm: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    bytes: int = 0
    failed: str = ""
    wrong: float = 0.0  # the largest difference from PyTorch's values, over their size

    def record(self) -> dict[str, Any]:
        return asdict(self)

    def and_(self, other: Found) -> Found:
        """With the rounds of another time."""
        return Found(
            self.seconds + other.seconds,
            other.cold if self.cold is None else self.cold,
            other.cold_started if self.cold_started is None else self.cold_started,
            self.warm + other.warm, self.started + other.started, max(self.bytes, other.bytes),
            self.failed or other.failed, max(self.wrong, other.wrong),
        )


def installed(wanted: list[str] | None) -> list[str]:
    """The engines that can be imported here, ours last; those asked for must be there."""
    there = [
        name for name, engine in ENGINES.items()
        if importlib.util.find_spec(engine.module) is not None
    ]
    for name in wanted or ():
        if name not in ENGINES:
            raise SystemExit(f"no engine {name!r}; there are {', '.join(ENGINES)}")
        if name not in there:
            raise SystemExit(f"{name} is asked for, but {ENGINES[name].module} is not installed")
    return [name for name in there if name in wanted] if wanted else [
        name for name in there if name not in ON_REQUEST
    ]


def taking(row: Workload, engines: list[str]) -> list[str]:
    """Those that have a row's work."""
    return [name for name in engines if ENGINES[name].takes(row)]


def contenders(found: dict[str, Found], engines: list[str], drop: float) -> list[str]:
    """Of a row's engines: ours, and peers that `found` does not show to take more than `drop` times
    the best peer's time."""
    medians = {
        name: float(np.median(entry.seconds)) for name, entry in found.items()
        if name not in (OURS, *ON_REQUEST) and entry.seconds and not entry.failed
    }
    most = drop * min(medians.values(), default=0.0)
    return [name for name in engines if name not in medians or medians[name] <= most]


def measure(
    row: Workload, engines: list[str], threads: int, rounds: int, seconds: float, limit: float,
    exported: Path | None = None,
) -> dict[str, Found]:
    """By engine; `seconds`: of each process's turns together, in a round. An engine that takes more
    than `limit` seconds for an answer (starting and compiling are the first one's) has failed.
    `exported`: a folder where what peers read is kept, and taken from if it is there."""
    engines = taking(row, engines)
    found = {name: Found() for name in engines}
    with tempfile.TemporaryDirectory(prefix="graphc-suite-") as folder:
        caches = Path(folder)
        files = caches if exported is None else exported / re.sub(r"\W+", "-", row.name)
        files.mkdir(parents=True, exist_ok=True)
        if importlib.util.find_spec("torch") is not None and READERS & set(engines):
            problem = _files(row, files, limit)
            for name in ("onnxruntime", "openvino"):
                if problem and name in found:
                    found[name].failed = problem
        for name in engines:
            (caches / name).mkdir()
        for number in range(rounds):
            _round(row, threads, number, seconds, limit, caches, files, found)
    return found


def _files(row: Workload, folder: Path, limit: float) -> str:
    """What went wrong with the export; "" if nothing did, or it has been done."""
    finished = folder / "finished"
    if finished.exists():
        return ""
    path = f"{ROOT}:{ROOT / 'benchmarks'}:{HERE}"
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "files.py"), row.name, str(folder)], text=True,
            capture_output=True, env={**os.environ, "PYTHONPATH": path}, timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"not exported in {limit:g} s"
    if done.returncode or (row.exports and not (folder / "model.onnx").exists()):
        return f"not exported: {done.stderr.strip()[-200:]}"
    finished.touch()
    return ""


def _round(
    row: Workload, threads: int, number: int, seconds: float, limit: float, caches: Path,
    files: Path, found: dict[str, Found],
) -> None:
    values: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    with ExitStack() as closing:
        workers: dict[str, Worker] = {}

        def start(name: str) -> None:
            workers[name] = Worker(name, row.name, threads, caches / name, files, limit)
            closing.callback(workers[name].close)

        names = [name for name in _turned(list(found), number) if not found[name].failed]
        if number >= TIMED_STARTS:  # they may get in each other's way
            for name in names:
                start(name)
        for name in names:
            if number < TIMED_STARTS:
                start(name)
            with _excused(found[name]):
                answer = workers[name].ask("first")
                values[name] = answer["values"]
                _first(found[name], answer["seconds"], workers[name].since_start(), number)
        for turn in range(TURNS):
            for name in _turned(names, turn):
                if found[name].failed:
                    continue
                with _excused(found[name]):
                    spent.setdefault(name, []).extend(
                        workers[name].ask("sample", seconds=seconds / TURNS)["seconds"]
                    )
        for name, worker in workers.items():
            if not found[name].failed:
                with _excused(found[name]):
                    found[name].bytes = max(found[name].bytes, worker.ask("memory")["bytes"])
    for name, samples in spent.items():
        if not found[name].failed:
            found[name].seconds.append(float(np.median(samples)))
    _compare(values, found)


def _first(entry: Found, seconds: float, started: float, number: int) -> None:
    if number == 0:
        entry.cold, entry.cold_started = seconds, started
    elif number < TIMED_STARTS:
        entry.warm.append(seconds)
        entry.started.append(started)


class _excused:
    """An engine that dies has no figures; the others go on."""

    def __init__(self, entry: Found) -> None:
        self.entry = entry

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, RuntimeError):
            return False
        self.entry.failed = str(error)
        return True


def _turned(names: list[str], by: int) -> list[str]:
    by %= len(names) or 1
    return names[by:] + names[:by]


def _compare(values: dict[str, list[float]], found: dict[str, Found]) -> None:
    """Every engine must have computed the same thing."""
    if "torch" not in values:
        return
    right = np.array(values["torch"])
    size = max(1e-6, float(np.abs(right).max()))
    for name, given in values.items():
        if len(given) != len(right):
            found[name].failed = f"{len(given)} values where PyTorch gives {len(right)}"
            continue
        with np.errstate(invalid="ignore"):
            wrong = float(np.nanmax(np.abs(np.array(given) - right))) / size
        found[name].wrong = max(found[name].wrong, wrong)


@dataclass(frozen=True)
class Ratio:
    """The best peer's time over ours: its median, and the interval that has 95% of resamples.
    `ours`: of images as given, or with their channels last, where that was measured and is quicker,
    as PyTorch's is."""

    peer: str
    ours: str
    median: float
    low: float
    high: float


def ratio(found: dict[str, Found]) -> Ratio | None:
    """None where either side is missing."""
    known = {
        name: entry.seconds for name, entry in found.items() if entry.seconds and not entry.failed
    }
    peers = [name for name in known if name not in (OURS, *ON_REQUEST)]
    ours = [name for name in (OURS, OURS_LAST) if name in known]
    if OURS not in known or not peers:
        return None
    best, own = (
        min(names, key=lambda name: float(np.median(known[name]))) for names in (peers, ours)
    )
    theirs, mine = np.array(known[best]), np.array(known[own])
    low, high = interval(np.divide(*map(_resampled, (theirs, mine), (0, 1))))
    return Ratio(best, own, float(np.median(theirs) / np.median(mine)), low, high)


def interval(medians: np.ndarray) -> tuple[float, float]:
    """That has 95% of them."""
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def interval_of(seconds: list[float]) -> tuple[float, float]:
    """Of the median of the rounds: that which has 95% of resamples."""
    return interval(_resampled(np.array(seconds), 0))


def _resampled(seconds: np.ndarray, seed: int) -> np.ndarray:
    """Medians of as many of them as there are, drawn with repetition."""
    drawn = np.random.default_rng(seed).choice(seconds, (2000, len(seconds)))
    return np.asarray(np.median(drawn, 1))
