"""Native code as functions for Python, called as C code's are: `code(self, arguments, count)`.

A call costs tens of nanoseconds, where ctypes needs a microsecond; what it is given, the code reads
itself (layouts.py).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

METH_FASTCALL = 0x80


class Method(ctypes.Structure):
    """A PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def method(name: str, code: int) -> Method:
    """What is said of native code at an address."""
    return Method(name.encode(), code, METH_FASTCALL, None)


class _Address(int):
    """With what lives as long as it does."""

    kept: tuple[Any, ...]


def bound(method: Method, table: int, *kept: Any) -> Callable[..., Any]:
    """A function for Python, whose `self` is an address, as an int. `kept`: what its code reads,
    which lives as long as the function does."""
    address = _Address(table)
    address.kept = method, *kept
    made: Callable[..., Any] = _maker()(ctypes.addressof(method), address, None)
    return made


def address_of(name: str) -> int:
    """Where a function of CPython's API lies."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


@functools.cache
def _maker() -> Any:
    prototype = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    )
    return prototype(("PyCFunction_NewEx", ctypes.pythonapi))
