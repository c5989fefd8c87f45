"""The text of a tensor, as torch prints it."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from graphc.ir import dtypes
from graphc.ir.record import record

from .. import promote
from ..overriding import DisableTorchFunctionSubclass
from ..tensor import Parameter, Tensor, concrete, held


@record(eq=False, frozen=False)
class Options:
    """torch.set_printoptions."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = Options()
_PROFILES = {
    "default": Options(),
    "short": Options(precision=2, edgeitems=2),
    "full": Options(threshold=math.inf),
}


def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:
    """Digits after the point, elements from which a tensor is abridged, line width."""
    if profile is not None:
        chosen = _PROFILES[profile]
        for name in ("precision", "threshold", "edgeitems", "linewidth"):
            setattr(OPTIONS, name, getattr(chosen, name))
    for name, value in (
        ("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems),
        ("linewidth", linewidth),
    ):
        if value is not None:
            setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


class _Format:
    """One width and style for all elements of a tensor."""

    def __init__(self, values: np.ndarray, is_float: bool) -> None:
        self.is_float = is_float
        self.whole = True
        self.scientific = False
        self.width = 1
        if not is_float:
            self.width = max((len(str(v)) for v in values.reshape(-1).tolist()), default=1)
            return
        flat = values.reshape(-1).astype(np.float64)
        finite = flat[np.isfinite(flat) & (flat != 0)]
        if finite.size == 0:
            return
        magnitude = np.abs(finite)
        low, high = float(magnitude.min()), float(magnitude.max())
        self.whole = bool((finite == np.ceil(finite)).all())
        self.scientific = high / low > 1000.0 or high > 1e8 or (not self.whole and low < 1e-4)
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode
        if self.scientific:
            texts = [f"{v:.{OPTIONS.precision}e}" for v in finite.tolist()]
        elif self.whole:
            texts = [f"{v:.0f}." for v in finite.tolist()]
        else:
            texts = [f"{v:.{OPTIONS.precision}f}" for v in finite.tolist()]
        self.width = max(1, max(map(len, texts)))

    def __call__(self, value: Any) -> str:
        if not self.is_float:
            text = str(value)
        elif self.scientific:
            text = f"{value:{self.width}.{OPTIONS.precision}e}"
        elif self.whole:
            text = f"{value:.0f}"
            if math.isfinite(value):
                text += "."
        else:
            text = f"{value:.{OPTIONS.precision}f}"
        return text.rjust(self.width)


class _ComplexFormat:
    """One width and style for the real parts, one for the imaginary ones."""

    def __init__(self, values: np.ndarray) -> None:
        self.real, self.imag = _Format(values.real, True), _Format(values.imag, True)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: Any) -> str:
        imag = (self.imag(value.imag) + "j").lstrip()
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


def _abridged(array: np.ndarray) -> np.ndarray:
    """The elements that a summary shows."""
    edge = OPTIONS.edgeitems
    for axis, size in enumerate(array.shape):
        if size > 2 * edge:
            places = np.r_[0:edge, size - edge : size]
            array = np.take(array, places, axis)
    return array


_Style: TypeAlias = _Format | _ComplexFormat


def _vector(array: np.ndarray, indent: int, summary: bool, style: _Style) -> str:
    per_line = max(1, (OPTIONS.linewidth - indent) // (style.width + 2))
    edge = OPTIONS.edgeitems
    if summary and not edge:
        data = ["..."]
    elif summary and len(array) > 2 * edge:
        data = [
            *map(style, array[:edge].tolist()), " ...", *map(style, array[-edge:].tolist()),
        ]
    else:
        data = [style(v) for v in array.tolist()]
    lines = [", ".join(data[i : i + per_line]) for i in range(0, len(data), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _text(array: np.ndarray, indent: int, summary: bool, style: _Style) -> str:
    if array.ndim == 0:
        return style(array.item())
    if array.ndim == 1:
        return _vector(array, indent, summary, style)
    edge = OPTIONS.edgeitems
    if summary and len(array) > 2 * edge:
        last = len(array) - edge
        parts = [_text(array[i], indent + 1, summary, style) for i in range(edge)]
        parts.append("...")
        parts += [_text(array[i], indent + 1, summary, style) for i in range(last, len(array))]
    else:
        parts = [_text(row, indent + 1, summary, style) for row in array]
    gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + gap.join(parts) + "]"


def array_text(array: np.ndarray, indent: int, is_float: bool) -> str:
    """The elements in nested brackets."""
    if array.size == 0:
        return "[]"
    if is_float and array.dtype.itemsize == 2:
        array = array.astype(np.float32)
    summary = array.size > OPTIONS.threshold
    shown = _abridged(array) if summary else array
    style: _Style = (
        _ComplexFormat(shown) if array.dtype.kind == "c" else _Format(shown, is_float)
    )
    return _text(array, indent, summary, style)


def tensor_text(self: Tensor, *, tensor_contents: Any = None) -> str:
    """repr(tensor): the elements, and what of dtype, grad_fn and requires_grad is unusual."""
    with DisableTorchFunctionSubclass():
        return _text_of(self)


def _text_of(self: Tensor) -> str:
    what = "print(tensor)", "print it outside the compiled function"
    place = self.device
    array = held(self, *what) if place.type == "meta" else concrete(self, *what)
    kind = type(self)
    plain = kind in (Tensor, Parameter) or kind.__module__.startswith("graphc.")
    prefix = "tensor(" if plain else f"{kind.__name__}("
    indent = len(prefix)
    suffixes = [] if place.type == "cpu" else [f"device='{place}'"]
    default = promote.get_default_dtype()
    dtype = self.dtype
    usual = dtypes.complex_of(default) if dtype.is_complex else default
    if place.type == "meta":
        suffixes.append(f"size={tuple(array.shape)}")
        if dtype is not default:
            suffixes.append(f"dtype={dtype}")
    elif array.size == 0:
        if array.ndim != 1:
            suffixes.append(f"size={tuple(array.shape)}")
        if dtype is not default:
            suffixes.append(f"dtype={dtype}")
    elif dtype not in (usual, dtypes.i64, dtypes.bool_):
        suffixes.append(f"dtype={dtype}")
    shown = "..." if place.type == "meta" else array_text(array, indent, dtype.is_float)
    body = prefix + shown
    if self.grad_fn is not None:
        suffixes.append(f"grad_fn=<{self.grad_fn.label(self.output_nr)}>")
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    text = _with_suffixes(body, suffixes, indent)
    return text if plain or not getattr(self, "_is_param", False) else f"Parameter({text})"


def _with_suffixes(body: str, suffixes: list[str], indent: int) -> str:
    used = len(body) - body.rfind("\n") + 1
    for suffix in suffixes:
        if used + len(suffix) + 2 > OPTIONS.linewidth:
            body += ",\n" + " " * indent + suffix
            used = indent + len(suffix)
        else:
            body += ", " + suffix
            used += len(suffix) + 2
    return body + ")"


def parameter_text(self: Parameter) -> str:
    """repr(Parameter)."""
    return "Parameter containing:\n" + tensor_text(self)


setattr(Parameter, "__repr__", parameter_text)  # noqa: B010  # mypy knows only object's
METHODS = {"__repr__": tensor_text, "__str__": lambda self: repr(self)}
