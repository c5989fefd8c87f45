"""utils.data against PyTorch's: orders, batches, collation, workers, messages."""

from __future__ import annotations

import multiprocessing
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch.utils.data  # noqa: F401  # of the reference

from graphc import utils  # noqa: F401
from graphc.utils.data.worker import default_context
from tests.nn.both import SPACES, array

X = np.arange(22, dtype=np.float32).reshape(11, 2)
Y = np.arange(11)
Point = namedtuple("Point", "x y")


def data(s: Any) -> Any:
    """torch.utils.data of a space."""
    return s.torch.utils.data


def plain(value: Any) -> Any:
    """Tensors as nested lists with their dtype, in any container."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(item) for item in value]
    return value


def same(script: Callable[[Any], Any]) -> Any:
    """What a script tells on graphc, after checking it against torch."""
    theirs, ours = (plain(script(s)) for s in SPACES)
    assert ours == theirs
    return ours


def dataset(s: Any) -> Any:
    """11 rows of two floats and a number."""
    return data(s).TensorDataset(s.torch.from_numpy(X.copy()), s.torch.from_numpy(Y.copy()))


# --- orders ------------------------------------------------------------------------------------

LOADERS: dict[str, dict[str, Any]] = {
    "plain": {"batch_size": 4},
    "drop last": {"batch_size": 4, "drop_last": True},
    "shuffled": {"batch_size": 3, "shuffle": True},
    "single": {"batch_size": None, "shuffle": True},
    "default": {"shuffle": True},
}


@pytest.mark.parametrize("options", LOADERS.values(), ids=list(LOADERS))
def test_two_epochs_and_the_generator_after(options: dict[str, Any]) -> None:
    def script(s: Any) -> Any:
        s.torch.manual_seed(5)
        loader = data(s).DataLoader(dataset(s), **options)
        return len(loader), list(loader), list(loader), s.torch.rand(3)

    same(script)


def test_words_taken_from_the_generator() -> None:
    def script(s: Any) -> Any:
        generator = s.torch.Generator()
        generator.manual_seed(1)
        told = []
        for options in ({}, {"shuffle": True}, {"shuffle": True, "generator": generator}):
            s.torch.manual_seed(0)
            told.append(list(data(s).DataLoader(dataset(s), batch_size=5, **options)))
            told.append(s.torch.randint(0, 2**30, (2,)))
        return told, s.torch.randint(0, 2**30, (2,), generator=generator)

    same(script)


def test_samplers() -> None:
    def script(s: Any) -> Any:
        d = data(s)
        told = []
        s.torch.manual_seed(2)
        for sampler in (
            d.SequentialSampler(range(5)), d.RandomSampler(range(7)),
            d.RandomSampler(range(7), replacement=True, num_samples=70),
            d.RandomSampler(range(7), num_samples=17), d.RandomSampler(range(7), num_samples=14),
            d.SubsetRandomSampler([3, 5, 8]),
            d.BatchSampler(d.SequentialSampler(range(7)), 3, False),
            d.BatchSampler(d.SequentialSampler(range(7)), 3, True),
            d.BatchSampler(range(4), 2, True),
        ):
            told.append((len(sampler), list(sampler)))
        told.append(s.torch.rand(2))
        generator = s.torch.Generator()
        generator.manual_seed(3)
        told.append(list(d.RandomSampler(range(6), num_samples=12, generator=generator)))
        told.append(s.torch.randint(0, 100, (3,), generator=generator))
        return told

    same(script)


@pytest.mark.parametrize("replacement", [True, False])
def test_weighted_sampler(replacement: bool) -> None:
    def script(s: Any) -> Any:
        s.torch.manual_seed(4)
        sampler = data(s).WeightedRandomSampler([0.1, 3.0, 0.0, 1.0, 2.0], 4, replacement)
        return len(sampler), list(sampler), list(sampler)

    same(script)


def test_own_sampler_and_batch_sampler() -> None:
    def script(s: Any) -> Any:
        d = data(s)
        return (
            list(d.DataLoader(dataset(s), batch_size=2, sampler=[3, 1, 4])),
            list(d.DataLoader(dataset(s), batch_sampler=[[0, 1], [5]])),
            list(d.DataLoader(dataset(s), batch_sampler=[(2, 3), s.torch.tensor([4, 1])])),
            list(d.DataLoader(dataset(s), batch_size=2, sampler=s.torch.tensor([3, 1]))),
            list(d.DataLoader(d.Subset(dataset(s), s.torch.tensor([3, 1])), batch_size=2)),
        )

    same(script)


# --- datasets ------------------------------------------------------------------------------------


def test_datasets() -> None:
    def script(s: Any) -> Any:
        d = data(s)
        rows = dataset(s)
        both = d.ConcatDataset([rows, d.Subset(rows, [1, 2])])
        return (
            rows[2], rows[2:4], rows[[1, 3]], len(rows), len(both), both[12], both[-1],
            len(rows + rows), d.Subset(rows, [5, 6])[1],
            d.StackDataset(rows, range(11))[2], d.StackDataset(a=rows, b=range(11))[2],
        )

    same(script)


def test_random_split() -> None:
    def script(s: Any) -> Any:
        s.torch.manual_seed(6)
        split = data(s).random_split
        generator = s.torch.Generator()
        generator.manual_seed(7)
        return [
            [list(part.indices) for part in parts]
            for parts in (
                split(range(10), [7, 3]), split(range(11), [0.5, 0.25, 0.25]),
                split(range(10), [5, 5], generator),
            )
        ]

    same(script)


def test_errors() -> None:
    def script(s: Any) -> Any:
        d, rows = data(s), dataset(s)

        class Stream(d.IterableDataset):
            def __iter__(self) -> Iterator[int]:
                return iter(range(3))

        told = []
        for action in (
            lambda: d.TensorDataset(s.torch.ones(2), s.torch.ones(3)),
            lambda: d.ConcatDataset([]),
            lambda: d.DataLoader(rows, batch_size=0),
            lambda: d.DataLoader(rows, shuffle=True, sampler=[1]),
            lambda: d.DataLoader(rows, batch_size=None, drop_last=True),
            lambda: d.DataLoader(rows, batch_sampler=[[1]], drop_last=True),
            lambda: d.DataLoader(rows, num_workers=-1),
            lambda: d.DataLoader(rows, prefetch_factor=2),
            lambda: d.DataLoader(rows, persistent_workers=True),
            lambda: d.DataLoader(Stream(), shuffle=True),
            lambda: setattr(d.DataLoader(rows), "batch_size", 3),
            lambda: d.RandomSampler(range(3), num_samples=0),
            lambda: d.random_split(range(3), [1, 1]),
            lambda: d.ConcatDataset([rows])[-12],
            lambda: d.default_collate([object()]),
            lambda: d.default_collate([[1, 2], [1]]),
            lambda: len(d.DataLoader(Stream())),
        ):
            with pytest.raises((ValueError, TypeError, AssertionError, RuntimeError)) as info:
                action()
            words = str(info.value).replace(":", " ").replace("``", "").split()
            told.append((type(info.value).__name__, words[:3]))
        return told

    same(script)


# --- collation -----------------------------------------------------------------------------------


def test_collate_and_convert() -> None:
    def script(s: Any) -> Any:
        d, t = data(s), s.torch
        rows = [
            [t.ones(2), t.zeros(2)], [1, 2], [1.5, 2.5], ["a", "b"], [b"a"], [True, False],
            [np.float32(1), np.float32(2)], [np.ones(2), np.zeros(2)], [np.int64(3), np.int64(4)],
            [(1, 2.0), (3, 4.0)], [[1, 2], [3, 4]], [{"a": 1, "b": [2.0]}, {"a": 3, "b": [4.0]}],
            [Point(1, "u"), Point(2, "v")], [(t.ones(1), {"k": np.ones(1)})],
        ]
        items = [
            t.ones(1), np.ones(2), np.float64(2.0), 3, "s", [np.ones(1)], (np.ones(1), 2),
            {"a": np.arange(2)}, Point(np.ones(1), 2), np.array(["x"]).tolist(),
        ]
        return [d.default_collate(row) for row in rows], [d.default_convert(i) for i in items]

    same(script)


def test_collate_fn() -> None:
    def script(s: Any) -> Any:
        d = data(s)
        loader = d.DataLoader(range(5), batch_size=2, collate_fn=lambda batch: sum(batch))
        return list(loader), list(d.DataLoader([np.ones(2)], batch_size=None))

    same(script)


def test_batches_of_a_tensor_dataset_are_copies() -> None:
    s = SPACES[1]
    rows = dataset(s)
    for loader in (
        data(s).DataLoader(rows, batch_size=11),
        data(s).DataLoader(data(s).Subset(rows, list(range(11))), batch_size=11),
    ):
        (x, _), = loader
        np.testing.assert_array_equal(array(x), X)
        x.zero_()
    np.testing.assert_array_equal(array(rows.tensors[0]), X)


# --- workers -------------------------------------------------------------------------------------


class Squares:
    """A dataset that tells who read it."""

    def __init__(self, s: Any, size: int = 9, bad: int = -1) -> None:
        self.s, self.size, self.bad = s, size, bad

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise KeyError(f"sample {index}")
        info = data(self.s).get_worker_info()
        return index * index, -1 if info is None else info.id


def stream(s: Any, size: int) -> Any:
    """An iterable dataset that workers share out."""

    class Stream(data(s).IterableDataset):
        def __iter__(self) -> Iterator[int]:
            info = data(s).get_worker_info()
            start, step = (0, 1) if info is None else (info.id, info.num_workers)
            return iter(range(start, size, step))

        def __len__(self) -> int:
            return size

    return Stream()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's fork beside threads
def test_workers() -> None:
    def script(s: Any) -> Any:
        d = data(s)
        s.torch.manual_seed(8)
        return (
            list(d.DataLoader(Squares(s), batch_size=2, num_workers=2)),
            list(d.DataLoader(Squares(s), batch_size=2, shuffle=True, num_workers=2)),
            list(d.DataLoader(stream(s, 7), batch_size=2, num_workers=2)),
            list(d.DataLoader(stream(s, 7), batch_size=2)),
            len(d.DataLoader(stream(s, 7), batch_size=2)),
            list(d.DataLoader(stream(s, 7), batch_size=2, drop_last=True)),
        )

    same(script)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_seeds_of_workers() -> None:
    def script(s: Any) -> Any:
        class Random:
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> Any:
                info = data(s).get_worker_info()
                return info.seed, np.random.randint(1000), int(s.torch.randint(0, 1000, ()))

        s.torch.manual_seed(9)
        return list(data(s).DataLoader(Random(), batch_size=2, num_workers=2))

    same(script)


def test_persistent_workers_and_init() -> None:
    s = SPACES[1]
    started: list[int] = []
    loader = data(s).DataLoader(
        Squares(s), batch_size=3, num_workers=2, persistent_workers=True, prefetch_factor=1,
        worker_init_fn=started.append, pin_memory=False, timeout=30,
    )
    first = plain(list(loader))
    processes = [w.process.pid for w in loader._iterator.workers]
    iterator = iter(loader)
    next(iterator)  # left early
    assert plain(list(loader)) == first
    assert [w.process.pid for w in loader._iterator.workers] == processes
    loader._iterator.close()


def test_contexts_of_workers() -> None:
    def script(s: Any) -> Any:
        d, rows = data(s), list(range(4))
        kept = multiprocessing.get_context("spawn")
        loader = d.DataLoader(rows, num_workers=1, multiprocessing_context="forkserver")
        told = [loader.multiprocessing_context.get_start_method()]
        loader.multiprocessing_context = kept
        told += [loader.multiprocessing_context is kept, "multiprocessing_context" in vars(loader)]
        loader.multiprocessing_context = None
        told += [loader.multiprocessing_context, d.DataLoader(rows).multiprocessing_context]
        for count, wrong in ((0, "fork"), (0, kept), (1, "tea"), (1, 3), (1, multiprocessing)):
            with pytest.raises((ValueError, TypeError)) as info:
                d.DataLoader(rows, num_workers=count, multiprocessing_context=wrong)
            told.append((type(info.value).__name__, str(info.value).replace("`", "")))
        return told

    same(script)


def test_workers_are_started_as_the_program_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "spawn")
    assert default_context().get_start_method() == "spawn"
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: None)
    assert default_context().get_start_method() == "fork"


def test_an_error_in_a_worker() -> None:
    s = SPACES[1]
    loader = data(s).DataLoader(Squares(s, bad=4), batch_size=2, num_workers=2)
    with pytest.raises(KeyError, match="in DataLoader worker process 0"):
        list(loader)


def test_a_worker_that_dies() -> None:
    class Deadly(Squares):
        def __getitem__(self, index: int) -> Any:
            import os

            os._exit(3)

    s = SPACES[1]
    loader = data(s).DataLoader(Deadly(s), num_workers=1)
    with pytest.raises(RuntimeError, match="exit code 3"):
        list(loader)


def test_a_worker_that_is_slow() -> None:
    class Slow(Squares):
        def __getitem__(self, index: int) -> Any:
            import time

            time.sleep(5)

    s = SPACES[1]
    loader = data(s).DataLoader(Slow(s), num_workers=1, timeout=0.2)
    with pytest.raises(RuntimeError, match="timed out"):
        list(loader)


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"drop_last": True}, {"seed": 5}])
def test_distributed_sampler(options: dict[str, Any]) -> None:
    def script(s: Any) -> Any:
        told: list[Any] = []
        for size in (1, 3, 10, 11):
            for rank in range(3):
                sampler = data(s).DistributedSampler(range(size), 3, rank, **options)
                sampler.set_epoch(2)
                told.append((len(sampler), sampler.num_samples, sampler.total_size))
                if size >= 3:
                    told.append(list(sampler))
        with pytest.raises(ValueError, match="Invalid rank 3"):
            data(s).DistributedSampler(range(5), 3, 3)
        return told

    same(script)


def test_initial_weights_splits_and_samplers_bit_for_bit() -> None:
    modules = ("Linear(20, 30)", "Conv2d(3, 8, 3)", "LSTM(5, 7, 2, bidirectional=True)",
               "Embedding(10, 4)", "MultiheadAttention(8, 2)", "Bilinear(3, 4, 5)")

    def script(s: Any) -> Any:
        s.torch.manual_seed(11)
        told: list[Any] = []
        for text in modules:
            made = eval(f"nn.{text}", {"nn": s.torch.nn})
            told += [p.detach() for p in made.parameters()]
        for kind in ("float32", "float64"):
            for name in ("trunc_normal_", "xavier_normal_", "kaiming_uniform_"):
                empty = s.torch.empty(20, 30, dtype=getattr(s.torch, kind))
                told.append(getattr(s.torch.nn.init, name)(empty))
        for shape in ((4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 2)):
            told.append(s.torch.nn.functional.dropout3d(s.torch.ones(shape), 0.3)
                        if len(shape) > 3 else
                        s.torch.nn.functional.dropout1d(s.torch.ones(shape), 0.3))
        rows = dataset(s)
        told += [list(part.indices) for part in data(s).random_split(rows, [0.5, 0.5])]
        for options in ({}, {"replacement": True, "num_samples": 70}, {"num_samples": 7}):
            told.append(list(data(s).RandomSampler(rows, **options)))
        for replacement in (True, False):
            told.append(list(data(s).WeightedRandomSampler([0.1, 0.9, 0.5], 3, replacement)))
        return told

    same(script)


@pytest.mark.parametrize("s", SPACES, ids=["torch", "graphc"])
def test_names_of_a_loader_that_libraries_use(s: Any) -> None:
    """PyTorch Geometric and others wrap the iterator; samplers are looked for by these names."""
    d = data(s)

    class Wrapping(d.DataLoader):
        def _get_iterator(self) -> Any:
            return (batch * 10 for batch in super()._get_iterator())

    class Stream(d.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(3))

    rows = s.torch.arange(4)
    assert [batch.tolist() for batch in Wrapping(rows, 2)] == [[0, 10], [20, 30]]
    loader = d.DataLoader(rows, 2)
    assert loader._auto_collation and loader._index_sampler is loader.batch_sampler
    assert loader._dataset_kind == d._DatasetKind.Map
    alone = d.DataLoader(Stream(), None)
    assert not alone._auto_collation and alone._index_sampler is alone.sampler
    assert alone._dataset_kind == d._DatasetKind.Iterable and list(alone) == [0, 1, 2]
