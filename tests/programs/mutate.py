"""`python -m tests.programs.mutate`: what a recording understands and guards, one less at a time.

Each mutant (mutants.py) gets a process of its own, in which the programs and scenarios that use
what is gone run until one notices: a result is wrong, a program that was one graph is none any
more, it is compiled more often, has more guards, or is said to end for another reason. A mutant
that nobody notices is something that nothing tests. Exit status 1 if there are such.
"""

from __future__ import annotations

import argparse
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import graphc
from graphc.engine.capture import kinds
from tests.fuzz import isolate
from tests.graphc import scenario, test_never_stale
from tests.graphc.stale_scenario import STALE
from tests.programs.generate import CONSTRUCTS, OPEN, alone
from tests.programs.mutants import (
    EFFECTS,
    EXCUSED,
    TABLES,
    Mutant,
    apply,
    at_each_step,
    mutants,
    noting_guards_and_effects,
    own,
    put,
    sites,
    steps,
    text,
    uses,
)
from tests.programs.run import check


class Outcome(NamedTuple):
    """What a program or scenario showed; `versions`: how often it was compiled, `guards`: how
    many the last version has, `ends`: why it is no one graph."""

    wrong: str
    whole: bool
    versions: int = 0
    guards: int = 0
    ends: tuple[str, ...] = ()

    def noticed(self, before: Outcome) -> str:
        """In what it is worse than before the mutation; "" if it is not."""
        if self.wrong and not before.wrong:
            return "wrong"
        if before.whole and not self.whole:
            return "in segments"
        if self.versions > before.versions:
            return "compiled again"
        if self.whole and self.guards > before.guards:
            return "more guards"
        return "another reason" if self.ends != before.ends else ""


# --- what should notice ------------------------------------------------------------------------


def programs() -> dict[str, Callable[[], Outcome]]:
    """Every construct as a program by itself, and every scenario that is right today."""
    found: dict[str, Callable[[], Outcome]] = {}
    for name in (*CONSTRUCTS, *OPEN):
        found[name] = lambda name=name: _construct(name)  # type: ignore[misc]
    for name in STALE:
        if name not in test_never_stale.KNOWN:
            found[f"scenario {name}"] = lambda name=name: _scenario(name)  # type: ignore[misc]
    return found


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def _construct(name: str) -> Outcome:
    failure, seen = check(alone(name))
    ends = tuple(_ADDRESS.sub("", end) for end in seen.ends)
    wrong = "" if failure is None else failure.detail
    return Outcome(wrong, seen.whole, seen.count, seen.guards, ends)


def _scenario(name: str) -> Outcome:
    """A scenario asserts itself where it must be one graph."""
    function, tolerance = STALE[name]
    expected = scenario.run(function, graphc, scenario.identity)
    try:
        scenario.compare(expected, scenario.run(function, graphc, graphc.compile), tolerance)
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {error}"[:200], True)
    return Outcome("", True)


# --- who uses what -----------------------------------------------------------------------------


class _Noting:
    """A table that notes which rows are asked for."""

    used: set[Any]

    def __contains__(self, row: Any) -> bool:
        found: bool = super().__contains__(row)  # type: ignore[misc]
        if found:
            self.used.add(row)
        return found


class _NotedSet(_Noting, frozenset):  # type: ignore[type-arg]
    pass


class _NotedDict(_Noting, dict):  # type: ignore[type-arg]
    def get(self, row: Any, default: Any = None) -> Any:
        self.__contains__(row)
        return super().get(row, default)


class _Forgetful(dict):  # type: ignore[type-arg]
    """kinds._found, which then finds every kind anew."""

    def __setitem__(self, row: Any, value: Any) -> None:
        pass


def _noting() -> Callable[[], set[Mutant]]:
    """Note all that is used from now on; gives what was, since it was asked last."""
    noted: dict[str, Any] = {}
    met: set[Any] = set()
    for method in (_Noting.__contains__, _NotedDict.get, _Forgetful.__setitem__):
        own((method.__code__,))
    kinds._found = _Forgetful()
    for name, table in TABLES.items():
        noted[name] = (_NotedDict if isinstance(table, dict) else _NotedSet)(table)
        noted[name].used = set()
        put(table, noted[name])

    def note(site: Any) -> bool:
        met.add(site)
        return False

    at_each_step(note)
    names = {site: name for name, site in sites().items()}
    others: set[Mutant] = set()
    noting_guards_and_effects(others)

    def taken() -> set[Mutant]:
        found = {Mutant("step", names[site]) for site in met if site in names} | others
        met.clear()
        others.clear()
        for name, table in noted.items():
            found.update(Mutant(name, text(row)) for row in table.used)
            table.used = set()
        return found

    return taken


