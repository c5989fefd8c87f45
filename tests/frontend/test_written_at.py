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

    def watch(module, written):
        original = getattr(module, written)
        watched = lambda *args, **kw: done.append(original(*args, **kw)) or done[-1]  # noqa: E731
        monkeypatch.setattr(module, written, watched)

    functions = torch.frontend.functions
    for module in (written_at, functions.indexing):
        watch(module, "write_at")
        watch(module, "write_places")
    watch(functions.gathering, "write_places")
    outcome(torch, WRITES[name], "float32")
    assert done.count(True) == 1 and done[-1]


def _no_operators(*args):
    raise AssertionError(args)


FEW_WRITES = {
    **{name: WRITES[name] for name in
       ("rows", "from behind", "a number", "pairs", "a mask", "added", "index_copy_", "index_fill_",
        "most")},
    "masked_fill_": lambda t, x, v: x.masked_fill_(x > 2, 0.5),
    "masked_fill_, not a number": lambda t, x, v: x.masked_fill_(x > 2, float("nan")),
    "clamp_": lambda t, x, v: x.clamp_(-1, 2.5),
    "clamp_ above": lambda t, x, v: x.clamp_(max=0),
    "a mask of all dims": lambda t, x, v: x.__setitem__(x > 0, 0.5),
    "a mask and its numbers": lambda t, x, v: x.__setitem__(x > 12, v.view(-1)[: (x > 12).sum()]),
    "a mask, infinite": lambda t, x, v: x.__setitem__(x > 3, -float("inf")),
    "a mask of rows": lambda t, x, v: x.__setitem__(x[:, 0] > 3, v[0, 0].clone()),
    "places of two dims": lambda t, x, v: x.__setitem__(t.tensor([[1, 2], [5, 0]]),
                                                        v.view(2, 2, 6)),
    "a row to some": lambda t, x, v: x.__setitem__(t.tensor([1, 2]), v[0]),
    "a part": lambda t, x, v: x[3:].__setitem__(t.tensor([0, 2]), v[:2]),
    "pairs added": lambda t, x, v: x.index_put_((t.tensor([0, 0]), t.tensor([2, 2])), v[0, :2],
                                                accumulate=True),
}


@pytest.mark.parametrize("name", FEW_WRITES)
@pytest.mark.usefixtures("only_the_cpu")
def test_few_are_written_by_no_operator(name, monkeypatch):
    write = FEW_WRITES[name]
    (wanted, _) = outcome(reference, write, "float32")
    monkeypatch.setattr(written_at, "_signature", _no_operators)
    monkeypatch.setattr(torch.frontend.functions.indexing, "inplace", _no_operators)
    given, counted = outcome(torch, write, "float32")
    assert counted
    np.testing.assert_array_equal(given, wanted)


@pytest.mark.usefixtures("only_the_cpu")
def test_a_mask_of_few_is_read_by_no_operator(monkeypatch):
    x = np.random.default_rng(0).standard_normal((5, 4, 3)).astype("float32")
    ours, theirs = torch.from_numpy(x), reference.from_numpy(x)
    masks = [x > 0, x[..., 0] > 0, x[:, 0, 0] > 0, x > 9]
    monkeypatch.setattr(torch.frontend.functions.indexing, "take", _no_operators)
    for mask in masks:
        given = ours[torch.from_numpy(mask)]
        wanted = theirs[reference.from_numpy(mask)]
        assert given.is_contiguous() and given.stride() == wanted.stride()
        np.testing.assert_array_equal(given.numpy(), wanted.numpy())
        given.zero_()  # a copy
    assert ours.any()


def test_few_places_that_share_memory_or_are_wrong():
    for t in (torch, reference):
        x = t.arange(6)
        x[x[:2] + 1] = x[2:4].clone()
        assert x.tolist() == [0, 2, 3, 3, 4, 5]
        with pytest.raises(RuntimeError):
            x[t.tensor([0, 1])] = t.arange(3)
        with pytest.raises(RuntimeError):
            t.zeros(4)[t.tensor([True, True, False, False])] = t.ones(3)
        with pytest.raises(RuntimeError):
            t.zeros(4)[t.tensor([1])] = t.ones(1, dtype=t.float64)
        with pytest.raises(RuntimeError):
            x.index_put_((t.tensor([0]),), x[:1])
        huge = t.full((2,), 3e38)
        huge.index_add_(0, t.tensor([0]), huge[1:].clone())
        assert huge[0] == float("inf")
        x[()] = x.clone()
        leaf = t.zeros(3, requires_grad=True)
        with pytest.raises(RuntimeError):
            leaf[t.tensor([0])] = 1.0
        picked = leaf[t.tensor([True, False, True])]
        assert picked.requires_grad
        y = t.zeros(3)
        y[t.tensor([1])] = leaf[:1] * 2
        assert y.requires_grad
        assert x.tolist() == [0, 2, 3, 3, 4, 5]


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
