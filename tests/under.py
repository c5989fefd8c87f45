"""`python -m tests.under debugger`: tests of capture beside a debugger, profiler or coverage.

`all` is one process for each tool.

The tool runs from before the import of graphc. What follows its name goes to pytest; paths
replace CORE.
"""

from __future__ import annotations

import argparse
import bdb
import contextlib
import cProfile
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

ROOT = Path(__file__).parents[1]
# what a tool could disturb: recordings, guards, rewritten code, segments
CORE = (
    "never_stale", "python_state", "recorded_code", "compile_semantics", "compile_training",
    "segments", "segments_fuzz", "numbers", "results", "argument_effects", "failed_calls",
    "instrument", "tools",
)


class Stepping(bdb.Bdb):
    """A debugger whose user steps through every line of `tests/` and of what is exec'd."""

    def __init__(self) -> None:
        super().__init__(skip=["graphc.*", "tests.under"])
        self.lines = 0

    def stop_here(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        mine = file.startswith((str(ROOT), "<")) and not file.startswith("<frozen")
        return mine and super().stop_here(frame)

    def user_line(self, frame: FrameType) -> None:
        self.lines += 1
        self.set_step()


@contextlib.contextmanager
def debugger() -> Iterator[None]:
    """A debugger that steps through the user's code."""
    tool = Stepping()
    tool.reset()
    before, elsewhere = sys.gettrace(), threading.gettrace()
    threading.settrace(tool.trace_dispatch)
    sys.settrace(tool.trace_dispatch)
    try:
        yield
        assert sys.gettrace() == tool.trace_dispatch, "a test took the debugger away"
    finally:
        sys.settrace(before)
        threading.settrace(elsewhere)  # type: ignore[arg-type]
    print(f"{tool.lines} lines stepped through")


@contextlib.contextmanager
def profiler() -> Iterator[None]:
    """cProfile."""
    with cProfile.Profile() as tool:
        yield
        running = sys.getprofile() if sys.version_info < (3, 12) else sys.monitoring.get_tool(2)
        assert running, "a test took the profiler away"
    print(f"{len(tool.getstats())} functions profiled")


@contextlib.contextmanager
def coverage(core: str) -> Iterator[None]:
    """coverage.py with one of its ways to measure."""
    os.environ["COVERAGE_CORE"] = core
    from coverage import Coverage

    tool = Coverage(data_file=None, config_file=False, source=[str(ROOT)])
    tool.start()
    try:
        yield
    finally:
        tool.stop()
    print(f"{len(tool.get_data().measured_files())} files measured by {core}")


TOOLS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "debugger": debugger,
    "profiler": profiler,
    "ctrace": lambda: coverage("ctrace"),
}
if sys.version_info >= (3, 12):
    TOOLS["sysmon"] = lambda: coverage("sysmon")


def main() -> int:
    """Run the command line; returns pytest's exit status, of `all` the highest."""
    parser = argparse.ArgumentParser(prog="python -m tests.under", description=__doc__)
    parser.add_argument("tool", choices=["all", *TOOLS])
    options, arguments = parser.parse_known_args()
    if options.tool == "all":
        command = [sys.executable, "-m", "tests.under"]
        return max(subprocess.call([*command, tool, *arguments], cwd=ROOT) for tool in TOOLS)
    if not any((ROOT / argument).exists() for argument in arguments):
        arguments += [f"tests/graphc/test_{name}.py" for name in CORE]
    with TOOLS[options.tool]():
        return int(pytest.main(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
