"""The documentation says what is so: its code runs, and prints what the pages show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphc
from graphc import config

from tests.docs.pages import blocks, run

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")
    if blocks(path.read_text(encoding="utf-8")) and path.name not in ("one_step.md",)
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page: str, request: Any) -> None:
    path = DOCS / page
    with config.override(threads=2):
        found = run(path)
    if request.config.getoption("--update-golden"):
        text = path.read_text(encoding="utf-8")
        for block, said in reversed(found):
            if block.said is not None:
                text = text[:block.span[0]] + said + text[block.span[1]:]
        path.write_text(text, encoding="utf-8")
        return
    for block, said in found:
        if block.said is not None:
            assert said == block.said, f"{page}:{block.line}"


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=DOCS.parent, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "compiling" / "index.html").read_text(encoding="utf-8")
    assert "fullgraph" in page  # the reference is made of the docstrings
    assert graphc.compile.__doc__
