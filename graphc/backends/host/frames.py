"""A callback before each Python function starts: CPython 3.11's frame evaluation (PEP 523).

sys.setprofile tells of every call of C code, too, and calls Python for each event. This asks
Python about code objects that are not marked alone; for those that are, it costs a few
nanoseconds. From 3.12 on sys.monitoring does the same.

What runs in segments may never need a compiler, and to load LLVM takes longer than all else that a
first recording of a small function does. So what it makes of the text below is kept for the most
common machine; a test makes it again.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Protocol, TypeAlias

# _PyInterpreterFrame of 3.11 (Include/internal/pycore_frame.h): the function, and who owns the
# frame, a generator being 1. A generator's frame goes on; its function has started before.
_FUNCTION, _OWNER, _GENERATOR = 0, 69, 1
# PyThreadState of 3.11 (Include/cpython/pystate.h): how many trace or profile functions run
_TRACING = 44
# what the code reads, 8 bytes each; "next" is what else would run the frame
_TABLE = (
    "index", "callback", "next", "true", "_PyCode_GetExtra", "_PyCode_SetExtra",
    "PyFunction_GetCode", "PyObject_CallOneArg", "Py_DecRef",
)
_PAGE = 4096  # of x86-64; the kept code's table is in the page after it, which stays writable
_TEXT = """
define {linkage} ptr @evaluate(ptr %thread, ptr %frame, i32 %throws) nounwind {{
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
  %code.of = load ptr, ptr {PyFunction_GetCode}
  %code = call ptr %code.of(ptr %function)
  %index = load i64, ptr {index}
  store ptr null, ptr %mark
  %get = load ptr, ptr {_PyCode_GetExtra}
  %failed = call i32 %get(ptr %code, i64 %index, ptr %mark)
  %found = load ptr, ptr %mark
  %marked = icmp ne ptr %found, null
  br i1 %marked, label %run, label %ask
ask:
  %callback = load ptr, ptr {callback}
  %apply = load ptr, ptr {PyObject_CallOneArg}
  %answer = call ptr %apply(ptr %callback, ptr %function)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %refused, label %answered
refused:
  ret ptr null
answered:
  %true = load ptr, ptr {true}
  %settled = icmp eq ptr %answer, %true
  %release = load ptr, ptr {Py_DecRef}
  call void %release(ptr %answer)
  br i1 %settled, label %remember, label %run
remember:
  %set = load ptr, ptr {_PyCode_SetExtra}
  %kept = call i32 %set(ptr %code, i64 %index, ptr inttoptr (i64 1 to ptr))
  br label %run
run:
  %next = load ptr, ptr {next}
  %result = tail call ptr %next(ptr %thread, ptr %frame, i32 %throws)
  ret ptr %result
}}
"""
# what LLVM makes of text_to_keep() for any x86-64
KEPT = bytes.fromhex("""
554157415641554154534883ec18807e4501744e837f2c0075484c8b3e4989fc4c89ff89d54989f5ff15021000004989
c6488b1dc80f000048c744240800000000488d5424084889c74889deff15ce0f00004c89e74c89ee89ea48837c240800
7417488b05a70f00004883c4185b415c415d415e415f5dffe0488b3d880f00004c89feff15af0f00004885c07442488b
0d830f000048894c24104889c74989c7ff159a0f00004c3b7c241089ea4c89ee4c89e775adba010000004c89f74889de
ff15620f00004c89e74c89ee89eaeb9231c04883c4185b415c415d415e415f5dc3
""")


class Library(Protocol):
    """Native code in this process."""

    def address(self, name: str) -> int: ...


# of a name and the text that it stands for
Link: TypeAlias = Callable[[str, Callable[[], str]], Library]


class Evaluation:
    """Calls `callback(function)` before a Python function starts whose code is not marked; not for
    what debuggers and profilers run. Where that gives True, the code is marked.

    What the callback raises is raised in place of the call. `callback` and all that it calls
    must be marked, or it is called for itself. `link`: makes native code of LLVM assembly, where
    none is kept.
    """

    def __init__(
        self, callback: Callable[[FunctionType], bool], link: Link
    ) -> None:
        self._callback = callback  # the native code holds no reference
        self._own, table, self._memory = _mapped() or _linked(link)
        pointer, number = ctypes.c_void_p, ctypes.c_ssize_t
        request = _function("_PyEval_RequestCodeExtraIndex", number, pointer)
        self._index = request(None)
        values = {"index": self._index, "callback": id(callback), "next": 0, "true": id(True)}
        words = (ctypes.c_int64 * len(_TABLE)).from_address(table)
        for i, name in enumerate(_TABLE):
            words[i] = values[name] if name in values else _address(name)
        self._next = ctypes.c_int64.from_address(table + 8 * _TABLE.index("next"))
        self._state = _function("PyInterpreterState_Get", pointer)()
        self._evaluator = _function("_PyInterpreterState_GetEvalFrameFunc", pointer, pointer)
        self._evaluate = _function(
            "_PyInterpreterState_SetEvalFrameFunc", None, pointer, pointer
        )
        self._mark = _function(
            "_PyCode_SetExtra", ctypes.c_int, ctypes.py_object, number, pointer
        )

    def mark(self, code: CodeType) -> None:
        """Functions with this code start unasked from now on."""
        self._mark(code, self._index, 1)

    def begin(self) -> None:
        """From now on the callback is called, in all threads."""
        before = self._evaluator(self._state)
        if before != self._own:
            self._next.value = before
            self._evaluate(self._state, self._own)

    def end(self) -> bool:
        """No more calls. False where something else has taken the place meanwhile."""
        if self._evaluator(self._state) != self._own:
            return False
        self._evaluate(self._state, self._next.value)
        return True


# --- the native code, and its table ------------------------------------------------------------


def text_to_keep() -> str:
    """The code that finds its table at a distance from itself, so that it can be anywhere."""
    used = '@llvm.used = appending global [1 x ptr] [ptr @evaluate], section "llvm.metadata"\n'
    return used + _text("internal", "@evaluate", _PAGE)


def _text(linkage: str, symbol: str, distance: int) -> str:
    places = {
        name: f"getelementptr (i8, ptr {symbol}, i64 {distance + 8 * i})"
        for i, name in enumerate(_TABLE)
    }
    return _TEXT.format(
        linkage=linkage, owner=_OWNER, generator=_GENERATOR, function=_FUNCTION,
        tracing=_TRACING, **places,
    )


def _mapped() -> tuple[int, int, Any] | None:
    """Where the kept code and its table are, and their owner; None: not for this machine."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    memory = mmap.mmap(-1, 2 * _PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(KEPT)
    code = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    if protect(code, _PAGE, mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    return code, code + _PAGE, memory


def _linked(link: Link) -> tuple[int, int, Any]:
    """Where LLVM puts the code and its table, and their owner."""
    table = f"@table = global [{len(_TABLE)} x i64] zeroinitializer\n"
    library = link("frames", lambda: table + _text("dso_local", "@table", 0))
    return library.address("evaluate"), library.address("table"), library


def _address(name: str) -> int:
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A C function of CPython, with its types."""
    kind = ctypes.PYFUNCTYPE(result, *arguments)
    made: Callable[..., Any] = kind((name, ctypes.pythonapi))
    return made
