"""torch.fx: a Module's or a function's operations as a Graph that Python may rewrite.

`graph` has the Nodes, `_symbolic_trace` makes them, `code` writes them as Python again. What
compiles such code, as any other, is graphc.compile.
"""

from __future__ import annotations

from .. import unsupported
from . import experimental as experimental
from . import passes as passes
from ._symbolic_trace import Tracer, symbolic_trace, wrap
from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy

globals().update(unsupported.table(
    "torch.fx", "go along graph.nodes and replace what fits", functions="replace_pattern"
))

__all__ = [
    "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer",
    "has_side_effect", "map_arg", "symbolic_trace", "wrap",
]
