"""The documentation says what is so: its code runs, and prints what the pages show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphc import config
from tests.docs.pages import agrees, blocks, run

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")
    if blocks(path.read_text(encoding="utf-8")) and path.name not in ("one_step.md",)
)


# what a page's code needs, of the packages that not every installation has
NEEDS = {"how_to/onnx.md": ("onnx", "onnxruntime")}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page: str, request: Any) -> None:
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package)
    path = DOCS / page
    with config.override(threads=2):
        found = run(path)
    if request.config.getoption("--update-golden"):
        text = path.read_text(encoding="utf-8")
        for block, said in reversed(found):
            if block.said is not None and not agrees(block.said, said):
                text = text[:block.span[0]] + said + text[block.span[1]:]
        path.write_text(text, encoding="utf-8")
        return
    for block, said in found:
        if block.said is not None and not agrees(block.said, said):
            assert said == block.said, f"{page}:{block.line}"
