"""What threads gain: rows of the suite on one thread and on several, beside the machine itself.

    python benchmarks/threads.py [--only gpt ...] [--threads 2] [--rounds 9] [--seconds 0.1]
                                 [--above 1] [--kernels 5] [--count-only] [--out FILE]

A row has two processes. One keeps a log of the pool's regions (`counted_pool.py`) on one thread:
what runs outside of any region (Python's share is told apart), and what the chunks come to where
each thread claims the next one that is left; this needs no idle machine. The other takes turns: a
call on one thread, a call on several, fused multiply-adds and copies of the machine on either,
round by round. A gain is that of the quickest of each (others may have the cores now and then), and
is held against what the machine gained in the same rounds: in multiply-adds where these bound a
kernel, else in copies, each kernel by its share of the time. Asked is 90% of that on every row
above a millisecond.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "suite"), str(HERE), str(HERE.parent)]

from graphc import config  # noqa: E402

ASKED = 0.9
_WARM = 6  # calls before the first that counts
_COUNTED = 1.0  # seconds of calls, with a log of regions or with a clock around steps
_ROUNDS = 5  # of them at least


@dataclass
class Step:
    """A kernel or routine of the program: its seconds on one thread, those outside of regions, and
    those it would take by its chunks; `bound`: by "FMA" or "copy"."""

    name: str
    bound: str
    seconds: float = 0.0
    serial: float = 0.0
    spanned: float = 0.0
    runs: int = 0
    chunks: int = 1

    @property
    def lost(self) -> float:
        """Seconds beyond an even share of two threads."""
        return self.spanned - self.seconds / 2


@dataclass
class Row:
    """Seconds of a call as counted (`seconds`, `serial`: outside of regions, `spanned`: on the
    threads asked for), and its steps. Times of calls by threads, round by round; the machine's."""

    name: str
    seconds: float
    serial: float
    spanned: float
    steps: list[Step]
    calls: dict[int, list[float]] = field(default_factory=dict)
    machine: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # seconds of its work

    def gain(self) -> float:
        """Of the calls."""
        return _gain(self.calls)

    def gains(self) -> dict[str, float]:
        """Of the machine, by what bounds."""
        return {kind: _gain(times) for kind, times in self.machine.items()}

    def asked(self) -> float:
        """What the machine would gain on a mixture of work like this."""
        gains, total = self.gains(), sum(step.seconds for step in self.steps)
        return total / sum(step.seconds / gains[step.bound] for step in self.steps)

    def in_kernels(self) -> float:
        """Serial seconds of native steps; the rest of what is serial is the call itself."""
        return min(self.serial, sum(step.serial for step in self.steps))


def _gain(times: Mapping[int, list[float]]) -> float:
    one, several = (min(times[threads]) for threads in sorted(times))
    return one / several


# --- in the processes -----------------------------------------------------------------------------


def _start(name: str, threads: int) -> Callable[[], Any]:
    from engines import ENGINES, OURS
    from workloads import every

    call = ENGINES[OURS].start(every()[name], threads, Path())
    count = 0

    def turn() -> None:
        nonlocal count
        call(count)
        count += 1

    for _ in range(_WARM):
        turn()
    return turn


def _counted(name: str, threads: int) -> dict[str, Any]:
    """One thread, with a log: a Row's first half."""
    from counted_pool import Log, fastest, span

    log = Log()
    turn = _start(name, 1)
    log.regions()
    outside, all_regions = [], []
    end = time.perf_counter() + _COUNTED
    while time.perf_counter() < end or len(outside) < _ROUNDS:
        begin = time.perf_counter()
        turn()
        seconds = time.perf_counter() - begin
        all_regions.append(log.regions())
        outside.append(max(0.0, seconds - sum(map(sum, all_regions[-1]))))
    regions, serial = fastest(all_regions), min(outside)
    seconds = serial + sum(map(sum, regions))
    spanned = serial + sum(span(region, threads) for region in regions)
    return asdict(Row(name, seconds, serial, spanned, _steps(turn, log, threads)))


def _steps(turn: Callable[[], None], log: Any, threads: int) -> list[Step]:
    """Those of one call, the runs of a loop together. A clock around a step costs what an empty
    one takes, which is taken off."""
    from counted_pool import fastest, span

    from graphc.backends.host.watched import Steps

    runs: dict[tuple[int, int], tuple[list[Any], list[float]]] = {}  # by step, number of its run
    known: dict[int, tuple[Any, Mapping[str, int]]] = {}
    count: Counter[int] = Counter()

    @contextmanager
    def watch(step: Any, dims: Mapping[str, int]) -> Iterator[None]:
        log.regions()
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        regions = log.regions()
        known[id(step)] = step, dict(dims)
        all_regions, outside = runs.setdefault((id(step), count[id(step)]), ([], []))
        all_regions.append(regions)
        outside.append(max(0.0, seconds - sum(map(sum, regions))))
        count[id(step)] += 1

    Steps.watch = watch
    try:
        end = time.perf_counter() + _COUNTED
        for number in range(10_000):
            if time.perf_counter() > end and number >= _ROUNDS:
                break
            count.clear()
            turn()
    finally:
        Steps.watch = None
    clock = min((min(outside) for _, outside in runs.values()), default=0.0)
    found = {number: _of(step, dims) for number, (step, dims) in known.items()}
    for (number, _), (all_regions, outside) in runs.items():
        step, regions, serial = found[number], fastest(all_regions), min(outside) - clock
        step.runs += 1
        step.serial += serial
        step.seconds += serial + sum(map(sum, regions))
        step.spanned += serial + sum(span(region, threads) for region in regions)
        step.chunks = max(map(len, regions), default=1)
    return list(found.values())


