"""Parity records: one lambda per function, run with PyTorch and with graphc, and the comparison.

A case's lambda takes the torch namespace first: `lambda t, x, y: t.add(x, y, alpha=2)`. The same
table is run in eager mode (test_eager.py) and compiled.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Maker = Callable[[np.random.Generator, str], np.ndarray]

FLOAT = ("float32",)
FLOATS = ("float32", "float64")
NUMBERS = ("float32", "int64")
ALL = ("float32", "float64", "int64", "int32", "uint8", "bool")
HALVES = ("float16", "bfloat16")

# relative and absolute, per dtype of the result
TOLERANCE = {
    "float64": (1e-11, 1e-12), "float32": (2e-5, 2e-6), "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
}


@dataclass(frozen=True)
class Case:
    """One call. `segments`: why it is not one graph; `grad`: whether to differentiate."""

    name: str
    run: Callable[..., Any]
    inputs: tuple[Maker, ...]
    dtypes: tuple[str, ...] = FLOAT
    grad: bool = True
    segments: str = ""
    strides: bool = False  # compare the results' strides and whether they share memory too

    def arrays(self, dtype: str) -> list[np.ndarray]:
        """The same inputs at every run."""
        seed = zlib.crc32(f"{self.name} {dtype}".encode())
        generator = np.random.default_rng(seed)
        return [make(generator, dtype) for make in self.inputs]


CASES: list[Case] = []


def case(
    name: str, run: Callable[..., Any], *inputs: Maker, dtypes: tuple[str, ...] = FLOAT,
    grad: bool = True, segments: str = "", strides: bool = False,
) -> None:
    """Add a record; names are unique."""
    assert all(c.name != name for c in CASES), name
    CASES.append(Case(name, run, inputs, dtypes, grad, segments, strides))


# --- inputs ------------------------------------------------------------------------------------


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Maker:
    """Numbers of the case's dtype between low and high (integers and bools likewise)."""

    def make(generator: np.random.Generator, dtype: str) -> np.ndarray:
        values = generator.uniform(low, high, shape)
        if dtype == "bool":
            return values > (low + high) / 2
        if dtype == "bfloat16":  # NumPy has none: the tests convert
            return values.astype(np.float32)
        if np.dtype(dtype).kind == "u":
            values = np.abs(values)
        if np.dtype(dtype).kind in "iu":
            values = np.round(values * 3)
        return values.astype(dtype)

    return make


def positive(*shape: int, high: float = 3.0) -> Maker:
    """Numbers of the case's dtype above 0 (1 and more for integers)."""

    def make(generator: np.random.Generator, dtype: str) -> np.ndarray:
        if dtype == "bool":
            return np.ones(shape, bool)
        kind = "float32" if dtype == "bfloat16" else dtype
        if np.dtype(kind).kind in "iu":
            return generator.integers(1, 6, shape).astype(kind)
        return generator.uniform(0.1, high, shape).astype(kind)

    return make


def integers(*shape: int, low: int = 0, high: int = 3, dtype: str = "int64") -> Maker:
    """Integers in [low, high), whatever the case's dtype."""
    return lambda generator, _: generator.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> Maker:
    """True and False."""
    return lambda generator, _: generator.random(shape) > 0.5


def fixed(values: Any, dtype: str | None = None) -> Maker:
    """Given values, of the case's dtype unless one is given."""

    def make(generator: np.random.Generator, case_dtype: str) -> np.ndarray:
        kind = dtype or ("float32" if case_dtype == "bfloat16" else case_dtype)
        return np.array(values).astype(kind)

    return make


SPECIAL = fixed([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 3e38, 0.5, 2.5, -2.5])


# --- comparison --------------------------------------------------------------------------------


def to_tensors(t: Any, arrays: list[np.ndarray], dtype: str, grad: bool) -> list[Any]:
    """Tensors of library `t` on copies of the arrays; floats require a gradient if asked."""
    result = []
    for array in arrays:
        x = t.from_numpy(array.copy()) if array.ndim else t.tensor(array)
        if dtype == "bfloat16" and array.dtype == np.float32:
            x = x.to(t.bfloat16)
        if grad and array.dtype.kind == "f":
            x.requires_grad_()
        result.append(x)
    return result


def leaves(value: Any) -> list[Any]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value] if hasattr(value, "requires_grad") else []


def array_of(x: Any) -> np.ndarray:
    """A tensor's values, bfloat16 as float32."""
    x = x.detach()
    return np.asarray((x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy())


def dtype_of(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def assert_same(want: Any, have: Any, where: str = "result", scale: float = 1.0) -> None:
    """Equal structure, shapes, dtypes and (by the dtype's tolerance) values."""
    if isinstance(want, (tuple, list)) and not hasattr(want, "numel"):
        assert isinstance(have, (tuple, list)), f"{where}: {type(have)} for {type(want)}"
        assert len(want) == len(have), f"{where}: length {len(have)}, not {len(want)}"
        fields = [k for k in getattr(type(want), "__match_args__", ()) if k]
        for name in fields:
            assert hasattr(have, name), f"{where}: no field {name}"
        for i, (w, h) in enumerate(zip(want, have, strict=True)):
            assert_same(w, h, f"{where}[{i}]", scale)
        return
    if not hasattr(want, "requires_grad"):
        if isinstance(want, float):
            assert isinstance(have, float), f"{where}: {type(have)}"
            np.testing.assert_allclose(have, want, rtol=1e-6, err_msg=where)
        else:
            assert str(have) == str(want), f"{where}: {have!r}, not {want!r}"
        return
    assert tuple(have.shape) == tuple(want.shape), f"{where}: {have.shape}, not {want.shape}"
    assert dtype_of(have) == dtype_of(want), f"{where}: {have.dtype}, not {want.dtype}"
    a, b = array_of(have), array_of(want)
    relative, absolute = TOLERANCE.get(dtype_of(want), (0, 0))
    np.testing.assert_allclose(
        a, b, rtol=relative * scale, atol=absolute * scale, equal_nan=True, err_msg=where
    )


def gradients(t: Any, inputs: list[Any], outputs: list[Any]) -> list[Any]:
    """Gradients of a weighted sum of the float results that have a history."""
    total = None
    for i, out in enumerate(outputs):
        if not out.requires_grad:
            continue
        size = int(np.prod(out.shape, dtype=int))
        weights = np.cos(np.arange(size) + i).reshape(tuple(out.shape))
        weighted = (out * t.tensor(weights, dtype=out.dtype)).sum()
        total = weighted if total is None else total + weighted
    if total is None:
        return [None for _ in inputs]
    total.backward()
    return [x.grad for x in inputs]
