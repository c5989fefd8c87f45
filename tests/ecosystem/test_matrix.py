"""What holds the matrix up: comparing, reading what scripts tell, the page; without a venv."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ecosystem import matrix, page, venvs
from tests.ecosystem.compare import compare, difference


def test_differences() -> None:
    assert difference({"a": [1.0, 2]}, {"a": [1.0, 2]}) == 0
    assert difference([1.0, 100.0], [1.1, 100.0]) == pytest.approx(0.001)
    assert difference(math.nan, math.nan) == 0 and difference([math.inf], [math.inf]) == 0
    for have, want in (
        ([1.0], [1.0, 2.0]), ({"a": 1}, {"b": 1}), ("x", "y"), (True, 1), (1, "1"), (None, 0),
        (math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (1e-9, 0.0), ([], "x"), ([[]], [0]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ):
        assert difference(have, want) == math.inf, (have, want)


def test_told_values_meet_by_name_and_order() -> None:
    def told(what: str, value: object, within: float = 0.0) -> dict[str, object]:
        return {"what": what, "value": value, "within": within}

    same = [told("loss", 1.0, 1e-3), told("x", [1]), told("loss", 2.0, 1e-3)]
    assert not any(found.wrong for found in compare(same, same))
    near = [told("loss", 1.0001, 1e-3), told("x", [1]), told("loss", 2.0, 1e-3)]
    assert not any(found.wrong for found in compare(near, same))
    for wrong in ([same[0], same[1]], [*same, told("y", 1)], [same[2], same[1], same[0]],
                  [told("loss", 1.01, 1e-3), *same[1:]], [told("loss", math.nan, 1e-3), *same[1:]],
                  [same[0], told("x", [2], 1.0)], []):
        assert any(found.wrong for found in compare(wrong, same))
    looser = [told("loss", 1.5, 1.0), *same[1:]]
    assert any(found.wrong for found in compare(looser, same))  # the stricter of the two holds


def test_what_a_script_tells(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from told import own, tell\nimport sys\n"
        "print('a package says', end='\\r')\ntell('loss', (1.5, float('nan')), 1e-5)\n"
        "own('counts', {3: 4})\nprint('{}')\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(matrix.SCRIPTS)},
    )
    first, second = matrix.told_lines(done.stdout)
    assert first["what"] == "loss" and first["within"] == 1e-5 and first["value"][0] == 1.5
    assert math.isnan(first["value"][1]) and second == {"what": "counts", "value": {"3": 4}}


def test_rows_have_scripts_that_hide_no_package() -> None:
    known = matrix.rows()
    packages = {package for row in known.values() for package in row.packages}
    names = {venvs.name_of(package).replace("-", "_").lower() for package in packages}
    for row in known.values():
        assert row.path.exists(), row.path
        assert row.path.stem not in names | set(sys.stdlib_module_names)
        assert row.packages and all("==" in p or p.startswith("-") for p in row.packages), row
    scripts = {path.stem for path in matrix.SCRIPTS.glob("*.py")} - {"told"}
    assert scripts == {row.path.stem for row in known.values()}


def test_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    one = matrix.Row("one", ("package==1.0",), "trains | tests")
    two = matrix.Row("two", ("other==2.0",), "saves", lacks="a thing")
    known = {"one": one, "two": two}
    found = compare(
        [{"what": "loss", "value": 1.0001, "within": 1e-3}, {"what": "x", "value": 1, "within": 1}],
        [{"what": "loss", "value": 1.0, "within": 1e-3}, {"what": "x", "value": 1, "within": 1}],
    )
    page.update(path, {"two": matrix.Result(two, found, {}, {"other": "2.0"})}, known)
    cells = r"two \| other 2.0 \| [-\d]+ \| saves \| 1e-04 \| equal \| a thing"
    assert re.search(cells, path.read_text())
    page.update(path, {"one": matrix.Failed("one, run, with graphc\nValueError: no")}, known)
    assert re.search(r"trains / tests .*stops\*\*: ValueError: no \|\n\| two", path.read_text())
    page.update(path, {}, {"one": one})
    assert "| two |" not in path.read_text() and "| one |" in path.read_text()


def test_what_the_page_says_is_of_rows() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    names = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert names[0] == "row" and set(names[1:]) <= set(matrix.rows())


def test_a_registry_that_does_not_answer_is_told_from_a_wrong_requirement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Said:
        returncode, stdout = 1, ""

        def __init__(self, stderr: str) -> None:
            self.stderr = stderr

    venv = venvs.Venv("graphc", tmp_path)
    for stderr, kind in (
        ("WARNING: Retrying (Retry(total=4)) after broken\nERROR: none", venvs.Unreachable),
        ("ERROR: No matching distribution found for torch>=2.14", RuntimeError),
    ):
        said = Said(stderr)
        monkeypatch.setattr(subprocess, "run", lambda *a, said=said, **k: said)
        with pytest.raises(kind, match="pip install x==1"):
            venvs._pip(venv, "x==1")


def test_lines_of_json_are_lines() -> None:
    assert list(matrix.told_lines(json.dumps({"told": {"what": "a\nb", "value": 1}})))
