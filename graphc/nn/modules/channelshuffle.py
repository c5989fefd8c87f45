"""ChannelShuffle."""

from __future__ import annotations

from ...frontend.tensor import Tensor
from .. import functional as F
from .module import Module


class ChannelShuffle(Module):
    """Channels [g * n] in the order [n * g] (Zhang et al. 2018)."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
