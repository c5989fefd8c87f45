"""The Open Inference Protocol's names of dtypes."""

from __future__ import annotations

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.serve.errors import malformed, shown

NAMES: dict[DType, str] = {
    dtypes.bool_: "BOOL", dtypes.u8: "UINT8", dtypes.i8: "INT8", dtypes.i16: "INT16",
    dtypes.i32: "INT32", dtypes.i64: "INT64", dtypes.f16: "FP16", dtypes.bf16: "BF16",
    dtypes.f32: "FP32", dtypes.f64: "FP64",
}
_LACKING = ("UINT16", "UINT32", "UINT64", "BYTES")  # the protocol's others


def check(name: object, wanted: DType, tensor: str) -> None:
    """Raise Refused unless a request's datatype is the one that an input has."""
    if name == NAMES[wanted]:
        return
    if name in _LACKING:
        raise malformed(
            f"input {tensor!r}: graphc has no tensors of datatype {name}. Cure: send the numbers "
            f"as {NAMES[wanted]}, which the model takes"
        )
    raise malformed(
        f"input {tensor!r} has the datatype {shown(name)}. Cure: send {NAMES[wanted]}, which the "
        "model takes"
    )
