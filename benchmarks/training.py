"""Time of a training step: PyTorch eager (and torch.compile), graphc eager, graphc compiled.

    python benchmarks/training.py [--models mlp gpt] [--threads 1 2] [--rounds 7] [--inductor]

Each engine has a process of its own; rounds are interleaved, so that a slow minute of the machine
hits all. Same seed, same weights, same batches: losses are compared. A step is zero_grad, forward,
backward and the optimizer's update; the table shows medians and quartiles in milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import time

from engines import ENGINES, Worker, spread
from models import NAMES

ROUND_SECONDS = 0.7  # of each engine in each round


def measure(model: str, engines: list[str], threads: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of single steps by engine."""
    workers = {engine: Worker(engine, model, threads) for engine in engines}
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    losses: dict[str, list[float]] = {engine: [] for engine in engines}
    counts: dict[str, int] = {}
    try:
        for engine, worker in workers.items():
            losses[engine].append(worker.ask("first")["loss"])
            warm = worker.ask("steps", count=2)["seconds"]
            counts[engine] = max(2, min(200, int(ROUND_SECONDS / max(warm[-1], 1e-5))))
        for _ in range(rounds):
            for engine, worker in workers.items():
                seconds[engine] += worker.ask("steps", count=counts[engine])["seconds"]
    finally:
        for worker in workers.values():
            worker.close()
    _compare(model, losses)
    return seconds


def _compare(model: str, losses: dict[str, list[float]]) -> None:
    """The first step's loss must be the same number on every engine."""
    (reference, *_), *_ = losses.values()
    for engine, (found, *_) in losses.items():
        if abs(found - reference) > 1e-3 * max(1.0, abs(reference)):
            print(f"WARNING: {model}: first loss {found} on {engine}, not {reference}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--inductor", action="store_true", help="torch.compile as well")
    parser.add_argument("--skip-eager", action="store_true", help="leave graphc eager out")
    args = parser.parse_args()
    engines = [
        engine for engine in ENGINES
        if (engine != "torch.compile" or args.inductor)
        and (engine != "graphc eager" or not args.skip_eager)
    ]
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, {args.rounds} rounds; ms per step: median "
          "(quartiles), and PyTorch eager's time over it")
    print("| model | threads | " + " | ".join(engines) + " |")
    print("|---" * (2 + len(engines)) + "|")
    for model in args.models:
        for threads in args.threads:
            found = measure(model, engines, threads, args.rounds)
            base = spread(found["torch"])[0]
            cells = []
            for engine in engines:
                middle, low, high = (1e3 * value for value in spread(found[engine]))
                ratio = 1e3 * base / middle
                cells.append(f"{middle:.2f} ({low:.2f}-{high:.2f}) {ratio:.2f}x")
            print(f"| {model} | {threads} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
