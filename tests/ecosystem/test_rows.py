"""The matrix's rows, each in its two venvs (slow; `python -m tests.ecosystem` says more)."""

from pathlib import Path

import pytest

from tests.ecosystem import matrix, venvs


@pytest.mark.slow
@pytest.mark.parametrize("name", matrix.rows())
def test_row(name: str, tmp_path: Path) -> None:
    try:
        result = matrix.run(matrix.rows()[name], tmp_path)
    except venvs.Unreachable as error:
        pytest.skip(str(error))
    assert result.findings, "the script told nothing"
    assert not result.wrong, "\n".join(map(str, result.wrong))
