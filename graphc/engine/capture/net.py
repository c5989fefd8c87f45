"""Python code that a recording does not see makes its caller open.

Every Python function that starts while a recording runs is a rewritten copy, part of graphc's own
machinery, or library code that graphc itself called. Anything else (a callback that C code makes,
a special method that no rule knows) ends the attempt to make one graph, before its first line.
Python 3.12 and later tell of starting functions by sys.monitoring, 3.11 by sys.setprofile or
sys.settrace. Profilers, debuggers and coverage use these, too: the net takes what they leave free,
and gives back only what is still its own. Where nothing is left, nothing is recorded as a whole.
"""

from __future__ import annotations

import _weakrefset
import fractions
import inspect
import numbers
import sys
import sysconfig
import threading
import weakref
from abc import ABCMeta
from pathlib import Path, PurePath
from types import CodeType, FrameType, TracebackType
from typing import Any

import ml_dtypes
import numpy

from . import calls
from .kinds import PACKAGE, is_machinery, is_own_name
from .observer import Observer, running

_LIBRARY = (sysconfig.get_paths()["stdlib"], "<frozen ")
# what graphc itself stands on
_PACKAGES = tuple(str(Path(str(package.__file__)).parent) for package in (numpy, ml_dtypes))
_NUMPY = _PACKAGES[:1]  # c_functions.py says what its functions read
_WEAK = (weakref.__file__, _weakrefset.__file__)
# C code calls methods of these immutable numbers, which read themselves alone
_VALUES = (fractions.__file__, numbers.__file__)
# C code asks immutable paths for their text, which they may keep
_TEXTS = frozenset((PurePath.__fspath__.__code__, PurePath.__str__.__code__))
_HARMLESS = frozenset((
    ABCMeta.__instancecheck__.__code__, ABCMeta.__subclasscheck__.__code__,
))  # fmt: skip
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_TOOLS = (4, 3)  # of sys.monitoring: those that are set aside for no debugger and no profiler
_SLOTS = (sys.getprofile, sys.setprofile), (sys.gettrace, sys.settrace)
_LIMIT = 50_000
_seen: dict[int, tuple[str, CodeType]] = {}  # by id, which the code keeps taken


def _place(code: CodeType) -> str:
    """"own", "library" or "user": whose code it is."""
    found = _seen.get(id(code))
    if found is None:
        if id(code) in calls.REWRITTEN:
            return "own"
        if len(_seen) > _LIMIT:
            _seen.clear()
        found = _seen[id(code)] = _owner(code.co_filename), code
    return found[0]


def _owner(file: str) -> str:
    if file.startswith(PACKAGE):
        return "own" if is_machinery(file) else "library"
    if file.startswith(_PACKAGES):
        return "library"
    return "library" if file.startswith(_LIBRARY) and "site-packages" not in file else "user"


def _is_stranger(frame: FrameType) -> bool:
    """Whether a function that starts is neither recorded nor called by graphc itself."""
    code = frame.f_code
    if _place(code) == "own" or code in _HARMLESS or code.co_filename.startswith(_NUMPY):
        return False
    if code.co_filename in _VALUES or (
        code.co_name == "__subclasshook__" and _place(code) == "library"
    ):
        return False
    if code.co_filename in _WEAK and code.co_name in ("remove", "_remove"):  # as objects die
        return False
    library = _is_library(frame)
    if library and code in _TEXTS:
        return False
    caller: FrameType | None = frame
    while caller is not None:
        found = _place(caller.f_code)
        if caller.f_code.co_name == "__del__":  # the collector runs at any time
            return False
        if found == "own":
            return not library or id(caller.f_code) in calls.REWRITTEN
        library = library and _is_library(caller)
        if library and caller.f_code in _TEXTS:
            return False
        caller = caller.f_back
    return True


def _is_library(frame: FrameType) -> bool:
    return _place(frame.f_code) == "library" or _is_generated(frame)


def _is_generated(frame: FrameType) -> bool:
    """Whether code without a file is that of a named tuple, or of a dataclass of graphc's own."""
    name = frame.f_globals.get("__name__", "")
    return frame.f_code.co_filename == "<string>" and (
        name.startswith("namedtuple_") or is_own_name(name)
    )


class Net:
    """A context in which `observer` learns of code that is not recorded."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._busy = False

    def __enter__(self) -> None:
        taken = _watch(self) if sys.version_info >= (3, 12) else _take_slot(self)
        if taken:
            self.observer.trace.passing = True
            self.observer.open(f"a profiler or debugger that runs ({taken})")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if sys.version_info >= (3, 12):
            _unwatch(self)
        else:
            _leave_slot(self)

    def started(self, frame: FrameType) -> None:
        """A Python function starts in this thread."""
        observer = self.observer
        if self._busy or not observer.running or running.observer is not observer:
            return
        if _is_stranger(frame):
            self._busy = True
            try:
                observer.open(f"{frame.f_code.co_qualname}(), which C code calls,")
            finally:
                self._busy = False


class _Here(threading.local):
    """The nets of this thread."""

    def __init__(self) -> None:
        self.nets: list[Net] = []


_here = _Here()


def _take_slot(net: Net) -> str:
    """Watch this thread; what is in the way, if something is."""
    if not _here.nets:
        for get, set_ in _SLOTS:
            if get() is None:
                set_(_noticed)
                break
        else:
            return "sys.setprofile and sys.settrace"
    _here.nets.append(net)
    return ""


def _leave_slot(net: Net) -> None:
    if net not in _here.nets:
        return
    _here.nets.remove(net)
    if not _here.nets:
        for get, set_ in _SLOTS:
            if get() is _noticed:  # and not what the user's code has put there since
                set_(None)


# No bound method: CPython 3.11 holds no reference to it while it makes the frame for its call, and
# the collector, which may run then, may end the profiling.
def _noticed(frame: FrameType, event: str, argument: Any) -> None:
    if event != "call":
        return
    code = frame.f_code
    found = _seen.get(id(code))
    if found is not None and found[0] == "own":
        return
    # a generator that goes on was started in the open, or is closed by the collector
    goes_on = code.co_flags & _GENERATORS and frame.f_lasti >= 0
    nets = _here.nets
    if nets and not goes_on:
        nets[-1].started(frame)


class _Watching:
    """The nets of all threads, and the tool of sys.monitoring that tells them."""

    nets: list[Net] = []
    tool = -1
    lock = threading.Lock()


def _watch(net: Net) -> str:
    """Watch all threads; what is in the way, if something is."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    with _Watching.lock:
        if not _Watching.nets:
            tool = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
            if tool is None:
                return "sys.monitoring's tools 3 and 4"
            _Watching.tool = tool
            monitoring.use_tool_id(tool, "graphc")
            monitoring.register_callback(tool, monitoring.events.PY_START, _started)
            monitoring.set_events(tool, monitoring.events.PY_START)
        _Watching.nets.append(net)
    return ""


def _unwatch(net: Net) -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    with _Watching.lock:
        if net not in _Watching.nets:
            return
        _Watching.nets.remove(net)
        if not _Watching.nets:
            tool = _Watching.tool
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, monitoring.events.PY_START, None)
            monitoring.free_tool_id(tool)


def _started(code: CodeType, offset: int) -> Any:
    if _place(code) == "own":
        return None
    observer = running.observer
    for net in list(_Watching.nets):
        if net.observer is observer:
            frame = sys._getframe(1)
            net.started(frame)
    return None
