"""torch.multiprocessing.reductions: how tensors go from process to process."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler as ForkingPickler

from ..frontend.shared_memory import register


def init_reductions() -> None:
    """Let the standard library's queues and processes pass tensors on by their memory."""
    register()
