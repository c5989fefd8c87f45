"""Eager mode: a training step of a small MLP, and single operators, against PyTorch.

    python benchmarks/eager.py [--rounds 7] [--threads 1]

The step: zero_grad, forward, cross entropy, backward and Adam of 784-256-128-10 at batch 64.
Operators on 4 numbers, with and without a recorded gradient, show what a call costs. Each
engine is in a process of its own; rounds are interleaved.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from engines import ROOT, spread

PACKAGES = ("torch", "graphc")


def step_of(torch: Any) -> Callable[[], None]:
    """One training step of the MLP."""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def operators_of(torch: Any) -> dict[str, Callable[[], Any]]:
    """Small calls, by what they are."""
    x, y = torch.rand(4), torch.rand(4)
    w = torch.rand(4, requires_grad=True)
    a, b = torch.rand(4, 4), torch.rand(4, 4)
    return {
        "x + y": lambda: x + y,
        "x.exp()": lambda: x.exp(),
        "x.sum()": lambda: x.sum(),
        "x[1:3]": lambda: x[1:3],
        "a @ b": lambda: a @ b,
        "x.add_(y)": lambda: x.add_(y),
        "w * y": lambda: w * y,
        "(w * y).sum().backward()": lambda: (w * y).sum().backward(),
        "softmax(a)": lambda: torch.softmax(a, 1),
        "cat([x, y])": lambda: torch.cat([x, y]),
    }


def _worker(package: str, threads: int) -> None:
    """Answer each line with the microseconds of every piece of work."""
    torch: Any = importlib.import_module(package)
    torch.set_num_threads(threads)
    works = {"step": step_of(torch), **operators_of(torch)}
    for work in works.values():
        for _ in range(50):
            work()
    for _ in sys.stdin:
        found = {}
        for name, work in works.items():
            count = 50 if name == "step" else 1000
            start = time.perf_counter()
            for _ in range(count):
                work()
            found[name] = 1e6 * (time.perf_counter() - start) / count
        print(json.dumps(found), flush=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worker", choices=PACKAGES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _worker(args.worker, args.threads)
        return 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(args.threads)}
    workers = {
        package: subprocess.Popen(
            [sys.executable, __file__, "--worker", package, "--threads", str(args.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for package in PACKAGES
    }
    times: dict[str, dict[str, list[float]]] = {}
    for _ in range(args.rounds):
        for package, worker in workers.items():
            assert worker.stdin is not None and worker.stdout is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            for name, value in json.loads(worker.stdout.readline()).items():
                times.setdefault(name, {}).setdefault(package, []).append(value)
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    print(f"{'us, median (quartiles)':<26}{'torch':>26}{'graphc':>26}{'ratio':>8}")
    for name, by_package in times.items():
        cells, middles = "", []
        for package in PACKAGES:
            middle, low, high = spread(by_package[package])
            middles.append(middle)
            cells += f"{f'{middle:.1f} ({low:.1f}-{high:.1f})':>26}"
        print(f"{name:<26}{cells}{middles[1] / middles[0]:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
