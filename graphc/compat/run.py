"""`python -m graphc run`: a script, as `python script.py` runs it, with torch answered by graphc.

sys.argv, sys.path[0], `__main__` and the exit status are as without graphc; tracebacks begin at
the script.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType
from typing import Any

from . import modes
from .finder import install

_HERE = os.path.dirname(os.path.abspath(__file__))
_ABOVE = os.path.dirname(_HERE)
_HOSTS = (
    _HERE, os.path.join(_ABOVE, "__main__.py"), os.path.join(_ABOVE, "explain_command.py"),
    "<frozen runpy>",
)


def main(mode: str, module: bool, target: str, arguments: Sequence[str]) -> int:
    """Run a script file (or a module, by name) with its arguments.

    mode: "as_written", "eager" (torch.compile does nothing) or "compile" (Modules' calls are
    compiled). What the script raises is raised, SystemExit too. Returns 0.
    """
    install()
    wrong = _missing_module(target) if module else _missing_file(target)
    if wrong:
        print(f"graphc run: {wrong}", file=sys.stderr)
        return 2
    modes.enter(mode)
    sys.excepthook = _shortened(sys.excepthook)
    sys.argv = [target, *arguments]
    if module:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    elif os.path.isdir(target) or not _is_source(target):
        runpy.run_path(target, run_name="__main__")
    else:
        _run_file(target)
    return 0


def _missing_file(path: str) -> str:
    """Why there is no script at a path; "" if there is one."""
    if not os.path.exists(path):
        return f"can't open file {os.path.abspath(path)!r}"
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, "__main__.py")):
        return f"can't find '__main__' module in {path!r}"
    return ""


def _missing_module(name: str) -> str:
    try:
        found = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):  # of its package; an empty name
        found = None
    return "" if found is not None else f"no module named {name!r}"


def _is_source(path: str) -> bool:
    with open(path, "rb") as file:
        return not file.read(4).startswith(b"PK\x03\x04")  # a zip archive with a __main__.py


def _run_file(path: str) -> None:
    absolute = os.path.abspath(path)
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    loader = importlib.machinery.SourceFileLoader("__main__", absolute)
    main = ModuleType("__main__")
    main.__file__ = absolute
    main.__loader__ = loader
    main.__spec__ = None  # as for a script: multiprocessing then imports it by its file
    main.__dict__["__builtins__"] = __builtins__
    main.__dict__["__cached__"] = None
    sys.modules["__main__"] = main  # for good: atexit functions and pickles look there
    with io.open_code(absolute) as file:
        code = compile(file.read(), absolute, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _shortened(hook: Callable[..., Any]) -> Callable[..., Any]:
    """An excepthook without the frames above the script."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        first = trace
        while first is not None and first.tb_frame.f_code.co_filename.startswith(_HOSTS):
            first = first.tb_next
        hook(kind, error.with_traceback(first), first)

    return show