def _of(step: Any, dims: Mapping[str, int]) -> Step:
    """Nothing is counted yet."""
    from graphc.backends.llvm.ceilings import measured
    from graphc.ir.kernel import Launch
    from graphc.profiler.kernels import cost_of

    limits, cost = measured(1, config.current().cache_dir), cost_of(step, dims)
    moved = (cost.read + cost.written) / limits.bytes
    name = step.kernel.name if isinstance(step, Launch) else f"routine {step.op}"
    where = step.locs[0].rpartition("/")[2] if step.locs else ""
    return Step(f"{name} {where}".strip(), "FMA" if cost.flops / limits.flops > moved else "copy")


def _timed(name: str, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Turns of the row and of the machine, on one thread and on several: a Row's second half."""
    import graphc
    from graphc.backends.llvm.ceilings import Limits

    turn = _start(name, threads)
    limits = Limits(threads)
    work: dict[str, Callable[[int], float]] = {"FMA": limits.adding, "copy": limits.copying}

    def called(many: int) -> float:
        graphc.set_num_threads(many)
        turn()  # workers start
        spent = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(spent) < 3:
            begin = time.perf_counter()
            turn()
            spent.append(time.perf_counter() - begin)
        return min(spent)

    calls: dict[int, list[float]] = {1: [], threads: []}
    machine: dict[str, dict[int, list[float]]] = {kind: {1: [], threads: []} for kind in work}
    for number in range(rounds):
        order = (1, threads) if number % 2 else (threads, 1)
        for many in order:
            calls[many].append(called(many))
        for kind, run in work.items():
            for many in order:
                machine[kind][many].append(min(run(many) for _ in range(3)) / many)
    return {"calls": calls, "machine": machine}


# --- what is told ---------------------------------------------------------------------------------


def _ask(mode: str, row: str, args: argparse.Namespace, cache: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--mode", mode, "--only", row, "--threads",
               str(args.threads), "--rounds", str(args.rounds), "--seconds", str(args.seconds)]
    environment = {**os.environ, "GRAPHC_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{row} failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _measured(row: str, args: argparse.Namespace, cache: str) -> Row:
    found = Row(**_ask("counted", row, args, cache))
    found.steps = [Step(**step) for step in map(dict, found.steps)]  # type: ignore[arg-type]
    if not args.count_only:
        times = _ask("timed", row, args, cache)
        found.calls = {int(many): each for many, each in times["calls"].items()}
        found.machine = {
            kind: {int(many): each for many, each in by.items()}
            for kind, by in times["machine"].items()
        }
    return found


def _line(row: Row) -> str:
    kernels, call = row.in_kernels(), row.serial - row.in_kernels()
    cells = [row.name, f"{1e3 * row.seconds:.3g}", f"{100 * kernels / row.seconds:.1f}%",
             f"{100 * call / row.seconds:.1f}%", f"{row.seconds / row.spanned:.2f}"]
    if row.calls:
        gains, asked = row.gains(), row.asked()
        cells += [f"{row.gain():.2f}", f"{gains['FMA']:.2f}", f"{gains['copy']:.2f}",
                  f"{asked:.2f}", f"{100 * row.gain() / asked:.0f}%"]
        if row.gain() < ASKED * asked and row.calls[1]:
            cells[-1] = f"**{cells[-1]}**"
    return "| " + " | ".join(cells) + " |"


def _kernels(row: Row, many: int) -> list[str]:
    """The steps that lose most."""
    losing = sorted(row.steps, key=lambda step: -step.lost)[:many]
    return [
        f"    {1e6 * step.seconds:.0f} us" + f" in {step.runs} runs" * (step.runs > 1)
        + f", {1e6 * step.serial:.0f} on one thread, {step.chunks} chunks, {1e6 * step.lost:.0f} "
        f"lost: {step.name}"
        for step in losing if step.lost > 0.003 * row.seconds
    ]


def main() -> None:
    args = _arguments()
    if args.mode:
        (row,) = args.only
        given = (row, args.threads)
        found = _counted(*given) if args.mode == "counted" else _timed(
            *given, args.rounds, args.seconds
        )
        print(json.dumps(found))
        return
    from workloads import every

    chosen = [row for row in every().values() if (not args.family or row.family in args.family)
              and (not args.only or any(word in row.name for word in args.only))
              and (args.untuned or not row.untuned)]
    heads = ["", "one thread, ms", "serial kernels", "serial call", "by its chunks"]
    if not args.count_only:
        heads += ["gain", "FMA's", "copy's", "asked", "of it"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="graphc-threads-") as cache:
        for row in chosen:
            found = _measured(row.name, args, cache)
            if 1e3 * found.seconds < args.above:
                continue
            lines.append(_line(found))
            print("\n".join([lines[-1], *_kernels(found, args.kernels)]), flush=True)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


def _arguments() -> argparse.Namespace:
    from workloads import FAMILIES

    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose name has one of them")
    parser.add_argument("--family", nargs="+", choices=FAMILIES)
    parser.add_argument("--untuned", action="store_true", help="shapes that nobody tuned on, too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round's calls, each")
    parser.add_argument("--above", type=float, default=1.0, metavar="MS",
                        help="rows that take more")
    parser.add_argument("--kernels", type=int, default=5, help="that lose most, of each row")
    parser.add_argument("--count-only", action="store_true", help="no times of several threads")
    parser.add_argument("--out", type=Path, help="the table, as Markdown")
    parser.add_argument("--mode", choices=("counted", "timed"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
