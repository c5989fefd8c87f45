"""Errors that name the user's line, the offending value and the cure."""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from types import FrameType
from typing import Any, NoReturn

import numpy

from graphc.ir.graph import Loc
from graphc.ir.op import OpError

from .context import local

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(numpy.__file__)) + os.sep
_WRITTEN = "<graphc>"  # the file of code that graphc has written itself
# generated code, NumPy and Python's own library, which only call on, have no line that helps
_HIDDEN = (_PACKAGE, _NUMPY, _WRITTEN, "<string>", "<frozen ", "<__array_function__")
_MODULES = os.path.join(_PACKAGE, "nn", "modules", "module.py")
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = ("site-packages", "dist-packages")  # below Python's library, but not of it
_inside: dict[str, bool] = {}  # by file

NOT_A_LEAF = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
    "attribute won't be populated during autograd.backward(). If you want it populated, call "
    ".retain_grad() on the non-leaf Tensor; if you access it by mistake, access the leaf instead."
)
INFERENCE_WRITE = (
    "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone "
    "to get a normal tensor before doing inplace update."
)
INFERENCE_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
    "inference mode in computation tracked by autograd. To work around this, you can make a clone "
    "to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
    "`torch.inference_mode()`."
)
STALE_VIEW = (
    "A view was created in no_grad mode and its base or another view of its base has been modified "
    "inplace with grad mode enabled. Cure: make the view, or write to its memory, in the same mode"
)


class TraceError(RuntimeError):
    """Something that a trace cannot record; the message names the user's line and the cure."""

    end: Any = None  # of the trial of one graph, a segment_trace.SegmentEnd


class MemoryLimitError(TraceError):
    """A function that needs more than its `max_memory`; `least`: bytes that it could do with."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


class EscapedTensorError(TraceError):
    """A traced Tensor was used after its trace had ended."""


class ControlError(TraceError):
    """Sub-graphs that make no operator: branches that differ, a loop whose state changes its type.
    Eager mode, which runs one branch as Python, would not say so."""


FINAL = (ControlError, EscapedTensorError)  # segments would come to the same


def user_location(module: str = "", optimizer: bool = False, beyond: str = "") -> Loc | None:
    """The innermost line of running code outside graphc; None if there is none.

    `beyond`: and outside the files whose paths contain this.
    """
    frame: FrameType | None = local.innermost or sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if not is_hidden(file) and not (beyond and beyond in file):
            return Loc(file, frame.f_lineno, code.co_qualname, module, optimizer)
        frame = frame.f_back
    return None


def warn_user(text: str) -> None:
    """A UserWarning that names the user's line, however many of graphc's own calls are between."""
    loc = user_location()
    if local.counted is not None:
        local.counted.warned()
    if loc is None:
        warnings.warn(text, stacklevel=2)
    else:
        warnings.warn_explicit(text, UserWarning, loc.file, loc.line)


_said: set[str] = set()


def warn_once(text: str) -> None:
    """warn_user(), but once in a process, as torch's own code warns."""
    if text not in _said:
        _said.add(text)
        warn_user(text)


def locate(error: Exception) -> None:
    """Add the user's line to the text of an error that graphc's own code has raised."""
    inner, loc = False, None
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        inner = code.co_filename.startswith((_PACKAGE, _WRITTEN))
        if not _hidden(code.co_filename):
            loc = Loc(code.co_filename, step.tb_lineno, code.co_qualname)
        step = step.tb_next
    if inner and loc is not None and "\n" not in str(error):
        error.args = (located(str(error), loc),)


def is_hidden(file: str) -> bool:
    """Whether a file's code is graphc's or Python's own, not the user's."""
    inside = _inside.get(file)
    if inside is None:
        inside = _inside[file] = _hidden(file)
    return inside


def _hidden(file: str) -> bool:
    if file.startswith(_HIDDEN):
        return True
    return file.startswith(_PYTHON) and not any(folder in file for folder in _INSTALLED)


def located(message: str, loc: Loc | None = None) -> str:
    """`message` with the user's file, line and function; under a trace the Module, too."""
    if loc is None:
        loc = user_location(called_module()) if local.trace is None else local.trace.here()
    if loc is None:
        return message
    inside = f" in {loc.function}" if loc.function not in ("", "<module>") else ""
    module = f", module {loc.module}" if loc.module else ""
    return f"{message}\n  at {loc}{inside}{module}"


def called_module() -> str:
    """The path of the Module whose call is running, below the outermost one: "blocks.2"."""
    frame: FrameType | None = sys._getframe(1)
    found: list[Any] = []
    while frame is not None:
        if frame.f_code.co_name == "_call_impl" and frame.f_code.co_filename == _MODULES:
            found.append(frame.f_locals["self"])
        frame = frame.f_back
    names = (
        next((name for name, module in outer.named_modules() if module is inner), "")
        for inner, outer in itertools.pairwise(found)
    )
    return ".".join(reversed([name for name in names if name]))


def kind_name(value: object) -> str:
    """The name of a value's type, as torch's messages have it."""
    kind = type(value)
    return f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__


def raise_op_error(error: OpError) -> NoReturn:
    """Raise what a type rule found wrong as the exception that torch raises."""
    raise error.kind(located(str(error))) from None


def unsupported_in_trace(what: str, cure: str) -> TraceError:
    """The error for an operation that needs a value which a trace does not have."""
    return TraceError(
        located(f"{what} needs the value of a Tensor, which is unknown while tracing. Cure: {cure}")
    )
