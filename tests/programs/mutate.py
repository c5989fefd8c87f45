"""`python -m tests.programs.mutate`: what a recording understands and guards, one less at a time.

Each row of the tables of graphc/engine/capture (kinds.py, c_tables.py) is removed, and each kind
of guard made to hold always, each in a process of its own; then the programs and scenarios that
use it run until one notices: a program that was one graph is none any more, or a result is wrong.
A mutant that nobody notices is a row that nothing tests. Exit status 1 if there are such.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import graphc
from graphc.engine.capture import c_tables, kinds, net
from graphc.engine.version import guards
from graphc.engine.version.version import Specialisation
from tests.fuzz import isolate
from tests.graphc import scenario, test_never_stale
from tests.graphc.stale_scenario import STALE
from tests.programs.generate import CONSTRUCTS, alone
from tests.programs.run import check

TABLES: dict[str, Any] = {
    **{name: getattr(kinds, name) for name in
       ("VALUES", "FIXEDS", "_EXACT", "_ITERATORS", "_BASES")},
    **{name: getattr(c_tables, name) for name in
       ("PURE", "HIGHER_ORDER", "OPERATORS", "READS", "WRITES", "NUMPY_WRITES",
        "METHODS_OF_VALUES", "CLASSES", "SETTINGS", "SWITCHES", "SAYING", "STORING")},
}  # fmt: skip
GUARDS = tuple(
    name for name, kind in vars(guards).items()
    if isinstance(kind, type) and issubclass(kind, guards.Guard) and kind is not guards.Guard
)  # fmt: skip
# what a version checks beside its list of guards: attributes that hold the records
CHECKS = ("flags", "pairs", "identities", "guards")
CHECKS_OF_TRACES = ("grad_reads", "lodgers", "numbers")
CHECKS_DONE = ("_check_overlap",)
_MOST = 8  # programs that are asked about a row


class Mutant(NamedTuple):
    """What is taken away: a row of a table, or the check of a guard."""

    table: str
    row: str

    def __str__(self) -> str:
        return f"{self.table}[{self.row}]" if self.table in TABLES else f"{self.table} {self.row}"


class Outcome(NamedTuple):
    """What a program or scenario showed."""

    wrong: str
    whole: bool

    def noticed(self, before: Outcome) -> str:
        """In what it is worse than before the mutation; "" if it is not."""
        if self.wrong and not before.wrong:
            return "wrong"
        return "in segments" if before.whole and not self.whole else ""


def rows() -> list[Mutant]:
    """Every row of every table."""
    return [Mutant(name, row) for name, table in TABLES.items() for row in sorted(map(text, table))]


def text(row: Any) -> str:
    """A row's name; that of a type is its full one."""
    return kinds.full_name(row) if isinstance(row, type) else str(row)


def guard_kinds() -> list[Mutant]:
    """Every kind of guard, and every other check of a version."""
    names = (*GUARDS, *CHECKS, *CHECKS_OF_TRACES, *CHECKS_DONE)
    return [Mutant("guard", name) for name in names]


# --- what should notice ------------------------------------------------------------------------


def programs() -> dict[str, Callable[[], Outcome]]:
    """Every construct as a program by itself, and every scenario that is right today."""
    found: dict[str, Callable[[], Outcome]] = {}
    for name in STALE:
        if name not in test_never_stale.KNOWN:
            found[f"scenario {name}"] = lambda name=name: _scenario(name)  # type: ignore[misc]
    for name in CONSTRUCTS:
        found[name] = lambda name=name: _construct(name)  # type: ignore[misc]
    return found


def _construct(name: str) -> Outcome:
    failure, seen = check(alone(name))
    return Outcome("" if failure is None else failure.detail, seen.whole)


def _scenario(name: str) -> Outcome:
    """A scenario asserts itself where it must be one graph."""
    function, tolerance = STALE[name]
    expected = scenario.run(function, graphc, scenario.identity)
    try:
        scenario.compare(expected, scenario.run(function, graphc, graphc.compile), tolerance)
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {error}"[:200], True)
    return Outcome("", True)


# --- mutation ----------------------------------------------------------------------------------


def apply(mutant: Mutant) -> None:
    """Mutate this process."""
    if mutant.table in TABLES:
        table = TABLES[mutant.table]
        _without(table, next(row for row in table if text(row) == mutant.row))
    elif mutant.row in GUARDS:
        for check in ("holds", "holds_for"):
            setattr(getattr(guards, mutant.row), check, lambda self, *given: True)
    elif mutant.row in CHECKS_DONE:
        setattr(Specialisation, mutant.row, lambda self, *given: None)
    else:
        _emptied(mutant.row)


def _emptied(attribute: str) -> None:
    start = Specialisation.__init__

    def mutated(self: Any, traced: Any, *given: Any, **named: Any) -> None:
        start(self, traced, *given, **named)
        setattr(traced if attribute in CHECKS_OF_TRACES else self, attribute, [])

    Specialisation.__init__ = mutated  # type: ignore[method-assign]


