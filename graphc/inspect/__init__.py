"""Seeing what the compiler does: reports, pictures, dumps and checks between passes."""

from graphc.inspect.explain import Explanation, explain
from graphc.inspect.picture import graph_svg

__all__ = ["Explanation", "explain", "graph_svg"]
