"""Whether there is a GPU for torch.cuda: what amp asks, and what the package tells."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