def _without(table: Any, row: Any) -> None:
    if isinstance(table, dict):
        table.pop(row)
        kinds._found.pop(row, None)
        return
    _put(table, table - {row})
    for kind in [kind for kind in kinds._found if kind not in kinds._EXACT]:
        del kinds._found[kind]


def _put(table: Any, other: Any) -> None:
    """Another table in every module of the capture that has this one."""
    for name, module in list(sys.modules.items()):
        if name.startswith("graphc.engine.capture"):
            for attribute, value in list(vars(module).items()):
                if value is table:
                    setattr(module, attribute, other)


# --- who uses what -----------------------------------------------------------------------------


class _NotedSet(frozenset):  # type: ignore[type-arg]
    """A table that notes which rows are asked for."""

    used: set[Any]

    def __contains__(self, row: Any) -> bool:
        found = super().__contains__(row)
        if found:
            self.used.add(row)
        return found


class _NotedDict(dict):  # type: ignore[type-arg]
    used: set[Any]

    def __contains__(self, row: Any) -> bool:
        found = super().__contains__(row)
        if found:
            self.used.add(row)
        return found

    def get(self, row: Any, default: Any = None) -> Any:
        if row in self:
            self.used.add(row)
        return super().get(row, default)


class _Forgetful(_NotedDict):
    """kinds._found, which then finds every kind anew."""

    def __setitem__(self, row: Any, value: Any) -> None:
        pass


def _noting() -> dict[str, Any]:
    noted: dict[str, Any] = {}
    for method in (_NotedSet.__contains__, _NotedDict.__contains__, _NotedDict.get,
                   _Forgetful.__setitem__):
        net._seen[id(method.__code__)] = "own", method.__code__  # graphc's own, to a recording
    for name, table in TABLES.items():
        if name == "_EXACT":
            noted[name] = _Forgetful(table)
            kinds._found = noted[name]
        else:
            noted[name] = (_NotedDict if isinstance(table, dict) else _NotedSet)(table)
            _put(table, noted[name])
    return noted


def measured(names: Iterable[str]) -> dict[str, tuple[Outcome, set[Mutant]]]:
    """Of each program: how it is without a mutation, and the rows that it uses."""
    known = programs()
    noted: dict[str, Any] = {}

    def work(name: str) -> tuple[Outcome, set[Mutant]]:
        warnings.simplefilter("ignore")
        if not noted:
            noted.update(_noting())
        for table in noted.values():
            table.used = set()
        outcome = known[name]()
        return outcome, {
            Mutant(name, text(row)) for name, table in noted.items() for row in table.used
        }

    found: dict[str, tuple[Outcome, set[Mutant]]] = {}

    def take(name: str, answer: Any) -> None:
        if not isinstance(answer, isolate.Ended) and not answer[0].wrong:
            found[name] = answer

    isolate.run(list(names), work, take)  # type: ignore[arg-type]
    return found


class Verdict(NamedTuple):
    """Who noticed a mutant, and how; nobody: an empty name."""

    mutant: Mutant
    name: str
    how: str
    users: int


def judge(
    mutants: Iterable[Mutant], before: dict[str, tuple[Outcome, set[Mutant]]]
) -> Iterator[Verdict]:
    """Run the programs that use each mutant, until one notices."""
    known = programs()
    for mutant in mutants:
        users = [
            name for name, (_, used) in before.items()
            if mutant in used or mutant.table not in TABLES
        ]  # fmt: skip
        # those that use little else are small and quick
        users.sort(key=lambda name: len(before[name][1]))
        users = users[:_MOST] if mutant.table in TABLES else users
        found: list[Verdict] = []

        def work(_: int, mutant: Mutant = mutant, users: list[str] = users) -> Verdict:
            warnings.simplefilter("ignore")
            apply(mutant)
            for name in users:
                how = known[name]().noticed(before[name][0])
                if how:
                    return Verdict(mutant, name, how, len(users))
            return Verdict(mutant, "", "", len(users))

        def take(_: int, answer: Any, mutant: Mutant = mutant) -> None:
            if isinstance(answer, isolate.Ended):
                answer = Verdict(mutant, "a program", answer.kind, 1)
            found.append(answer)  # noqa: B023

        isolate.run([0], work, take)
        yield found[0]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.mutate", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name has this text")
    parser.add_argument("--verbose", action="store_true", help="print who notices each mutant")
    options = parser.parse_args(arguments)
    mutants = [m for m in (*guard_kinds(), *rows()) if options.only in str(m)]
    before = measured(programs())
    counts = {"noticed": 0, "unnoticed": 0}
    for verdict in judge(mutants, before):
        counts["noticed" if verdict.name else "unnoticed"] += 1
        if not verdict.name:
            print(f"{verdict.mutant}: nobody notices ({verdict.users} programs use it)", flush=True)
        elif options.verbose:
            print(f"{verdict.mutant}: {verdict.how}, {verdict.name}", flush=True)
    print(f"{len(mutants)} mutants, {counts['noticed']} noticed, {counts['unnoticed']} not")
    return 1 if counts["unnoticed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
