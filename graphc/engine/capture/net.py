"""Python code that a recording does not see makes its caller open.

Every Python function that starts while a recording runs is a rewritten copy, part of graphc's own
machinery, or library code that graphc itself called. Anything else (a callback that C code makes,
a special method that no rule knows) ends the attempt to make one graph, before its first line.
Where nobody can tell of starting functions (starts.py), nothing is recorded as a whole.
"""

from __future__ import annotations

import _weakrefset
import importlib.util
import numbers
import os
import sys
import threading
import weakref
from abc import ABCMeta
from pathlib import Path, PurePath
from types import CodeType, FrameType, TracebackType
from typing import Any

from ...frontend.context import local
from .instrument import is_rewritten
from .kinds import PACKAGE, is_machinery, is_own_name
from .observer import Observer, running
from .starts import FrameEvaluation, Monitoring, Starts

_LIBRARY = (os.path.dirname(os.__file__), "<frozen ")
# what graphc itself stands on
_PACKAGES = tuple(
    str(Path(str(found.origin)).parent)
    for name in ("numpy", "ml_dtypes") if (found := importlib.util.find_spec(name)) is not None
)
_NUMPY = _PACKAGES[:1]  # c_functions.py says what its functions read
_WEAK = (weakref.__file__, _weakrefset.__file__)
# C code calls methods of these immutable numbers, which read themselves alone
_VALUES = (os.path.join(os.path.dirname(numbers.__file__), "fractions.py"), numbers.__file__)
# C code asks immutable paths for their text, which they may keep
_TEXTS = frozenset((PurePath.__fspath__.__code__, PurePath.__str__.__code__))
_HARMLESS = frozenset((
    ABCMeta.__instancecheck__.__code__, ABCMeta.__subclasscheck__.__code__,
))
_IMPORTS = "<frozen importlib._bootstrap>"
_LIMIT = 50_000
_owners: dict[str, str] = {}  # by file


def _place(code: CodeType) -> str:
    """"own", "library" or "user": whose code it is."""
    found = _owners.get(code.co_filename)
    if found is None:
        if len(_owners) > _LIMIT:
            _owners.clear()
        found = _owners[code.co_filename] = _owner(code.co_filename)
    return "own" if found != "own" and is_rewritten(code) else found


def _owner(file: str) -> str:
    if is_machinery(file):
        return "own"
    if file.startswith((PACKAGE, *_PACKAGES)):
        return "library"
    return "library" if file.startswith(_LIBRARY) and "site-packages" not in file else "user"


def is_settled(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Whether a function with this code is never a stranger, whoever calls it."""
    if _place(code) == "own" or code in _HARMLESS or code.co_filename.startswith(_NUMPY):
        return True
    if _is_generated(code, namespace) or code in _TEXTS or code.co_filename in _VALUES:
        return True
    if code.co_name == "__subclasshook__" and _place(code) == "library":
        return True
    # as objects die
    return code.co_filename in _WEAK and code.co_name in ("remove", "_remove")


def is_stranger(code: CodeType, namespace: dict[str, Any], caller: FrameType | None) -> bool:
    """Whether a function that starts is neither recorded nor called by graphc itself."""
    library = _is_library(code, namespace)
    if code.co_name == "__del__":  # the collector runs at any time
        return False
    while caller is not None:
        found = _place(caller.f_code)
        if caller.f_code.co_name == "__del__":
            return False
        if found == "own":
            return not library or is_rewritten(caller.f_code)
        if caller.f_code.co_filename == _IMPORTS and caller.f_code.co_name == "_find_spec":
            return False  # a finder in sys.meta_path: what an import runs is not observed
        library = library and _is_library(caller.f_code, caller.f_globals)
        if library and (caller.f_code in _TEXTS or caller.f_code.co_filename.startswith(_NUMPY)):
            return False  # a listed function of NumPy's imports something, say
        caller = caller.f_back
    return True


def _is_library(code: CodeType, namespace: dict[str, Any]) -> bool:
    return _place(code) == "library" or _is_generated(code, namespace)


def _is_generated(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Whether code without a file is that of a named tuple, or of a dataclass of graphc's own.

    It puts arguments into a new object, no more.
    """
    name = namespace.get("__name__", "")
    return code.co_filename == "<string>" and (
        "_tuple_new" in namespace if name.startswith("namedtuple_") else is_own_name(name)
    )


class _Asked(threading.local):
    """Whether this thread is at the verdict: what runs for that is not asked about."""

    busy = False


_asked = _Asked()


def starts(code: CodeType, namespace: dict[str, Any], caller: FrameType | None) -> bool:
    """A Python function starts. False: the verdict on this code is always the same."""
    if _owners.get(code.co_filename) == "own":  # nearly all that start for the first time
        return False
    if _asked.busy:
        return True
    _asked.busy = True
    try:
        if is_settled(code, namespace):
            return False
        observer = running.observer
        if (
            observer is not None and observer.running and is_stranger(code, namespace, caller)
            and observer.trace.starts_unseen(code, caller)
        ):
            local.innermost = caller  # sys.monitoring tells of a frame that is there already
            try:
                observer.open(f"{code.co_qualname}(), which C code calls,")
            finally:
                local.innermost = None
        return True
    finally:
        _asked.busy = False


_HELPERS = (is_settled, is_stranger, _place, _is_library, _is_generated, is_rewritten)
_STARTS: Starts = (
    Monitoring(starts) if sys.version_info >= (3, 12) else FrameEvaluation(starts, _HELPERS)
)


class Net:
    """A context in which the observer that runs learns of code that is not recorded."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._watching = False

    def __enter__(self) -> None:
        self._watching = _STARTS.watch()
        if not self._watching:
            self.observer.trace.passing = True
            self.observer.open(_STARTS.OTHER)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watching and not _STARTS.leave() and error is None:
            self.observer.open(_STARTS.OTHER)
