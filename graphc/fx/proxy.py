"""torch.fx.proxy: rewriting Python code."""

from __future__ import annotations

from .. import unsupported

_CURE = "torch.export.export() gives a graph of operators; Modules run as they are"

globals().update(unsupported.table("torch.fx.proxy", _CURE, kinds="""
    Proxy TraceError Attribute ParameterProxy GraphAppendingTracer
"""))
