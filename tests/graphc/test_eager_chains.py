"""Functions of several operators on many numbers run as one loop, with the operators' bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import config
from graphc.engine import eager_chains, eager_form, eager_rows
from graphc.frontend import eager, replayed, replayed_views, rewritten
from graphc.nn.functional import norm
from graphc.nn.functional import norm as norm_functions

F = torch.nn.functional


@pytest.fixture
def low(monkeypatch):
    """Compiled code from a hundred elements on."""
    monkeypatch.setattr(eager_form, "LARGE", 100)
    monkeypatch.setattr(norm, "_FEW", 99)
    monkeypatch.setattr(norm, "_MANY", 100)
    monkeypatch.setattr(replayed_views, "MANY", 100)
    monkeypatch.setattr(rewritten, "_FEW", 100)
    for known in (eager._signatures, replayed._known, rewritten._known):
        known.clear()
    yield
    for known in (eager._signatures, replayed._known, rewritten._known):
        known.clear()


CASES = {
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.1), "prelu": lambda x, y: F.prelu(x, y[0]),
    "elu": lambda x, y: F.elu(x), "selu": lambda x, y: F.selu(x), "mish": lambda x, y: F.mish(x),
    "celu": lambda x, y: F.celu(x, 2.0), "logsigmoid": lambda x, y: F.logsigmoid(x),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x), "hardswish": lambda x, y: F.hardswish(x),
    "softsign": lambda x, y: F.softsign(x), "softshrink": lambda x, y: F.softshrink(x),
    "hardshrink": lambda x, y: F.hardshrink(x), "threshold": lambda x, y: F.threshold(x, 0.1, 2.0),
    "tanhshrink": lambda x, y: F.tanhshrink(x), "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp by a tensor": lambda x, y: torch.lerp(x, y, y + 0.5),
    "addcmul": lambda x, y: torch.addcmul(x, y, y + 1, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, y + 1, value=0.5),
    "addcmul by a line": lambda x, y: torch.addcmul(x, y, y[:1] + 1, value=0.5),
    "batch_norm": lambda x, y: F.batch_norm(x, y[0], y[1].abs() + 0.1, y[2], y[3]),
    "batch_norm alone": lambda x, y: F.batch_norm(x, y[0], y[1].abs() + 0.1),
    "images": lambda x, y: F.batch_norm(
        x.view(2, 30, 2, 5), y[0], y[1].abs() + 0.1, y[2], y[3]),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
    "nan_to_num": lambda x, y: x.nan_to_num(), "frac": lambda x, y: x.frac(),
    "angle": lambda x, y: x.angle(), "logaddexp": lambda x, y: torch.logaddexp(x, y),
    "logaddexp2": lambda x, y: torch.logaddexp2(x, y), "logit": lambda x, y: y.logit(0.2),
    "heaviside": lambda x, y: torch.heaviside(x, y), "sinc": lambda x, y: torch.sinc(x),
    "xlogy": lambda x, y: torch.xlogy(x, y),
    "sum of a multiple": lambda x, y: torch.add(x, y, alpha=0.3),
    "less a multiple": lambda x, y: torch.sub(x, y, alpha=0.3),
}
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-45, 3e38, 3.0, -3.0, 1e-40]


def inputs(dtype=torch.float32):
    torch.manual_seed(0)
    x, y = torch.randn(20, 30), torch.randn(20, 30)
    x.view(-1)[:30] = torch.tensor(SPECIAL * 3)
    y[5] = torch.tensor(SPECIAL * 3).flip(0)
    return x.to(dtype), y.to(dtype)


def whole():
    return [known for known in replayed._known.values() if known and known.whole is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_bits_are_the_operators(name, dtype, low, only_the_cpu):
    compare(name, dtype)


@pytest.mark.parametrize("name", CASES)
def test_bits_are_the_operators_beside_another_device(name, low, beside_meta):
    compare(name, torch.float32)


def compare(name, dtype):
    x, y = inputs(dtype)
    one_by_one = CASES[name](x, y)  # the first call is watched
    assert whole()
    for _ in range(2):
        found = CASES[name](x, y)
        assert found.dtype is one_by_one.dtype and found.stride() == one_by_one.stride()
        a, b = found.double().numpy(), one_by_one.double().numpy()
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@pytest.fixture
def at_hand(monkeypatch):
    """Native code for few numbers is loaded at the first call that asks for it."""
    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    monkeypatch.setattr(eager_rows, "native", eager_rows.Native())
    for known in (eager._signatures, replayed._known):
        known.clear()
    yield
    for known in (eager._signatures, replayed._known):
        known.clear()


FEW = {
    **CASES, "relu6": lambda x, y: F.relu6(x), "isclose": lambda x, y: torch.isclose(x, y),
    "clamp": lambda x, y: x.clamp(-1, 1), "of a mask": lambda x, y: F.softshrink(x) * (y > 0),
    "of integers": lambda x, y: torch.lerp(x, y, 0.5).mul(y.nan_to_num().clamp(-9, 9).long()),
    "of one number": lambda x, y: torch.addcmul(x, y, y[0, 0], value=2),
    "without dims": lambda x, y: F.mish(x[0, 0]), "strided": lambda x, y: F.elu(x[:, ::2]),
    "turned": lambda x, y: F.hardswish(x.t()), "none": lambda x, y: F.selu(x[:0]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FEW)
def test_few_numbers_are_one_call_with_numpys_bits(name, dtype, at_hand, only_the_cpu):
    x, y = inputs(dtype)
    with config.override(eager_kernels="0"):
        right = FEW[name](x, y)
    for known in (eager._signatures, replayed._known):
        known.clear()
    for _ in range(5):  # watched; held against NumPy twice; and then alone
        found = FEW[name](x, y)
        assert found.dtype is right.dtype and found.stride() == right.stride()
        assert found.numpy().tobytes() == right.numpy().tobytes()


def test_most_functions_of_few_numbers_are_followed(at_hand, only_the_cpu, monkeypatch):
    """Not left to NumPy, operator by operator."""
    given: list[bool] = []
    right = eager_rows.Native.steps

    def steps(self, *args):
        found = right(self, *args)
        given.append(found is not None)
        return found

    monkeypatch.setattr(eager_rows.Native, "steps", steps)
    x, y = inputs()
    if right(eager_rows.native, "", np.sin, (("f", False),), 4, 1) is None:
        pytest.skip("no compiler for this machine, or another NumPy")
    for name in (
        "hardswish", "hardsigmoid", "softshrink", "hardshrink", "logsigmoid", "elu", "selu", "mish",
        "celu", "lerp", "addcmul", "addcdiv", "logaddexp", "nan_to_num", "sinc", "xlogy", "huber",
        "smooth_l1", "leaky_relu", "tanhshrink", "softsign",
    ):
        given.clear()
        for _ in range(3):
            CASES[name](x, y)
        assert given and all(given), name


def test_batch_norm_by_what_is_known_is_one_loop_and_one_node(low, only_the_cpu, monkeypatch):
    torch.manual_seed(2)
    norm = torch.nn.BatchNorm2d(30)
    torch.nn.init.normal_(norm.weight)
    _ = norm(torch.randn(4, 30, 3, 3))
    norm.eval()

    def outcomes(x):
        found = []
        for _ in range(4):
            given = x.clone().requires_grad_()
            norm.zero_grad()
            y = norm(given)
            assert type(y.grad_fn).__name__ == "NativeBatchNormBackward0"
            (y * torch.arange(600.0).view(y.shape)).sum().backward()
            with torch.no_grad():
                alone = norm(x)
            found.append([
                t.detach().numpy() for t in (y, alone, given.grad, norm.weight.grad, norm.bias.grad)
            ])
        return found

    x = torch.randn(2, 30, 2, 5)
    with torch.no_grad():
        _ = norm(x)
    assert whole()  # all but what there is one of for each channel
    _ = norm(x)
    nodes = {edge[0].name() for edge in norm(x).grad_fn.next_functions if edge[0] is not None}
    assert nodes == {"torch::autograd::AccumulateGrad", "MulBackward0"}  # no view of its own
    many = outcomes(x)
    turned = outcomes(x.contiguous(memory_format=torch.channels_last))
    cut = outcomes(torch.randn(2, 30, 2, 9)[..., 2:7].copy_(x))
    monkeypatch.setattr(norm_functions, "_MANY", 1 << 30)
    for known in (eager._signatures, replayed._known):
        known.clear()
    few = outcomes(x)
    for found in (*many, *turned, *cut):
        for a, b in zip(found, few[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
    for found in many:
        np.testing.assert_array_equal(found[0], few[0][0])


def test_turned_operands_keep_their_layout(low, only_the_cpu):
    x, _ = inputs()
    F.hardswish(x.t())
    assert whole()
    assert F.hardswish(x.t()).stride() == (1, 30)
    np.testing.assert_array_equal(F.hardswish(x.t()).numpy(), F.hardswish(x).numpy().T)


def test_one_code_serves_all_sizes_and_numbers(low, only_the_cpu):
    from graphc.engine import eager_kernels

    F.leaky_relu(torch.randn(11, 12), 0.1)
    made = len(eager_kernels._codes)
    for size, slope in ((300, 0.1), (1000, 0.25)):
        x = torch.randn(size)
        for _ in range(2):
            np.testing.assert_array_equal(
                F.leaky_relu(x, slope).numpy(),
                np.where(x.numpy() > 0, x.numpy(), x.numpy() * np.float32(slope)),
            )
    assert len(eager_kernels._codes) == made and len(whole()) == 3


@pytest.mark.parametrize("where", ["only_the_cpu", "beside_meta"])
def test_what_has_a_history_keeps_it(where, low, request):
    request.getfixturevalue(where)
    x, _ = inputs()
    x = x.nan_to_num(0.5, 1.0, -1.0)
    for _ in range(3):
        w = x.detach().clone().requires_grad_()
        F.leaky_relu(w, 0.1).sum().backward()
        np.testing.assert_array_equal(
            w.grad.numpy(), np.where(x.numpy() > 0, 1, 0.1).astype(np.float32)
        )
    with torch.no_grad():
        assert not F.leaky_relu(w, 0.1).requires_grad
    assert F.leaky_relu(w, 0.1).requires_grad


def test_few_numbers_and_none_stay_with_numpy():
    replayed._known.clear()
    for shape in ((3, 4), (0, 700), ()):
        for _ in range(2):
            assert F.hardswish(torch.ones(shape)).shape == shape
    assert not any(isinstance(known.whole, eager_chains.Chain) for known in whole())


def test_results_are_fresh_memory(low):
    x, _ = inputs()
    F.hardswish(x)
    a, b = F.hardswish(x), F.hardswish(x)
    kept = b.clone()
    a.zero_()
    assert torch.equal(b.nan_to_num(), kept.nan_to_num())
    assert a._version == 1 and b._version == 0


def test_writing_over_the_input(low):
    x, _ = inputs()
    wanted = F.leaky_relu(x, 0.1).numpy()
    for _ in range(2):
        z = x.clone()
        assert F.leaky_relu(z, 0.1, inplace=True) is z
        np.testing.assert_array_equal(z.numpy(), wanted)


def test_one_tensor_given_twice(low, only_the_cpu):
    x, y = torch.randn(20, 30), torch.randn(20, 30)
    for a, b in ((x, x), (x, y), (y, x), (y, y)):
        wanted = a.numpy() + np.float32(0.25) * (b.numpy() - a.numpy())
        for _ in range(2):
            np.testing.assert_array_equal(torch.lerp(a, b, 0.25).numpy(), wanted)
    assert len(whole()) == 2


IN_PLACE = {
    "clamp_": lambda x, y: x.clamp_(-1, 0.5), "relu_": lambda x, y: x.relu_(),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.3), "lerp_": lambda x, y: x.lerp_(y, 0.3),
    "by a line": lambda x, y: x.addcmul_(y, y[0], value=0.3), "sigmoid_": lambda x, y: x.sigmoid_(),
    "fmod_": lambda x, y: x.fmod_(0.3),
    "add_": lambda x, y: x.add_(y, alpha=0.3),
    "sub_": lambda x, y: x.sub_(y, alpha=0.3),
    "itself": lambda x, y: x.addcdiv_(x, y),
    "a part": lambda x, y: x[3:9].addcmul_(y[3:9], y[2:8], value=2),
    "gaps": lambda x, y: x[:, ::2].clamp_(-1, 1),
    "integers": lambda x, y: x.nan_to_num(0).clamp(-9, 9).int().clamp_(-2, 1),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_as_out_of_place(name, low, only_the_cpu, unread, monkeypatch):
    x, y = inputs()
    found = []
    for _ in range(3):
        z = x.clone()
        view = z.view(-1)
        IN_PLACE[name](z, y)
        assert name == "integers" or z._version == 1
        found.append(view.numpy().copy())
    # few_places.py clamps few numbers by NumPy
    assert name in ("gaps", "itself", "clamp_") or any(rewritten._known.values())
    monkeypatch.setattr(rewritten, "_FEW", 10**9)
    z = x.clone()
    IN_PLACE[name](z, y)
    for a in found:
        np.testing.assert_array_equal(a, z.view(-1).numpy())


def test_in_place_with_a_history_and_by_mistake(low, only_the_cpu):
    x, y = inputs()
    for _ in range(3):
        w = torch.ones(20, 30, requires_grad=True)
        z = w * 2
        z.clamp_(0, 1.5).mul_(3)
        z.sum().backward()
        assert w.grad.unique().tolist() == [0.0]
        with pytest.raises(RuntimeError, match="leaf"):
            w.clamp_(0, 1)
        with torch.no_grad():
            w.clamp_(0, 0.5)
        assert w.unique().tolist() == [0.5] and w._version == 1
        n = torch.arange(600)
        with pytest.raises(RuntimeError, match="can't be cast"):
            n.sigmoid_()
        assert n.tolist() == list(range(600))
        with pytest.raises(RuntimeError, match="broadcast"):
            y[:1].addcmul_(x, x)


def test_tensors_of_another_device_stay_there(low, beside_meta):
    """Also where the same call has been seen on the CPU."""
    x, y = inputs()
    for _ in range(2):
        assert F.hardswish(x).device.type == "cpu" and torch.lerp(x, y, 0.3).device.type == "cpu"
    assert len(whole()) == 2
    there = x.to("meta")
    assert F.hardswish(there).device.type == "meta"
    assert torch.lerp(there, y.to("meta"), 0.3).device.type == "meta"
    with pytest.raises(RuntimeError, match="not on the expected device meta"):
        torch.lerp(x, y.to("meta"), 0.3)
    with torch.device("meta"):
        assert F.hardswish(x).device.type == "cpu"


def test_what_is_known_of_the_cpu_alone_is_watched_again(low, only_the_cpu, request):
    """What a call gives may be loose where there is another device."""
    x, _ = inputs()
    F.hardswish(x)
    request.getfixturevalue("beside_meta")
    F.hardswish(x)
    alone, beside = whole()
    ran, run = [], beside.whole
    alone.whole, beside.whole = None, lambda arrays: ran.append(1) or run(arrays)
    F.hardswish(x)
    assert ran


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_distances_of_many_are_one_loop(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory is asked for the differences, and the bits are those of operators one by one."""
    loops: list[Any] = []
    right = eager_chains.Chain.__call__
    monkeypatch.setattr(
        eager_chains.Chain, "__call__", lambda self, given: loops.append(1) or right(self, given)
    )
    x, mode = torch.rand(100, 20), "donot_use_mm_for_euclid_dist"
    rows, columns = torch.triu_indices(100, 100, 1)
    pairs = (x[rows] - x[columns]).norm(p, -1)
    every = (x.unsqueeze(1) - x.unsqueeze(0)).norm(p, -1)
    for again in range(3):  # the first call is watched
        loops.clear()
        assert torch.equal(torch.pdist(x, p), pairs)
        assert torch.equal(torch.cdist(x, x, p, mode), every)
        assert again == 0 or p == 3 or len(loops) == 2
    leaf = x.clone().requires_grad_()
    for found, wanted in ((torch.pdist(leaf, p), pairs), (torch.cdist(leaf, leaf, p, mode), every)):
        assert torch.allclose(found, wanted) and found.grad_fn is not None
        found.sum().backward()
    assert leaf.grad is not None and leaf.grad.isfinite().all()
    few = torch.rand(5, 3)
    assert torch.allclose(torch.cdist(few, few, p)[0, 1:], torch.pdist(few, p)[:4])


def test_what_compares_has_no_history() -> None:
    """isclose() of what has one was a node of history without a result that carries it."""
    x = torch.rand(70000, requires_grad=True)
    y = x * 2
    z = y.detach().clone()
    for _ in range(4):
        found = torch.isclose(y, z)
        assert bool(found.all()) and not found.requires_grad
    y.sum().backward()
    assert x.grad is not None and bool((x.grad == 2).all())
