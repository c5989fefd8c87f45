"""torch's names of the dtypes, and what torch.finfo and torch.iinfo say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.late import late

if TYPE_CHECKING:
    import ml_dtypes
else:
    ml_dtypes = late("ml_dtypes")

NAMES: dict[str, DType] = {
    d.torch_name: d for d in (*dtypes.ALL, *dtypes.COMPLEX, *dtypes.NAMED)
} | {
    "cfloat": dtypes.c64, "cdouble": dtypes.c128, "chalf": dtypes.c32,
    "float": dtypes.f32, "double": dtypes.f64, "half": dtypes.f16,
    "long": dtypes.i64, "int": dtypes.i32, "short": dtypes.i16,
}

PYTHON: dict[Any, DType] = {float: dtypes.f64, int: dtypes.i64, bool: dtypes.bool_,
                            complex: dtypes.c128}

TYPE_STRINGS: dict[str, DType] = {
    "FloatTensor": dtypes.f32, "DoubleTensor": dtypes.f64, "HalfTensor": dtypes.f16,
    "BFloat16Tensor": dtypes.bf16, "LongTensor": dtypes.i64, "IntTensor": dtypes.i32,
    "ShortTensor": dtypes.i16, "CharTensor": dtypes.i8, "ByteTensor": dtypes.u8,
    "BoolTensor": dtypes.bool_, "ComplexFloatTensor": dtypes.c64,
    "ComplexDoubleTensor": dtypes.c128,
}

TYPE_NAMES = {dtype: name for name, dtype in TYPE_STRINGS.items()}


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that holds both."""
    for place, given in enumerate((type1, type2), 1):
        if not isinstance(given, DType):
            raise TypeError(
                f"promote_types(): argument 'type{place}' (position {place}) must be torch.dtype, "
                f"not {type(given).__name__}"
            )
    return dtypes.promote(type1, type2)


# C++'s names, which torch's messages have
CPP_NAMES: dict[DType, str] = {
    dtypes.f32: "float", dtypes.f64: "double", dtypes.f16: "c10::Half",
    dtypes.bf16: "c10::BFloat16", dtypes.i64: "long int", dtypes.i32: "int",
    dtypes.i16: "short int", dtypes.i8: "signed char", dtypes.u8: "unsigned char",
    dtypes.bool_: "bool", dtypes.c64: "c10::complex<float>",
    dtypes.c128: "c10::complex<double>",
}


# the largest finite number of each dtype
LARGEST: dict[DType, float] = {
    dtypes.f64: float(np.finfo(np.float64).max), dtypes.f32: float(np.finfo(np.float32).max),
    dtypes.f16: 65504.0, dtypes.bf16: float(2.0**128 - 2.0**120),
    **{d: 2 ** (d.bits - (d.kind == "int")) - 1 for d in dtypes.INTEGERS},
}


_limits: dict[DType, dict[str, Any]] = {}


class finfo:
    """Limits of a floating-point dtype (torch.finfo)."""

    def __init__(self, dtype: DType | None = None) -> None:
        dtype = dtypes.f32 if dtype is None else dtype.real
        known = _limits.get(dtype)
        if known is not None:
            self.__dict__.update(known)
            return
        if not dtype.is_float:
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'torch.finfo', got {dtype}"
            )
        info: Any
        if dtype is dtypes.bf16 or dtype.bits == 8:  # NumPy's finfo does not know them
            number = getattr(ml_dtypes, dtype.torch_name)
            info = ml_dtypes.finfo(number)  # type: ignore[no-untyped-call]
        else:
            info = np.finfo(dtype.numpy)
        self.bits = dtype.bits
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = float(info.tiny)
        self.smallest_normal = self.tiny
        self.resolution = 1.0 if dtype.bits == 8 else float(f"1e-{info.precision}")
        if dtype.torch_name == "float8_e5m2fnuz":
            self.eps = 0.125  # what torch says
        self.dtype = dtype.torch_name
        _limits[dtype] = dict(self.__dict__)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer dtype (torch.iinfo)."""

    def __init__(self, dtype: DType) -> None:
        if not dtype.is_integer:
            raise TypeError(
                f"torch.iinfo() requires an integer input type. Use torch.finfo to handle "
                f"'torch.iinfo', got {dtype}"
            )
        info = np.iinfo(dtype.torch_name)
        self.bits, self.min, self.max = dtype.bits, int(info.min), int(info.max)
        self.dtype = dtype.torch_name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
