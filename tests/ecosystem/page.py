"""docs/ecosystem.md: a line for each row; those that were not run again stay as they were."""

from __future__ import annotations

import datetime
from pathlib import Path

from tests.ecosystem.matrix import Failed, Result, Row

PAGE = Path(__file__).parents[2] / "docs" / "ecosystem.md"
HEAD = """# Packages around PyTorch, on graphc

Programs written for torch (`tests/ecosystem/scripts/`), unmodified, each run in two venvs with the
same packages: with PyTorch 2.13.0, and with graphc's stand-in for it (`python -m graphc shim
install`). What they compute is compared: losses, metrics, tokens, what lies in checkpoints.
**losses** and **else** are the largest differences, relative to the greatest magnitude of each list
of numbers ("equal": to the bit); each script says what it allows. `python -m tests.ecosystem NAME`
runs rows and writes their lines here.

Does not run: tensordict, and what is built on it, which takes hold of vmap's inner levels
(`torch._C._functorch`), and packages with extensions that are linked to PyTorch's libraries
(`python -m graphc shim check` names them).

| row | packages | date | what ran | losses | else | lacks |
|---|---|---|---|---|---|---|
"""


def update(path: Path, outcomes: dict[str, Result | Failed], known: dict[str, Row]) -> None:
    """Write the lines of these rows; lines of rows that are no more go."""
    lines = {name: line for name, line in _lines(path).items() if name in known}
    today = datetime.date.today().isoformat()
    for name, outcome in outcomes.items():
        lines[name] = line(known[name], outcome, today)
    ordered = [lines[name] for name in known if name in lines]
    path.write_text(HEAD + "\n".join(ordered) + "\n", encoding="utf-8")


def line(row: Row, outcome: Result | Failed, date: str) -> str:
    """A row of the table."""
    if isinstance(outcome, Failed):
        said = str(outcome).strip().splitlines()
        told = [", ".join(row.packages), date, row.shows, "", "", f"**stops**: {said[-1]}"]
    else:
        packages = ", ".join(f"{name} {number}" for name, number in outcome.versions.items())
        wrong = "; ".join(f"**differs**: {found}" for found in outcome.wrong)
        lacks = "; ".join(filter(None, [wrong, row.lacks]))
        numbers = [_number(outcome.worst(losses=True)), _number(outcome.worst(losses=False))]
        told = [packages, date, row.shows, *numbers, lacks]
    return f"| {' | '.join(cell.replace('|', '/') for cell in [row.name, *told])} |"


def _number(worst: float | None) -> str:
    if worst is None:
        return ""
    return f"{worst:.0e}" if worst else "equal"


def _lines(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8").partition("|---")[2]
    found = [line for line in text.splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line for line in found}
