"""What notebooks show of the IR and of what is compiled; and the example, cell by cell."""

from __future__ import annotations

import ast
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
from graphc.inspect.observer import kernels_of
from tests.inspect.pages import Page, checked

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "look_inside.ipynb"


def test_graphs_kernels_and_programs() -> None:
    found = torch.explain(lambda x, w: torch.softmax(x @ w, 1), torch.ones(4, 3), torch.ones(3, 2))
    (part,) = found.parts
    for graph in (part.built.graph, part.built.fused):
        svg = graph._repr_svg_()
        assert svg is not None and ElementTree.fromstring(svg).tag.endswith("svg")
    for kernel in kernels_of(part.built.program):
        shown = kernel._repr_html_()
        assert shown is not None and f"kernel {kernel.name}(" in Page(shown).text
    shown = part.built.program._repr_html_()
    assert shown is not None and "output" in Page(shown).text
    assert "steps" in Page(found._repr_html_()).text


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells, in this process; what a cell ends with is shown."""

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = 0
    for number, source in enumerate(cells("code")):
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
            for kind in ("_repr_html_", "_repr_svg_"):
                if value is not None and hasattr(value, kind):
                    Page(getattr(value, kind)())
                    shown += 1
    assert shown >= 4
    assert "step" in checked((tmp_path / "step.html").read_text()).text


@pytest.mark.slow
def test_the_example_runs_in_jupyter(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    given = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    kinds = {kind for output in given for kind in output.get("data", {})}
    assert {"text/html", "image/svg+xml", "text/plain"} <= kinds
    assert not [output for output in given if output.output_type == "error"]
    checked((tmp_path / "step.html").read_text())
