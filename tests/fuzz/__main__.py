"""`python -m tests.fuzz --count 10000 --seed 0`: fuzz the compiler; counts per operator at the end.

Exit status 1 where a graph failed; each failure is shrunk and printed as Graph text.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import warnings
from typing import Any

from graphc.config import Config
from graphc.doubt.shrink import shrink
from tests.fuzz import isolate
from tests.fuzz.check import Failure, Tally, check, count, trace
from tests.fuzz.devices import DEVICES
from tests.fuzz.generate import generate
from tests.fuzz.recipes import OPTED_OUT, RECIPES
from tests.fuzz.report import report

_BATCH = 250  # cases per child: native code is never unloaded


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first graph's seed")
    parser.add_argument("--threads", type=int, default=2, help="threads of compiled code")
    parser.add_argument("--device", choices=sorted(DEVICES), default="cpu", help="where it runs")
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds spent on each")
    parser.add_argument("--quiet", action="store_true", help="no counts per operator")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even where started with &
    backend = DEVICES[options.device]()
    fuzzer = Fuzzer(config(options.threads), options.shrink, options.failures, backend)
    first, last = options.seed, options.seed + options.count
    try:
        for start in range(first, last, _BATCH):
            isolate.run(range(start, min(start + _BATCH, last)), fuzzer.work, fuzzer.take)
            if fuzzer.failed >= options.failures:
                break
    except KeyboardInterrupt:
        print("stopped")
    fuzzer.summary(options.quiet)
    return 1 if fuzzer.failed else 0


def config(threads: int) -> Config:
    """The compiler's settings: verify after each pass, nothing kept on disk, numbers drawn as the
    graph says."""
    return Config()._replace(
        cache_dir=None, check=1, threads=threads, debug=0, dump=None, random="torch"
    )


class Fuzzer:
    """Runs seeds in children, gathers counts, shrinks what fails."""

    def __init__(self, config: Config, seconds: float, most: int, backend: str) -> None:
        self.config, self.seconds, self.most, self.backend = config, seconds, most, backend
        self.tally = Tally()
        self.failed = 0
        self.started = time.monotonic()

    def work(self, seed: int) -> tuple[Tally, Failure | None]:
        """One seed, in a child."""
        tally = Tally()
        try:
            case = generate(seed)
            count(tally, case)
            return tally, self._check(case, tally=tally)
        except Exception as error:  # of the fuzzer itself, or of NumPy's operators
            return tally, Failure("fuzzer", trace(error))

    def _check(self, case: Any, **how: Any) -> Failure | None:
        return check(case, self.config, backend=self.backend, **how)

    def take(self, seed: int, answer: Any) -> None:
        """One seed's answer, in the parent."""
        if isinstance(answer, isolate.Ended):
            failure: Failure | None = Failure(answer.kind, answer.detail)
        else:
            tally, failure = answer
            self.tally.ops.update(tally.ops)
            self.tally.events.update(tally.events)
        if sys.stderr.isatty():
            print(f"\r{seed} ", end="", file=sys.stderr, flush=True)
        if failure is None:
            return
        self.failed += 1
        if self.failed <= self.most:
            print(self.explain(seed, failure), flush=True)

    def explain(self, seed: int, failure: Failure) -> str:
        """The shrunk case as text."""
        title = f"--- seed {seed}: {failure}"
        answers: list[Any] = []
        isolate.run([seed], lambda s: self._shrunk(s, failure.kind), lambda _, a: answers.append(a))
        text = answers[0]
        return title + "\n" + (text if isinstance(text, str) else f"(no smaller case: {text})")

    def _shrunk(self, seed: int, kind: str) -> str:
        if kind == "fuzzer":
            return "(not shrunk)"
        case = generate(seed)
        small = shrink(case, lambda c: self._kind(c, kind) == kind, self.seconds)
        failure = None if kind in ("crash", "hang") else self._check(small, interpret=1.0)
        return report(small, f"shrunk: {failure or kind}")

    def _kind(self, case: Any, kind: str) -> str:
        """What kind of failure a candidate is, "" for none; natively fatal ones in a child."""
        if kind not in ("crash", "hang"):
            failure = self._check(case, interpret=0.3)
            return failure.kind if failure else ""
        answers: list[Any] = []
        isolate.run([0], lambda _: self._check(case), lambda _, a: answers.append(a))
        return answers[0].kind if answers[0] is not None else ""

    def summary(self, quiet: bool) -> None:
        """Counts of graphs, of what was checked, and per operator."""
        events = dict(sorted(self.tally.events.items()))
        seconds = time.monotonic() - self.started
        print(f"{self.failed} failures in {events.pop('graphs', 0)} graphs, {seconds:.0f} s")
        print(", ".join(f"{name}: {n}" for name, n in events.items()))
        if quiet:
            return
        ops = self.tally.ops
        names = sorted(RECIPES, key=lambda name: (ops[name], name))
        width = os.get_terminal_size().columns if sys.stdout.isatty() else 100
        line = ""
        for name in names:
            word = f"{name} {ops[name]}, "
            if len(line) + len(word) > width:
                print(line.rstrip())
                line = ""
            line += word
        print(line.rstrip(", "))
        for name, reason in OPTED_OUT.items():
            print(f"without a recipe: {name} ({reason})")


if __name__ == "__main__":
    raise SystemExit(main())
