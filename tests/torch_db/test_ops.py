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


def _compared(found: dict[str, dict[str, str]], stated: set[tuple[str, str]]) -> None:
    """What the table says is not right is all that is not right, and still is not."""
    wrong = {
        (name, column): text
        for name, outcome in found.items() for column in COLUMNS if (text := outcome.get(column))
    }
    new = [f"{', '.join(each)}: {wrong[each]}" for each in sorted(wrong.keys() - stated)]
    assert not new, "\n".join(new)
    right = {each for each in stated if each[0] in found} - wrong.keys()
    assert not right, f"listed as wrong, and right: {sorted(right)}"


@pytest.mark.slow
@pytest.mark.parametrize("group", range(_GROUPS))
def test_operators(repository: Path, group: int) -> None:
    _compared(run(titles()[group::_GROUPS]), _stated(repository))


def test_a_few_operators(repository: Path) -> None:
    names = ["add", "softmax", "nn.functional.linear", "cumsum", "index_put", "gather"]
    found = run([t for t in titles() if t in names])
    assert set(found) >= {"add", "cumsum", "index_put", "nn.functional.linear", "gather"}
    _compared(found, _stated(repository))


def test_what_is_stated_exists(repository: Path) -> None:
    assert {name for name, _ in _stated(repository)} <= set(titles())
