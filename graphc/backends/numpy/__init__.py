"""NumPy: the reference for every operator, and what eager mode runs."""

from .counter import Draws
from .ops import TABLE, run, use
from .prepared import prepare

__all__ = ["TABLE", "Draws", "prepare", "run", "use"]
