"""What becomes of one file: refused as it is loaded, refused at a call, or run; within bounds."""

from __future__ import annotations

import hashlib
import resource
import signal
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.export import (
    ExportedProgram,
    ExportedStep,
    ExportError,
    Limits,
    NativeProgram,
    containers,
    load,
)
from graphc.export.signature import tensor_type
from graphc.export.verifying import rows
from graphc.frontend.tensor import from_array
from graphc.ir import dim

SECONDS = 20
MEMORY = 2 << 30  # more than the process has at the beginning
LIMITS = Limits(nodes=5000, memory=1 << 27, elements=1 << 28, work=1 << 31, text=1 << 22)
# what a call may raise: the argument's, the graph's or the machine's fault, said in words
_REFUSALS = (ExportError, ValueError, TypeError, RuntimeError, IndexError, MemoryError,
             ArithmeticError)


class Outcome(NamedTuple):
    """`kind`: "refused at load", "refused at a call", "run", or "escaped": an error that is none
    of those that are promised."""

    kind: str
    said: str
    seconds: float


def bound() -> None:
    """Limit this process's memory, from now on."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def attempt(path: Path, call: bool = True, trust: str = "0" * 64) -> Outcome:
    """Load a file and call its program, within the limit of time: SIGALRM ends the process. Then
    by machine code in it, of which only that with the SHA-256 `trust` may run."""
    start = time.perf_counter()
    signal.alarm(SECONDS)
    try:
        kind, said = _attempt(path, call)
        escaped = _attempt_native(path, trust)
        kind, said = ("escaped", escaped) if escaped else (kind, said)
    finally:
        signal.alarm(0)
    return Outcome(kind, said, time.perf_counter() - start)


def _attempt(path: Path, call: bool) -> tuple[str, str]:
    try:
        program = load(path, limits=LIMITS)
    except ExportError as error:
        good = "cannot be loaded: " in str(error) and "Cure: " in str(error)
        return ("refused at load" if good else "escaped"), str(error)
    except Exception as error:
        return "escaped", f"load: {type(error).__name__}: {error}"
    if not call:
        return "run", "not called"
    try:
        if isinstance(program, ExportedProgram):
            program.module()
    except ExportError:
        pass
    except Exception as error:
        return "escaped", f"module: {type(error).__name__}: {error}"
    try:
        args, kwargs = arguments(program)
    except Exception as error:
        return "escaped", f"arguments: {type(error).__name__}: {error}"
    try:
        program(*args, **kwargs)
    except _REFUSALS as error:
        said = f"{type(error).__name__}: {error}"
        return ("refused at a call" if str(error) else "escaped"), said
    except Exception as error:
        return "escaped", f"call: {type(error).__name__}: {error}"
    if not isinstance(program, ExportedStep):
        return "run", ""
    try:
        list(rows(program.snapshot()))
    except Exception as error:
        return "escaped", f"verify: {type(error).__name__}: {error}"
    return "run", ""


def _attempt_native(path: Path, trust: str) -> str:
    """What went otherwise than promised: what runs has the hash, and what does not says so."""
    try:
        program = load(path, native=True, trust=trust, limits=LIMITS)
    except ExportError as error:
        return "" if str(path) in str(error) else f"native: {error}"
    except Exception as error:
        return f"native: {type(error).__name__}: {error}"
    if [hashlib.sha256(code).hexdigest() for code in _code(path)] != [trust]:
        return "native: code that is not trusted was loaded"
    args, kwargs = arguments(program)
    try:
        program(*args, **kwargs)
    except _REFUSALS:
        pass
    except Exception as error:
        return f"native: call: {type(error).__name__}: {error}"
    return ""


def _code(path: Path) -> list[bytes]:
    """The machine code in a file, of which nothing else is read."""
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist() if name.startswith("native/")]


def arguments(program: ExportedProgram | ExportedStep | NativeProgram) -> tuple[Any, Any]:
    """Arguments of the smallest sizes that a program takes, at most a few thousand elements."""
    ranges = program.signature.ranges
    dims = {name: max(2, bounds.least) for name, bounds in ranges.items()}

    def leaf(spec: Any) -> Any:
        if "value" in spec:
            return spec["value"]
        type_ = tensor_type(spec)
        names = {n for size in type_.shape if not isinstance(size, int) for n in size.variables()}
        known = {**dict.fromkeys(names, 2), **dims}
        shape = [min(dim.evaluate(size, known), 4096) for size in type_.shape]
        if int(np.prod(shape, dtype=object)) > 1 << 22:
            shape = [1] * len(shape)
        return from_array(np.ones(shape, type_.dtype.numpy))

    args, kwargs = containers.build(program.signature.arguments, leaf)
    return args, kwargs
