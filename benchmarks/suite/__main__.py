"""graphc against all peers that are installed, on a CPU: times, first calls, memory.

    python benchmarks/suite [--only softmax ...] [--threads 1 2] [--rounds 5] [--out docs]

Peers: PyTorch (eager, channels-last, torch.compile), ONNX Runtime, OpenVINO, JAX. Each round starts
a fresh process of each engine; they take turns. What is printed as the ratio is the best peer's
median over graphc's, with the interval of 95% of resampled rounds. `--out` writes benchmarks.md and
benchmarks.svg there; `--rows` keeps every figure and goes on where it stopped: the same command,
after `--minutes` or an interruption, or with more `--rounds`, measures what is missing. An engine
that dies, or takes longer than `--limit`, has failed on that row, and the others go on. With
`--drop 1.3` a peer whose rounds so far took more than 1.3 times the best peer's gets no further
ones of that row (take the first with `--rounds 1`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]),
                str(Path(__file__).parents[2])]

from engines import OURS, OURS_LAST  # noqa: E402
from kept import Kept  # noqa: E402
from measure import Found, contenders, installed, measure, ratio, taking  # noqa: E402
from report import WRONG, Row, fingerprint, plot, table  # noqa: E402
from workloads import FAMILIES, Workload, every  # noqa: E402

from graphc.backends.llvm.ceilings import measured  # noqa: E402


def main() -> int:
    args = _arguments()
    rows = every()
    chosen = [
        row for row in rows.values()
        if (not args.family or row.family in args.family)
        and (not args.only or any(word in row.name for word in args.only))
        and (args.untuned or not row.untuned)
    ]
    if not chosen:
        raise SystemExit(f"no workload is called that; there are {', '.join(rows)}")
    if args.list:
        print("\n".join(row.name for row in chosen))
        return 0
    engines = installed(args.engines)
    print(f"{fingerprint()}; engines: {', '.join(engines)}", file=sys.stderr)
    kept = Kept(args.rows, rows)
    left = _measure_all(args, chosen, engines, kept)
    done = [(row, threads, kept.rows[row.name, threads])
            for threads in sorted({threads for _, threads in kept.rows})
            for row in rows.values() if (row.name, threads) in kept.rows]
    text = _head(kept, args.drop) + table(done, kept.limits) + "\n"
    if args.out:
        args.out.mkdir(exist_ok=True)
        (args.out / "benchmarks.md").write_text(text)
        plot(done, args.out / "benchmarks.svg")
    print(text)
    if left:
        print(f"{left} rows are left: the same command goes on", file=sys.stderr)
    return _failures(done)


def _measure_all(
    args: argparse.Namespace, chosen: list[Workload], engines: list[str], kept: Kept
) -> int:
    """How many rows were left for want of time."""
    end = time.monotonic() + 60 * args.minutes
    todo = []
    for threads in args.threads:
        for row in chosen:
            found = kept.rows.get((row.name, threads), {})
            near = contenders(found, taking(row, engines), args.drop)
            if (more := args.rounds - kept.rounds(row.name, threads, near)) > 0:
                todo.append((row, threads, near, more))
    for threads in dict.fromkeys(threads for _, threads, _, _ in todo):
        if threads not in kept.limits:
            kept.add_limits(threads, measured(threads))
    for number, (row, threads, near, more) in enumerate(todo):
        if time.monotonic() > end:
            return len(todo) - number
        kept.add(
            row.name, threads,
            measure(row, near, threads, more, args.seconds, args.limit, args.exported),
        )
        _tell(row, threads, kept.rows[row.name, threads])
    return 0


def _failures(done: list[Row]) -> int:
    """1 where graphc failed, or its values are others than PyTorch's."""
    found = 0
    for row, threads, entries in done:
        for name in (OURS, OURS_LAST):
            ours = entries.get(name)
            if ours is not None and (ours.failed or ours.wrong > WRONG):
                found = 1
                told = ours.failed or ours.wrong
                print(f"{name} on {row.name}, {threads}: {told}", file=sys.stderr)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/suite", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose name has one of them")
    parser.add_argument("--family", nargs="+", choices=FAMILIES)
    parser.add_argument("--untuned", action="store_true", help="shapes that nobody tuned on, too")
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="of all that are installed")
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=5,
                        help="fresh processes of each engine, those in --rows counted; 0: a report")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each process in a round")
    parser.add_argument("--drop", type=float, default=float("inf"), metavar="TIMES",
                        help="peers so much slower than the best one get no further rounds")
    parser.add_argument("--minutes", type=float, default=float("inf"),
                        help="no row is begun after so many")
    parser.add_argument("--limit", type=float, default=300.0,
                        help="seconds in which an engine has to answer, compiling included")
    parser.add_argument("--rows", type=Path, help="file of JSON lines: kept, and gone on with")
    parser.add_argument("--exported", type=Path, metavar="FOLDER",
                        help="keeps what peers read (ONNX files) for the next time")
    parser.add_argument("--out", type=Path, help="folder of benchmarks.md and benchmarks.svg")
    parser.add_argument("--list", action="store_true", help="print the rows' names alone")
    return parser.parse_args()


def _tell(row: Workload, threads: int, found: dict[str, Found]) -> None:
    """A line of one row, at once."""
    against = ratio(found)
    times = ", ".join(
        f"{name} " + (f"failed ({entry.failed})" if entry.failed else
                      f"{1e3 * sorted(entry.seconds)[len(entry.seconds) // 2]:.4g} ms"
                      + (" differs" if entry.wrong > WRONG else ""))
        for name, entry in found.items()
    )
    judged = f"{against.median:.2f} of {against.peer}" if against else ""
    print(f"{row.name}, {threads}: {judged} [{times}]", file=sys.stderr, flush=True)


def _head(kept: Kept, drop: float) -> str:
    said = "; ".join(
        f"{count} thread{'s' * (count > 1)}: {one.flops / 1e9:.0f} GFLOP/s of multiply-adds, "
        f"{one.bytes / 1e9:.1f} GB/s copied" for count, one in sorted(kept.limits.items())
    )
    rounds = sorted({len(entry.seconds) for found in kept.rows.values()
                     for entry in found.values() if entry.seconds})
    many = "-".join(map(str, dict.fromkeys((rounds[0], rounds[-1])))) if rounds else "0"
    dropped = "" if drop == float("inf") else (
        f" Peers that took more than {drop:g} times the best one's time have fewer rounds."
    )
    return (
        "# graphc against its peers, on a CPU\n\n"
        f"`python benchmarks/suite`, {time.strftime('%Y-%m-%d %H:%M')}. {fingerprint()}.\n\n"
        f"Limits measured in the same run: {said}.\n\n"
        "Milliseconds of a call, float32: medians over fresh processes of the median of each "
        f"({many} rounds, interleaved), in brackets the interval that has 95% of resampled rounds. "
        "A ratio above 1: graphc is faster than the best peer; in bold where the whole 95% "
        "interval is below 0.95. Memory: the processes' peak, with all that they imported. "
        "\"differs\": values more than 1% from PyTorch's."
        f"{dropped}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
