"""torch.fx: rewriting Python code, which graphc does not do."""

from __future__ import annotations

from typing import Any

from .. import unsupported

_CURE = "torch.export.export() gives a graph of operators; Modules run as they are"

globals().update(unsupported.table("torch.fx", _CURE, functions="""
    symbolic_trace replace_pattern
""", kinds="""
    Graph GraphModule Interpreter Transformer Tracer Node Proxy CodeGen
"""))


def wrap(fn_or_name: Any) -> Any:
    """A decorator that marks nothing."""
    return fn_or_name


def has_side_effect(fn: Any) -> Any:
    """A decorator that marks nothing."""
    return fn
