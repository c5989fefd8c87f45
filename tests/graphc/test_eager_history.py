"""A function of several operators on many numbers is one step of history, too."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_form
from graphc.frontend import eager, replayed
from graphc.frontend.values import Eager
from graphc.nn.functional import norm

F = torch.nn.functional


@pytest.fixture
def low(monkeypatch, only_the_cpu):
    """Compiled code from a hundred elements on; gives a way to do operators one by one."""
    monkeypatch.setattr(eager_form, "LARGE", 100)
    monkeypatch.setattr(norm, "_FEW", 99)

    def forget(chains=True):
        eager._signatures.clear()
        replayed._known.clear()
        if not chains:
            monkeypatch.setattr(Eager, "chain", None)

    forget()
    yield forget
    eager._signatures.clear()
    replayed._known.clear()


CASES = {
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.1), "elu": lambda x, y: F.elu(x),
    "mish": lambda x, y: F.mish(x), "hardswish": lambda x, y: F.hardswish(x),
    "logsigmoid": lambda x, y: F.logsigmoid(x), "softsign": lambda x, y: F.softsign(x),
    "prelu": lambda x, y: F.prelu(x, y[0]), "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp by a tensor": lambda x, y: torch.lerp(x, y, y + 0.5),
    "itself": lambda x, y: torch.addcmul(x, x, y),
    "a line": lambda x, y: torch.addcmul(x, y[:1], y),
    "turned": lambda x, y: F.hardswish(x.t()), "steps": lambda x, y: F.elu(x[:, ::2]),
    "batch_norm": lambda x, y: F.batch_norm(
        x, y[0].detach(), y[1].detach().abs() + 0.1, y[2], y[3]),
    "images": lambda x, y: F.batch_norm(
        x.view(2, 30, 2, 5), y[0].detach(), y[1].detach().abs() + 0.1, y[2], y[3]),
    "mse": lambda x, y: F.mse_loss(x, y), "l1": lambda x, y: F.l1_loss(x, y, reduction="sum"),
    "of itself": lambda x, y: F.mse_loss(x, x), "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.7),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
    "kl": lambda x, y: F.kl_div(x, y.abs(), reduction="batchmean"),
}
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-45, 3e38, 3.0, -3.0, 1e-40]
SUMS = {"mse", "l1", "of itself", "smooth_l1", "huber", "bce", "kl"}


def inputs(special=False, dtype=torch.float32):
    torch.manual_seed(0)
    x, y = torch.randn(20, 30), torch.randn(20, 30)
    if special:
        x.view(-1)[:30] = torch.tensor(SPECIAL * 3)
        y[5] = torch.tensor(SPECIAL * 3).flip(0)
    return x.to(dtype).requires_grad_(), y.to(dtype).requires_grad_()


def linked():
    return [known for known in replayed._known.values() if known and known.linked is not None]


def gradients(name, special, dtype=torch.float32):
    """The result and its gradients, of a second call."""
    for _ in range(2):
        x, y = inputs(special, dtype)
        result = CASES[name](x, y)
    torch.manual_seed(1)
    result.backward(torch.randn(result.shape).to(dtype))
    return [a.float().detach().numpy() for a in (result, x.grad, y.grad) if a is not None]


FAST = {"leaky_relu", "itself", "turned", "steps", "batch_norm", "mse", "of itself", "bce"}


@pytest.mark.parametrize("name", [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES
])
def test_results_and_gradients_are_the_operators(name, low):
    special = name not in SUMS
    found = gradients(name, special)
    assert linked() or name in ("turned", "steps")
    low(chains=False)
    wanted = gradients(name, special)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["hardswish", "mse", "prelu"])
def test_halves(name, low):
    found = gradients(name, False, torch.bfloat16)
    assert linked()
    low(chains=False)
    for a, b in zip(found, gradients(name, False, torch.bfloat16), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["elu", "hardswish", "mse", "lerp by a tensor", "itself"])
def test_gradients_of_gradients(name, low):
    def second():
        for _ in range(2):
            x, y = inputs()
            (g,) = torch.autograd.grad(CASES[name](x, y).square().sum(), x, create_graph=True)
        (g * y).sum().backward()
        return x.grad.numpy()

    found = second()
    assert linked()
    low(chains=False)
    np.testing.assert_allclose(found, second(), rtol=1e-5, atol=1e-6)


def test_only_what_has_history_gets_a_gradient(low):
    x, y = inputs()
    for first, second in ((x, y.detach()), (x.detach(), y), (x, y)):
        for _ in range(2):
            loss = F.mse_loss(first, second)
        x.grad = y.grad = None
        loss.backward()
        assert (x.grad is not None) == first.requires_grad
        assert (y.grad is not None) == second.requires_grad


def test_it_is_one_node_under_its_name(low):
    x, _ = inputs()
    for _ in range(2):
        y = F.hardswish(x)
    assert y.grad_fn.name() == "HardswishBackward0"
    assert [type(n).__name__ for n, _ in y.grad_fn.next_functions if n] == ["AccumulateGrad"]
    seen = []
    y.register_hook(lambda g: seen.append(g.shape))
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert seen == [(20, 30)] * 2
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_what_was_written_since_is_refused(low):
    x, _ = inputs()
    for _ in range(2):
        z = x * 1
        y = F.hardswish(z)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def gradient_of(function, *values):
    x, *others = [torch.tensor(v * 40) for v in values]
    x.requires_grad_()
    for _ in range(2):
        y = function(x, *others)
    (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return y.detach().tolist()[:len(values[0])], g.tolist()[:len(values[0])]


def test_branches_that_are_not_taken_leave_no_nan(low):
    nan, inf = float("nan"), float("inf")
    x = [inf, -inf, nan, 3.0, -3.0, 5.0, 0.0]
    y, g = gradient_of(F.hardswish, x)
    np.testing.assert_array_equal(y, [inf, nan, nan, 3, 0, 5, 0])
    np.testing.assert_array_equal(g, [1, 0, nan, 1, 0, 1, 0.5])
    for loss in (F.smooth_l1_loss, F.huber_loss):
        y, g = gradient_of(lambda a, b, loss=loss: loss(a, b, reduction="none"), x, [0.0] * 7)
        np.testing.assert_array_equal(y, [inf, inf, nan, 2.5, 2.5, 4.5, 0])
        np.testing.assert_array_equal(g, [1, -1, nan, 1, -1, 1, 0])


def test_sizes_share_code(low):
    from graphc.engine import eager_kernels

    counts = []
    for rows in (20, 7, 33):
        x = torch.randn(rows, 30, requires_grad=True)
        for _ in range(2):
            F.mse_loss(x, torch.ones(rows, 30)).backward()
        np.testing.assert_allclose(
            x.grad.numpy(), 2 * 2 * (x.detach().numpy() - 1) / x.numel(), rtol=1e-5
        )
        counts.append(len(eager_kernels._codes))
    assert counts[0] == counts[1] == counts[2]
