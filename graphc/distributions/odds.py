"""What distributions of successes have in common: a probability, or its log-odds."""

from __future__ import annotations

from typing import Any

from ..frontend.tensor import Tensor
from .utils import broadcast_all, is_probs, lazy_property, logits_to_probs, probs_to_logits


class Odds:
    """Either of the two is given; the other is computed once it is asked for."""

    _param: Tensor

    def _graphc_given(self, probs: Any, logits: Any, *others: Any) -> list[Tensor]:
        """Keep the one that is given, broadcast together with the others; gives these."""
        if is_probs(probs, logits):
            *given, self.probs = broadcast_all(*others, probs)
        else:
            *given, self.logits = broadcast_all(*others, logits)
        self._param = self.probs if probs is not None else self.logits
        return given

    @lazy_property
    def logits(self) -> Tensor:
        """Log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=True)
