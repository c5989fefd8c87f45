"""In-place writes and the history they leave: every case in eager and under a trace.

Each case is a function of two tensors; its loss and gradients under a trace, run by the
interpreter, must be those of eager mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc.frontend.dispatch import inplace
from graphc.frontend.grad_mode import no_grad
from graphc.frontend.tensor import Tensor
from graphc.frontend.trace import Trace

from .core import (
    add,
    add_,
    evaluate,
    exp,
    expand,
    fill_,
    mul,
    mul_,
    reshape,
    row,
    rows,
    tensor,
    total,
    transpose,
    values,
)


def _whole(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    mul_(y, w)
    return mul(y, y)


def _row_of_base(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    mul_(row(y, 0), row(w, 1))
    return mul(y, y)


def _base_seen_through_view(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    view = transpose(y)
    mul_(y, w)
    return mul(view, view)


def _view_of_view(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    flat = reshape(transpose(rows(y, 0, 2)), 2, 2)
    add_(row(flat, 1), row(w, 0))
    other = row(y, 0)
    return add(mul(y, y), mul(other, 3.0))


def _overwrite(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    inplace(y, w, overwrite=True)
    return mul(y, x)


def _zero_row(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, w)
    fill_(row(y, 1), 0.0)
    return mul(y, y)


def _into_fresh_buffer(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x.detach(), 0.0)
    inplace(row(y, 0), row(x, 1), overwrite=True)
    inplace(row(y, 1), row(w, 0), overwrite=True)
    return mul(y, y)


def _broadcast_value(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    inplace(y, row(w, 0), overwrite=True)
    return mul(y, x)


def _loop(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 1.0)
    for i in range(2):
        mul_(row(y, i), row(w, 1 - i))
        add_(row(y, 1 - i), row(y, i))
    return mul(y, 2.0)


def _through_expand(x: Tensor, w: Tensor) -> Tensor:
    y = mul(reshape(row(x, 0), 2, 1), 2.0)
    mul_(row(transpose(expand(y, 2, 3)), 1), row(w, 0))
    return mul(expand(y, 2, 2), w)


def _write_under_no_grad(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    view = row(y, 0)
    with no_grad():
        mul_(y, 3.0)
    return mul(add(y, view), w)


def _detached_write(x: Tensor, w: Tensor) -> Tensor:
    y = mul(x, 2.0)
    mul_(y.detach(), 3.0)
    return add(y, w)


CASES = [
    _whole, _row_of_base, _base_seen_through_view, _view_of_view, _overwrite, _zero_row,
    _into_fresh_buffer, _broadcast_value, _loop, _through_expand, _write_under_no_grad,
    _detached_write,
]


def _leaves() -> tuple[Tensor, Tensor]:
    return tensor([[1.0, 2.0], [3.0, 4.0]], True), tensor([[5.0, 6.0], [7.0, 8.0]], True)


def _eager(case: Callable[..., Any]) -> list[Any]:
    x, w = _leaves()
    loss = total(case(x, w))
    loss.backward()
    return [values(loss), *(None if t.grad is None else values(t.grad) for t in (x, w))]


@pytest.mark.parametrize("case", CASES)
def test_trace_agrees_with_eager(case: Callable[..., Any]) -> None:
    x, w = _leaves()
    with Trace("case") as trace:
        loss = total(case(x, w))
        loss.backward()
        traced = trace.finish(loss)
    arrays = evaluate(traced)
    found: dict[int, Any] = {id(g.tensor): g.value for g in traced.grads}
    got = [arrays[traced.result.index].tolist()]
    for leaf in (x, w):
        write = found.get(id(leaf))
        got.append(None if write is None else arrays[write.index].tolist())
    assert x.grad is None and got == _eager(case)


def _numeric(case: Callable[..., Any], which: int) -> Any:
    base = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])]
    grad = np.zeros((2, 2))
    for index in np.ndindex(2, 2):
        ends = []
        for step in (1e-4, -1e-4):
            moved = [a.copy() for a in base]
            moved[which][index] += step
            with no_grad():
                leaves = [tensor(a, dtype=np.float64) for a in moved]
                ends.append(float(total(case(*leaves))._graphc_array))
        grad[index] = (ends[0] - ends[1]) / 2e-4
    return grad


@pytest.mark.parametrize(
    "case", [c for c in CASES if c not in (_write_under_no_grad, _detached_write,
                                           _into_fresh_buffer)]
)
def test_eager_gradients_are_the_numerical_ones(case: Callable[..., Any]) -> None:
    expected = _eager(case)
    for which in (0, 1):
        got = expected[1 + which]
        np.testing.assert_allclose(got, _numeric(case, which), rtol=1e-4, atol=1e-4)


def test_history_of_base_and_view_as_torch_names_it() -> None:
    x, _ = _leaves()
    y = mul(x, 2.0)
    view = row(y, 0)
    mul_(view, 3.0)
    assert y.grad_fn.name() == "CopySlices" and view.grad_fn.name() == "AsStridedBackward0"
    assert not y.is_leaf and y._version == 1


def test_leaves_that_require_a_gradient_are_protected() -> None:
    x, w = _leaves()
    with pytest.raises(RuntimeError, match=r"(?s)a leaf Variable that requires grad.*no_grad"):
        mul_(x, 2.0)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        mul_(row(x, 0), 2.0)
    with no_grad():
        mul_(x, 2.0)
        view = row(x, 0)
        add_(view, 1.0)
    assert values(x) == [[3, 5], [6, 8]] and x.is_leaf
    y = mul(w, 1.0)
    with no_grad():
        late = row(y, 0)
    with pytest.raises(RuntimeError, match="no_grad mode"):
        mul_(late, row(w, 0))


def test_a_plain_tensor_joins_the_tape_when_written_to() -> None:
    x, _ = _leaves()
    y = tensor([[0.0, 0.0], [0.0, 0.0]])
    view = row(y, 1)
    inplace(row(y, 0), row(x, 1), overwrite=True)
    assert y.requires_grad and view.requires_grad
    total(y).backward()
    assert values(x.grad) == [[0, 0], [1, 1]]


def test_overwritten_history_gets_zero_gradients() -> None:
    x, _ = _leaves()
    y = mul(x, 2.0)
    fill_(y, 1.0)
    assert y.requires_grad
    total(y).backward()
    assert values(x.grad) == [[0, 0], [0, 0]]


def test_writes_to_what_a_rule_reads_are_errors() -> None:
    x, w = _leaves()
    y = mul(x, 1.0)
    product = total(mul(y, w))
    mul_(y, 2.0)
    with pytest.raises(RuntimeError, match=r"MulBackward0, is at version 1; expected version 0"):
        product.backward()
    y = exp(x)
    mul_(y, 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        total(y).backward()
    # add reads nothing: fine
    y = add(x, 1.0)
    mul_(y, 2.0)
    total(y).backward()
    assert values(x.grad) == [[2, 2], [2, 2]]


def test_the_same_errors_under_a_trace() -> None:
    x, w = _leaves()
    with pytest.raises(RuntimeError, match=r"(?s)expected version 0 instead.*recorded at"), Trace():
        y = mul(x, 1.0)
        product = total(mul(y, w))
        mul_(y, 2.0)
        product.backward()
    with pytest.raises(RuntimeError, match="a leaf Variable"), Trace():
        mul_(x, 2.0)
    with Trace():
        y = add(x, 1.0)
        s = total(y)
        mul_(y, 2.0)
        s.backward()
    assert x.grad is None


def test_values_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match=r"output with shape \[2\] doesn't match.*\[3, 2\]"):
        inplace(tensor([1.0, 2.0]), tensor(np.ones((3, 2))))
    target = tensor([1, 2], dtype=np.int64)
    inplace(target, tensor([2.7, -2.7]))
    assert values(target) == [2, -2]
    inplace(target, tensor([[7]], dtype=np.int64))
    assert values(target) == [7, 7]


def test_overlapping_source() -> None:
    x = tensor(np.arange(5))
    inplace(rows(x, 1, 5), rows(x, 0, 4))
    assert values(x) == [0, 0, 1, 2, 3]
