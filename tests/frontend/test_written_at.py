"""What is written where indices say is written there alone, and is what the operator would give."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.frontend import written_at

reference = pytest.importorskip("torch")

ROWS = [1, 5, 9, 5]
WRITES = {
    "rows": lambda t, x, v: x.__setitem__(t.tensor(ROWS), v),
    "from behind": lambda t, x, v: x.__setitem__(t.tensor([-1, -3, 0, 2]), v),
    "a number": lambda t, x, v: x.__setitem__(t.tensor(ROWS), 3),
    "columns": lambda t, x, v: x.__setitem__((slice(None), t.tensor([0, 3])), 2),
    "pairs": lambda t, x, v: x.__setitem__((t.tensor([0, 3]), t.tensor([2, 2])), v[0, :2]),
    "a mask": lambda t, x, v: x.__setitem__(t.arange(20) == 7, v[0]),
    "added": lambda t, x, v: x.index_put_((t.tensor(ROWS),), v, accumulate=True),
    "index_add_": lambda t, x, v: x.index_add_(0, t.tensor(ROWS), v),
    "index_add_ of columns": lambda t, x, v: x.index_add_(-1, t.tensor([1, 1]), x[:, :2].clone()),
    "index_copy_": lambda t, x, v: x.index_copy_(0, t.tensor([3, 0, 4, 1]), v),
    "index_fill_": lambda t, x, v: x.index_fill_(0, t.tensor(ROWS), 2),
    "scatter_": lambda t, x, v: x.scatter_(0, t.tensor([[1, 2, 3]]), v[:1, :3].clone()),
    "scatter_ a number": lambda t, x, v: x.scatter_(1, t.tensor([[1], [2]]), 1),
    "scatter_add_": lambda t, x, v: x.scatter_add_(0, t.tensor([[1, 2], [1, 2]]),
                                                   v[:2, :2].clone()),
    "a part": lambda t, x, v: x[2:18].index_fill_(0, t.tensor([0, 1]), 1),
    "every other": lambda t, x, v: x[::2].index_fill_(0, t.tensor([0, 1]), 1),
    "most": lambda t, x, v: x.index_fill_(0, t.arange(18), 1),
    "none": lambda t, x, v: x.__setitem__(t.tensor([], dtype=t.int64), 1),
}
DTYPES = ["float32", "float64", "float16", "int64", "uint8"]


def outcome(t, write, dtype):
    values = (np.random.default_rng(2).standard_normal((24, 6)) * 9).astype(dtype)
    x, v = t.from_numpy(values[:20].copy()), t.from_numpy(values[20:].copy())
    before = x._version
    write(t, x, v)
    return x.numpy(), x._version > before


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITES)
def test_values(name, dtype):
    (given, counted), (wanted, _) = (outcome(t, WRITES[name], dtype) for t in (torch, reference))
    assert counted or name == "none"
    near = 1e-2 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(given, wanted, rtol=near, atol=near)


@pytest.mark.parametrize("name", ["rows", "index_add_", "index_copy_", "index_fill_", "scatter_",
                                  "scatter_add_", "a mask", "added", "scatter_ a number"])
@pytest.mark.usefixtures("only_the_cpu")
def test_in_place(name, monkeypatch):
    done = []
    write_at = written_at.write_at
    watched = lambda *args: done.append(write_at(*args)) or done[-1]  # noqa: E731
    monkeypatch.setattr(written_at, "write_at", watched)
    monkeypatch.setattr(torch.frontend.functions.indexing, "write_at", watched)
    outcome(torch, WRITES[name], "float32")
    assert done == [True]


@pytest.mark.parametrize("write", [
    lambda t, x: x.__setitem__(t.tensor([0, 20]), 1.0),
    lambda t, x: x.index_add_(0, t.tensor([0, 20]), t.ones(2, 6)),
    lambda t, x: x.scatter_(0, t.tensor([[0, 20]]), t.ones(1, 2)),
    lambda t, x: x.scatter_add_(0, t.tensor([[0, -1]]), t.ones(1, 2)),
])
def test_out_of_range(write):
    x = torch.zeros(20, 6)
    with pytest.raises((IndexError, RuntimeError)):
        write(torch, x)
    assert not x.any()


def test_numbers_that_do_not_fit():
    with pytest.raises(RuntimeError):
        torch.zeros(20, dtype=torch.uint8).index_fill_(0, torch.tensor([1]), 300)
    with pytest.raises(RuntimeError):
        torch.zeros(20).index_fill_(0, torch.tensor([1]), 1e300)
    x = torch.zeros(20).index_fill_(0, torch.tensor([1]), float("inf"))
    assert x[1] == float("inf") and x.sum() == float("inf")


def test_history_is_kept():
    for t in (torch, reference):
        w = t.ones(20, 6, requires_grad=True)
        x, v = w * 2, t.ones(2, 6, requires_grad=True)
        x[t.tensor([1, 4])] = v * 3
        (x * x).sum().backward()
        assert v.grad.sum().item() == 12 * 18 and w.grad.sum().item() == 18 * 6 * 8
        y = w.exp()
        with t.no_grad():
            y[t.tensor([1])] = 0
        with pytest.raises(RuntimeError):  # exp's rule reads what it gave
            y.sum().backward()
