"""Element types, and PyTorch's promotion rules over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `name` is the IR's spelling (f32), `torch_name` the user's (float32)."""

    name: str
    torch_name: str
    kind: str  # "bool" | "uint" | "int" | "float"
    bits: int
    numpy: np.dtype

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, False for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    # torch spells these as attributes of torch.dtype
    @property
    def is_floating_point(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"torch.{self.torch_name}"

    def __str__(self) -> str:
        return self.__repr__()

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (by_name, (self.name,))

    def __deepcopy__(self, memo: object) -> DType:
        return self

    def __copy__(self) -> DType:
        return self

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return self is other


bool_ = DType("bool", "bool", "bool", 8, np.dtype(np.bool_))
u8 = DType("u8", "uint8", "uint", 8, np.dtype(np.uint8))
i8 = DType("i8", "int8", "int", 8, np.dtype(np.int8))
i16 = DType("i16", "int16", "int", 16, np.dtype(np.int16))
i32 = DType("i32", "int32", "int", 32, np.dtype(np.int32))
i64 = DType("i64", "int64", "int", 64, np.dtype(np.int64))
f16 = DType("f16", "float16", "float", 16, np.dtype(np.float16))
bf16 = DType("bf16", "bfloat16", "float", 16, np.dtype(ml_dtypes.bfloat16))
f32 = DType("f32", "float32", "float", 32, np.dtype(np.float32))
f64 = DType("f64", "float64", "float", 64, np.dtype(np.float64))

ALL: tuple[DType, ...] = (bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64)
FLOATS: tuple[DType, ...] = (f16, bf16, f32, f64)
INTEGERS: tuple[DType, ...] = (u8, i8, i16, i32, i64)

_BY_NAME = {d.name: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL}


def by_name(name: str) -> DType:
    """The dtype spelled `name` in the IR text. Raises KeyError with the known names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise KeyError(f"unknown dtype {name!r}; known: {', '.join(_BY_NAME)}") from None


def from_numpy(dtype: np.dtype | type) -> DType:
    """The dtype of a NumPy array's elements. Raises TypeError for one that graphc lacks."""
    found = _BY_NUMPY.get(np.dtype(dtype))
    if found is None:
        raise TypeError(
            f"can't convert numpy dtype {np.dtype(dtype)}; supported: "
            + ", ".join(d.torch_name for d in ALL)
        )
    return found


def promote(a: DType, b: DType) -> DType:
    """The smallest dtype that holds both, by torch's lattice (torch.promote_types)."""
    if a is b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_float and b.is_float:
        if a.bits == b.bits:  # f16 with bf16
            return f32
        return a if a.bits > b.bits else b
    if a.is_float:
        return a
    if b.is_float:
        return b
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed = a if a.kind == "int" else b
    return signed if signed.bits > 8 else i16


_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def result_type(operands: Iterable[tuple[DType, int]], default: DType = f32) -> DType:
    """torch.result_type: `operands` are (dtype, rank class), rank class 2 for tensors with
    dimensions, 1 for 0-d tensors, 0 for Python numbers (i64, `default` float or bool).

    A lower rank class only counts when its category (bool < integer < float) is higher than
    that of every higher rank class.
    """
    best: list[DType | None] = [None, None, None]
    for dtype, rank in operands:
        seen = best[rank]
        best[rank] = dtype if seen is None else promote(seen, dtype)
    result: DType | None = None
    for candidate in (best[2], best[1], best[0]):
        if candidate is None:
            continue
        if result is None or _CATEGORY[candidate.kind] > _CATEGORY[result.kind]:
            if result is not None and candidate is best[0] and candidate.is_float:
                candidate = default
            result = candidate
    if result is None:
        raise ValueError("result_type needs at least one operand")
    return result
