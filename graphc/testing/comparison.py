"""assert_close: values, dtypes and shapes of nested results, with a message that says how far."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..frontend.functions import as_tensor, is_tensor
from ..frontend.layouts import sparse_coo, strided
from ..frontend.tensor import Tensor

# dtype -> (rtol, atol); others are compared exactly
TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}
_SCALARS = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
Message = str | Callable[[str], str] | None


class _Options(NamedTuple):
    """What assert_close was told."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
    atol: float | None = None, equal_nan: bool = False, check_device: bool = True,
    check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    Tensors, arrays, numbers, and sequences and mappings of them. Without tolerances those of the
    dtype are used (torch's: float32 1.3e-6 and 1e-5). Raises TypeError for what cannot be compared.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            "Both 'rtol' and 'atol' must be either specified or omitted, but got no "
            f"{'rtol' if rtol is None else 'atol'}."
        )
    options = _Options(
        allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout,
        check_stride,
    )
    work: list[tuple[Any, Any, str]] = [(actual, expected, "")]
    while work:
        have, want, path = work.pop()
        children, problem = _compare(have, want, path, options)
        if problem is not None:
            if path:
                problem += f"\n\nThe failure occurred for item {path}"
            raise AssertionError(msg(problem) if callable(msg) else msg or problem)
        work.extend(reversed(children))


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = True, msg: str = "",
) -> None:
    """The older name: dtypes are not compared, and actual may be anything array-like."""
    have = actual if is_tensor(actual) else as_tensor(actual)
    want = expected if is_tensor(expected) else as_tensor(expected, dtype=have.dtype)
    if rtol is None and atol is None:
        pairs = [TOLERANCES.get(_name(t), (0.0, 0.0)) for t in (have, want)]
        rtol, atol = max(p[0] for p in pairs), max(p[1] for p in pairs)
    assert_close(have, want, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False,
                 msg=msg or None)


Work = list[tuple[Any, Any, str]]


def _compare(have: Any, want: Any, path: str, options: _Options) -> tuple[Work, str | None]:
    """(what is inside and still to compare, what is wrong)."""
    if have is None or want is None:
        return [], None if have is want else f"None mismatch: {have} is not {want}"
    if isinstance(have, str) or isinstance(want, str):
        return _refuse(have, want)
    if isinstance(have, Sequence) and isinstance(want, Sequence):
        if len(have) != len(want):
            return [], f"The length of the sequences mismatch: {len(have)} != {len(want)}"
        rows = zip(have, want, strict=True)
        return [(h, w, f"{path}[{i}]") for i, (h, w) in enumerate(rows)], None
    if isinstance(have, Mapping) and isinstance(want, Mapping):
        missing = sorted(want.keys() - have.keys(), key=repr)
        extra = sorted(have.keys() - want.keys(), key=repr)
        if missing or extra:
            return [], (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {extra}"
            )
        return [(have[key], want[key], f"{path}[{key!r}]") for key in want], None
    if isinstance(have, bool | np.bool_) and isinstance(want, bool | np.bool_):
        return [], None if have == want else f"Booleans mismatch: {have} is not {want}"
    if isinstance(have, numbers.Number) and isinstance(want, numbers.Number):
        return [], _numbers(have, want, options)
    if isinstance(have, Tensor | np.ndarray) and isinstance(want, Tensor | np.ndarray):
        if not options.allow_subclasses and type(have) is not type(want):
            return _refuse(have, want)
        if isinstance(have, Tensor) and isinstance(want, Tensor) and not (
            have.layout is want.layout is strided
        ):
            return _sparse(have, want, path, options)
        return [], _tensors(as_tensor(have), as_tensor(want), options)
    return _refuse(have, want)


def _sparse(
    have: Tensor, want: Tensor, path: str, options: _Options
) -> tuple[Work, str | None]:
    """Of tensors one of which is sparse: places and entries, or elements."""
    text = "The values for attribute '{}' do not match: {} != {}."
    if have.layout is not want.layout:
        if options.check_layout:
            return [], text.format("layout", have.layout, want.layout)
        return [(have.to_dense(), want.to_dense(), path)], None
    if have.shape != want.shape:
        return [], text.format("shape", have.shape, want.shape)
    if have.layout is not sparse_coo:
        have, want = have.to_sparse(), want.to_sparse()
    have, want = have.coalesce(), want.coalesce()
    if have._nnz() != want._nnz():
        return [], (
            "The number of specified values in sparse COO tensors does not match: "
            f"{have._nnz()} != {want._nnz()}"
        )
    return [
        (have.indices(), want.indices(), path), (have.values(), want.values(), path)
    ], None


