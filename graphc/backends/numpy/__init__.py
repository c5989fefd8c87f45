"""NumPy: the reference for every operator, and what eager mode runs."""

from .ops import TABLE, run

__all__ = ["TABLE", "run"]
