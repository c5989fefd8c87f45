"""GRAPHC_DEBUG=1: what the first call of a version took."""

from __future__ import annotations

import sys
import time

from graphc.collecting import IMPORTING
from graphc.engine.version.version import Specialisation


def show(version: Specialisation, started: float, imports: bool) -> None:
    """To stderr, in one line, after the run that began at `started`; `imports`: with the time that
    modules have taken by now. What compiling took by stage is in a line before."""
    built, first_run = version.engine.built, time.perf_counter() - started
    spent = sum(getattr(built, "times", {}).values())
    bill = {
        "recording": version.compile_seconds - spent, "compiling or loading": spent,
        "first run": first_run,
    }
    if imports:
        bill["importing graphc so far"] = IMPORTING.seconds
    parts = ", ".join(f"{part} {1e3 * seconds:.1f} ms" for part, seconds in bill.items())
    print(f"graphc: {built.name}: first call: {parts}", file=sys.stderr)
