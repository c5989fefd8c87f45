"""What loading and running ONNX files raises."""

from __future__ import annotations

from typing import NoReturn


class OnnxError(RuntimeError):
    """A file that is no valid model, or one that asks for what graphc does not compute. The message
    names the node, the value and the cure."""


def refuse(what: str, cure: str) -> NoReturn:
    """Raise OnnxError."""
    raise OnnxError(f"{what}. Cure: {cure}")
