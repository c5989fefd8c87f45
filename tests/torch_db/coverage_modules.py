"""Writes docs/coverage_modules.md: what of torch's module_db and optim_db passes.

Run: python -m tests.torch_db.coverage_modules
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path

from tests.torch_db import modules, optimizers
from tests.torch_db.modules import Outcome

TARGET = Path(__file__).parents[2] / "docs" / "coverage_modules.md"
Row = tuple[str, list[Outcome]]


def _module(name: str) -> Row:
    return name, modules.examine(name)


def _optimizer(name: str) -> Row:
    return name, optimizers.examine(name)


def _cell(outcomes: list[Outcome], aspect: str) -> str:
    here = [o for o in outcomes if o.aspect == aspect]
    tried = [o for o in here if not o.why.startswith("skipped")]
    if not tried:
        return "not tried" if here else ""
    passed = sum(not o.why for o in tried)
    return "all" if passed == len(tried) else f"{passed} of {len(tried)}"


def _share(rows: list[Row], aspect: str) -> str:
    tried = [
        o for _, outcomes in rows for o in outcomes
        if o.aspect == aspect and not o.why.startswith("skipped")
    ]
    passed = sum(not o.why for o in tried)
    return f"{passed} of {len(tried)} ({100 * passed / max(1, len(tried)):.1f}%)"


def _table(title: str, rows: list[Row], aspects: tuple[str, ...]) -> list[str]:
    lines = [f"## {title}", "", *(f"- {aspect}: {_share(rows, aspect)}" for aspect in aspects), ""]
    lines.append("| | " + " | ".join(aspects) + " |")
    lines.append("|---" * (len(aspects) + 1) + "|")
    lines += [
        f"| {name} | " + " | ".join(_cell(outcomes, aspect) for aspect in aspects) + " |"
        for name, outcomes in rows
    ]
    return [*lines, "", "What does not pass, and why:", "", *_failures(rows), ""]


def _failures(rows: list[Row]) -> list[str]:
    lines = []
    for name, outcomes in rows:
        reasons = Counter((o.aspect, o.why.split(" at /")[0]) for o in outcomes if o.why)
        lines += [
            f"- {name}, {aspect} ({count} cases): `{why.replace('`', '')}`"
            for (aspect, why), count in reasons.items()
        ]
    return lines


def write() -> None:
    """Run both databases and write the page."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        module_rows = pool.map(_module, modules.INFOS, chunksize=4)
        optimizer_rows = pool.map(_optimizer, optimizers.INFOS, chunksize=1)
    lines = [
        "# torch.nn and torch.optim: what passes of PyTorch's own databases", "",
        "Written by `python -m tests.torch_db.coverage_modules` from PyTorch's `module_db` and",
        "`optim_db`; float64 where the module takes it. *init*: state_dict keys and bit-equal",
        "weights from the same seed. *errors*: torch's error type and message.", "",
        *_table("Modules", list(module_rows), modules.ASPECTS),
        *_table("Optimizers", list(optimizer_rows), optimizers.ASPECTS),
    ]
    TARGET.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    write()
