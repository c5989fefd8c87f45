"""onnx's own backend tests."""

import re

import pytest

from tests.onnx import suite
from tests.onnx.expected import EXPECTED, why

pytest.importorskip("onnx")

FILES = ("simple", "pytorch-converted", "pytorch-operator")


def surprises(outcomes: list[suite.Outcome]) -> list[str]:
    """What did not end as expected.py says: a case that passes has to go from there."""
    return [
        f"{each.name}: {each.status} {each.text}" for each in outcomes
        if (each.status in ("refused", "failed")) != (why(each.name) is not None)
    ]


def test_models_of_files() -> None:
    outcomes = [suite.run(case) for case in suite.cases(FILES)]
    assert len(outcomes) > 100
    assert not surprises(outcomes), "\n".join(surprises(outcomes))


@pytest.mark.slow
def test_all() -> None:
    outcomes = [suite.run(case) for case in suite.cases()]
    assert len(outcomes) > 1500
    assert not surprises(outcomes), "\n".join(surprises(outcomes))
    # each name in the list is that of a case
    names = {each.name for each in outcomes if why(each.name)}
    stale = [
        pattern for patterns in EXPECTED.values() for pattern in patterns.split()
        if not any(why(name) and re.fullmatch(pattern, name) for name in names)
    ]
    assert not stale


@pytest.mark.slow
def test_compiled() -> None:
    outcomes = [suite.run(case, compiled=True) for case in suite.cases(FILES)]
    assert not surprises(outcomes), "\n".join(surprises(outcomes))
