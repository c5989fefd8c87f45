"""From indices to a batch: reading samples and collating them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from .collate import default_collate
from .dataset import Subset, TensorDataset


class Fetcher:
    """Reads batches of one dataset; `fetch` raises StopIteration where a stream has ended."""

    def __init__(
        self, dataset: Any, iterable: bool, batched: bool, collate_fn: Callable[[Any], Any],
        drop_last: bool,
    ) -> None:
        self.dataset, self.batched, self.collate_fn = dataset, batched, collate_fn
        self.drop_last = drop_last
        self.stream = iter(dataset) if iterable else None
        self.ended = False

    def fetch(self, index: Any) -> Any:
        """The batch of a list of indices, or the sample of one index."""
        if self.stream is not None:
            return self._next(index)
        if not self.batched:
            return self.collate_fn(self.dataset[index])
        if self.collate_fn is default_collate:
            rows = _rows(self.dataset, index)
            if rows is not None:
                return rows
        several = getattr(self.dataset, "__getitems__", None)
        if several:
            return self.collate_fn(several(index))
        return self.collate_fn([self.dataset[i] for i in index])

    def _next(self, index: Any) -> Any:
        assert self.stream is not None
        if self.ended:
            raise StopIteration
        if not self.batched:
            return self.collate_fn(next(self.stream))
        samples = list(islice(self.stream, len(index)))
        self.ended = len(samples) < len(index)
        if not samples or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate_fn(samples)


def _rows(dataset: Any, indices: Any) -> list[Any] | None:
    """What collating samples of a TensorDataset one by one would give, by one gather each; None
    where that is not sure."""
    rows = list(indices)
    while type(dataset) is Subset:
        rows = [dataset.indices[i] for i in rows]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or any(type(row) is not int for row in rows):
        return None
    return list(dataset[rows])
