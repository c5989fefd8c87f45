"""torch.quantization.quantize_fx: integers instead of floats."""

from __future__ import annotations

from .. import unsupported

_CURE = "run the model in float32 or bfloat16"

globals().update(unsupported.table("torch.quantization.quantize_fx", _CURE, functions="""
    prepare_fx prepare_qat_fx convert_fx fuse_fx
"""))
