"""torch.onnx: load() reads models. It needs the extra `onnx`."""

from __future__ import annotations

import enum

from .. import unsupported
from .reading import OnnxError, OnnxModule, load

_CURE = "torch.export.export() and torch.export.save() write a compiled graph"

globals().update(unsupported.table("torch.onnx", _CURE, functions="""
    export dynamo_export register_custom_op_symbolic unregister_custom_op_symbolic
    select_model_mode_for_export
""", kinds="""
    ONNXProgram ExportOptions
"""))


class TrainingMode(enum.Enum):
    """The mode of a Module while it is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """What export() would do with operators outside ONNX."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def is_in_onnx_export() -> bool:
    """False."""
    return False
