"""torch.onnx.errors: what an export raises."""

from __future__ import annotations

__all__ = ["OnnxExporterError", "OnnxExporterWarning", "UnsupportedOperatorError"]


class OnnxExporterWarning(UserWarning):
    """What is written holds less than what was exported."""


class OnnxExporterError(RuntimeError):
    """A model that an ONNX file cannot hold. The message has the cure."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator of the model that ONNX has no operators for."""
