"""Datasets: sources of samples by index, or by iteration."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from ...frontend import functions as T
from ...frontend.random_state import Generator
from ...frontend.tensor import Tensor

Item = TypeVar("Item", covariant=True)


class Dataset(Generic[Item]):
    """A map-style dataset: subclasses define __getitem__ and __len__."""

    def __getitem__(self, index: Any) -> Item:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Item]):
    """A stream of samples: subclasses define __iter__."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of tensors of the same first size; an index may be an int, a slice or a list."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensors[0].shape[0] != tensor.shape[0] for tensor in tensors):
            raise AssertionError(
                "Size mismatch between tensors: first sizes "
                f"{[tensor.shape[0] for tensor in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """Several datasets side by side: samples are tuples, or dicts if given by keyword."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like "
                "input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        lengths = {len(dataset) for dataset in args or kwargs.values()}
        if len(lengths) != 1:
            raise ValueError(f"Size mismatch between datasets: lengths {sorted(lengths)}")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Datasets one after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(accumulate(len(dataset) for dataset in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        number = bisect_right(self.cumulative_sizes, index)
        if number == len(self.datasets):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        return self.datasets[number][index - (self.cumulative_sizes[number - 1] if number else 0)]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())


class Subset(Dataset[Any]):
    """The samples of a dataset at given indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Several samples at once, by the dataset's own way if it has one."""
        chosen = [self.indices[i] for i in indices]
        several = getattr(self.dataset, "__getitems__", None)
        if callable(several):
            return list(several(chosen))
        return [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Disjoint random subsets of given lengths, or of given shares that add up to 1."""
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, share in enumerate(lengths):
            if not 0 <= share <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        counts = [math.floor(total * share) for share in lengths]
        for i in range(total - sum(counts)):
            counts[i % len(counts)] += 1
        for i, count in enumerate(counts):
            if count == 0:
                warnings.warn(
                    f"Length of split at index {i} is 0. This might result in an empty dataset.",
                    stacklevel=2,
                )
    else:
        counts = [int(length) for length in lengths]
        if sum(lengths) != total:
            raise ValueError(
                "Sum of input lengths does not equal the length of the input dataset! "
                f"({sum(lengths)} and {total})"
            )
    order = T.randperm(total, generator=generator).tolist()
    ends = list(accumulate(counts))
    return [
        Subset(dataset, order[end - count : end])
        for end, count in zip(ends, counts, strict=True)
    ]
