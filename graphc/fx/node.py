"""torch.fx.node: rewriting Python code."""

from __future__ import annotations

from .. import unsupported

_CURE = "torch.export.export() gives a graph of operators; Modules run as they are"

globals().update(unsupported.table("torch.fx.node", _CURE, functions="""
    map_arg map_aggregate
""", kinds="""
    Node
"""))