Before = dict[str, tuple[Outcome, set[Mutant]]]


def measured(names: Iterable[str]) -> Before:
    """Of each program: how it is without a mutation, and the rows and steps that it uses."""
    known = programs()
    names = list(names)
    notes: list[Callable[[], set[Mutant]]] = []

    def work(name: str) -> tuple[Outcome, set[Mutant]]:
        warnings.simplefilter("ignore")
        if not notes:
            notes.append(_noting())
        notes[0]()
        outcome = known[name]()
        return outcome, notes[0]()

    found: Before = {}

    def take(name: str, answer: Any) -> None:
        if not isinstance(answer, isolate.Ended) and not answer[0].wrong:
            found[name] = answer

    isolate.run(names, work, take)  # type: ignore[arg-type]
    return found


class Verdict(NamedTuple):
    """Who noticed a mutant, and how; nobody: an empty name."""

    mutant: Mutant
    name: str
    how: str
    users: int


def judge(searched: Iterable[Mutant], before: Before) -> Iterator[Verdict]:
    """Run the programs that use each mutant, until one notices."""
    known = programs()
    for mutant in searched:
        users = [name for name, (_, used) in before.items() if uses(used, mutant)]
        # those that use little else are small and quick
        users.sort(key=lambda name: len(before[name][1]))
        yield _asked(mutant, users, known, before)


def _asked(
    mutant: Mutant, users: list[str], known: dict[str, Callable[[], Outcome]], before: Before
) -> Verdict:
    """Run programs in a mutated process, until one notices."""
    said: list[str] = []
    found: list[Verdict] = []

    def work(name: str) -> str:
        if not said:
            warnings.simplefilter("ignore")
            apply(mutant)
        how = "" if any(said) else known[name]().noticed(before[name][0])
        said.append(how)
        return how

    def take(name: str, answer: Any) -> None:
        how = answer.kind if isinstance(answer, isolate.Ended) else answer
        if how and not found:
            found.append(Verdict(mutant, name, how, len(users)))

    isolate.run(users, work, take)  # type: ignore[arg-type]
    return found[0] if found else Verdict(mutant, "", "", len(users))


def unlisted(before: Before) -> set[str]:
    """Sorts of effects that programs have and no mutant leaves out."""
    used = {mutant for _, found in before.values() for mutant in found}
    return {mutant.row for mutant in used if mutant.table == "effect"} - set(EFFECTS)


def warmed() -> None:
    """Run every program in this process: its children find the native code made."""
    for program in programs().values():
        program()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.mutate", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name has this text")
    parser.add_argument("--steps", action="store_true", help="leave out steps of rules, too")
    parser.add_argument("--verbose", action="store_true", help="print who notices each mutant")
    options = parser.parse_args(arguments)
    os.nice(15)
    warnings.simplefilter("ignore")
    warmed()
    counts: Counter[str] = Counter()
    gone = [*mutants(), *(steps() if options.steps else ())]
    searched = [mutant for mutant in gone if options.only in str(mutant)]
    before = measured(programs())
    for sort in sorted(unlisted(before)):
        counts["not listed"] += 1
        print(f"effect {sort}: no mutant leaves it out", flush=True)
    for verdict in judge(searched, before):
        if verdict.mutant.row in EXCUSED:
            counts["excused" if not verdict.name else "excused without need"] += 1
            continue
        counts[verdict.how or "not noticed"] += 1
        if not verdict.name:
            print(f"{verdict.mutant}: nobody notices ({verdict.users} programs use it)", flush=True)
        elif options.verbose:
            print(f"{verdict.mutant}: {verdict.how}, {verdict.name}", flush=True)
    print(f"{len(searched)} mutants: {', '.join(f'{n} {how}' for how, n in counts.items())}")
    return int(any(counts[w] for w in ("not noticed", "not listed", "excused without need")))


if __name__ == "__main__":
    raise SystemExit(main())
