"""Contexts of libraries: several at once, options, and who has the memory."""

from __future__ import annotations

import ctypes
import mmap
import threading
from pathlib import Path

import numpy as np
import pytest

import graphc as torch

from . import client
from .client import Failed
from .libraries import arrays, expected, exported, made, same
from .models import CASES


def test_two_models_at_once(folder: Path) -> None:
    """Kernels of equal names do not mix, nor do contexts of one with functions of the other."""
    one, other = made(folder, "kinds", freeze=False), made(folder, "small", freeze=False)
    torch.manual_seed(2)
    first, second = CASES["kinds"].args(), CASES["small"].args()
    a, b, again = one.context(threads=2), other.context(threads=2), one.context()
    for _ in range(3):
        same(a(*arrays(first)), expected(exported("kinds")(*first)))
        same(b(*arrays(second)), expected(exported("small")(*second)))
        same(again(*arrays(first)), expected(exported("kinds")(*first)))
    given = (client.Tensor * 1)(client.tensor_of(arrays(second)[0]))
    assert one.run(b.pointer, given, given) == client.ARGUMENT
    assert one.message(b.pointer) == b"this is no context" and one.cpu(b.pointer) is None
    one.destroy(b.pointer)  # does nothing
    same(b(*arrays(second)), expected(exported("small")(*second)))
    for each in (a, b, again):
        each.close()


def test_a_context_for_each_thread(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    torch.manual_seed(3)
    calls = [CASES["small"].args() for _ in range(4)]
    wanted = [expected(exported("small")(*args)) for args in calls]
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            context = library.context(threads=2)
            for _ in range(40):
                same(context(*arrays(calls[number])), wanted[number])
            context.close()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]

def test_a_context_that_is_busy(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    context = library.context()
    x = np.ones((2, 3, 16), np.float32)
    outputs = context.outputs([x])
    given = (client.Tensor * 1)(client.tensor_of(x))
    taken = (client.Tensor * 2)(*map(client.tensor_of, outputs))
    wrong = set()
    slow = library.context()
    many = np.ones((5, 1000, 16), np.float32)
    places = slow.outputs([many])
    large = (client.Tensor * 1)(client.tensor_of(many))
    into = (client.Tensor * 2)(*map(client.tensor_of, places))
    begun = threading.Barrier(2)

    def work() -> None:
        begun.wait()
        for _ in range(200):
            wrong.add(library.run(slow.pointer, large, into))

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    here = {library.run(slow.pointer, large, into) for _ in range(200)}
    thread.join()
    assert here | wrong <= {0, client.BUSY} and 0 in here | wrong
    assert library.run(slow.pointer, large, into) == 0
    same(places, slow(many))
    assert library.run(context.pointer, given, taken) == 0
    context.close()
    slow.close()


def test_wrong_options(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    for options, code, text in (
        ({"threads": 2000}, client.THREADS, "threads is 2000"),
        ({"threads": -1}, client.THREADS, "threads is -1"),
        ({"sizes": (6, 24)}, client.RANGE, "options.sizes has 6 for batch, which may be 1 to 5"),
        ({"cpu": b"pentium"}, client.CPU, "no code for pentium, but for x86-64"),
        ({"memory": 64, "memory_bytes": 100}, client.MEMORY, "memory_bytes is 100"),
        ({"memory": 65, "memory_bytes": 1 << 30}, client.ARGUMENT, "not aligned to 64"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            library.context(**options)
        assert raised.value.code == code
    options = client.Options(abi=2)
    options.message = ctypes.c_char_p(8)  # where nothing is
    options.message_bytes = 64
    where = ctypes.c_void_p()
    assert library.create(ctypes.byref(options), ctypes.byref(where)) == client.ARGUMENT
    assert library.bytes(ctypes.byref(options)) == -client.ARGUMENT
    assert library.create(None, None) == client.ARGUMENT
    context = library.context()
    assert library.set_threads(context.pointer, 0) == client.THREADS
    assert library.message(context.pointer) == b"threads is 0: 1 to 1024"
    context.close()


def test_memory_of_the_callers(folder: Path) -> None:
    """A context for small sizes is small, and refuses larger calls; memory may be anyone's."""
    library = made(folder, "small", freeze=False)
    small = (ctypes.c_int64 * 2)(2, 4)
    options = client.Options(abi=1, threads=2, sizes=small)
    size = library.bytes(ctypes.byref(options))
    assert 0 < size < library.bytes(None)
    room = mmap.mmap(-1, size + 4096)
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    ctypes.memset(place, 0xCD, size + 4096)
    context = library.context(threads=2, sizes=(2, 4), memory=place, memory_bytes=size)
    args = (torch.randn(2, 4, 16),)
    same(context(*arrays(args)), expected(exported("small")(*args)))
    with pytest.raises(Failed, match=r"needs \d+ bytes, and the context has \d+") as raised:
        context(np.zeros((5, 1000, 16), np.float32))
    assert raised.value.code == client.RANGE
    assert library.set_threads(context.pointer, 100) == client.MEMORY
    assert library.set_threads(context.pointer, 1) == 0
    same(context(*arrays(args)), expected(exported("small")(*args)))
    context.close()
    assert room[size:] == b"\xcd" * 4096
