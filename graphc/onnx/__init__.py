"""torch.onnx: models as ONNX files, and back. It needs the extra `onnx`."""

from __future__ import annotations

import enum
import importlib
from typing import TYPE_CHECKING, Any

from .. import unsupported
from . import errors
from .errors import OnnxExporterError
from .running import is_in_onnx_export

if TYPE_CHECKING:
    from .reading import OnnxError, OnnxModule, load
    from .writing.export import export
    from .writing.program import ONNXProgram

# what programs that only ask is_in_onnx_export() need not load
_LATE = {
    "load": "reading", "OnnxError": "reading", "OnnxModule": "reading",
    "export": "writing.export", "ONNXProgram": "writing.program",
}

globals().update(unsupported.table(
    "torch.onnx", "torch.onnx.export() writes standard operators alone", functions="""
    dynamo_export register_custom_op_symbolic unregister_custom_op_symbolic
    select_model_mode_for_export
""", kinds="""
    ExportOptions
"""))


class TrainingMode(enum.Enum):
    """The mode of a Module while it is exported, with dynamo=False."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """What export() would do with operators outside ONNX: it refuses them."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'graphc.onnx' has no attribute {name!r}")
    module = importlib.import_module(f".{_LATE[name]}", __name__)
    found = globals()[name] = getattr(module, name)
    return found
