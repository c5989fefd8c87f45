"""Whether the user's Python would catch what an operator raises.

A segment's operators run where it ends, when Python may have left the try statement that the
operator stands in. What may fail in a statement that would catch it runs between segments.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TypeAlias

from graphc.ir.op import LinAlgError

from .errors import is_hidden

Path: TypeAlias = tuple[str, ...]  # "torch", "cuda", "OutOfMemoryError"

# the code that calls a recorded function of the user's
entries: set[CodeType] = set()

# operators that may refuse their inputs, and with what
FAILURES: dict[str, type[Exception]] = {
    **dict.fromkeys(
        ("index", "index_put", "gather", "scatter", "cross_entropy", "nll_loss"), IndexError
    ),
    **dict.fromkeys(("linalg_cholesky", "linalg_inv", "linalg_solve"), LinAlgError),
    "linalg_lu": RuntimeError,
}


def is_caught(kind: type[Exception]) -> bool:
    """Whether a function between here and the recorded one has an except clause for this kind of
    error around its call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in entries:
        code = frame.f_code
        if code.co_filename == "<string>" or not is_hidden(code.co_filename):  # exec(), python -c
            for path in _clauses(code, frame.f_lasti):
                if _may_catch(path, frame, kind):
                    return True
        frame = frame.f_back
    return False


def _may_catch(path: Path, frame: FrameType, kind: type[Exception]) -> bool:
    if not path:
        return True
    found = frame.f_globals.get(path[0], frame.f_builtins.get(path[0]))
    for name in path[1:]:
        found = getattr(found, name, None)
    return not isinstance(found, type) or issubclass(kind, found)


@functools.lru_cache(maxsize=4096)
def _clauses(code: CodeType, offset: int) -> tuple[Path, ...]:
    """What the except clauses name that are told of what the instruction at `offset` raises; an
    empty path is of any kind, or not understood. The handlers of finally and with raise it again:
    they are passed on the way out."""
    handlers = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    if not handlers:
        return ()
    found = list(dis.get_instructions(code))
    steps = {step.offset: i for i, step in enumerate(found)}
    paths: list[Path] = []
    seen: set[int] = set()
    while True:
        target = next((e.target for e in handlers if e.start <= offset < e.end), None)
        if target is None or target in seen:
            return tuple(paths)
        seen.add(target)
        paths += _named(found[steps[target] :])
        offset = target


def _named(steps: list[dis.Instruction]) -> Iterator[Path]:
    """What the clauses of one handler name."""
    if [step.opname for step in steps[:2]] == ["PUSH_EXC_INFO", "POP_TOP"]:  # except:
        yield ()
    loaded: list[Path] = []
    for step in steps:
        name = step.opname
        if name in ("WITH_EXCEPT_START", "RERAISE"):
            return
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            loaded.append((step.argval,))
        elif name == "LOAD_ATTR" and loaded:
            loaded[-1] = (*loaded[-1], step.argval)
        elif name == "CHECK_EXC_MATCH":
            yield from loaded or [()]
        elif name not in ("BUILD_TUPLE", "CACHE", "EXTENDED_ARG"):
            loaded = []
