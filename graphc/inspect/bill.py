"""GRAPHC_DEBUG=1: what the first call of a version took."""

from __future__ import annotations

import sys

from graphc.collecting import IMPORTING
from graphc.engine.version.version import Specialisation


def show(name: str, version: Specialisation, first_run: float, imports: bool) -> None:
    """To stderr, in one line; `imports`: with the time that modules have taken by now. What
    compiling took by stage is in a line before."""
    spent = sum(getattr(version.engine.built, "times", {}).values())
    bill = {
        "recording": version.compile_seconds - spent, "compiling or loading": spent,
        "first run": first_run,
    }
    if imports:
        bill["importing graphc so far"] = IMPORTING.seconds
    parts = ", ".join(f"{part} {1e3 * seconds:.1f} ms" for part, seconds in bill.items())
    print(f"graphc: {name}: first call: {parts}", file=sys.stderr)
