"""Large batches from workers: same values as without workers, and nothing is left behind."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.utils.data import DataLoader
from tests.multiprocessing import targets

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads


def plain(value: Any) -> Any:
    """Tensors as dtype, shape and values."""
    if isinstance(value, graphc.Tensor):
        return str(value.dtype), tuple(value.shape), value.flatten()[::97].tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def held() -> tuple[int, int]:
    """Open files and mapped anonymous files of this process."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().count("memfd:graphc")
    return len(os.listdir("/proc/self/fd")), maps


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_values_dtypes_and_containers_are_those_of_one_process(method: str) -> None:
    images = targets.Images()
    loader = DataLoader(images, 3, num_workers=2, multiprocessing_context=method)
    found = list(loader)
    assert plain(found) == plain(list(DataLoader(images, 3)))
    assert not found[0]["float"].is_pinned()
    found[0]["float"].add_(1)  # writable, and of this batch alone
    assert found[0]["float"][0, 0, 0] == 1
    assert found[1]["float"][0, 0, 0] == 3


def test_large_batches_come_in_shared_memory_and_go_with_their_tensors() -> None:
    before = held()
    batches = list(DataLoader(targets.Images(), 4, num_workers=1))
    assert held()[1] == before[1] + 2 * 2  # those below 128 kB take the pipe
    kept = batches[0]["float"]
    del batches
    assert held() == (before[0], before[1] + 1)
    del kept
    assert held() == before


def test_arrays_and_shared_storages() -> None:
    loader = DataLoader(targets.Rows(2), 1, num_workers=1, collate_fn=targets.arrays)
    for numbers, both, part, fixed in loader:
        assert numbers.tolist()[::9999] == list(range(0, 60_000, 9999))
        numbers[0] = 1
        both[40_000] = -1
        assert part[0] == -1
        assert (fixed == np.arange(50_000.0)).all()


def test_nothing_is_left_after_many_batches_and_early_ends() -> None:
    loader = DataLoader(targets.Rows(1000), None, num_workers=2, prefetch_factor=4)
    before = held()
    assert sum(int(batch[7]) for batch in loader) == 1000
    assert held() == before
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        del iterator
    assert held() == before


def test_persistent_workers_drop_what_was_not_taken() -> None:
    loader = DataLoader(targets.Images(), 2, num_workers=2, persistent_workers=True)
    want = plain(list(DataLoader(targets.Images(), 2)))
    assert plain(list(loader)) == want
    before = held()
    next(iter(loader))
    assert plain(list(loader)) == want
    assert held() == before
    loader._iterator.close()


def test_a_worker_that_dies_leaves_nothing() -> None:
    before = held()
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        list(DataLoader(targets.Dying(8, 300), 1, num_workers=1))
    assert held() == before


def test_a_batch_that_cannot_be_pickled_is_a_workers_error() -> None:
    loader = DataLoader(targets.Rows(2), 1, num_workers=1, collate_fn=targets.failing)
    with pytest.raises(Exception, match="in DataLoader worker process 0"):
        next(iter(loader))
