"""Memory is aligned, reused only when nothing can see it any more, and bounded."""

import gc
import os
import threading

import ml_dtypes
import numpy as np
import pytest

import graphc as torch
from graphc.backends.host.allocator import ALIGNMENT, BLOCK, LARGE, Allocator, address_of

F4 = np.dtype(np.float32)


def test_arrays_are_aligned_and_writable() -> None:
    allocator = Allocator()
    for shape in ((), (0,), (3,), (5, 7), (LARGE // 4 + 1,)):
        for dtype in (F4, np.dtype(np.bool_), np.dtype(ml_dtypes.bfloat16)):
            x = allocator.empty(shape, dtype)
            assert x.shape == shape and x.dtype == dtype and x.flags.c_contiguous
            assert address_of(x) % ALIGNMENT == 0
            x[...] = 1
            assert type(x) is np.ndarray


def test_a_block_returns_with_its_last_alias() -> None:
    allocator = Allocator()
    x = allocator.empty((4, 5), F4)
    place = address_of(x)
    view = x[1:].T
    flat = view.T.reshape(-1)
    again = np.asarray(memoryview(flat))
    del x, view, flat
    assert allocator.kept == 0
    other = allocator.empty((4, 5), F4)
    assert address_of(other) != place
    again[0] = 3.0
    del again
    gc.collect()
    assert allocator.kept == 128
    assert address_of(allocator.empty((4, 5), F4)) == place


def test_kept_memory_is_bounded_and_released() -> None:
    allocator = Allocator(limit=1000)
    blocks = [allocator.empty((100,), F4) for _ in range(5)]
    del blocks
    assert 0 < allocator.kept <= 1000
    allocator.release()
    assert allocator.kept == 0


def test_outputs_of_many_calls_stay_apart() -> None:
    allocator = Allocator()
    kept = []
    for n in range(100):
        x = allocator.empty((50,), F4)
        x[:] = n
        if n % 3:
            kept.append((n, x[10:20]))
    assert all((x == n).all() for n, x in kept)
    places = [address_of(x) for _, x in kept]
    assert len(set(places)) == len(places)


def test_threads_never_share_a_block() -> None:
    allocator = Allocator()
    failures: list[int] = []

    def work(mark: int) -> None:
        for _ in range(300):
            x = allocator.empty((64,), F4)
            x[:] = mark
            if not (x == mark).all():
                failures.append(mark)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_address_of_any_view() -> None:
    x = np.arange(10)
    for view in (x, x[3:], x[::-1], x[:0], x.reshape(2, 5).T):
        assert address_of(view) == view.__array_interface__["data"][0]


@pytest.mark.parametrize("shape", [(-1,), (-2, -3), (4, -1)])
def test_negative_sizes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        Allocator().empty(shape, np.dtype(np.float32))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_fork_does_not_write_into_its_parents_memory() -> None:
    large = Allocator().empty((LARGE,), np.dtype(np.uint8))
    large.fill(1)
    child = os.fork()
    if not child:
        large.fill(2)
        os._exit(0)
    os.waitpid(child, 0)
    assert large[0] == 1 and large[-1] == 1


def test_at_the_end_of_the_interpreter_nothing_is_given_back() -> None:
    allocator = Allocator()
    array = allocator.empty((10,), np.dtype(np.float32))
    block = array.base
    assert block is not None
    block.__del__(lambda: True)
    assert allocator.kept == 0, "modules may be empty by then"
    del array, block
    assert allocator.kept > 0


def test_zeros_are_zeros_in_used_memory_too() -> None:
    allocator = Allocator()
    rows = LARGE // 16
    for many in (rows * 3, rows, rows * 5, 3, rows * 8, rows * 2):  # cut, joined, grown, small
        x = allocator.zeros((many, 4), F4)
        assert x.dtype == F4 and not x.any()
        x.fill(7)
        y = allocator.empty((many, 4), F4)
        y.fill(7)
        beside = allocator.zeros((many, 4), F4)
        assert not beside.any() and (x == 7).all() and (y == 7).all()
        beside.fill(7)
        del x, y, beside


def test_large_zeros_are_the_allocators() -> None:
    x = torch.zeros(LARGE // 4)
    x.add_(1)
    for made in (torch.zeros(LARGE // 4), torch.zeros_like(x), x.new_zeros(LARGE // 4)):
        assert isinstance(made.numpy().base, BLOCK) and not made.any()
        made.fill_(3)
    assert (torch.full((LARGE // 4,), 2.5).numpy() == 2.5).all()
