"""Eager mode reads what is cut out of wider rows where it lies, and gives what a copy would."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_cuts, eager_form
from graphc.frontend import eager, replayed, replayed_views

F = torch.nn.functional
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 3e38, 3.0, -3.0]


@pytest.fixture
def low(monkeypatch):
    """Compiled code from a hundred elements on; gives how many calls read what is cut."""
    monkeypatch.setattr(eager_form, "LARGE", 100)
    monkeypatch.setattr(replayed_views, "MANY", 100)
    calls: list[int] = []
    run = eager_cuts._Cut.run
    monkeypatch.setattr(
        eager_cuts._Cut, "run", lambda self, arrays: calls.append(1) or run(self, arrays)
    )
    for known in (eager._signatures, replayed._known):
        known.clear()
    yield calls
    for known in (eager._signatures, replayed._known):
        known.clear()


CASES = {
    "columns": lambda x, y: x[:, 3:25].exp(), "first": lambda x, y: x[:, :7] * 0.5,
    "halves": lambda x, y: x[:, :20] * x[:, 20:],
    "differences": lambda x, y: x[:, 1:] - x[:, :-1],
    "two pitches": lambda x, y: x[:30, 1:11] + y[:, :10],
    "one is whole": lambda x, y: x[:30, 1:11] / y[:, :10].contiguous(),
    "a line": lambda x, y: x[:, 5:] - y[0, :35], "a column": lambda x, y: x[:30, 5:] * y[:, :1],
    "a row of columns": lambda x, y: torch.maximum(x[:30, 5:15], y[:, 30:40]),
    "a number": lambda x, y: x[:, 5:] + y[0, 0], "repeated": lambda x, y: (
        x[:, 5:9] + y[:1, :4].expand(40, 4)),
    "planes": lambda x, y: x.view(4, 10, 40)[:, 1:9, 2:38].sigmoid(),
    "channels": lambda x, y: x.view(4, 5, 8, 10)[:, :, 1:] - y.view(-1)[:5].view(5, 1, 1),
    "where": lambda x, y: torch.where(x[:, :20] > 0, x[:, 20:], x[:, :20]),
    "clamp": lambda x, y: x[:, 2:].clamp(-1, 1), "gelu": lambda x, y: F.gelu(x[:, :39]),
    "steps of rows": lambda x, y: x[::3, :30] + 1,
}


def numbers(dtype):
    torch.manual_seed(0)
    x, y = torch.randn(40, 40), torch.randn(30, 50)
    x.view(-1)[90:200] = torch.tensor(SPECIAL * 11)
    y[3:5] = torch.tensor(SPECIAL * 5)
    return x.to(dtype), y.to(dtype)


def copied(x):
    """The same numbers, row-major: cutting gives copies."""

    class Copied:
        def __getitem__(self, at):
            return x[at].contiguous()

        def view(self, *sizes):
            return copied(x.view(*sizes))

        def __getattr__(self, name):
            return getattr(x, name)

    return Copied()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16],
                         ids=str)
@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_copies(name, dtype, low):
    x, y = numbers(dtype)
    wanted = CASES[name](copied(x), copied(y))
    assert not low
    for _ in range(6):  # the first are not native calls
        found = CASES[name](x, y)
        assert found.is_contiguous() and found.stride() == wanted.stride()
        np.testing.assert_array_equal(found.double().numpy(), wanted.double().numpy())
        np.testing.assert_array_equal(np.signbit(found.double()), np.signbit(wanted.double()))
    assert len(low) >= 6


def test_one_code_serves_all_sizes_and_pitches(low):
    from graphc.engine import eager_kernels

    x = torch.randn(40, 60)
    _ = x[:, :50].exp()
    made = len(eager_kernels._codes)
    for rows, pitch, width in ((9, 200, 77), (300, 5, 3), (2, 400, 390), (77, 1000, 2)):
        x = torch.randn(rows, pitch)
        part = x[:, pitch - width:]
        np.testing.assert_array_equal(part.exp().numpy(), part.contiguous().exp().numpy())
    flat = {key for key in eager_kernels._codes if key[0] == "cut"}
    assert len(eager_kernels._codes) - made <= 1 and len(flat) >= 1


@pytest.mark.parametrize("name", ["operator", "chain"])
@pytest.mark.parametrize("first", [0, 1])
def test_one_number_of_each_row_is_other_code_than_a_part_of_it(name, first, low):
    x, y = numbers(torch.float32)
    function = {"operator": lambda a, b: a * b, "chain": lambda a, b: (a * b).tanh()}[name]
    parts = [x[:30, :1].expand(30, 20), x[:30, :20]]
    for part in (parts[first], parts[not first]):
        wanted = function(part.contiguous(), y[:, :20].contiguous())
        np.testing.assert_array_equal(function(part, y[:, :20]).numpy(), wanted.numpy())
    assert low


REDUCED = {
    "rows": lambda x: x[:, 3:25].sum(1), "columns": lambda x: x[:, 3:25].sum(0),
    "all": lambda x: x[:, 3:].sum(), "wide": lambda x: x.view(16, 100)[:, 2:99].sum(0),
    "planes": lambda x: x.view(4, 10, 40)[:, 1:9, 2:38].amax((0, 2)),
    "between": lambda x: x.view(4, 10, 40)[:, 1:9, 2:38].amin(1), "mean": lambda x: (
        x[:, :17].mean(1)), "kept": lambda x: x[:, 5:].prod(1, keepdim=True),
    "channels": lambda x: x.view(4, 5, 8, 10)[:, :, 1:-1, 1:-1].sum((2, 3)),
}


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_are_those_of_copies(name, low):
    torch.manual_seed(4)
    x = torch.randn(40, 40)
    wanted = REDUCED[name](copied(x))
    for _ in range(5):
        found = REDUCED[name](x)
        assert found.shape == wanted.shape and found.is_contiguous()
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-5, atol=1e-6)
    assert len(low) >= 5
    x[3, 4] = float("nan")
    np.testing.assert_array_equal(
        REDUCED[name](x).isnan().numpy(), REDUCED[name](copied(x)).isnan().numpy()
    )


@pytest.mark.skipif(sys.platform != "linux", reason="memory that may not be read, by mprotect")
def test_nothing_behind_what_is_cut_is_read(low):
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for at in (0, 2 * page):
        assert libc.mprotect(ctypes.c_void_p(address + at), ctypes.c_size_t(page), 0) == 0
    rows, pitch = page // 4 // 32, 32
    x = torch.from_numpy(
        np.frombuffer(memory, np.float32, page // 4, page).reshape(rows, pitch)
    )
    x[:] = torch.arange(float(page // 4)).view(rows, pitch)
    for part in (x[:, 5:], x[:, 29:], x[:, :31], x[:, 1:8], x[1:, 13:]):
        wanted = part.contiguous() * 2.0
        for _ in range(5):
            np.testing.assert_array_equal((part * 2.0).numpy(), wanted.numpy())
            np.testing.assert_array_equal(F.gelu(part).numpy(), F.gelu(part.contiguous()).numpy())
    assert low
    del x, part, wanted


FUNCTIONS = {
    "glu": lambda x: F.glu(x), "glu of rows": lambda x: F.glu(x, 0),
    "glu between": lambda x: F.glu(x.view(4, 10, 40), 1), "diff": lambda x: x.diff(),
    "diff of rows": lambda x: x.diff(dim=0), "second diff": lambda x: x.diff(n=2),
    "trapezoid": lambda x: torch.trapezoid(x), "silu": lambda x: F.silu(x[:, :20]) * x[:, 20:],
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_views_are_as_of_few(name, recorded, low, monkeypatch):
    torch.manual_seed(1)
    x = torch.randn(40, 40)

    def outcome():
        results = []
        for _ in range(5):
            given = x.clone().requires_grad_(recorded)
            y = FUNCTIONS[name](given)
            results.append([y.detach().numpy(), type(y.grad_fn).__name__])
            if recorded:
                (y * torch.arange(float(y.numel())).view(y.shape)).sum().backward()
                results[-1].append(given.grad.numpy())
        return results

    found = outcome()
    monkeypatch.setattr(eager_form, "LARGE", 1 << 30)
    monkeypatch.setattr(replayed_views, "MANY", 1 << 30)
    for known in (eager._signatures, replayed._known):
        known.clear()
    for one, wanted in zip(found, outcome(), strict=True):
        assert one[1] == wanted[1]
        for a, b in zip(one[::2], wanted[::2], strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-4)


def test_glu_of_many_is_one_loop(low):
    x = torch.randn(40, 40)
    _ = F.glu(x)  # which is watched
    del low[:]
    for _ in range(2):
        _ = F.glu(x)
    assert len(low) == 2
    w = x.clone().requires_grad_()
    _ = F.glu(w)
    del low[:]
    for _ in range(2):
        y = F.glu(w)
    assert len(low) == 2
    assert y.grad_fn is not None
    with torch.no_grad():
        w[0, 0] = 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_bits_follow_no_threads(low):
    x = torch.randn(400, 70)
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append([(x[:, 3:68].exp() + x[:, :65]).numpy(), F.glu(x).numpy()])
    torch.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()
