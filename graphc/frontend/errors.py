"""Errors that name the user's line, the offending value and the cure."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
from types import CodeType, FrameType
from typing import NoReturn

from graphc.ir.graph import Loc
from graphc.ir.op import OpError

from .context import local

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# generated code, and library code that only calls on, has no line that helps
_HIDDEN = (
    _PACKAGE, "<string>", "<frozen ", "<__array_function__", copy.__file__, functools.__file__,
    contextlib.__file__,
)  # fmt: skip
_inside: dict[CodeType, bool] = {}


class TraceError(RuntimeError):
    """Something that a trace cannot record; the message names the user's line and the cure."""


class EscapedTensorError(TraceError):
    """A traced Tensor was used after its trace had ended."""


def user_location(module: str = "", optimizer: bool = False) -> Loc | None:
    """The innermost line of running code outside graphc; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        inside = _inside.get(code)
        if inside is None:
            inside = _inside[code] = code.co_filename.startswith(_HIDDEN)
        if not inside:
            return Loc(code.co_filename, frame.f_lineno, code.co_qualname, module, optimizer)
        frame = frame.f_back
    return None


def located(message: str, loc: Loc | None = None) -> str:
    """`message` with the user's file, line and function; under a trace the Module, too."""
    if loc is None:
        loc = user_location() if local.trace is None else local.trace.here()
    if loc is None:
        return message
    inside = f" in {loc.function}" if loc.function not in ("", "<module>") else ""
    module = f", module {loc.module}" if loc.module else ""
    return f"{message}\n  at {loc}{inside}{module}"


def raise_op_error(error: OpError) -> NoReturn:
    """Raise what a type rule found wrong as the exception that torch raises."""
    raise error.kind(located(str(error))) from None


def unsupported_in_trace(what: str, cure: str) -> TraceError:
    """The error for an operation that needs a value which a trace does not have."""
    return TraceError(
        located(f"{what} needs the value of a Tensor, which is unknown while tracing. Cure: {cure}")
    )
