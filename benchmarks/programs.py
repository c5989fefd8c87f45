"""Whole programs, unmodified: what a step takes under `run --eager` and `run --compile`.

    python benchmarks/programs.py [--programs mnist vae] [--rounds 5] [--steps 20] [--profile NAME]

Each engine runs a program in a process of its own, one thread; rounds are interleaved. The first
`--warm` steps (compilation) are left out. Medians of a step's processor time in milliseconds, and
over PyTorch's.
`--profile`: where the time of a step goes under --compile.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from engines import ROOT
from program_scripts import PROGRAMS as TUNED
from program_scripts_others import OTHERS

sys.path.insert(0, str(ROOT))

ENGINES = ("torch", "eager", "compile")
PROGRAMS = TUNED | OTHERS
GOAL, LIMIT = 0.7, 1.2  # of PyTorch's time: the median over programs, and each of them


def make(engine: str, name: str) -> Any:
    """A program's step on an engine, in this process."""
    package = "torch" if engine == "torch" else "graphc"
    if engine != "torch":  # as `python -m graphc run` does
        importlib.import_module("graphc.compat").install()
    torch: Any = importlib.import_module(package)
    if engine == "compile":
        importlib.import_module("graphc.compat.modes").enter("compile")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    space = SimpleNamespace(
        torch=torch, nn=importlib.import_module(f"{package}.nn"),
        F=importlib.import_module(f"{package}.nn.functional"),
    )
    return PROGRAMS[name](space)


def serve(engine: str, name: str, warm: int) -> None:
    """Warm up, then time as many steps as each line of standard input asks for."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    step = make(engine, name)
    losses = [step(i) for i in range(warm)]
    print(json.dumps(losses), file=answers, flush=True)
    done = warm
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.process_time()
            step(done)
            times.append(time.process_time() - start)
            done += 1
        print(json.dumps(times), file=answers, flush=True)


class Program:
    """A process that serves."""

    def __init__(self, engine: str, name: str, warm: int) -> None:
        environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
        environment["GRAPHC_THREADS"] = "1"
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", engine, "--programs", name, "--warm", str(warm)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        self.times: list[float] = []

    def answer(self) -> list[float]:
        """The next line. Raises RuntimeError if the process has died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self.process.wait()}")
        found: list[float] = json.loads(line)
        return found

    def run(self, steps: int) -> None:
        """Time so many steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.times += self.answer()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def measure(name: str, rounds: int, steps: int, warm: int) -> dict[str, float]:
    """The median time of a step, by engine; the losses are compared."""
    programs = {engine: Program(engine, name, warm) for engine in ENGINES}
    try:
        losses = {engine: program.answer() for engine, program in programs.items()}
        for _ in range(rounds):
            for program in programs.values():
                program.run(steps)
    finally:
        for program in programs.values():
            program.close()
    for engine in ENGINES[1:]:
        if abs(losses[engine][0] - losses["torch"][0]) > 1e-3 * max(1, abs(losses["torch"][0])):
            print(f"WARNING: {name}: {engine}'s first loss is {losses[engine][0]}, "
                  f"torch's {losses['torch'][0]}")
    return {engine: statistics.median(program.times) for engine, program in programs.items()}


def profile(name: str, warm: int, steps: int) -> None:
    """Where a step's time goes: graphc's functions by their own time, and by all below them."""
    import cProfile
    import pstats

    step = make("compile", name)
    for i in range(warm):
        step(i)
    watch = cProfile.Profile()
    watch.enable()
    for i in range(steps):
        step(warm + i)
    watch.disable()
    stats = pstats.Stats(watch)
    for order, rows in (("cumulative", 45), ("tottime", 25)):
        stats.sort_stats(order).print_stats(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="of each engine in each round")
    parser.add_argument("--warm", type=int, default=40, help="steps before any is timed")
    parser.add_argument("--profile", choices=list(PROGRAMS))
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.programs[0], args.warm)
        return 0
    if args.profile:
        profile(args.profile, args.warm, args.steps)
        return 0
    print("| program | torch, ms | eager | compile | eager / torch | compile / torch |")
    print("|---" * 6 + "|")
    ratios = []
    for name in args.programs:
        found = measure(name, args.rounds, args.steps, args.warm)
        torch, eager, compiled = (1e3 * found[engine] for engine in ENGINES)
        ratios.append(compiled / torch)
        print(f"| {name} | {torch:.2f} | {eager:.2f} | {compiled:.2f} | {eager / torch:.2f} | "
              f"{compiled / torch:.2f} |", flush=True)
    above = sum(ratio > LIMIT for ratio in ratios)
    print(f"median compile / torch {statistics.median(ratios):.2f} (aim {GOAL}), "
          f"{above} of {len(ratios)} above {LIMIT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
