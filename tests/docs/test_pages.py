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


_PAGE = '''
```python
def divided(x):
    return x / 0
```

{between}

<!-- raises -->
```python
import traceback
try:
    divided(1)
except ZeroDivisionError as error:
    raise ValueError(traceback.format_exc()) from error
```
'''


def test_lines_do_not_move_with_what_is_written_between(tmp_path: Path) -> None:
    said = []
    for between in ("A line.", "Two\nlines.\n\nAnd a third."):
        page = tmp_path / "page.md"
        page.write_text(_PAGE.format(between=between), encoding="utf-8")
        said.append(run(page)[1][1])
    assert said[0] == said[1]
    # a function of an earlier block is shown, too
    assert 'File "page.py", line 2, in divided\n    return x / 0' in said[0]
    assert 'File "page.py", line 5, in <module>\n    divided(1)' in said[0]
