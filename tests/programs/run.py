"""Run a program: eager and compiled, or with PyTorch; what a user could see after each call."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import linecache
import logging
import os
import random
import sys
import tempfile
import types
import warnings
import zlib
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import graphc
from tests.programs.picture import Painter, difference
from tests.programs.program import Program

TOLERANCE = 1e-5
_AID = "scale = 2.0\n\n\ndef double(v):\n    return v * scale\n"
_SUB = "add = 1.0\n"
_HIDDEN = ("data", "row", "script", "torch", "nn", "F", "compile", "entry", "plain_entry", "owner")


_ONCE = "Converting a tensor with requires_grad=True to a scalar"  # PyTorch, once a process


class Seen(NamedTuple):
    """One run: what was seen after each step, and whether the function stayed one graph.

    If not, `ends` says why, and `demands` whether its Python needed the value of a tensor: such a
    program can never be one graph. `guards`: how many the newest version has.
    """

    steps: list[Any]
    whole: bool
    count: int
    ends: tuple[str, ...] = ()
    demands: bool = False
    guards: int = 0


class Failure(NamedTuple):
    """How two runs differ: after which step, and in what."""

    kind: str
    step: int
    detail: str


def identity(function: Any = None, **_options: Any) -> Any:
    """What stands for compile() in eager runs."""
    return (lambda f: f) if function is None else function


def check(program: Program) -> tuple[Failure | None, Seen]:
    """Eager and compiled, compared; and the compiled run."""
    eager = run(program, graphc, identity)
    compiled = run(program, graphc, graphc.compile)
    return compare(eager, compiled), compiled


def check_torch(program: Program, torch: Any) -> Failure | None:
    """PyTorch and graphc eager, compared: is the program a fair one?

    Which writes count is PyTorch's own: those of its batch_norm do not.
    """
    return compare(run(program, torch, identity), run(program, graphc, identity), {"written"})


def compare(first: Seen, second: Seen, without: Set[str] = frozenset()) -> Failure | None:
    """The first step after which two runs differ."""
    for i, (a, b) in enumerate(zip(first.steps, second.steps, strict=True)):
        for kind in a:
            found = "" if kind in without else difference(a[kind], b[kind], TOLERANCE, kind)
            if found:
                return Failure(kind, i, found)
    return None


def run(program: Program, torch: Any, compile: Callable[..., Any]) -> Seen:
    """Run the script of a program in a module of its own."""
    source = program.source()
    made: list[Any] = []

    def noted(function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda f: noted(f, **options)
        result = compile(function, **options)
        made.append(getattr(result, "_compiled_function", result))
        return result

    with tempfile.TemporaryDirectory() as folder, _outside(torch), _modules(folder) as module:
        path = Path(folder) / "program.py"
        path.write_text(source)
        module.__dict__.update(
            torch=torch, nn=torch.nn, F=torch.nn.functional, compile=noted, __file__=str(path)
        )
        linecache.checkcache(str(path))
        exec(builtins.compile(source, str(path), "exec"), module.__dict__)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            steps = _steps(module, torch, said)
    last = made[-1] if made else None
    segments = getattr(last, "segments", None)
    ends = () if segments is None else tuple(segments.ends)
    return Seen(
        steps, segments is None, getattr(last, "compile_count", 0),
        tuple(end.reason for end in ends), any(end.value for end in ends), _guards(last),
    )


def _guards(compiled: Any) -> int:
    version = getattr(compiled, "newest", None)
    return 0 if version is None else len(version.guards.records)


def _steps(module: types.ModuleType, torch: Any, said: list[Any]) -> list[Any]:
    painter = Painter(torch, module)
    results: list[Any] = []
    seen: list[Any] = []
    space = module.__dict__
    handler = _Records()
    logging.getLogger().addHandler(handler)
    try:
        for kind, action, *mode in space["script"]:
            said.clear()
            with contextlib.redirect_stdout(io.StringIO()) as text:
                error = _step(kind, action, mode, space, torch, results)
            seen.append({
                "error": error,
                "seen": _painted(painter, space, results),
                "written": tuple(painter.written),
                "streams": _streams(torch),
                "modes": _modes(torch),
                "stdout": text.getvalue(),
                "warnings": tuple(
                    (w.category.__name__, str(w.message)[:40]) for w in said
                    if w.category.__name__ != "PerformanceWarning"  # compile's own
                    and not str(w.message).startswith(_ONCE)
                ),
                "log": tuple(handler.lines),
                "environment": tuple(map(_environment, ("PROGRAM_KEY", "PROGRAM_COUNT"))),
            })
            handler.lines.clear()
    finally:
        logging.getLogger().removeHandler(handler)
    return seen


def _painted(painter: Painter, space: dict[str, Any], results: list[Any]) -> Any:
    """The picture, or the error of what cannot be looked at (a tensor of a trace, say)."""
    try:
        return painter.paint(_roots(space), results)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _step(
    kind: str, action: Any, mode: list[str], space: dict[str, Any], torch: Any, results: list[Any]
) -> str:
    """Make a call or a change; gives the error's name."""
    try:
        if kind == "change":
            action()
            return ""
        arguments = action()
        results.append(arguments)
        context = getattr(torch, mode[0])() if mode[0] else contextlib.nullcontext()
        with context:
            results.append(space["entry"](*arguments))
        return ""
    except Exception as error:
        return type(error).__name__


