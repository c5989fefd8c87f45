"""t_(), squeeze_(), set_(), resize_(), .data =: the tensor itself changes, as in PyTorch.

Values, gradients, versions and what others on the same memory see; eager, and compiled twice with
new arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")


def _after(*steps: Any) -> Any:
    """The last of several expressions."""
    return steps[-1]


def _with(value: Any, function: Callable[..., Any]) -> Any:
    return function(value)


# of m (the namespace), x = [[1, 2, 3], [4, 5, 6]] without and g [2, 3] with a gradient
CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "argument": lambda m, x, g: x.t_(),
    "argument, then used": lambda m, x, g: _after(x.t_(), (x.t() * g).sum()),
    "there and back": lambda m, x, g: x.unsqueeze_(0).squeeze_(0).mul_(2),
    "several times": lambda m, x, g: [x.t_().mul_(2) for _ in range(3)][-1],
    "earlier view is written": lambda m, x, g: _with(
        x[0], lambda v: _after(x.t_(), v.mul_(3), x.add_(1))
    ),
    "earlier view is written with a gradient": lambda m, x, g: _with(
        x[0], lambda v: _after(x.t_(), v.mul_(g[0]), x.mul_(g.t()))
    ),
    "result": lambda m, x, g: (g * 2).t_(),
    "result with an earlier view": lambda m, x, g: _with(g * 2, lambda y: _with(
        y[0], lambda v: _after(y.t_(), v.mul_(3), y * y)
    )),
    "view": lambda m, x, g: _with(g * 2, lambda y: _with(
        y[:, :2], lambda v: _after(v.t_(), v.mul_(10), y * v.sum())
    )),
    "view, then its base is written": lambda m, x, g: _with(g * 2, lambda y: _with(
        y[1], lambda v: _after(v.unsqueeze_(0), y.mul_(x), (v * v).sum() * y)
    )),
    "synonyms": lambda m, x, g: (g * x).swapaxes_(0, 1).swapdims_(0, 1).transpose_(0, 1),
    "as_strided_": lambda m, x, g: (g * x).as_strided_((2, 2), (1, 1)) * 2,
    "as_strided_ of an argument": lambda m, x, g: x.as_strided_((2, 2), (1, 2)).mul_(2),
    "between writes": lambda m, x, g: _with(
        x.clone(), lambda y: _after(y.t_(), y.mul_(2), y.t_(), y.add_(g), y.sum())
    ),
    "expanded afterwards": lambda m, x, g: (g * 1).unsqueeze_(-1).expand(2, 3, 2).sum(-1),
    "resize_": lambda m, x, g: x.resize_(2, 2).mul_(3),
    "resize_ of a part": lambda m, x, g: _after(x[1].resize_(2).zero_(), x),
    "resize_ to more": lambda m, x, g: x.resize_(3, 3).fill_(1).sum(),
    "set_": lambda m, x, g: x.set_(x.reshape(-1) * 2).mul_(2),
    "set_ to a part": lambda m, x, g: x.set_(g.detach(), 2, (2,), (2,)).mul_(2),
    "set_ to a storage": lambda m, x, g: x.set_(x.untyped_storage(), 1, (2,), (2,)).mul_(2),
    "set_ to another's memory": lambda m, x, g: _after(x.set_(g.detach()), x * g),
    "set_ to nothing": lambda m, x, g: _after(x.set_(), g * 2),
    "data": lambda m, x, g: _after(setattr(x, "data", g.detach() * 2), x * g),
    "data of another": lambda m, x, g: _after(setattr(x, "data", g.data), x * g),
    "detach_ of a result": lambda m, x, g: _with(g * 2, lambda y: _after(y.t_(), y.detach_())),
}


def _run(m: Any, case: Callable[..., Any], compiled: bool) -> list[Any]:
    found: list[Any] = []
    function = graphc.compile(case, dynamic=False) if compiled else case
    for start in (1, 2) if compiled else (2,):
        x = m.arange(6.0).reshape(2, 3).clone() + start
        g = m.tensor([[1.0, 2, 3], [1, 2, 3]], requires_grad=True)
        other = x.detach()
        result = function(m, x, g)
        found = [result.detach(), x.detach()]
        if "to more" not in next(name for name in CASES if CASES[name] is case):
            found.append(other)
        found = [np.array(t.numpy()) for t in found]
        found.append((tuple(result.stride()), x._version, x.is_leaf, x._is_view()))
        if result.requires_grad:
            result.sum().backward()
            found.append(np.array(g.grad.numpy()))
    return found


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", list(CASES))
def test_changes(name: str, compiled: bool) -> None:
    want, have = _run(torch, CASES[name], False), _run(graphc, CASES[name], compiled)
    assert len(have) == len(want)
    for h, w in zip(have, want, strict=True):
        if isinstance(w, tuple):
            assert h == w
        else:
            np.testing.assert_array_equal(h, w)


ERRORS: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda m: m.ones(2, 3, requires_grad=True).t_(),
    "leaf, set_": lambda m: m.ones(2, 3, requires_grad=True).set_(m.ones(3)),
    "leaf, resize_": lambda m: m.ones(2, 3, requires_grad=True).resize_(3),
    "result, resize_": lambda m: (m.ones(2, 3, requires_grad=True) * 1).resize_(3),
    "leaf after unsqueeze_": lambda m: m.zeros(2).unsqueeze_(0).requires_grad_().add_(1),
    "leaf that is a view": lambda m: m.zeros(2, 3)[:1].requires_grad_().add_(1),
    "another dtype": lambda m: m.ones(3).set_(m.ones(3, dtype=m.float64)),
    "no derivative": lambda m: m.ones(3).set_(m.ones(3, requires_grad=True)).sum().backward(),
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_errors(name: str) -> None:
    for m in (torch, graphc):
        with pytest.raises(RuntimeError):
            ERRORS[name](m)


def test_set_outside_the_memory() -> None:
    """PyTorch lets a storage grow; memory that NumPy made cannot."""
    with pytest.raises(RuntimeError, match="storage"):
        graphc.ones(3).set_(graphc.ones(3), 2, (2,), (1,))


def test_one_graph_refuses() -> None:
    """What a graph cannot do to a tensor that was there before is an error by name."""
    for name in ("t_", "set_"):
        call = graphc.compile(lambda x, name=name: getattr(x, name)(), fullgraph=True)
        with pytest.raises(RuntimeError, match=name):
            call(graphc.ones(2, 3))
    swap = graphc.compile(lambda x, y: setattr(x, "data", y.data), fullgraph=True)
    with pytest.raises(RuntimeError, match="copy_"):
        swap(graphc.ones(2), graphc.ones(2))


def test_leaf_under_no_grad() -> None:
    for m in (torch, graphc):
        x = m.ones(2, 3, requires_grad=True)
        with m.no_grad():
            x.t_()
        assert x.is_leaf and tuple(x.shape) == (3, 2)
        (x * 2).sum().backward()
        assert tuple(x.grad.shape) == (3, 2)


def test_inference_tensors_keep_their_shape_outside_of_the_mode() -> None:
    for m in (torch, graphc):
        with m.inference_mode():
            x = m.ones(2, 1)
            assert tuple(x.t_().shape) == (1, 2)
        for change, dims in (("t_", ()), ("squeeze_", ()), ("unsqueeze_", (0,)),
                             ("transpose_", (0, 1))):
            with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
                getattr(x, change)(*dims)
    assert tuple(x.shape) == (1, 2)  # PyTorch raises when it has changed it
