"""Small programs from the sides that operator tables do not look at, eager and compiled, on the
device and on the CPU: four calls, the inputs compared as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import nn
from graphc.utils.checkpoint import checkpoint

HERE = "apart"

PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def leaf(x: Any) -> Any:
    return x.detach().requires_grad_()


@program
def views_of_views(x: Any) -> Any:
    y = x[1:3, ::2]
    z = y.t()
    z.mul_(2)
    x[0] = 7
    return z, y + 1, x.diagonal(), x.reshape(-1)[5:9]


@program
def writes_to_views_with_history(x: Any) -> Any:
    w = leaf(x)
    v = w * 1
    a = v[1]
    a.mul_(3)
    v.t()[0].add_(a.sum())
    v.sum().mul(2).backward()
    return w.grad, v


@program
def empty(x: Any) -> Any:
    e = x[:0]
    return e.sum(), e + 1, torch.cat([e, x]), e.reshape(0, 6).t(), x[:, 2:2].mean(), e.sum(0)


@program
def without_dimensions(x: Any) -> Any:
    s = x[1, 2]
    t = s * 2
    s.add_(5)
    return t, s, s.expand(3).clone(), s.reshape(1, 1), x.sum()


@program
def not_contiguous(x: Any) -> Any:
    y = x.t()
    return y @ x, y.softmax(0), y.contiguous().view(3, 8), y.cumsum(1), y.sort(0)[1], y.flip(0)


@program
def writes_that_autograd_does_not_see(x: Any) -> Any:
    w = leaf(x)
    y = w * w
    w.data.mul_(2)
    y.sum().backward()
    return w.grad


@program
def a_saved_value_is_written_to(x: Any) -> Any:
    w = leaf(x)
    h = w.sigmoid()
    y = h * h
    h.add_(1)
    y.sum().backward()
    return w.grad


@program
def hooks(x: Any) -> Any:
    seen: list[Any] = []
    w = leaf(x)
    h = w * 2
    h.register_hook(lambda g: seen.append(g.sum()) or g * 3)
    (h * h).sum().backward()
    return w.grad, seen


@program
def python_decides(x: Any) -> Any:
    y, n = x.sin(), 0
    while y.sum() < 10 and n < 3:
        y, n = y + 1, n + 1
    if (y > 0).all():
        y = y[y > 1.0]
    return y, n, int(y.numel()), y.max().item()


@program
def masks(x: Any) -> Any:
    m = x > 5
    x[m] = -1
    return x.nonzero(), x[x < 0], torch.where(m, x, 0.0), m.any(), x.masked_fill(m, 3)


@program
def checkpointed(x: Any) -> Any:
    w = leaf(x)
    y = checkpoint(lambda a: F.dropout(a.sin(), 0.3) * a, w, use_reentrant=False)
    y.sum().backward()
    return w.grad, y


@program
def out_of_range(x: Any) -> Any:
    return x[torch.tensor([0, 99], device=x.device)].sum().item()


@program
def routines_of_the_host_through_views(x: Any) -> Any:
    x[1:].lgamma_()
    v = x.t()[2:4]
    v.digamma_()
    w = leaf(x.abs() + 1.5)
    w.t()[::2].lgamma().sum().backward()
    return v, w.grad, (x / 50).clamp(0, 0.9).erfinv()


@program
def given_memory(x: Any) -> Any:
    o = torch.empty(4, 6, device=x.device)
    torch.add(x, 1, out=o)
    torch.mul(x[0], 2, out=o[1])
    return o


@program
def positions(x: Any) -> Any:
    i = torch.tensor([[0, 1, 2, 0, 1, 2]], device=x.device)
    zeros = torch.zeros(4, 6, device=x.device)
    return zeros.scatter_add_(0, i, x), x.gather(0, i), x.index_add(0, i[0, :2], x[:2])


@program
def operands_share_memory(x: Any) -> Any:
    a, b = x[:2], x[1:3]
    a.add_(b)
    y = x.as_strided((3, 4), (3, 1))
    z = y * 2
    x.mul_(2)
    return a * b, z, y


@program
def data_is_another_tensor(x: Any) -> Any:
    p = nn.Parameter(x.clone())
    y = (p * 2).sum()
    p.data = p.data * 3
    y.backward()
    return p.grad, p


@program
def to_the_host_and_back(x: Any) -> Any:
    y = (x.cpu() * 2).to(x.device) + x
    return y, y.cpu().sum().item(), x[0].tolist(), f"{x[0, 1].item():.2f}"


@program
def recurrent(x: Any) -> Any:
    torch.manual_seed(2)
    m = nn.LSTM(6, 3, batch_first=True).to(x.device)
    y, (h, c) = m(x[None] * 0.1)
    y.sum().backward()
    return y, h, c, m.weight_ih_l0.grad


@program
def lengths_on_the_host(x: Any) -> Any:
    rows = leaf(x[:, None].log_softmax(2))
    labels = torch.tensor([[1, 2]], device=x.device)
    loss = F.ctc_loss(rows, labels, torch.tensor([4]), torch.tensor([2]))
    loss.backward()
    return loss, rows.grad


@program
def known_positions(x: Any) -> Any:
    return F.interpolate(x[None, None], scale_factor=2, mode="bilinear"), F.unfold(x[None, None], 2)


@program
def gradients_of_gradients(x: Any) -> Any:
    return torch.func.hessian(lambda row: (row**3).sum())(x[0] * 0.1)


def numbers(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, (tuple, list)):
        return [numbers(item) for item in value]
    return value


def calls(function: Callable[[Any], Any], device: str) -> list[Any]:
    torch.manual_seed(0)
    found: list[Any] = []
    for i in range(4):
        x = torch.arange(24.0).reshape(4, 6).add(i).to(device)
        try:
            result = function(x)
        except Exception as error:
            result = type(error).__name__
        found.append(numbers([result, x]))
    return found


def same(have: Any, want: Any) -> None:
    if isinstance(want, list):
        assert len(have) == len(want)
        for a, b in zip(have, want, strict=True):
            same(a, b)
    elif isinstance(want, np.ndarray):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
    else:
        assert have == (pytest.approx(want, rel=1e-4) if isinstance(want, float) else want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    function = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = calls(function, "cpu")
        same(calls(function, HERE), want)
        same(calls(torch.compile(function), HERE), want)


def test_draws_in_segments() -> None:
    """Pairs of normals are float64, which the device does not have."""

    def function(x: Any) -> Any:
        y = x + torch.randn(5, device=x.device)
        return y * 2 if y.sum() > 0 else y + torch.rand(5, device=x.device)

    compiled, x = torch.compile(function), torch.zeros(5, device=HERE)
    torch.manual_seed(3)
    want = [function(x).tolist() for _ in range(5)]
    torch.manual_seed(3)
    assert [compiled(x).tolist() for _ in range(5)] == want
