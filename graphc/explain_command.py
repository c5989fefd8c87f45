"""`python -m graphc explain`: a script runs, and each function that it compiled gets a page."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .engine.marks import Compilers

_PAGES = 50  # at most; those that were called most


def main(mode: str, module: bool, script: str, arguments: Sequence[str], out: Path) -> int:
    """Run a script as `python -m graphc run` does, then write `out`/NAME.html for each function.
    Returns 0; what the script raises is raised, after the pages are written."""
    kept: set[Any] = set()
    Compilers.functions = kept  # functions stay, whatever the script drops
    try:
        return int(importlib.import_module("graphc.compat.run").main(
            mode, module, script, arguments
        ))
    finally:
        _write(kept, out)


def _write(functions: set[Any], out: Path) -> None:
    """A page for each, and a line on stderr."""
    explain = importlib.import_module("graphc.inspect.explain").explain
    called = [each for each in functions if each.versions() or each.segments is not None]
    called.sort(key=lambda each: (-_calls(each), each.name))
    if not called:
        print("graphc explain: nothing was compiled, so there is no page", file=sys.stderr)
        return
    out.mkdir(parents=True, exist_ok=True)
    names: Counter[str] = Counter()
    for function in called[:_PAGES]:
        name = re.sub(r"[^\w.-]+", "_", function.name)[:80] or "function"
        names[name] += 1
        again = f"-{names[name]}" if names[name] > 1 else ""
        path = out / f"{name}{again}.html"
        try:
            explain(function).save_html(path)
        except Exception as error:  # a script's page must not hide what the script says
            print(f"graphc explain: no page about {function.name}(): {error}", file=sys.stderr)
            continue
        print(f"graphc explain: {function.name}(): {path}", file=sys.stderr)
    if len(called) > _PAGES:
        print(f"graphc explain: {len(called) - _PAGES} more functions", file=sys.stderr)


def _calls(function: Any) -> int:
    calls = sum(version.calls for version in function.versions())
    return calls + (0 if function.segments is None else int(function.segments.calls))
