"""torch.fx.graph_module: rewriting Python code."""

from __future__ import annotations

from .. import unsupported

_CURE = "torch.export.export() gives a graph of operators; Modules run as they are"

globals().update(unsupported.table("torch.fx.graph_module", _CURE, kinds="""
    GraphModule
"""))
