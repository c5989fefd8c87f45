"""`python -m tests.export_fuzz --count 5000`: mutated and hostile .gcx files, each in bounds.

Prints how they ended, by what was done to them. Exit status 1 where one ended otherwise than by a
clear error or a result: by a crash, a hang, or an error that is not promised.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from tests.export_fuzz.check import Outcome, attempt, bound
from tests.export_fuzz.files import TRUSTED, good_files
from tests.export_fuzz.mutate import kind_of, mutated
from tests.fuzz import isolate

_BATCH = 200


def fuzz(first: int, count: int, folder: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """How files from these seeds ended, and those that ended badly."""
    files = good_files(folder)
    trusted = (folder / TRUSTED).read_text()
    ended: Counter[tuple[str, str]] = Counter()
    bad: list[str] = []

    def work(seed: int) -> Outcome:
        if not work.bound:  # type: ignore[attr-defined]
            bound()
            work.bound = True  # type: ignore[attr-defined]
        path = folder / f"mutated{seed}.gcx"
        path.write_bytes(mutated(seed, files))
        try:
            return attempt(path, trust=trusted)
        finally:
            path.unlink()

    work.bound = False  # type: ignore[attr-defined]

    def take(seed: int, outcome: Any) -> None:
        kind = outcome.kind
        ended[kind_of(seed), kind] += 1
        if kind in ("crash", "hang", "escaped"):
            said = outcome.detail if isinstance(outcome, isolate.Ended) else outcome.said
            bad.append(f"seed {seed}, {kind_of(seed)}: {kind}: {said}")

    for start in range(first, first + count, _BATCH):
        isolate.run(range(start, min(start + _BATCH, first + count)), work, take)
    return ended, bad


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.export_fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        ended, bad = fuzz(options.seed, options.count, Path(folder))
    for (what, kind), count in sorted(ended.items()):
        print(f"{what:24} {kind:20} {count:6}")
    totals: Counter[str] = Counter()
    for (_, kind), count in ended.items():
        totals[kind] += count
    print(", ".join(f"{count} {kind}" for kind, count in totals.most_common()))
    for each in bad[:50]:
        print(each[:1000])
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
