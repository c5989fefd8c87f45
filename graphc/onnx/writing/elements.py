"""Element types: our names, ONNX's numbers and words, and what holds all values of another."""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes
from graphc.ir.dtypes import DType

# TensorProto.DataType (onnx.proto), and the word in the type strings of ONNX's schemas
_TYPES: dict[DType, tuple[int, str]] = {
    dtypes.f32: (1, "float"), dtypes.u8: (2, "uint8"), dtypes.i8: (3, "int8"),
    dtypes.i16: (5, "int16"), dtypes.i32: (6, "int32"), dtypes.i64: (7, "int64"),
    dtypes.bool_: (9, "bool"), dtypes.f16: (10, "float16"), dtypes.f64: (11, "double"),
    dtypes.bf16: (16, "bfloat16"),
}
UNSIGNED = 13  # uint64, which we lack: shifts and conversions pass through it
# in which all of a type's values are exact, nearest first
WIDER: dict[DType, tuple[DType, ...]] = {
    dtypes.bf16: (dtypes.f32, dtypes.f64), dtypes.f16: (dtypes.f32, dtypes.f64),
    dtypes.f32: (dtypes.f64,), dtypes.u8: (dtypes.i32, dtypes.i64),
    dtypes.i8: (dtypes.i32, dtypes.i64), dtypes.i16: (dtypes.i32, dtypes.i64),
    dtypes.i32: (dtypes.i64,), dtypes.bool_: (dtypes.i32, dtypes.i64),
}
NARROW = frozenset({dtypes.u8, dtypes.i8, dtypes.i16})


def known(dtype: DType) -> bool:
    """Whether ONNX's operators take tensors of this dtype (they take no complex ones)."""
    return dtype in _TYPES


def number(dtype: DType) -> int:
    """TensorProto.DataType of a dtype."""
    return _TYPES[dtype][0]


def type_string(dtype: DType) -> str:
    """"tensor(float)": how schemas spell it."""
    return f"tensor({_TYPES[dtype][1]})"


def of_number(value: int) -> DType | None:
    """The dtype of a TensorProto.DataType; None for one that we lack."""
    return next((dtype for dtype, (each, _) in _TYPES.items() if each == value), None)


def of_type_string(text: str) -> DType | None:
    """The dtype of a schema's type string."""
    return next((d for d, (_, word) in _TYPES.items() if f"tensor({word})" == text), None)


def tensor_proto(onnx: Any, name: str, array: Any) -> Any:
    """A TensorProto with the array's bytes."""
    dtype = dtypes.from_numpy(array.dtype)
    return onnx.helper.make_tensor(
        name, number(dtype), array.shape, array.tobytes(), raw=True
    )
