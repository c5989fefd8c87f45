"""What compiled runs are held to: PyTorch, or, where there is none, graphc's eager mode.

Scenarios run so on every Python, those for which no PyTorch is installed included.
"""

try:
    import torch
except ImportError:
    import graphc as torch  # type: ignore[no-redef]

__all__ = ["torch"]
