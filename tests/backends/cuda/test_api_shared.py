"""Memory that cuda tensors share with other libraries: DLPack both ways, and CUDA arrays."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.cuda.emulator import Toolchain
from graphc.ir import dlpack
from graphc.utils.dlpack import to_dlpack

from .emulated_device import CountingDriver, there


@pytest.fixture(scope="module", autouse=True)
def driver(toolchain: Toolchain) -> Iterator[CountingDriver]:
    driver = CountingDriver(toolchain)
    with there(driver):
        yield driver


class Lender:
    """Another library's array on the GPU, which notes what it is asked."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.streams = tensor, []

    def __dlpack__(self, *, stream: int) -> Any:
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


class Cuda:
    """Another library's array, told as a CUDA array."""

    def __init__(self, **told: Any) -> None:
        self.__cuda_array_interface__ = {"version": 3, **told}


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
])
def test_a_tensor_there_and_back(dtype: Any) -> None:
    x = torch.arange(6).reshape(2, 3).to(dtype).cuda()
    for back in (torch.from_dlpack(to_dlpack(x)), torch.from_dlpack(Lender(x.t())).t()):
        assert back.dtype is dtype and back.is_cuda and torch.equal(back, x)
        assert back.data_ptr() == x.data_ptr()
    back = torch.from_dlpack(Lender(x))
    x.fill_(1)
    assert bool((back == 1).all())


def test_what_is_lent_stays_until_it_is_given_back() -> None:
    gc.collect()
    before, lent = torch.cuda.memory_allocated(), len(dlpack._lent)
    x = torch.arange(4096.0).cuda()
    capsule = to_dlpack(x[1000:])
    del x
    borrowed = torch.from_dlpack(capsule)
    other = torch.zeros(4096).cuda()
    assert borrowed[0].item() == 1000 and other.sum().item() == 0
    with pytest.raises(BufferError, match="can be consumed only once"):
        torch.from_dlpack(capsule)
    del borrowed, other
    assert torch.cuda.memory_allocated() == before and len(dlpack._lent) == lent
    del capsule
    unread = to_dlpack(torch.ones(100).cuda())
    del unread
    torch.from_dlpack(to_dlpack(torch.ones(1).cuda()))  # what nobody took comes back with the next
    assert torch.cuda.memory_allocated() == before and len(dlpack._lent) == lent


def test_what_is_refused_says_why() -> None:
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
        np.from_dlpack(torch.ones(3).cuda())


def test_the_borrowers_stream_waits(driver: CountingDriver) -> None:
    """An array is read on the stream that asked for it, as soon as it has it."""
    for waits in (True, False):
        side = torch.cuda.Stream()
        x = torch.ones(256).cuda() * 3
        found = dlpack.borrow(x.__dlpack__(stream=side.cuda_stream if waits else -1))
        seen = np.zeros(256, np.float32)
        driver.copy_out(seen.ctypes.data, found.memory.address, seen.nbytes, side.cuda_stream)
        assert (seen == 3).all() == waits
        torch.cuda.synchronize()


def test_a_lender_is_told_the_stream() -> None:
    lender, side = Lender(torch.ones(3).cuda()), torch.cuda.Stream()
    torch.from_dlpack(lender)
    with torch.cuda.stream(side):
        torch.from_dlpack(lender)
    assert lender.streams == [1, side.cuda_stream]


def test_what_cannot_be_lent() -> None:
    x = torch.ones(2).cuda()
    assert x.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError, match="require gradient"):
        to_dlpack(x.requires_grad_())
    with pytest.raises(BufferError, match="another device was asked for"):
        x.detach().__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="invalid capsule"):
        torch.from_dlpack(ctypes.py_object)
    copy = torch.from_dlpack(x.detach().__dlpack__(copy=True))
    assert copy.data_ptr() != x.data_ptr() and torch.equal(copy, x)


def test_on_the_cpu() -> None:
    """Capsules of NumPy, and of us, of both versions."""
    x = torch.arange(4.0)
    back = torch.from_dlpack(to_dlpack(x))
    assert back.data_ptr() == x.data_ptr()
    numbers = np.arange(3)
    assert torch.from_dlpack(numbers.__dlpack__(max_version=(1, 0))).tolist() == [0, 1, 2]
    assert np.from_dlpack(x).tolist() == [0, 1, 2, 3]


def test_cuda_arrays() -> None:
    x = torch.arange(12.0).reshape(3, 4).cuda()
    told = x.__cuda_array_interface__
    assert told["shape"] == (3, 4) and told["typestr"] == "<f4" and told["strides"] is None
    assert told["data"] == (x.data_ptr(), False)
    assert x.t().__cuda_array_interface__["strides"] == (4, 16)
    for mine in (x, x.t(), x[1:, ::2], torch.ones((), device="cuda")):
        there = torch.as_tensor(Cuda(**mine.__cuda_array_interface__, stream=1))
        assert there.data_ptr() == mine.data_ptr() and torch.equal(there, mine)
    assert torch.as_tensor(x.cpu()).is_cpu
    copied = torch.as_tensor(Cuda(**x.__cuda_array_interface__), device="cpu")
    assert copied.is_cpu and copied.tolist() == x.tolist()
    with pytest.raises(AttributeError, match=r"non-CUDA tensor type: torch.FloatTensor"):
        torch.ones(1).__cuda_array_interface__  # noqa: B018
    with pytest.raises(RuntimeError, match="Variable that requires grad"):
        x.requires_grad_().__cuda_array_interface__  # noqa: B018


def test_a_cuda_arrays_stream_is_waited_for(driver: CountingDriver) -> None:
    for waits in (True, False):
        side, x = torch.cuda.Stream(), torch.zeros(64).cuda()
        torch.cuda.synchronize()
        driver.fill(x.data_ptr(), 0x3F800000, 4, 64, side.cuda_stream)
        stream = {"stream": side.cuda_stream} if waits else {}
        there = torch.as_tensor(Cuda(**x.__cuda_array_interface__, **stream))
        assert (there.sum().item() == 64) == waits
        torch.cuda.synchronize()
