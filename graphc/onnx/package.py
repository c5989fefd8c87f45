"""Where the onnx package is imported, at first use: it is an optional extra."""

from __future__ import annotations

from typing import Any


def onnx() -> Any:
    """The package. Raises ImportError with the cure where it is missing."""
    try:
        import onnx
        import onnx.checker
        import onnx.defs
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError(
            "ONNX files need the onnx package, which is not installed. "
            "Cure: pip install 'graphc-compiler[onnx]'"
        ) from error
    return onnx


def reference() -> Any:
    """onnx.reference, the package's own implementation of the operators."""
    onnx()
    import onnx.reference as found

    return found


def runtime() -> Any:
    """onnxruntime, which runs what was written. Raises ImportError with the cure."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "an ONNXProgram is run by the onnxruntime package, which is not installed. "
            "Cure: pip install onnxruntime"
        ) from error
    return onnxruntime
