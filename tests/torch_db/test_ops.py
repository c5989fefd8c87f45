"""op_db: nothing is wrong but what docs/coverage_operators.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.torch_db.ops import COLUMNS, run, titles

_GROUPS = 24


def _stated(repository: Path) -> set[tuple[str, str]]:
    """(operator, column) of everything that the table says is not right."""
    text = (repository / "docs" / "coverage_operators.md").read_text()
    missing, wrong = text.split("## Missing")[1].split("## Not right")
    found = set(re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", wrong, re.MULTILINE))
    return found | {(name, "forward") for name in re.findall(r"`([^`]+)`", missing)}


@pytest.mark.slow
@pytest.mark.parametrize("group", range(_GROUPS))
def test_operators(repository: Path, group: int) -> None:
    found = run(titles()[group::_GROUPS])
    stated = _stated(repository)
    wrong = {
        f"{name}, {column}: {outcome[column]}"
        for name, outcome in found.items() for column in COLUMNS
        if outcome.get(column) and (name, column) not in stated
    }  # fmt: skip
    assert not wrong, "\n".join(sorted(wrong))


def test_a_few_operators(repository: Path) -> None:
    names = ["add", "softmax", "nn.functional.linear", "cumsum", "index_put"]
    found = run([t for t in titles() if t in names])
    assert set(found) >= {"add", "cumsum", "index_put", "nn.functional.linear"}
    stated = _stated(repository)
    for name, outcome in found.items():
        for column, text in outcome.items():
            assert not text or (name, column) in stated, (name, column, text)
