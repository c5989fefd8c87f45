"""Element types, and PyTorch's promotion rules over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .late import late
from .record import record

if TYPE_CHECKING:
    import ml_dtypes
else:  # where numbers are of its kind
    ml_dtypes = late("ml_dtypes")


@record
class DType:
    """An element type. `name` is the IR's spelling (f32), `torch_name` the user's (float32)."""

    name: str
    torch_name: str
    kind: str  # "bool" | "uint" | "int" | "float" | "complex"
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
        return self.kind in ("int", "float", "complex")

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    def __getattr__(self, name: str) -> Any:
        """What _without_numpy left out."""
        if name != "numpy":
            raise AttributeError(f"{self!r} has no attribute {name!r}", name=name, obj=self)
        found = np.dtype(ml_dtypes.bfloat16)
        object.__setattr__(self, "numpy", found)
        OF_NUMPY[found] = self
        return found

    # torch spells these as attributes of torch.dtype
    @property
    def is_floating_point(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def differentiable(self) -> bool:
        """Whether its values can carry a gradient: floats and complex numbers."""
        return self.kind in ("float", "complex")

    @property
    def real(self) -> DType:
        """The dtype of the parts of a complex number; a real dtype itself."""
        return _PARTS.get(self.name, self)

    def to_real(self) -> DType:
        """torch.dtype.to_real: complex64 to float32; a real dtype stays."""
        return self.real

    def to_complex(self) -> DType:
        """torch.dtype.to_complex: float32 to complex64, float64 to complex128."""
        return complex_of(self)

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

    # there is one of each: by identity, without a call of Python at each lookup
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _name(made: DType, *facts: str | int) -> None:
    for field, value in zip(("name", "torch_name", "kind", "bits"), facts, strict=True):
        object.__setattr__(made, field, value)


def _without_numpy(*facts: str | int) -> DType:
    """A dtype of another package, which a program that does not use it need not import."""
    made: DType = DType.__new__(DType)
    _name(made, *facts)
    return made


class NamedDType(DType):
    """A dtype that is a name alone: code may hold and compare it, no tensor can have it."""

    __slots__ = ()

    def __init__(self, name: str, torch_name: str, kind: str, bits: int) -> None:
        _name(self, name, torch_name, kind, bits)

    @property
    def numpy(self) -> np.dtype:
        """Raises NotImplementedError: whatever makes elements of this dtype asks here."""
        cure = {"float": "torch.bfloat16 or torch.float16", "uint": "torch.int32 or torch.int64"}
        raise NotImplementedError(
            f"graphc has no tensors of dtype {self}. "
            f"Cure: use {cure.get(self.kind, 'torch.complex64')}"
        )

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.bits // 8


bool_ = DType("bool", "bool", "bool", 8, np.dtype(np.bool_))
u8 = DType("u8", "uint8", "uint", 8, np.dtype(np.uint8))
i8 = DType("i8", "int8", "int", 8, np.dtype(np.int8))
i16 = DType("i16", "int16", "int", 16, np.dtype(np.int16))
i32 = DType("i32", "int32", "int", 32, np.dtype(np.int32))
i64 = DType("i64", "int64", "int", 64, np.dtype(np.int64))
f16 = DType("f16", "float16", "float", 16, np.dtype(np.float16))
bf16 = _without_numpy("bf16", "bfloat16", "float", 16)
f32 = DType("f32", "float32", "float", 32, np.dtype(np.float32))
f64 = DType("f64", "float64", "float", 64, np.dtype(np.float64))
c64 = DType("c64", "complex64", "complex", 64, np.dtype(np.complex64))
c128 = DType("c128", "complex128", "complex", 128, np.dtype(np.complex128))
dtype = DType  # what users know them by, and what pickles and messages say
for _kind in (DType, NamedDType):
    _kind.__name__ = _kind.__qualname__ = "dtype"

c32 = NamedDType("c32", "complex32", "complex", 32)
NAMED: tuple[NamedDType, ...] = (
    c32,
    *(NamedDType(f"u{bits}", f"uint{bits}", "uint", bits) for bits in (16, 32, 64)),
    *(
        NamedDType(name.replace("float8", "f8"), name, "float", 8)
        for name in (
            "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"
        )
    ),
)

ALL: tuple[DType, ...] = (bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64)
FLOATS: tuple[DType, ...] = (f16, bf16, f32, f64)
INTEGERS: tuple[DType, ...] = (u8, i8, i16, i32, i64)
COMPLEX: tuple[DType, ...] = (c64, c128)  # beside ALL: few operators take them

_BY_NAME: dict[str, DType] = {d.name: d for d in (*ALL, *COMPLEX, *NAMED)}


class _OfNumpy(dict[np.dtype, DType]):
    """bfloat16 is among them once it was asked for, by whatever made an array of it, too."""

    def __missing__(self, dtype: np.dtype) -> DType:
        if dtype.name == "bfloat16" and dtype == bf16.numpy:
            return bf16
        raise KeyError(dtype)


OF_NUMPY = _OfNumpy({d.numpy: d for d in (*ALL, *COMPLEX) if d is not bf16})
_PARTS = {"c32": f16, "c64": f32, "c128": f64}


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts are of this float dtype (complex64 for the 16-bit ones)."""
    if dtype.is_complex:
        return dtype
    return c128 if dtype is f64 else c64


def converted_through(target: DType) -> DType:
    """The integers that a float becomes on its way to `target`, as in torch's builds for x86.

    What they cannot hold, and NaN, is their least number; then the width is cut.
    """
    return i32 if target.kind == "int" and target.bits <= 32 else i64


def by_name(name: str) -> DType:
    """The dtype spelled `name` in the IR text. Raises KeyError with the known names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise KeyError(f"unknown dtype {name!r}; known: {', '.join(_BY_NAME)}") from None


def from_numpy(dtype: np.dtype | type) -> DType:
    """The dtype of a NumPy array's elements. Raises TypeError for one that graphc lacks."""
    try:
        return OF_NUMPY[np.dtype(dtype)]
    except KeyError:
        raise TypeError(
            f"can't convert numpy dtype {np.dtype(dtype)}; supported: "
            + ", ".join(d.torch_name for d in ALL)
        ) from None


def rounded(value: Any, dtype: DType) -> np.ndarray:
    """A number as an array without dims; a float that is too large is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype.numpy)


def promote(a: DType, b: DType) -> DType:
    """The smallest dtype that holds both, by torch's lattice (torch.promote_types)."""
    if a is b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_complex or b.is_complex:
        return c128 if f64 in (a.real, b.real) else c64
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


_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


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
            if result is not None and result.is_float and candidate.is_complex:
                candidate = complex_of(result)
            result = candidate
    if result is None:
        raise ValueError("result_type needs at least one operand")
    return result
