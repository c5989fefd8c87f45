"""Arrays of other libraries go in where they lie, and results are theirs by DLPack."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as torch
from graphc.export import load_library
from graphc.export.native import arrays
from graphc.export.native.functions import Port
from graphc.ir import dlpack, dtypes

from .common import library

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are for Linux")
MATRIX = Port("x", dtypes.f32, ("n", 4))


class Lender:
    """Another library's array, of which only DLPack is known; `old`: that of before versions."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0), old: bool = False) -> None:
        self.array, self.device, self.old, self.asked = array, device, old, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("__dlpack__() takes no arguments")
        self.asked += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Interface:
    """An array of before DLPack."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("dlpack")
    return load_library(library(
        folder, lambda x: x.sum(1), torch.zeros(2, 4), dynamic_shapes={"x": {0: "n"}},
        sizes={"n": (2, 9)},
    ))


@pytest.mark.parametrize("lend", [
    lambda x: x, Lender, lambda x: Lender(x, old=True), Lender, Interface, torch.from_numpy,
    np.ndarray.__array__, lambda x: Lender(torch.from_numpy(x)),
])
def test_no_copy_of_what_lies_row_by_row(lend: Any, model: Any) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = arrays.given(lend(x), MATRIX)
    assert found.ctypes.data == x.ctypes.data and found.shape == x.shape
    assert model(lend(x)).tolist() == [6, 22, 38]


def test_one_copy_of_what_does_not(model: Any) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    raw = np.zeros(65, np.uint8)[1:].view(np.uint8)
    crooked = raw[: 2 * 16].view(np.float32).reshape(2, 4) if raw.ctypes.data % 4 else None
    for x in (whole[:, 1:5], whole.T[:, :4], whole[::-1, ::-1][:, :4], crooked):
        if x is None:
            continue
        for lend in (lambda x: x, Lender):
            if (lend is Lender and x.strides[0] % 4) or (x is crooked and lend is Lender):
                continue
            found = arrays.given(lend(x), MATRIX)
            assert found.ctypes.data != x.ctypes.data and found.flags.aligned
            np.testing.assert_array_equal(found, x)
            np.testing.assert_array_equal(model(lend(x)).numpy(), x.sum(1))


def test_a_lender_is_let_go(model: Any) -> None:
    """As soon as the call has ended; one that failed, too."""
    for x, error in ((np.ones((2, 4), np.float32), None), (np.ones((2, 3), np.float32), ValueError),
                     (np.ones((2, 4)), ValueError)):
        lender = Lender(x)
        count = sys.getrefcount(x)
        if error is None:
            result = model(lender)
        else:
            with pytest.raises(error):
                model(lender)
        gc.collect()
        assert sys.getrefcount(x) == count and lender.asked == 1
        seen = weakref.ref(lender)
        del lender
        assert seen() is None
    assert result.tolist() == [4, 4]


def test_memory_is_kept_as_long_as_the_array(model: Any) -> None:
    lender = Lender(np.arange(8, dtype=np.float32).reshape(2, 4))
    owner = weakref.ref(lender.array)
    found = arrays.given(lender, MATRIX)
    view = found[1:, 2:]
    del lender, found
    gc.collect()
    assert owner() is not None and view.tolist() == [[6, 7]]
    del view
    gc.collect()
    assert owner() is None


def test_devices_by_name(model: Any) -> None:
    x = np.ones((2, 4), np.float32)
    for device, text in (((2, 1), r"x is on a CUDA device \(number 1\)"), ((8, 0), "x is on Metal"),
                         ((13, 0), "CUDA's managed memory"), ((99, 0), "DLPack's kind 99")):
        lender = Lender(x, device)
        with pytest.raises(ValueError, match=f"{text}.*Cure: a copy on the CPU"):
            model(lender)
        assert lender.asked == 0
    assert model(Lender(x, (dlpack.CUDA_HOST, 0))).tolist() == [4, 4]


def test_a_lender_that_refuses(model: Any) -> None:
    class Refusing(Lender):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("not today")

    with pytest.raises(TypeError, match="x cannot be shared: not today"):
        model(Refusing(None))

    class Wrong(Lender):
        def __dlpack__(self, **options: Any) -> Any:
            return object()

    with pytest.raises(TypeError, match=r"x cannot be shared: .*invalid capsule"):
        model(Wrong(None))


def test_outputs_that_may_be_written(model: Any) -> None:
    x = np.ones((2, 4), np.float32)
    y = np.zeros(2, np.float32)
    model.run([x], [Lender(y)])
    assert y.tolist() == [4, 4]
    frozen = y.copy()
    frozen.flags.writeable = False
    for lender in (Lender(frozen), Lender(y, old=True), Interface(y)):
        with pytest.raises((ValueError, TypeError), match=r"may not be written|cannot be shared"):
            model.run([x], [lender])
    seen = torch.zeros(2)

    @torch.compile
    def twice(y: Any) -> Any:
        return y * 2

    for value in (1, 2):
        x[:] = value
        model.run([x], [seen])
        assert twice(seen).tolist() == [8 * value] * 2


def test_a_capsule_as_an_array() -> None:
    for array in (np.array(3.0), np.zeros((0, 3)), np.arange(6).reshape(2, 3).T[::2],
                  np.array([True, False]), np.ones((1, 1, 1), np.int8)):
        found = dlpack.array(dlpack.borrow(array.__dlpack__()))
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)


def test_bfloat16_between_libraries(tmp_path: Path) -> None:
    """Which NumPy's own DLPack does not know."""
    path = library(tmp_path, lambda x: x * 2, torch.zeros(3, dtype=torch.bfloat16), name="brain")
    brain = load_library(path)
    x = torch.tensor([1, 2.5, -3]).bfloat16()
    for given in (x, Lender(x), x._graphc_array):
        assert brain(given).tolist() == [2, 5, -6]
    for other in (torch.from_dlpack(x), torch.from_dlpack(x.__dlpack__())):
        assert other.dtype is torch.bfloat16 and other.data_ptr() == x.data_ptr()
    assert torch.from_dlpack(x.reshape(1, 3).t()).tolist() == [[1], [2.5], [-3]]
    with pytest.raises(BufferError, match="require gradient"):
        torch.zeros(2, dtype=torch.bfloat16, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="another device"):
        x.__dlpack__(dl_device=(2, 0))
    copied = dlpack.array(dlpack.borrow(x.__dlpack__(copy=True)))
    assert copied.dtype == ml_dtypes.bfloat16 and copied.ctypes.data != x.data_ptr()
    out = np.zeros(3, ml_dtypes.bfloat16)
    brain.run([x], [out])
    assert out.tolist() == [2, 5, -6]


