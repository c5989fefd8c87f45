"""x.index_add_(...) in x's own memory: by NumPy, by native code, or, of many numbers, by compiled
code."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_rows
from graphc.frontend import written_at

reference = pytest.importorskip("torch")

# sizes, dim, positions
CASES = {
    "rows": ((5, 4), 0, [0, 3, 3]),
    "columns": ((5, 4), 1, [3, 0, 0, 1]),
    "in the middle": ((2, 5, 3), -2, [4, 4, 1]),
    "numbers": ((6,), 0, [5, 5, 5, 0]),
    "one row": ((1, 7), 0, [0]),
    "special": ((3, 2), 0, [0, 1, 1]),
}


def operands(package, name, dtype):
    sizes, dim, places = CASES[name]
    random = np.random.default_rng(3)
    given = list(sizes)
    given[dim] = len(places)
    x, rows = random.standard_normal(sizes), random.standard_normal(given)
    if name == "special":
        rows[0], rows[1] = [np.inf, np.nan], [-np.inf, -0.0]
    make = lambda a: package.from_numpy(a.astype(dtype))  # noqa: E731
    return make(x), dim, package.tensor(places), make(rows)


@pytest.fixture
def loaded(only_the_cpu, monkeypatch):
    """Native code at hand, and no tensors met before."""
    monkeypatch.setattr(eager_rows.native, "_asked", 1 << 40)
    monkeypatch.setattr(written_at, "_writers", {})
    if eager_rows.native.function("add_rows", "f", [1, 1, 1, 1]) is None:
        pytest.skip("no compiler for this machine")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_the_bits_of_numpy_again_and_again(name, dtype, loaded):
    x, dim, places, rows = operands(torch, name, dtype)
    wanted = x.numpy().copy()
    behind = np.moveaxis(wanted, dim, 0)
    for count in range(1, 8):
        x.index_add_(dim, places, rows)
        with np.errstate(all="ignore"):
            np.add.at(behind, places.numpy(), np.moveaxis(rows.numpy(), dim, 0))
        assert x.numpy().tobytes() == wanted.tobytes()
        assert x._version == count
    (adder,) = {id(each): each for each in written_at._writers.values()}.values()
    assert adder(rows.numpy(), places.numpy(), x.numpy()) is not None  # by native code now


@pytest.mark.parametrize("name", ["rows", "columns", "numbers"])
@pytest.mark.parametrize("wrong", [-1, 99])
def test_a_position_out_of_range_is_refused_before_anything_is_written(name, wrong, loaded):
    x, dim, places, rows = operands(torch, name, "float32")
    for _ in range(4):
        before, version = x.numpy().copy(), x._version
        bad = places.clone()
        bad[-1] = wrong
        theirs = reference.from_numpy(before.copy())
        kinds = (IndexError, RuntimeError)
        with pytest.raises(kinds) as expected:
            theirs.index_add_(dim, reference.from_numpy(bad.numpy()),
                              reference.from_numpy(rows.numpy()))
        with pytest.raises(expected.type):
            x.index_add_(dim, bad, rows)
        with pytest.raises(expected.type):
            x.index_add(dim, bad, rows)
        np.testing.assert_array_equal(x.numpy(), before)
        assert x._version == version
        x.index_add_(dim, places, rows)


def test_what_is_not_so_plain_is_as_it_was(loaded):
    x, dim, places, rows = operands(torch, "rows", "float32")
    for _ in range(4):
        x.index_add_(dim, places, rows)
    square = torch.ones(4, 4)
    for _ in range(4):
        square.index_add_(0, torch.tensor([0, 1, 2, 3]), torch.ones(4, 4))
    given = square.numpy().copy()
    square.index_add_(0, torch.tensor([1, 0, 3, 2]), square.clone())
    np.testing.assert_array_equal(square.numpy(), given + given[[1, 0, 3, 2]])
    with pytest.raises(RuntimeError, match="clone"):
        square.index_add_(0, torch.tensor([1, 0, 3, 2]), square)
    w = torch.zeros(5, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        w.index_add_(dim, places, rows)
    tracked = rows.clone().requires_grad_()
    y = torch.zeros(5, 4)
    y.index_add_(dim, places, tracked)
    y.sum().backward()
    assert tracked.grad is not None and bool((tracked.grad == 1).all())
    turned = torch.zeros(4, 5).t()
    turned.index_add_(dim, places, rows)
    np.testing.assert_array_equal(turned.numpy(), torch.zeros(5, 4).index_add(dim, places, rows))


def test_many_rows_are_added_by_compiled_code_in_place(only_the_cpu, monkeypatch):
    x, rows = torch.zeros(512, 256), torch.randn(700, 256)
    places = torch.arange(700) % 300
    x.index_add_(0, places, rows)
    monkeypatch.setattr(torch.frontend.functions.gathering, "_index_put", None)
    address = x.data_ptr()
    x.index_add_(0, places, rows)
    assert x.data_ptr() == address
    wanted = np.zeros((512, 256), np.float32)
    for _ in range(2):
        np.add.at(wanted, places.numpy(), rows.numpy())
    np.testing.assert_allclose(x.numpy(), wanted, rtol=1e-5, atol=1e-5)
    monkeypatch.undo()
    before = x.numpy().copy()
    with pytest.raises(IndexError):
        x.index_add_(0, places + 300, torch.randn(700, 256))
    np.testing.assert_array_equal(x.numpy(), before)


@pytest.mark.parametrize("dim", [0, 1])
def test_index_copy_and_index_fill_take_long_positions_alone(dim):
    for package in (torch, reference):
        x, short = package.zeros(3, 3), package.tensor([0, 1], dtype=package.int32)
        with pytest.raises(RuntimeError, match="long"):
            x.index_copy_(dim, short, package.ones(2, 3) if dim == 0 else package.ones(3, 2))
        with pytest.raises(IndexError, match="int64"):
            x.index_fill_(dim, short, 1)


@pytest.mark.parametrize("sizes", [(64, 48), (3, 40, 16)])
def test_more_rows_than_few_have_the_bits_of_one_after_the_other(sizes, loaded):
    random = np.random.default_rng(5)
    dim = len(sizes) - 2
    places = random.integers(0, sizes[dim], 200)
    rows = random.standard_normal((*sizes[:dim], 200, *sizes[dim + 1 :])).astype("float32")
    x = random.standard_normal(sizes).astype("float32")
    wanted = x.copy()
    np.add.at(wanted, (*[slice(None)] * dim, places), rows)
    ours, index, source = (torch.from_numpy(a) for a in (x.copy(), places, rows))
    assert ours.index_add(dim, index, source).numpy().tobytes() == wanted.tobytes()
    turned = torch.from_numpy(np.ascontiguousarray(rows.swapaxes(-1, -2))).transpose(-1, -2)
    assert ours.index_add(dim, index, turned).numpy().tobytes() == wanted.tobytes()
    assert ours.index_add_(dim, index, source) is ours
    assert ours.numpy().tobytes() == wanted.tobytes() and ours._version == 1


def test_the_source_of_what_is_placed_is_no_other_name_of_the_target():
    places = [1, 0, 3, 2]
    for package in (torch, reference):
        index = package.tensor(places)
        wide = index.reshape(4, 1).expand(4, 4).contiguous()
        for name, at in (("index_add_", index), ("index_copy_", index), ("scatter_", wide),
                         ("scatter_add_", wide)):
            x = package.ones(4, 4)
            for same in (x, x.view(4, 4)):
                with pytest.raises(RuntimeError, match="clone"):
                    getattr(x, name)(0, at, same)


def test_a_larger_source_is_cut():
    for package in (torch, reference):
        x, source = package.zeros(3, 4), package.arange(12.0).reshape(3, 4)
        for _ in range(3):
            x.scatter_add_(1, package.tensor([[3], [0]]), source)
        assert x.tolist() == [[0, 0, 0, 0], [12, 0, 0, 0], [0, 0, 0, 0]]
