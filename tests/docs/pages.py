"""The code on the pages of docs/: blocks that run from top to bottom, and what they print.

A ```python block is run, in the names of the blocks above it on its page. To Python they are one
file, PAGE.py, as a reader would copy them: the lines that errors name are those of the code, and do
not move with what is written around it. A ```text block right below holds what a block prints.
After a line `<!-- raises -->` the block raises, and the text is the error's kind and message. Three
dots stand for anything, as in doctest.
A block after `<!-- not run -->` needs what is not here.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import re
from pathlib import Path
from typing import Any, NamedTuple

_BLOCK = re.compile(
    r"(?<!<!-- not run -->\n)(?P<raises><!-- raises -->\n)?^```python\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<said>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    code: str
    said: str | None  # None: nothing is said of what it prints
    raises: bool
    line: int  # of the page, at which its code starts: where a test fails
    span: tuple[int, int]  # of `said`, in the page's text


def blocks(text: str) -> list[Block]:
    return [
        Block(m["code"], m["said"], bool(m["raises"]), text[:m.start("code")].count("\n") + 1,
              m.span("said"))
        for m in _BLOCK.finditer(text)
    ]


def run(page: Path) -> list[tuple[Block, str]]:
    """Each block of a page with what it said. Raises what a block raises that is not to."""
    names: dict[str, Any] = {"__name__": page.stem}
    file, copied = f"{page.stem}.py", ""
    found = []
    for block in blocks(page.read_text(encoding="utf-8")):
        code = "\n" * copied.count("\n") + block.code
        copied += block.code
        # so that errors and explain() show the lines that they name
        linecache.cache[file] = (len(copied), None, copied.splitlines(True), file)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                exec(compile(code, file, "exec"), names)
        except Exception as error:
            if not block.raises:
                raise
            said.write(f"{type(error).__name__}: {error}\n")
        else:
            assert not block.raises, f"{page.name}:{block.line} raises nothing"
        found.append((block, said.getvalue()))
    return found


def agrees(shown: str, said: str) -> bool:
    """Whether a block says what its page shows."""
    return doctest.OutputChecker().check_output(shown, said, doctest.ELLIPSIS)