def _roots(space: dict[str, Any]) -> dict[str, Any]:
    """The module's variables that are its own."""
    found = {}
    for name, value in space.items():
        if name.startswith(("__", "change_")) or name in _HIDDEN:
            continue
        if isinstance(value, types.ModuleType) and not value.__name__.startswith(("aid", "made")):
            continue
        if getattr(value, "__module__", "") in sys.stdlib_module_names:
            continue
        found[name] = value
    made = found.pop("made", None)
    for name, value in (made or {}).items():
        if name.startswith("part"):
            found[name] = value
    entry = space["entry"]
    if isinstance(entry, types.MethodType) and hasattr(entry.__func__, "__compiled_function__"):
        # of a decorated method: one object, as the method itself is
        entry = space.setdefault("plain_entry", types.MethodType(
            entry.__func__.__compiled_function__, entry.__self__
        ))
    found["entry"] = getattr(entry, "__compiled_function__", entry)
    found["owner"] = space.get("owner")
    if hasattr(found["entry"], "_orig_mod"):
        found["entry"] = found["entry"]._orig_mod
    return found


def _environment(name: str) -> tuple[Any, ...]:
    """What os.environ has noted, and what the process itself has."""
    found = ctypes.CDLL(None).getenv
    found.restype = ctypes.c_char_p
    return os.environ.get(name), found(name.encode())


def _modes(torch: Any) -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.get_num_threads(),
        torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu")),
        torch.is_autocast_cache_enabled(), str(torch.tensor([1.23456])),
    )


def _streams(torch: Any) -> tuple[Any, ...]:
    own = torch.get_rng_state().numpy().tobytes()
    return hash(random.getstate()), np.random.get_state()[2], zlib.crc32(own)


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


@contextlib.contextmanager
def _modules(folder: str) -> Iterator[types.ModuleType]:
    """A fresh module for the program, and the ones that it imports."""
    module, aid, sub = (types.ModuleType(n) for n in ("program", "aid", "aid.sub"))
    aid.sub, aid.__path__ = sub, []  # type: ignore[attr-defined]
    for part, text in ((aid, _AID), (sub, _SUB)):
        path = str(Path(folder) / f"{part.__name__}.py")
        Path(path).write_text(text)
        part.__file__ = path
        exec(builtins.compile(text, path, "exec"), part.__dict__)
    parts = {"program": module, "aid": aid, "aid.sub": sub}
    sys.modules.update(parts)
    try:
        yield module
    finally:
        for part in parts:
            sys.modules.pop(part, None)
        linecache.clearcache()


@contextlib.contextmanager
def _outside(torch: Any) -> Iterator[None]:
    """Everything outside the module, put back at the end."""
    kinds = (torch.nn.Linear, torch.nn.ReLU, torch.nn.Tanh)
    functional = torch.nn.functional
    of_layers = {name: getattr(functional, name) for name in dir(functional)}
    places = [(torch, dict(vars(torch))), (functional, of_layers)]
    forwards = [(kind, kind.forward) for kind in kinds]
    environment, threads = dict(os.environ), torch.get_num_threads()
    torch.set_num_threads(2)  # programs look at it, and other tests change it
    for name in ("PROGRAM_KEY", "PROGRAM_COUNT"):
        os.environ.pop(name, None)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    try:
        yield
    finally:
        for place, values in places:
            for name, value in values.items():
                if vars(place).get(name) is not value:
                    setattr(place, name, value)
        for kind, forward in forwards:
            kind.forward = forward
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.set_warn_always(False)
        torch.set_printoptions(precision=4)
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", torch.bfloat16)
        torch.set_autocast_cache_enabled(True)
        torch.set_anomaly_enabled(False)
        torch.set_num_threads(threads)
        np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
        np.set_printoptions(precision=8)
        np.setbufsize(8192)
        np.seterrcall(None)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        for logger in ("programs", "programs.level"):
            logging.getLogger(logger).setLevel(logging.NOTSET)
        logging.root.setLevel(logging.WARNING)
