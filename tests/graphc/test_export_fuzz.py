"""Mutated and hostile .gcx files end by a clear error or run, in bounded memory and time."""

import resource
from pathlib import Path

import pytest

from tests.export_fuzz.__main__ import fuzz
from tests.export_fuzz.mutate import KINDS

pytestmark = pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="no limit of memory")


def _check(first: int, count: int, folder: Path) -> None:
    ended, bad = fuzz(first, count, folder)
    assert not bad, "\n".join(bad[:10])
    assert sum(ended.values()) == count
    assert {what for what, _ in ended} == set(KINDS)


def test_a_few_mutated_files(tmp_path: Path) -> None:
    _check(0, 4 * len(KINDS), tmp_path)


@pytest.mark.slow
def test_thousands_of_mutated_files(tmp_path: Path) -> None:
    _check(10_000, 4000, tmp_path)
