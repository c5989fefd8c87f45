"""DataLoader: batches of a dataset, in torch's order, in this process or by workers."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import GenericAlias
from typing import Any

from ...frontend.random_state import Generator
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .fetch import Fetcher
from .pinning import pinned
from .sampler import BatchSampler, RandomSampler, SequentialSampler, fresh_seed
from .worker import RESET, Failure, Job, Stopped, Worker, context_of, default_context

_collate_fn_t = Callable[[list[Any]], Any]  # in annotations of subclasses


class _Endless:
    """The sampler of an iterable dataset: only the number of its items counts."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class _DatasetKind:
    """How samples are asked for; libraries compare with these."""

    Map, Iterable = 0, 1


_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class DataLoader:
    """Iterates over batches of a dataset (torch.utils.data.DataLoader)."""

    __class_getitem__: Any = classmethod(GenericAlias)
    _graphc_made = False

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None, batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0, collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None, multiprocessing_context: Any = None,
        generator: Generator | None = None, *, prefetch_factor: int | None = None,
        persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers = dataset, num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout, self.worker_init_fn, self.in_order = timeout, worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if iterable else _DatasetKind.Map
        if iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, "
                    "sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        if sampler is None:
            sampler = self._graphc_default_sampler(bool(shuffle), generator)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        default = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn or default
        self.persistent_workers = persistent_workers
        self._iterator: Any = None  # that of persistent workers
        self._graphc_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._graphc_made and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        object.__setattr__(self, name, value)

    def _graphc_default_sampler(self, shuffle: bool, generator: Generator | None) -> Iterable[Any]:
        if self._dataset_kind == _DatasetKind.Iterable:
            return _Endless()
        if shuffle:
            return RandomSampler(self.dataset, generator=generator)
        return SequentialSampler(self.dataset)

    @property
    def multiprocessing_context(self) -> Any:
        """The context that workers are started in, made of a name if one was given; or None."""
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, given: Any) -> None:
        if given is not None and self.num_workers == 0:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading "
                "(num_workers > 0), but got num_workers=0"
            )
        self.__multiprocessing_context = None if given is None else context_of(given)

    # `_dataset_kind` and these three: libraries read them, and their subclasses define them
    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> Iterator[Any]:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self) -> int:
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(
            length / self.batch_size
        )


def _check_workers(count: int, timeout: float, prefetch: int | None, persistent: bool) -> None:
    if count < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if count == 0 and prefetch is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing. let num_workers "
            "> 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch is not None and prefetch < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and count == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_iterable(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    for name, value in (
        ("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)
    ):
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )


class _BaseDataLoaderIter:
    """What both ways of iterating are; the names are torch's, for libraries ask. `loader`: a
    DataLoader, or what has a library's own with its attributes (fastai)."""

    loader: Any

    def _placed(self, batch: Any) -> Any:
        return pinned(batch) if self.loader.pin_memory else batch


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Iteration in this process."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.indices = iter(loader._index_sampler)
        fresh_seed(loader.generator)  # drawn here as by torch, so that the streams agree
        self.fetcher = Fetcher(
            loader.dataset, loader._dataset_kind == _DatasetKind.Iterable, loader._auto_collation,
            loader.collate_fn, loader.drop_last,
        )

    def __iter__(self) -> _SingleProcessDataLoaderIter:
        return self

    def __next__(self) -> Any:
        return self._placed(self.fetcher.fetch(next(self.indices)))

    def __len__(self) -> int:
        return len(self.loader._index_sampler)


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Iteration by worker processes. Batches come in the order of their indices."""

    owner = 0  # the process that started the workers; none yet

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.indices = iter(loader._index_sampler)
        seed = fresh_seed(loader.generator)
        context = loader.multiprocessing_context or default_context()
        self.workers: list[Worker] = []
        self.owner = os.getpid()
        try:
            for number in range(loader.num_workers):
                job = Job(
                    loader.dataset, loader._dataset_kind == _DatasetKind.Iterable,
                    loader._auto_collation, loader.collate_fn, loader.drop_last, seed,
                    loader.worker_init_fn, number, loader.num_workers,
                )
                self.workers.append(Worker(job, context))
        except BaseException:
            self.close()
            raise
        self._begin()

    def _begin(self) -> None:
        self.active = [True] * len(self.workers)
        self.turn = 0
        self.pending: deque[int] = deque()  # the workers of the tasks sent, in order
        for _ in range((self.loader.prefetch_factor or 1) * len(self.workers)):
            self._send_next()

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        """Begin a new epoch with the same processes."""
        while self.pending:  # an epoch that was left early
            self.workers[self.pending.popleft()].receive(self.loader.timeout)
        self.indices = iter(self.loader._index_sampler)
        for worker in self.workers:
            worker.send(RESET)
        self._begin()

    def _send_next(self) -> None:
        """Give the next indices to the next worker whose stream goes on."""
        count = len(self.workers)
        for step in range(count):
            number = (self.turn + step) % count
            if self.active[number]:
                break
        else:
            return
        try:
            index = next(self.indices)
        except StopIteration:
            return
        self.turn = (number + 1) % count
        self.workers[number].send((index,))
        self.pending.append(number)

    def __iter__(self) -> _MultiProcessingDataLoaderIter:
        return self

    def __next__(self) -> Any:
        while self.pending:
            number = self.pending.popleft()
            try:
                answer = self.workers[number].receive(self.loader.timeout)
            except RuntimeError:
                self.close()
                raise
            if isinstance(answer, Stopped):
                self.active[number] = False
                self._send_next()
                continue
            self._send_next()
            if isinstance(answer, Failure):
                answer.throw()
            return self._placed(answer)
        if not self.loader.persistent_workers:
            self.close()
        raise StopIteration

    def __len__(self) -> int:
        return len(self.loader._index_sampler)

    def _shutdown_workers(self) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes; a second call does nothing."""
        workers, self.workers = self.workers, []
        self.pending = deque()
        for worker in workers:
            worker.stop()

    def __del__(self) -> None:
        if sys.is_finalizing():  # the processes are ended already, and modules are gone
            return
        if os.getpid() != self.owner:  # a copy in a forked process: the workers are not its own
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.close()
