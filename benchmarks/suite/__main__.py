"""graphc against all peers that are installed, on a CPU: times, first calls, memory.

    python benchmarks/suite [--only softmax ...] [--threads 1 2] [--rounds 5] [--out docs]

Peers: PyTorch (eager, channels-last, torch.compile), ONNX Runtime, OpenVINO, JAX. Each round starts
a fresh process of each engine; they take turns. What is printed as the ratio is the best peer's
median over graphc's, with the interval of 95% of resampled rounds. `--out` writes benchmarks.md and
benchmarks.svg there; `--rows` keeps every figure, a JSON line a row, and goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]),
                str(Path(__file__).parents[2])]

from measure import Found, installed, measure, ratio  # noqa: E402
from report import Row, fingerprint, plot, table  # noqa: E402
from workloads import FAMILIES, every  # noqa: E402


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
    done = _read(args.rows, rows)
    for row in chosen:
        for threads in args.threads:
            if any(r.name == row.name and t == threads for r, t, _ in done):
                continue
            found = measure(row, engines, threads, args.rounds, args.seconds)
            done.append((row, threads, found))
            _tell(done[-1])
            if args.rows:
                with args.rows.open("a") as file:
                    records = {name: entry.record() for name, entry in found.items()}
                    print(json.dumps([row.name, threads, records]), file=file)
    limits = _limits(sorted({threads for _, threads, _ in done}))
    text = _head(args, limits) + table(done, limits) + "\n"
    if args.out:
        args.out.mkdir(exist_ok=True)
        (args.out / "benchmarks.md").write_text(text)
        plot(done, args.out / "benchmarks.svg")
    print(text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/suite", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose name has one of them")
    parser.add_argument("--family", nargs="+", choices=FAMILIES)
    parser.add_argument("--untuned", action="store_true", help="shapes that nobody tuned on, too")
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="of all that are installed")
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes of each engine")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each process in a round")
    parser.add_argument("--rows", type=Path, help="file of JSON lines: kept, and gone on with")
    parser.add_argument("--out", type=Path, help="folder of benchmarks.md and benchmarks.svg")
    parser.add_argument("--list", action="store_true", help="print the rows' names alone")
    return parser.parse_args()


def _read(path: Path | None, rows: dict[str, Any]) -> list[Row]:
    if path is None or not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(rows[name], threads, {n: Found(**f) for n, f in found.items()})
            for name, threads, found in lines if name in rows]


def _tell(row: Row) -> None:
    """A line of one row, at once."""
    workload, threads, found = row
    against = ratio(found)
    times = ", ".join(
        f"{name} " + (f"failed ({entry.failed})" if entry.failed else
                      f"{1e3 * sorted(entry.seconds)[len(entry.seconds) // 2]:.4g} ms")
        for name, entry in found.items()
    )
    judged = f"{against.median:.2f} of {against.peer}" if against else ""
    print(f"{workload.name}, {threads}: {judged} [{times}]", file=sys.stderr, flush=True)


def _limits(threads: list[int]) -> dict[int, Any]:
    from graphc.backends.llvm.ceilings import measured

    return {count: measured(count) for count in threads}


def _head(args: argparse.Namespace, limits: dict[int, Any]) -> str:
    said = "; ".join(
        f"{count} thread{'s' * (count > 1)}: {one.flops / 1e9:.0f} GFLOP/s of multiply-adds, "
        f"{one.bytes / 1e9:.1f} GB/s copied" for count, one in limits.items()
    )
    return (
        "# graphc against its peers, on a CPU\n\n"
        f"`python benchmarks/suite`, {time.strftime('%Y-%m-%d %H:%M')}. {fingerprint()}.\n\n"
        f"Limits measured in the same run: {said}.\n\n"
        "Milliseconds of a call, float32: medians over fresh processes of the median of each "
        f"({args.rounds} rounds, interleaved). A ratio above 1: graphc is faster than the best "
        "peer; in bold where the whole 95% interval is below 0.95. \"differs\": values more than "
        "1% from PyTorch's.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
