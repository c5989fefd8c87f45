"""In-place methods and x[part] = y of few numbers, done again on arrays, as the long way does."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.frontend import eager
from graphc.frontend.functions import indexing, inplace
from graphc.ir import ops

reference = pytest.importorskip("torch")

METHODS = {
    **{
        name: lambda t, x, y, name=name: getattr(x, f"{name}_")()
        for name in "abs ceil cos exp floor log neg reciprocal relu round rsqrt sigmoid sign sin "
        "sqrt square tanh trunc".split()
    },
    "lerp": lambda t, x, y: x.lerp_(y, 0.25),
    "addcmul": lambda t, x, y: x.addcmul_(y, y, value=0.1),
    "addcdiv": lambda t, x, y: x.addcdiv_(y, y, value=2),
    "pow": lambda t, x, y: x.pow_(2),
    "remainder": lambda t, x, y: x.remainder_(0.3),
    "itself": lambda t, x, y: x.lerp_(x, 0.5),
    "cumsum": lambda t, x, y: x.cumsum_(0) if x.ndim else x,
    "a part of it": lambda t, x, y: x.hypot_(x[:1]) if x.ndim else x,
    "whole of it": lambda t, x, y: x.t().hypot_(x) if x.ndim == 2 else x,
}
PARTS = {
    "a column": lambda t, x, y: x.__setitem__((slice(None), 0), 2),
    "rows": lambda t, x, y: x.__setitem__(slice(0, 2), y[1:3]),
    "every other": lambda t, x, y: x.__setitem__(slice(None, None, 2), y[::2]),
    "spread": lambda t, x, y: x.__setitem__((Ellipsis, slice(1, 3)), y[0, 1:3]),
    "a number": lambda t, x, y: x.__setitem__((1, 2), True),
    "a tensor's number": lambda t, x, y: x.__setitem__((1, 2), y[0, 0]),
    "more dims": lambda t, x, y: x.__setitem__(0, y[None, 0]),
    "from itself": lambda t, x, y: x.__setitem__(slice(1, 3), x[:2] * 1),
    "nothing": lambda t, x, y: x.__setitem__(slice(0, 0), y[:0]),
    "None": lambda t, x, y: x.__setitem__((None, 0), y[1]),
}
DTYPES = ["float32", "float64", "float16", "int64", "uint8", "bool"]
LAYOUTS = ["rows", "turned", "number", "none"]


def outcome(t, write, dtype, layout="rows"):
    values = (np.random.default_rng(2).standard_normal((2, 4, 4)) * 3).astype(dtype)
    x, y = (t.from_numpy(v.copy()) for v in values)
    if layout != "rows":
        x, y = (
            v.t() if layout == "turned" else (v[0, 0] if layout == "number" else v[:0]).clone()
            for v in (x, y)
        )
    try:
        for _ in range(4):
            before = x._version
            write(t, x, y)
            assert x._version > before or layout != "rows" or "part" in str(write)
    except (RuntimeError, IndexError, TypeError) as error:
        return type(error).__name__, x.numpy().copy()
    return "", x.numpy().copy()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", METHODS)
def test_methods_are_what_the_long_way_gives(name, dtype, layout, monkeypatch):
    short = outcome(torch, METHODS[name], dtype, layout)
    monkeypatch.setattr(inplace, "write_one", lambda *_: False)
    monkeypatch.setattr(inplace, "write_few", lambda *_: False)
    long = outcome(torch, METHODS[name], dtype, layout)
    assert short[0] == long[0]
    assert short[1].tobytes() == long[1].tobytes()
    if dtype not in ("float32", "float64"):
        return
    wanted = outcome(reference, METHODS[name], dtype, layout)
    assert short[0] == wanted[0]
    if name not in ("a part of it", "whole of it"):
        np.testing.assert_allclose(short[1], wanted[1], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS[:2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PARTS)
def test_parts_are_what_the_long_way_gives(name, dtype, layout, monkeypatch):
    short = outcome(torch, PARTS[name], dtype, layout)
    wanted = outcome(reference, PARTS[name], dtype, layout)
    assert short[0] == wanted[0]
    np.testing.assert_array_equal(short[1], wanted[1])
    monkeypatch.setattr(indexing, "write_part", lambda *_: False)
    long = outcome(torch, PARTS[name], dtype, layout)
    assert short[0] == long[0] and short[1].tobytes() == long[1].tobytes()


@pytest.mark.usefixtures("only_the_cpu")
@pytest.mark.parametrize("name", [
    name for name in [*METHODS, *PARTS] if name not in ("a part of it", "whole of it", "more dims")
])
def test_short_ways_are_taken(name, monkeypatch):
    write = {**METHODS, **PARTS}[name]
    x, y = torch.rand(4, 4), torch.rand(4, 4)
    for _ in range(3):
        write(torch, x, y)
    written = []
    for module in (inplace, indexing):
        long = module.inplace
        monkeypatch.setattr(
            module, "inplace", lambda *a, long=long, **k: written.append(1) or long(*a, **k)
        )
    write(torch, x, y)
    assert not written


@pytest.mark.parametrize("name", ["exp", "sigmoid", "lerp", "addcmul", "pow", "a column", "rows"])
def test_with_a_history(name):
    write = {**METHODS, **PARTS}[name]
    found = []
    for t in (torch, reference):
        for again in range(3):
            x = t.arange(16.0).reshape(4, 4) / 16
            y = (t.arange(16.0).reshape(4, 4) / 8 + 0.5).requires_grad_()
            w = (x + 0.5).requires_grad_()
            z = w * 1
            write(t, z, y)
            (z * z).sum().backward()
            if again == 2:
                found.append([z.detach(), w.grad, w.grad if y.grad is None else y.grad])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def test_saved_tensors_notice():
    w = torch.rand(4, requires_grad=True)
    for write in (lambda y: y.exp_(), lambda y: y.lerp_(torch.ones(4), 0.5),
                  lambda y: y.__setitem__(slice(1, 3), torch.ones(2))):
        for _ in range(2):
            y = torch.rand(4)
            write(y)
        y = torch.rand(4)
        z = w * y
        write(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_leaves_and_expanded_memory_are_refused():
    for write in (lambda x: x.exp_(), lambda x: x.lerp_(torch.ones(4), 0.5),
                  lambda x: x.__setitem__(slice(1, 3), torch.ones(2))):
        for _ in range(2):
            write(torch.rand(4))
        with pytest.raises(RuntimeError, match="leaf Variable"):
            write(torch.rand(4, requires_grad=True))
        with pytest.raises(RuntimeError, match="more than one element"):
            write(torch.rand(1).expand(4))


def test_a_result_of_another_kind_is_refused():
    x = torch.arange(4)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="can't be cast"):
            x.pow_(0.5)
        with pytest.raises(RuntimeError, match="can't be cast"):
            x.sqrt_()


VIEWS = {
    "columns": lambda x: x[:, :3], "columns behind": lambda x: x[:, 1:4],
    "every other": lambda x: x[:, ::2], "rows": lambda x: x[::2], "a column": lambda x: x[:, 2],
    "turned": lambda x: x.t(), "one row": lambda x: x[1:2, 1:3], "none": lambda x: x[:, :0],
    "diagonal": lambda x: x.diagonal(),
}


@pytest.mark.parametrize("name", sorted(VIEWS))
@pytest.mark.parametrize("rows", [4, 400])
def test_arithmetic_in_a_view_of_wider_rows(name: str, rows: int) -> None:
    def function(t):
        x = t.arange(rows * 5.0).reshape(rows, 5)
        y = VIEWS[name](x).clone() * 0.5 + 1
        for _ in range(3):
            VIEWS[name](x).sub_(y)
            VIEWS[name](x).mul_(1.5)
            part = VIEWS[name](x)
            part += y
            part /= y
            part.add_(part)
        w = t.ones(rows, 5, requires_grad=True)
        z = w * 2
        VIEWS[name](z).mul_(y)
        z.sum().backward()
        return x.tolist(), x._version, w.grad.tolist()

    assert function(torch) == function(reference)


def test_rows_with_gaps_are_computed_where_they_lie() -> None:
    x, y = torch.zeros(4, 6), torch.ones(4, 3)
    x[:, :3].sub_(y)
    assert eager.write_two(ops.sub, x[:, 1:4], y)
    assert x.tolist() == [[-1.0, -2.0, -2.0, -1.0, 0.0, 0.0]] * 4
    across = torch.zeros(3, 4).t()
    across.sub_(y)
    assert not eager.write_two(ops.sub, across, y)  # not one behind the other
    assert not eager.write_two(ops.sub, torch.zeros(9).as_strided((4, 3), (2, 1)), y)
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.zeros(4, 1).expand(4, 3).sub_(y)