def _refuse(have: Any, want: Any) -> tuple[Work, str | None]:
    raise TypeError(
        f"No comparison pair was able to handle inputs of type {type(have)} and {type(want)}."
    )


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _tolerances(options: _Options, *dtypes: str) -> tuple[float, float]:
    if options.rtol is not None and options.atol is not None:
        return options.rtol, options.atol
    pairs = [TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(p[0] for p in pairs), max(p[1] for p in pairs)


def _numbers(have: Any, want: Any, options: _Options) -> str | None:
    if options.check_dtype and type(have) is not type(want):
        return f"The (d)types do not match: {type(have)} != {type(want)}."
    rtol, atol = _tolerances(options, *(_SCALARS.get(type(v), "float64") for v in (have, want)))
    difference = abs(have - want)
    if have == want or difference <= atol + rtol * abs(want):
        return None
    if options.equal_nan and have != have and want != want:
        return None
    exact = not (rtol or atol)
    relative = difference / abs(want) if want else float("inf")
    notes = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {want} but got {have}.\n"
        f"Absolute difference: {difference}{notes[0]}\nRelative difference: {relative}{notes[1]}"
    )


def _tensors(have: Tensor, want: Tensor, options: _Options) -> str | None:
    text = "The values for attribute '{}' do not match: {} != {}."
    if have.shape != want.shape:
        return text.format("shape", have.shape, want.shape)
    if options.check_device and have.device != want.device:
        return text.format("device", have.device, want.device)
    if options.check_dtype and have.dtype != want.dtype:
        return text.format("dtype", have.dtype, want.dtype)
    if options.check_stride and have.stride() != want.stride():
        return text.format("stride()", have.stride(), want.stride())
    rtol, atol = _tolerances(options, _name(have), _name(want))
    a, b = _array(have), _array(want)
    if a.dtype != b.dtype:
        common = np.promote_types(a.dtype, b.dtype)
        a, b = a.astype(common), b.astype(common)
    if a.dtype == np.bool_:
        a, b = a.astype(np.int64), b.astype(np.int64)
    with np.errstate(all="ignore"):
        wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
        return _differences(a, b, wrong, rtol, atol) if wrong.any() else None


def _array(tensor: Tensor) -> np.ndarray:
    value = tensor.detach().cpu()
    # NumPy's own functions do not know bfloat16, and float16 would overflow in the differences
    return np.asarray((value.float() if _name(value) in ("bfloat16", "float16") else value).numpy())


def _differences(
    a: np.ndarray, b: np.ndarray, wrong: np.ndarray, rtol: float, atol: float
) -> str:
    exact = not (rtol or atol)
    absolute = np.where(wrong, np.abs(a - b), 0)
    relative = np.where(wrong, np.abs(a - b) / np.abs(b), 0)
    lines = [
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n",
        f"Mismatched elements: {wrong.sum()} / {wrong.size} ({wrong.mean():.1%})",
    ]
    for what, values, allowed in (("absolute", absolute, atol), ("relative", relative, rtol)):
        place = np.unravel_index(int(np.argmax(values)), values.shape)
        where = f" at index {tuple(map(int, place))}" if values.ndim else ""
        note = "" if exact else f" (up to {allowed} allowed)"
        lines.append(f"Greatest {what} difference: {values[place].item()}{where}{note}")
    if not wrong.ndim:
        return _scalar_text(a.item(), b.item(), lines, exact)
    return "\n".join(lines)


def _scalar_text(have: Any, want: Any, lines: list[str], exact: bool) -> str:
    rest = "\n".join(line.removeprefix("Greatest ").capitalize() for line in lines[2:])
    how = "equal" if exact else "close"
    return f"Scalars are not {how}!\n\nExpected {want} but got {have}.\n{rest}"
