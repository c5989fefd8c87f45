"""Copies of what lies otherwise than in rows, on many numbers, are NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_copies, eager_mode
from graphc.frontend import eager, replayed

CASES = {
    "heads": lambda x: x.view(4, 6, 5, 10).transpose(1, 2),
    "long heads": lambda x: x.view(2, 3, 2, 100).transpose(1, 2),
    "heads first": lambda x: x.view(4, 6, 5, 10).permute(2, 0, 1, 3),
    "columns": lambda x: x.view(30, 40)[:, 3:25], "crop": lambda x: (
        x.view(5, 6, 8, 5)[:, 1:-1, 2:-1, :4]),
    "column": lambda x: x.view(30, 40)[:, 7:8].expand(30, 40),
    "pairs": lambda x: x.view(30, 40, 1).expand(30, 40, 2),
    "rows": lambda x: x.view(30, 1, 40).expand(30, 3, 40), "line": lambda x: x[:40].expand(30, 40),
    "numbers of a line": lambda x: x[:40, None].expand(40, 30),
    "turned and repeated": lambda x: x.view(6, 5, 40).transpose(0, 1)[:, None].expand(5, 2, 6, 40),
    "across": lambda x: x.view(30, 40).t(),
    "columns across": lambda x: x.view(30, 40)[:, 3:25].t(),
    "steps": lambda x: x.view(30, 40)[::2, ::3],
    "backwards over rows": lambda x: x.view(5, 6, 40).permute(1, 0, 2)[1:4],
}
NUMPYS = frozenset({"steps"})
ACROSS = frozenset({"across", "columns across"})  # of bytes they are NumPy's, too


@pytest.fixture
def low(monkeypatch):
    """Code from a hundred elements on; gives how many copies it made."""
    monkeypatch.setattr(eager_mode, "LARGE", 100)
    copies: list[int] = []
    run = eager_copies._Copy.run
    monkeypatch.setattr(
        eager_copies._Copy, "run", lambda self, arrays: copies.append(1) or run(self, arrays)
    )
    for known in (eager._signatures, replayed._known):
        known.clear()
    yield copies
    for known in (eager._signatures, replayed._known):
        known.clear()


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
    torch.complex64,
], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_copies_are_the_numbers(name, dtype, low):
    x = (torch.arange(1200) ** 2 % 97 % 60).to(dtype)
    wide = torch.float32 if dtype is torch.bfloat16 else dtype
    for _ in range(5):  # the first are not native calls
        view = CASES[name](x)
        wanted = CASES[name](x.to(wide)).numpy().copy()
        for copy in (view.contiguous(), view.clone(), view.reshape(-1)):
            found = copy.to(wide).numpy().reshape(wanted.shape)
            np.testing.assert_array_equal(found, wanted)
            assert copy.data_ptr() != x.data_ptr()
        assert view.contiguous().is_contiguous()
    if name in NUMPYS or dtype is torch.complex64 or (name in ACROSS and dtype.itemsize == 1):
        assert not low
    else:
        assert len(low) >= 5


@pytest.mark.parametrize("name", CASES)
def test_layouts_and_gradients_are_those_of_few(name, low, monkeypatch):
    def outcome():
        found = []
        for _ in range(5):
            x = torch.arange(1200.0).requires_grad_()
            y = CASES[name](x).clone()
            z = CASES[name](x).reshape(-1)
            (y.sum() + (z * torch.arange(float(z.numel()))).sum()).backward()
            found.append((y.stride(), z.stride(), type(y.grad_fn).__name__, x.grad.tolist()))
        return found

    many = outcome()
    monkeypatch.setattr(eager_mode, "LARGE", 1 << 30)
    for known in (eager._signatures, replayed._known):
        known.clear()
    assert many == outcome()


def test_repeats(low):
    x = torch.arange(600.0).view(20, 30)
    for _ in range(5):
        for count in (2, 3, 5):
            for dim in (0, 1):
                np.testing.assert_array_equal(
                    x.repeat_interleave(count, dim).numpy(), x.numpy().repeat(count, dim)
                )
    assert low


def test_much_memory_begins_where_lines_of_the_caches_do(only_the_cpu):
    """A register that lies in two lines takes two loads: what goes through memory took a fifth
    longer on random numbers, copies and what was put together."""
    torch.manual_seed(0)
    x = torch.randn(600, 600)
    for made in (x, torch.rand(600, 600), torch.randint(0, 9, (600, 600)), x.clone(), x.double(),
                 torch.cat([x, x]), torch.cat([x, x], 1)):
        assert made.data_ptr() % 64 == 0
    np.testing.assert_array_equal(torch.cat([x, x], 1).numpy(), np.hstack([x.numpy()] * 2))
    np.testing.assert_array_equal(x.double().numpy(), x.numpy().astype(np.float64))
    np.testing.assert_array_equal(x.t().double().numpy(), x.numpy().T.astype(np.float64))
