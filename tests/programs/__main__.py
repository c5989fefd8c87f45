"""`python -m tests.programs --count 2000 --start 0`: random programs, eager and compiled.

Prints each failing seed with the shrunk program, then counts by construct. With --torch the
programs run in PyTorch and in eager mode, which tests the generator. Exit status 1 on a failure.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib
import multiprocessing
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from typing import Any, NamedTuple

from tests.fuzz import isolate
from tests.programs.generate import generate
from tests.programs.program import PRELUDE, Program
from tests.programs.run import Failure, Seen, check, check_torch
from tests.programs.shrink import shrink

_REASONS = 40  # printed
_BATCH = 200  # programs per child: native code is never unloaded


class Answer(NamedTuple):
    """What became of one seed."""

    seed: int
    failure: Failure | None
    whole: bool
    text: str
    ends: tuple[str, ...] = ()  # why it is not whole
    demands: bool = False  # of the values of tensors: it can never be


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many programs")
    parser.add_argument("--start", type=int, default=0, help="the first program's seed")
    parser.add_argument("--torch", action="store_true", help="PyTorch against graphc eager")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--shrink", type=float, default=10.0, help="seconds spent on each failure")
    parser.add_argument("--failures", type=int, default=1 << 30, help="print at most so many")
    parser.add_argument("--construct", default="", help="only programs with this construct")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    tally = _Tally(options.failures)
    seeds = [
        s for s in range(options.start, options.start + options.count)
        if not options.construct or options.construct in {p.construct for p in generate(s).pieces}
    ]
    parts = [seeds[i : i + _BATCH] for i in range(0, len(seeds), _BATCH)]
    if options.jobs == 1:
        for part in parts:
            _batch(part, options.torch, options.shrink, tally.take)
    else:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
            works = [pool.submit(_collected, p, options.torch, options.shrink) for p in parts]
            for work in concurrent.futures.as_completed(works):
                for answer in work.result():
                    tally.take(answer)
    tally.summary(time.monotonic() - started)
    return 1 if tally.failed else 0


def _collected(seeds: list[int], torch: bool, seconds: float) -> list[Answer]:
    found: list[Answer] = []
    _batch(seeds, torch, seconds, found.append)
    return found


def _batch(seeds: list[int], torch: bool, seconds: float, take: Any) -> None:
    """Run seeds in a child process, so that a crash or a hang is a finding as well."""

    def took(seed: int, answer: Any) -> None:
        if isinstance(answer, isolate.Ended):
            failure = Failure(answer.kind, 0, answer.detail)
            answer = Answer(seed, failure, False, listing(generate(seed)))
        take(answer)

    isolate.run(seeds, lambda seed: work(seed, torch, seconds), took)


def work(seed: int, torch: bool, seconds: float) -> Answer:
    """One seed: run, compare, shrink."""
    warnings.simplefilter("ignore")
    program = generate(seed)
    other = importlib.import_module("torch") if torch else None
    seen = Seen([], False, 0)
    try:
        if other is not None:
            failure = check_torch(program, other)
        else:
            failure, seen = check(program)
    except Exception:
        failure = Failure("generator", 0, traceback.format_exc())
    if failure is None or failure.kind == "generator":
        text = "" if failure is None else listing(program)
        return Answer(seed, failure, seen.whole, text, seen.ends, seen.demands)

    def fails(candidate: Program) -> bool:
        found = check_torch(candidate, other) if other is not None else check(candidate)[0]
        return found is not None and found.kind == failure.kind

    small = shrink(program, fails, seconds) if seconds else program
    found = check_torch(small, other) if other is not None else check(small)[0]
    return Answer(
        seed, found or failure, seen.whole, listing(small), seen.ends, seen.demands
    )


def listing(program: Program) -> str:
    """The program's text, of the prelude only what it uses."""
    text = program.source()[len(PRELUDE) :].strip("\n")
    used = [
        name for line in PRELUDE.split("\n") if line.startswith("import ")
        for name in line[len("import ") :].split(", ") if re.search(rf"\b{name}\b", text)
    ]
    head = "import " + ", ".join(used) + "\n" if used else ""
    return head + re.sub(r"\n\n\n+", "\n\n", text)


class _Tally:
    def __init__(self, most: int) -> None:
        self.most, self.failed, self.programs, self.whole, self.demands = most, 0, 0, 0, 0
        self.ends: Counter[str] = Counter()
        self.constructs: dict[str, Counter[str]] = {}

    def take(self, answer: Answer) -> None:
        self.programs += 1
        self.whole += answer.whole
        self.demands += answer.demands
        self.ends.update({re.sub(r"\w+\d+\b", "...", end) for end in answer.ends})
        kinds = ["drawn", "whole" if answer.whole else "segments"]
        kinds += ["failed"] if answer.failure else []
        for piece in generate(answer.seed).pieces:
            self.constructs.setdefault(piece.construct, Counter()).update(kinds)
        if answer.failure:
            self.failed += 1
            if self.failed <= self.most:
                title = f"--- seed {answer.seed}, step {answer.failure.step}"
                print(f"{title}: {answer.failure.detail}\n{answer.text}\n", flush=True)
        if sys.stderr.isatty():
            print(f"\r{answer.seed} ", end="", file=sys.stderr, flush=True)

    def summary(self, seconds: float) -> None:
        """Counts by construct, those that fail most first."""
        print(f"{'construct':28} drawn whole segments failed")
        order = sorted(self.constructs.items(), key=lambda i: -i[1]["failed"] / i[1]["drawn"])
        for name, count in order:
            numbers = (count["drawn"], count["whole"], count["segments"], count["failed"])
            print("{:28} {:5} {:5} {:8} {:6}".format(name, *numbers))
        print("\nprograms that were not one graph, by reason")
        for end, number in self.ends.most_common(_REASONS):
            print(f"{number:5} {end}")
        rate = self.programs / max(seconds, 1e-9)
        others = self.programs - self.demands
        print(
            f"{self.failed} of {self.programs} programs failed; {self.whole} ran whole "
            f"({100 * self.whole / max(self.programs, 1):.0f} %, and "
            f"{100 * self.whole / max(others, 1):.0f} % of the {others} that need no tensor's "
            f"value); {rate:.1f} a second"
        )


if __name__ == "__main__":
    raise SystemExit(main())