def test_pytorch(model: Any, tmp_path: Path) -> None:
    pytorch = pytest.importorskip("torch")
    x = pytorch.arange(8.0).reshape(2, 4)
    assert arrays.given(x, MATRIX).ctypes.data == x.data_ptr()
    result = model(x)
    theirs = pytorch.from_dlpack(result)
    assert theirs.data_ptr() == result.data_ptr() and theirs.dtype is pytorch.float32
    del result
    gc.collect()
    assert theirs.tolist() == [6, 22]
    assert model(x.t().contiguous().t()).tolist() == [6, 22]
    y = pytorch.zeros(2)
    model.run([x], [y])
    assert y.tolist() == [6, 22]
    with pytest.raises(TypeError, match=r"x cannot be shared: .*require gradient"):
        model(x.requires_grad_())
    path = library(tmp_path, lambda x: (x * 2, x > 1), torch.zeros(3, dtype=torch.bfloat16))
    for given in (pytorch.tensor([1, 2.5, -3]).bfloat16(), torch.tensor([1, 2.5, -3]).bfloat16()):
        twice, large = load_library(path)(given)
        there = pytorch.from_dlpack(twice)
        assert there.dtype is pytorch.bfloat16 and there.tolist() == [2, 5, -6]
        assert pytorch.from_dlpack(large).tolist() == [False, True, False]
    ours = torch.from_dlpack(there)
    assert ours.dtype is torch.bfloat16 and ours.data_ptr() == there.data_ptr()
