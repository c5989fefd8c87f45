"""A callback before each Python function starts: CPython 3.11's frame evaluation (PEP 523).

sys.setprofile tells of every call of C code, too, and calls Python for each event. This asks
Python about code objects that are not marked alone; for those that are, it costs a few
nanoseconds. From 3.12 on sys.monitoring does the same.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from graphc.backends.llvm.jit import Library, compile_object
from graphc.backends.llvm.target import host_target

# _PyInterpreterFrame of 3.11 (Include/internal/pycore_frame.h): the function, and who owns the
# frame, a generator being 1. A generator's frame goes on; its function has started before.
_FUNCTION, _OWNER, _GENERATOR = 0, 69, 1
# PyThreadState of 3.11 (Include/cpython/pystate.h): how many trace or profile functions run
_TRACING = 44
_TEXT = """
declare i32 @_PyCode_GetExtra(ptr, i64, ptr)
declare ptr @PyFunction_GetCode(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare void @Py_DecRef(ptr)

@index = global i64 0
@callback = global ptr null
@next = global ptr null

define ptr @evaluate(ptr %thread, ptr %frame, i32 %throws) {{
  %mark = alloca ptr
  %owner_at = getelementptr i8, ptr %frame, i64 {owner}
  %owner = load i8, ptr %owner_at
  %goes_on = icmp eq i8 %owner, {generator}
  %tracing_at = getelementptr i8, ptr %thread, i64 {tracing}
  %tracing = load i32, ptr %tracing_at
  %traces = icmp ne i32 %tracing, 0
  %passes = or i1 %goes_on, %traces
  br i1 %passes, label %run, label %starts
starts:
  %function_at = getelementptr i8, ptr %frame, i64 {function}
  %function = load ptr, ptr %function_at
  %code = call ptr @PyFunction_GetCode(ptr %function)
  %index.value = load i64, ptr @index
  store ptr null, ptr %mark
  %failed = call i32 @_PyCode_GetExtra(ptr %code, i64 %index.value, ptr %mark)
  %found = load ptr, ptr %mark
  %marked = icmp ne ptr %found, null
  br i1 %marked, label %run, label %ask
ask:
  %callback.value = load ptr, ptr @callback
  %answer = call ptr @PyObject_CallOneArg(ptr %callback.value, ptr %function)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %refused, label %answered
refused:
  ret ptr null
answered:
  call void @Py_DecRef(ptr %answer)
  br label %run
run:
  %next.value = load ptr, ptr @next
  %result = tail call ptr %next.value(ptr %thread, ptr %frame, i32 %throws)
  ret ptr %result
}}
"""


class Evaluation:
    """Calls `callback(function)` before a Python function starts whose code is not marked; not for
    what debuggers and profilers run.

    What the callback raises is raised in place of the call. `callback` and all that it calls
    must be marked, or it is called for itself.
    """

    def __init__(self, callback: Callable[[FunctionType], None]) -> None:
        self._callback = callback  # the native code holds no reference
        text = _TEXT.format(
            owner=_OWNER, generator=_GENERATOR, function=_FUNCTION, tracing=_TRACING
        )
        self._library = Library([compile_object(text, host_target())])
        pointer, number = ctypes.c_void_p, ctypes.c_ssize_t
        request = _function("_PyEval_RequestCodeExtraIndex", number, pointer)
        self._index = request(None)
        self._set("index", self._index)
        self._set("callback", id(callback))
        self._state = _function("PyInterpreterState_Get", pointer)()
        self._evaluator = _function("_PyInterpreterState_GetEvalFrameFunc", pointer, pointer)
        self._evaluate = _function(
            "_PyInterpreterState_SetEvalFrameFunc", None, pointer, pointer
        )
        self._mark = _function(
            "_PyCode_SetExtra", ctypes.c_int, ctypes.py_object, number, pointer
        )

    def _set(self, name: str, value: int) -> None:
        ctypes.c_int64.from_address(self._library.address(name)).value = value

    @functools.cached_property
    def _own(self) -> int:
        return self._library.address("evaluate")

    def mark(self, code: CodeType) -> None:
        """Functions with this code start unasked from now on."""
        self._mark(code, self._index, 1)

    def begin(self) -> None:
        """From now on the callback is called, in all threads."""
        before = self._evaluator(self._state)
        if before != self._own:
            self._set("next", before)
            self._evaluate(self._state, self._own)

    def end(self) -> bool:
        """No more calls. False where something else has taken the place meanwhile."""
        if self._evaluator(self._state) != self._own:
            return False
        before = ctypes.c_int64.from_address(self._library.address("next")).value
        self._evaluate(self._state, before)
        return True


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A C function of CPython, with its types."""
    kind = ctypes.PYFUNCTYPE(result, *arguments)
    made: Callable[..., Any] = kind((name, ctypes.pythonapi))
    return made
