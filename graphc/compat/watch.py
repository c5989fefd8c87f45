"""Which functions of the user's compute in eager mode, and how much: counted for a few steps.

The counting is the interpreter's profile function and the count of eager operators, so it costs
nothing but while it lasts. Nothing looks at a clock.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ..engine.capture.kinds import PACKAGE
from ..engine.detour import original
from ..frontend import decorated
from ..frontend.context import local
from ..frontend.eager_count import EagerCount, Signature
from ..ir.op import Attrs, Op

_MOST = 50_000  # calls and returns, of C functions too, after which it ends by itself
_OWN = PACKAGE + os.sep
# no_grad() and the like, and optimizers, whose closures are steps
_PASSING_ON = frozenset({
    decorated.__file__, *(f"{_OWN}optim{os.sep}{name}.py" for name in ("optimizer", "lbfgs")),
})
_LIBRARIES = (
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")), _OWN, "<",
)
_INSTALLED = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"
_UNFIT = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Count:
    """Of one function: calls; in all of them, eager operators, and compiled calls of Modules, with
    the parameters that those have; in which functions it was called."""

    def __init__(self) -> None:
        self.calls = self.operators = self.compiled = self.parameters = self.passes = 0
        self.inside: set[CodeType] = set()


class Watch(EagerCount):
    """Counts in this thread from `start` to `stop`. `over` is called where neither comes to an end
    by itself: with the next start of a function."""

    def __init__(self, over: Callable[[], None]) -> None:
        super().__init__()
        self._over = over
        self.found: dict[CodeType, Count] = {}
        self._stack: list[CodeType] = []
        self._events = 0
        self._ended = False

    def start(self) -> bool:
        """False: something else watches Python, or operators, and nothing is counted."""
        if sys.gettrace() is not None or sys.getprofile() is not None or local.counted is not None:
            return False
        local.counted = self
        atexit.register(self.stop)  # Python's own end calls functions, when globals are gone
        sys.setprofile(self._event)
        return True

    def stop(self) -> None:
        """From now on nothing is counted, also where a pause ends later: events may come to an end
        between the asking for a pause and its begin."""
        self._ended = True
        self._pause()

    def _pause(self) -> None:
        atexit.unregister(self.stop)
        if sys.getprofile() == self._event:
            sys.setprofile(None)
        if local.counted is self:
            local.counted = None

    def __enter__(self) -> None:
        """Count nothing of what graphc does here for itself."""
        self._pause()

    def __exit__(self, *error: object) -> None:
        if not self._ended:
            self.start()

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        self._events += 1
        if self._events >= _MOST:
            self._over()
            return
        code = frame.f_code
        if event == "call":
            # hooks and custom Functions, which graphc calls, keep to what it expects of them
            caller = "" if frame.f_back is None else frame.f_back.f_code.co_filename
            called = caller.startswith(_OWN) and caller not in _PASSING_ON
            if is_users(code) and original(code) is code and not called:
                count = self.found.setdefault(code, Count())
                count.calls += 1
                count.inside.update(self._stack)
                self._stack.append(code)
        elif event == "return" and self._stack and self._stack[-1] is code:
            self._stack.pop()

    def note(self, op: Op, attrs: Attrs, signature: Signature) -> None:
        """Count an operator, for all that is being called."""
        for code in set(self._stack):
            self.found[code].operators += 1

    def noted(self, parameters: int, passes: int = 0) -> None:
        """Count a compiled call of something with so many parameters, or a backward pass."""
        for code in set(self._stack):
            count = self.found[code]
            count.compiled += 1 - passes
            count.passes += passes
            count.parameters = max(count.parameters, parameters)


_places: dict[str, bool] = {}  # by file


def is_users(code: CodeType) -> bool:
    """Whether code is a function of the user's own files."""
    file, name = code.co_filename, code.co_name
    if code.co_flags & _UNFIT or (name[:1] == "<" and name != "<lambda>"):
        return False
    if name == "forward" or (name[:2] == name[-2:] == "__" and name != "__call__"):
        return False
    found = _places.get(file)
    if found is None:
        found = _places[file] = not file.startswith(_LIBRARIES) and not any(
            part in file for part in _INSTALLED
        )
    return found
