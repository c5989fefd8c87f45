"""Eager mode on many numbers runs compiled code: what it gives is what NumPy gives on few."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_chains, eager_form, eager_kernels, eager_layouts, eager_mode
from graphc.frontend import eager, replayed

F = torch.nn.functional


@pytest.fixture
def low(monkeypatch):
    """Compiled code from a hundred elements on, and none known yet; gives a way back to NumPy."""
    monkeypatch.setattr(eager_form, "LARGE", 100)

    def forget(wanted=True):
        eager._signatures.clear()
        replayed._known.clear()
        if not wanted:
            monkeypatch.setattr(eager_mode, "_wanted", lambda *_: False)

    forget()
    yield forget
    eager._signatures.clear()
    replayed._known.clear()


attend = F.scaled_dot_product_attention
CASES = {
    "wide window": (lambda x, w: F.conv2d(x, w, groups=3), (1, 3, 24, 25), (3, 1, 19, 18)),
    "dilated": (lambda x, w: F.conv2d(x, w, dilation=6, groups=3), (1, 3, 24, 25), (3, 1, 3, 4)),
    "gelu": (F.gelu, (20, 30)), "relu": (F.relu, (4, 5, 30)), "sigmoid": (torch.sigmoid, (601,)),
    "softmax": (lambda x: F.softmax(x, 1), (5, 7, 30)),
    "softmax of rows": (lambda x: F.softmax(x, -1), (9, 30)),
    "log_softmax": (lambda x: F.log_softmax(x, 0), (20, 30)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (30,), w, b), (20, 30), (30,), (30,)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
                   (4, 6, 3, 5), (6,), (6,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(20) % 7, label_smoothing=0.1),
                      (20, 7)),
    "ignored": (lambda x: F.cross_entropy(x, torch.arange(20) % 7, ignore_index=3), (20, 7)),
    "sum": (torch.sum, (20, 30)), "middle": (lambda x: x.sum(1), (5, 6, 7)),
    "rows": (lambda x: x.sum(0) + x.amax(0) + x.mean(0), (490, 70)),
    "rows between": (lambda x: x.sum(1), (3, 245, 67)), "few rows": (
        lambda x: x.sum(0) - x.amin(0), (16, 4100)),
    "kept": (lambda x: x.sum(-1, keepdim=True), (20, 30)), "amax": (lambda x: x.amax(0), (20, 30)),
    "mean": (lambda x: x.mean(0), (20, 30)), "var": (lambda x: x.var(1), (20, 30)),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 9, 10)),
    "column": (lambda x, y: x * y, (20, 30), (20, 1)),
    "line": (lambda x, y: x + y, (20, 30), (30,)),
    "channels": (lambda x, y: x / (y.square() + 1), (4, 6, 3, 5), (1, 6, 1, 1)),
    "outer": (lambda x, y: x - y, (20, 1), (1, 30)), "number": (lambda x: 2.0 * x, (20, 30)),
    "where": (lambda x, y: torch.where(x > y, x, y), (20, 30), (20, 30)),
    "clamp": (lambda x: x.clamp(-1, 0.5), (20, 30)), "turned": (lambda x: F.gelu(x.t()), (20, 30)),
    "turned twice": (lambda x, y: x.permute(2, 0, 1) * y.permute(2, 0, 1), (5, 6, 7), (5, 6, 7)),
    "turned and not": (lambda x, y: x.t() * y, (20, 30), (30, 20)),
    "turned and a line": (lambda x, y: x.t() * y, (20, 30), (20,)),
    "turned and a column": (lambda x, y: y - x.t(), (20, 30), (30, 1)),
    "channels last": (lambda x, w, b: x.permute(0, 3, 1, 2) * w[:, None, None] + b[:, None, None],
                      (2, 5, 6, 7), (7,), (7,)),
    "gaps": (lambda x: F.silu(x[:, 2:21]), (20, 30)),
    "steps": (lambda x: x[::2, 1::3] + 1, (30, 40)), "turned gaps": (
        lambda x: x.t()[3:, ::2].exp(), (20, 40)),
    "expanded": (lambda x, y: x.expand(20, 30) + y, (1, 30), (20, 30)),
    "turned rows": (lambda x: F.softmax(x.t(), 1), (20, 30)),
    "turned sums": (lambda x: x.permute(1, 2, 0).sum((0, 2)), (5, 6, 7)),
    "several dims": (lambda x: x.sum((0, 2, 3)), (4, 6, 3, 5)),
    "dims of size 1": (lambda x: x.sum((1, 2), keepdim=True), (40, 1, 30)),
    "pow": (lambda x: x.abs() ** 2.5, (20, 30)), "square": (lambda x: x ** 2, (20, 30)),
    "cube": (lambda x: x ** 3, (20, 30)), "cube turned": (lambda x: x.t() ** 3, (20, 30)),
    "cumsum": (lambda x: x.cumsum(1), (20, 30)),
    "cumsum of columns": (lambda x: x.cumsum(0), (20, 30)), "sign": (torch.sign, (20, 30)),
    "prod": (lambda x: (1 + x / 100).prod(1), (20, 30)),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=2, dilation=2), (3, 4, 30), (6, 4, 3)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1),
               (2, 4, 9, 11), (6, 4, 3, 3), (6,)),
    "conv of groups": (lambda x, w: F.conv2d(x, w, groups=2), (3, 4, 7, 8), (6, 2, 3, 2)),
    "conv of planes": (lambda x, w: F.conv2d(x, w, padding=1, groups=6), (2, 6, 8, 9),
                       (6, 1, 3, 3)),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), (2, 3, 5, 6, 7), (4, 3, 3, 3, 3)),
    "conv turned": (lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w), (2, 9, 10, 4), (6, 4, 3, 3)),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1,
                                                      output_padding=1),
                   (2, 4, 6, 7), (4, 5, 3, 3), (5,)),
    "transposed1d": (lambda x, w: F.conv_transpose1d(x, w, stride=3, groups=2), (3, 4, 20),
                     (4, 3, 5)),
    "gather": (lambda x: x.gather(1, places(20, 17, 30)), (20, 30)),
    "gather rows": (lambda x: x.gather(0, places(40, 30, 20)), (20, 30)),
    "scatter": (lambda x, y: x.scatter(1, torch.arange(600).view(20, 30) % 30, y),
                (20, 31), (20, 30)),
    "scatter_add": (lambda x, y: x.scatter_add(1, places(20, 30, 9), y), (20, 9), (20, 30)),
    "most": (lambda x, y: x.scatter_reduce(0, places(40, 7, 20), y, "amax"), (20, 7), (40, 7)),
    "index_add": (lambda x, y: x.index_add(1, places(30, 1, 8).view(30), y, alpha=0.5),
                  (5, 8, 6), (5, 30, 6)),
    "embedding": (lambda w: F.embedding(places(9, 10, 30), w), (30, 7)),
    "pairs": (lambda x: x[places(9, 20, 20), places(9, 20, 30)], (20, 30)),
    "pairs between": (lambda x: x[:, places(9, 2, 6), places(9, 2, 7)], (5, 6, 7, 3)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (4, 5, 31)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (2, 3, 4, 6, 8)),
    "fmod": (lambda x, y: torch.fmod(x * 100, y), (20, 30), (30,)),
    "remainder": (lambda x: x % 0.3, (20, 30)),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), (20, 30), (20, 7)),
    "cat of lines": (lambda x, y: torch.cat([x, y], 2), (4, 5, 30, 3), (4, 5, 2, 3)),
    "cat of many": (lambda x, y: torch.cat([x, y, y, x, y], 1), (20, 30), (20, 7)),
    "cat turned": (lambda x, y: torch.cat([x.t(), y], 1), (30, 20), (20, 7)),
    "stack": (lambda x, y: torch.stack([x, y], 1), (20, 30), (20, 30)),
    "stack pairs": (lambda x, y: torch.stack([x, y], -1), (20, 30), (20, 30)),
    "flip": (lambda x: x.flip(1), (20, 31)), "flip all": (lambda x: x.flip((0, 1, 2)), (5, 6, 7)),
    "flip some": (lambda x: x.flip((1, 3)), (4, 5, 6, 7)), "flip turned": (
        lambda x: x.t().flip(1), (20, 31)),
    "norm": (lambda x: x * x.detach().norm(), (20, 30)),
    "norm of rows": (lambda x: x * x.detach().norm(dim=1, keepdim=True), (20, 30)),
    "norm of a square's rows": (lambda x: x * x.detach().norm(dim=1), (30, 30)),
    "norm of a square's columns": (lambda x: x * x.detach().norm(dim=0), (30, 30)),
    "norm between": (lambda x: x * x.detach().norm(dim=(0, 2), keepdim=True), (4, 6, 9)),
    "norm with history": (lambda x: x.norm(dim=1), (20, 30)),
    "nansum": (lambda x: x * torch.where(x > 1, torch.nan, x).detach().nansum(1), (20, 20)),
    "half by a number": (lambda x: (x.bfloat16() * 0.3).float(), (20, 30)),
    "half over a number": (lambda x: (x.half().detach() / 0.3).float() * x, (20, 30)),
    "half in evaluation": (lambda x, m, w: F.batch_norm(
        x.bfloat16(), m.detach().bfloat16(), torch.ones(6).bfloat16(), w.bfloat16(),
        None).float(), (4, 6, 3, 5), (6,), (6,)),
    "positions compared": (lambda x: torch.where(
        torch.arange(20)[:, None] > torch.arange(30), x, 0.0), (20, 30)),
    "tril": (lambda x: x.tril(-2), (20, 30)), "triu": (lambda x: x.triu(1), (5, 9, 9)),
    "reflected": (lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"), (2, 3, 9, 10)),
    "replicated": (lambda x: F.pad(x, (1, 2, 3, 1), mode="replicate"), (2, 3, 9, 10)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (2, 3, 9, 10)),
    "cat of a column": (lambda x, y: torch.cat([x, y], 1), (200, 1), (200, 5)),
    "relu6": (lambda x: F.relu6(x * 5), (20, 30)), "hardsigmoid": (
        lambda x: F.hardsigmoid(x * 5), (20, 30)),
    "row and column": (lambda x, y: torch.outer(x, y), (60,), (70,)),
    "cumprod": (lambda x: (x / 9 + 1).cumprod(1), (20, 30)),
    "cumsum of one": (lambda x: x.cumsum(0), (601,)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, 1), (4, 6, 7, 9)),
    "repeat": (lambda x: x.repeat(2, 3), (20, 30)),
    "attention": (attend, (2, 3, 9, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
    "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), (6, 9, 8), (6, 9, 8), (6, 9, 5)),
    "masked": (lambda q, k, v, m: attend(q, k, v, m.detach()), (6, 9, 8), (6, 7, 8), (6, 7, 8),
               (9, 7)),
    "masked by booleans": (lambda q, k, v, m: attend(q, k, v, m > -1), (6, 9, 8), (6, 7, 8),
                           (6, 7, 8), (6, 9, 7)),
    "attention turned": (
        lambda q, k: attend(q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2)),
        (2, 9, 3, 8), (2, 7, 3, 8)),
    "nll": (lambda x: F.nll_loss(F.log_softmax(x, 1), torch.arange(20) % 7), (20, 7)),
    "classes of images": (lambda x: F.cross_entropy(x, places(3, 20, 7).view(3, 4, 5),
                                                    ignore_index=2), (3, 7, 4, 5)),
    "class weights": (lambda x, w: F.cross_entropy(x, torch.arange(20) % 7, w.detach().abs()),
                      (20, 7), (7,)),
    "each image's": (lambda x: F.nll_loss(x, places(3, 20, 7).view(3, 4, 5), reduction="none"),
                     (3, 7, 4, 5)),
}


def places(rows, columns, size):
    """Positions below `size`, some of which occur often."""
    return (torch.arange(rows * columns) ** 2 % 97 % size).view(rows, columns)


# each operation rounds by itself, in one order
EXACT = frozenset(
    "relu amax max_pool column line outer number where clamp sign steps gather scatter "
    "fmod remainder max_pool1d max_pool3d stack flip repeat".split()
)


def outcome(function, shapes):
    torch.manual_seed(3)
    inputs = [torch.randn(*shape, requires_grad=True) for shape in shapes]
    y = function(*inputs)
    (y * torch.randn(y.shape)).sum().backward()
    return [y.detach().numpy(), *(x.grad.numpy() for x in inputs if x.grad is not None)], y.stride()


_SLOW = frozenset({
    "cat of lines", "cat of many", "flip all", "flip turned", "cumprod", "each image's", "masked",
    "attention turned", "stack pairs", "adaptive",
})


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow) if name in _SLOW else name for name in CASES
])
def test_results_and_gradients_are_numpys(name, low):
    function, *shapes = CASES[name]
    before = len(eager_kernels._codes)
    (*found, strides) = outcome(function, shapes)
    again = outcome(function, shapes)
    assert len(eager_kernels._codes) >= before and eager_kernels._codes
    low(wanted=False)
    wanted, wanted_strides = outcome(function, shapes)
    assert strides == wanted_strides
    for a, b, c in zip(found[0], wanted, again[0], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, c)  # the same bits each time
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    if name in EXACT:
        np.testing.assert_array_equal(found[0][0], wanted[0])


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_moves_and_running_sums_of_integers(dtype, low):
    x = (torch.arange(1200) ** 2 % 251).view(20, 60).to(dtype)
    a = x.numpy()
    np.testing.assert_array_equal(x.flip(1).numpy(), a[:, ::-1])
    np.testing.assert_array_equal(torch.cat([x, x[:, :7]], 1).numpy(), np.hstack([a, a[:, :7]]))
    np.testing.assert_array_equal(torch.stack([x, x], 1).numpy(), np.stack([a, a], 1))
    for dim in (0, 1):
        wanted = a.astype(np.int64).cumsum(dim)
        np.testing.assert_array_equal(x.cumsum(dim).numpy(), wanted)
        np.testing.assert_array_equal(x.long().cummax(dim).values.numpy(),
                                      np.maximum.accumulate(a.astype(np.int64), dim))
    big = x.long() * 2**57  # wraps
    np.testing.assert_array_equal(big.cumsum(1).numpy(), big.numpy().cumsum(1))
    np.testing.assert_array_equal(big.cumprod(1).numpy(), big.numpy().cumprod(1))


def test_sums_of_integers_wrap(low):
    big = np.random.default_rng(0).integers(-(2**62), 2**62, (40, 70), np.int64)
    x = torch.from_numpy(big)
    for dims in ((0,), (1,), (0, 1)):
        for part, wanted in ((x, big), (x[:, 3:60], big[:, 3:60]), (x.t(), big.T)):
            for _ in range(4):
                np.testing.assert_array_equal(part.sum(dims).numpy(), wanted.sum(dims))
    mask = x > 0
    np.testing.assert_array_equal(mask.sum(1).numpy(), (big > 0).sum(1))
    np.testing.assert_array_equal(mask.long().numpy(), (big > 0).astype(np.int64))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 21])
def test_running_extrema_of_any_number_of_rows(rows, low):
    """Several rows take their steps at a time, and what are left one by one."""
    special = np.float32([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 2.0, 2.0])
    a = np.resize(special, (rows, 119)).astype(np.float32)
    a[:, :40] = np.random.default_rng(rows).integers(-3, 4, (rows, 40))
    x = torch.from_numpy(a)
    for name, better in (("cummax", np.greater_equal), ("cummin", np.less_equal)):
        values, places = getattr(x, name)(1)
        best, at = a[:, 0].copy(), np.zeros(rows, np.int64)
        for j in range(119):
            taken = better(a[:, j], best) | np.isnan(a[:, j])
            best, at = np.where(taken, a[:, j], best), np.where(taken, j, at)
            np.testing.assert_array_equal(values[:, j].numpy(), best)
            np.testing.assert_array_equal(places[:, j].numpy(), at)
    finite = np.nan_to_num(a, posinf=3.0, neginf=-3.0)
    np.testing.assert_array_equal(
        torch.from_numpy(finite).cumsum(1).numpy(),
        finite.astype(np.float64).cumsum(1).astype(np.float32),
    )


def test_one_code_serves_all_sizes(low):
    F.softmax(torch.randn(11, 12), 1)
    made = len(eager_kernels._codes)
    for rows, columns in ((20, 30), (7, 99), (300, 2), (2, 300)):
        x = torch.randn(rows, columns)
        np.testing.assert_allclose(F.softmax(x, 1).sum(1).numpy(), np.ones(rows), rtol=1e-5)
    assert len(eager_kernels._codes) == made


def test_special_values(low):
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 3e38]
    x = torch.tensor(special * 20)
    for function in (F.relu, torch.abs, torch.sqrt, lambda x: x.maximum(-x), lambda x: x * 0.5,
                     lambda x: x == x, lambda x: x > 0, lambda x: torch.clamp(x, -1, 1)):
        many, few = function(x).numpy(), function(x[:8]).numpy()
        np.testing.assert_array_equal(many, np.tile(few, 20))
        np.testing.assert_array_equal(np.signbit(many), np.tile(np.signbit(few), 20))
    assert torch.softmax(torch.full((3, 50), float("-inf")), 1).isnan().all()


def test_errors_and_empty_tensors(low):
    logits = torch.randn(20, 7)
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        F.cross_entropy(logits, torch.full((20,), 7))
    with pytest.raises(RuntimeError, match="must match"):
        _ = torch.randn(20, 30) + torch.randn(20, 31)
    assert F.softmax(torch.randn(0, 300), 1).shape == (0, 300)
    assert torch.sum(torch.randn(0, 300), 0).tolist() == [0.0] * 300


def test_positions_out_of_range(low):
    x, y = torch.randn(20, 30), torch.randn(20, 30)
    places = torch.arange(600).view(20, 30) % 30
    for wrong in (30, -1):
        places[7, 8] = wrong
        before = y.clone()
        with pytest.raises(RuntimeError, match=f"index {wrong} is out of bounds for dimension 1"):
            x.gather(1, places)
        with pytest.raises(RuntimeError, match=f"index {wrong} is out of bounds for dimension 1"):
            y.scatter_add_(1, places, x)
        assert torch.equal(y, before)
    with pytest.raises(IndexError, match="index 20 is out of bounds for dimension 0"):
        x.index_add(0, torch.full((20,), 20), y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        _ = places // 0


def test_arithmetic_of_integers_stays_with_numpy(low):
    before = len(eager_kernels._codes)
    _ = torch.arange(600) + torch.arange(600), torch.arange(600).sum()
    assert len(eager_kernels._codes) == before


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_round_where_they_did(dtype, low):
    dtype = getattr(torch, dtype)
    torch.manual_seed(0)
    x, y = torch.randn(20, 30).to(dtype), torch.randn(20, 30).to(dtype)
    w = torch.ones(30).to(dtype)
    functions = [
        lambda: x + y, lambda: x * 0.3, lambda: x.exp(), lambda: x.abs().sqrt(), lambda: x.sum(),
        lambda: x.sum(1), lambda: x.sum(0), lambda: x.mean(), lambda: F.softmax(x, 1),
        lambda: F.layer_norm(x, (30,), w, w), lambda: F.gelu(x), lambda: x.float(), lambda: x > y,
        lambda: x.amax(1), lambda: torch.where(x > 0, x, y), lambda: x.t() * y.t(),
        lambda: x.long(), lambda: x.round(), lambda: x.isnan(), lambda: x.cumsum(1),
        lambda: F.conv1d(x[None], w.view(1, 30)[:, :20, None].repeat(4, 1, 1)),
    ]
    found = [f() for f in functions]
    assert eager_kernels._codes
    low(wanted=False)
    for a, f in zip(found, functions, strict=True):
        b = f()
        assert a.dtype is b.dtype and a.stride() == b.stride()
        away = 2**-8 if dtype is torch.bfloat16 else 2**-11  # of one rounding, never of two
        np.testing.assert_allclose(
            a.double().numpy(), b.double().numpy(), rtol=2.1 * away, atol=1e-6
        )


@pytest.mark.parametrize("to", ["uint8", "int32", "int64", "float16", "bfloat16", "bool"])
def test_casts(to, low):
    values = [0.0, -0.0, 1.5, -1.5, 300.7, -3e9, 1e20, float("nan"), float("inf"), 1e-41, 65520.0]
    x = torch.tensor(values * 20)
    many, few = x.to(getattr(torch, to)), x[:11].to(getattr(torch, to))
    np.testing.assert_array_equal(many.double().numpy(), np.tile(few.double().numpy(), 20))


def test_small_images_stay_with_numpy_and_no_window_fits_outside(low):
    before = len(eager_kernels._codes)
    F.conv2d(torch.randn(1, 1, 5, 5), torch.randn(1, 1, 3, 3))
    assert len(eager_kernels._codes) == before
    x, w = torch.randn(1, 4, 6, 40), torch.randn(6, 4, 3, 3)
    assert F.conv2d(x, w).shape == (1, 6, 4, 38)
    with pytest.raises(RuntimeError, match="size"):
        F.conv2d(x[:, :, :2], w)


def test_one_code_serves_all_images_of_a_convolution(low):
    w = torch.randn(6, 4, 3, 3)
    made = []
    for shape in ((2, 4, 9, 11), (3, 4, 20, 6), (5, 4, 7, 7)):
        x = torch.randn(*shape)
        low()
        many = F.conv2d(x, w, stride=2, padding=1)
        made.append(len(eager_kernels._codes))
        wanted = torch.cat([_slowly(x[i : i + 1], w) for i in range(len(x))])
        np.testing.assert_allclose(many.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert made[0] == made[-1]


def _slowly(x, w):
    """The same convolution as a product of windows."""
    columns = F.unfold(x.double(), 3, padding=1, stride=2)
    sizes = [(n - 1) // 2 + 1 for n in x.shape[2:]]
    return (w.double().flatten(1) @ columns[0]).view(1, -1, *sizes).float()


def test_the_switch(low, monkeypatch):
    from graphc import config

    now = config.current()._replace(eager_kernels="0")
    monkeypatch.setattr(config, "current", lambda: now)
    before = len(eager_kernels._codes)
    outcome(lambda x: torch.cumsum(F.gelu(x, approximate="tanh"), 0), [(23, 41)])
    assert len(eager_kernels._codes) == before


def test_who_watches_sees_the_operators_and_the_same_bits(low):
    from graphc.profiler import profile

    x = torch.randn(20, 30)
    plain = F.gelu(x)
    with profile() as seen:
        watched = F.gelu(x)
    assert torch.equal(plain, watched)
    assert "gelu" in " ".join(event.key for event in seen.key_averages())


def test_writes_in_place_keep_the_memory(low):
    x, y = torch.randn(600), torch.randn(600)
    wanted = x.numpy() + y.numpy()
    place = x.data_ptr()
    for _ in range(2):
        z = x.clone()
        z.add_(y)
    x.add_(y)
    assert x.data_ptr() == place and x._version == 1
    np.testing.assert_array_equal(x.numpy(), wanted)
    np.testing.assert_array_equal(z.numpy(), wanted)


def test_several_python_threads(low):
    from concurrent.futures import ThreadPoolExecutor

    xs = [torch.randn(40, 30 + i) for i in range(8)]
    wanted = [F.log_softmax(x, 1) for x in xs]
    eager._signatures.clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: F.log_softmax(x, 1), xs * 4))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted * 4, strict=True))


@pytest.mark.parametrize(("kernel", "dilation"), [(20, 1), (32, 1), (7, 9)])
def test_windows_wider_than_the_examples_of_sizes(kernel: int, dilation: int) -> None:
    """Patches of 32 pixels: code for any size is made for sizes that hold them."""
    layer = torch.nn.Conv2d(3, 32, kernel, stride=kernel, dilation=dilation)
    x = torch.randn(4, 3, 96, 96, requires_grad=True)
    for _ in range(3):
        y = layer(x)
        y.sum().backward()
    want = torch.nn.functional.unfold(x, kernel, dilation=dilation, stride=kernel)
    want = (layer.weight.flatten(1) @ want).reshape(y.shape) + layer.bias[:, None, None]
    assert torch.allclose(y, want, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8], ids=str)
def test_integers_divided(dtype, low):
    info = torch.iinfo(dtype)
    a = torch.randint(info.min, info.max, (20, 30), dtype=dtype)
    b = torch.randint(1, 9, (20, 30), dtype=dtype)
    if info.min:
        b[::2] *= -1
        a[0, :3], b[0, :3] = info.min, -1
    functions = [
        lambda x, y: x // y, lambda x, y: x % y, torch.fmod,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    ]
    operands = [(a, b), (a, b[0]), (a, b[:, :1]), (a.t(), b.t()), (a, 3), (100 // b, b)]

    def results():
        for function in functions:
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                function(a, b - b)
        return [function(x, y).numpy() for function in functions for x, y in operands]

    compiled = results()
    low(False)
    for found, wanted in zip(compiled, results(), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_bytes_to_floats(low):
    every = torch.arange(256).to(torch.uint8)
    for x in (every, every.view(16, 16).t(), every.to(torch.int8), every[::2]):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            np.testing.assert_array_equal(x.to(dtype).double().numpy(), x.long().double().numpy())


REPEATED = {
    "row": (lambda x: x[:1].expand(21, 30), (0, 1, (0, 1))),
    "column": (lambda x: x[:, :1].expand(20, 33), (0, 1, (0, 1))),
    "number": (lambda x: x[0, 0].expand(20, 33), (0, 1, (0, 1))),
    "between": (lambda x: x[:, None].expand(20, 7, 30), (0, 1, (1, 2), (0, 1, 2))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", REPEATED)
def test_reductions_of_what_is_repeated_make_no_copy(name, dtype, low, monkeypatch):
    expand, dims = REPEATED[name]
    x = expand(torch.linspace(-3, 5, 600, dtype=dtype).view(20, 30))
    copy = x.numpy().copy()
    with monkeypatch.context() as patch:
        patch.setattr(eager_layouts, "contiguous", None)
        for dim in dims:
            for keepdim in (False, True):
                for ours, theirs in (("sum", np.sum), ("amax", np.max), ("amin", np.min)):
                    found = getattr(x, ours)(dim, keepdim=keepdim)
                    wanted = theirs(copy, axis=dim, keepdims=keepdim)
                    assert found.is_contiguous() and found.dtype is dtype
                    assert found.shape == wanted.shape
                    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=2e-5)


def test_reductions_of_repeated_numbers_keep_infinities_and_gradients(low):
    x = torch.tensor([np.inf, -np.inf, np.nan, 2.0], requires_grad=True)
    y = x.expand(99, 4)
    np.testing.assert_array_equal(y.detach().sum(0), [np.inf, -np.inf, np.nan, 198])
    np.testing.assert_array_equal(y.detach().amax(1), [np.nan] * 99)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, [99] * 4)
    halves = torch.tensor([1.0039], dtype=torch.bfloat16).expand(333)  # rounded once
    assert float(halves.sum()) == float(halves.float().sum().bfloat16())


def test_a_layer_norms_gradient_keeps_rows_numbers_alone(low, monkeypatch):
    """What its weight's gradient sums is computed from each row's mean and scale: in memory it
    would cost as much as all else. Sums over rows go along them."""
    x = torch.randn(40, 96, requires_grad=True)
    w, b = (torch.ones(96, requires_grad=True) for _ in range(2))
    monkeypatch.setattr(eager_kernels, "_codes", codes := {})
    F.layer_norm(x, (96,), w, b).sum().backward()
    rules = [
        code.engine.built.program for key, code in codes.items()
        if key[0] == "layer_norm" and key[1][0] == ("o", "wide_m") and len(key) > 4
    ]
    (program,) = rules
    first, second = (step.kernel for step in program.steps)
    whole = max((str(param.size) for param in first.params), key=len)
    out = [param for param in first.params if param.access == "out"]
    assert sum(str(param.size) == whole for param in out) == 1
    assert len(second.stages) == 2  # of runs, and what they add up to


@pytest.mark.parametrize(("function", "count", "compiled"), [
    (lambda x: F.softmax(x, 1), 5000, True), (lambda x: F.layer_norm(x, (50,)), 5000, True),
    (F.gelu, 5000, True), (F.relu, 5000, True), (lambda x: x.sum(), 5000, True),
    (lambda x: x.amax(1), 5000, True), (F.gelu, 4000, False), (lambda x: x + x, 5000, False),
    (lambda x: x + x, 70000, True), (torch.exp, 5000, False),
])
def test_fewer_numbers_are_enough_where_numpy_takes_several_passes(
    function, count, compiled, monkeypatch
):
    """Types alone say: from the first call on."""
    calls = []
    call = eager_kernels.Operator.call
    monkeypatch.setattr(
        eager_kernels.Operator, "call", lambda self, given: calls.append(1) or call(self, given)
    )
    eager._signatures.clear()
    replayed._known.clear()
    x = (torch.arange(float(count)).reshape(-1, 50) * 37 % 101 - 50) / 25
    calls.clear()
    found = [function(x).numpy().tobytes() for _ in range(5)]
    assert len(set(found)) == 1
    assert len(calls) == (5 if compiled else 0)
    wanted = function(x.double()).numpy()
    np.testing.assert_allclose(np.frombuffer(found[0], np.float32), wanted.ravel(), 2e-5, 5e-6)


def test_a_function_of_fewer_numbers_is_one_loop(monkeypatch):
    ran = []
    call = eager_chains.Chain.__call__
    monkeypatch.setattr(
        eager_chains.Chain, "__call__", lambda self, given: ran.append(1) or call(self, given)
    )
    replayed._known.clear()
    x = torch.arange(5000.0) / 500 - 5
    for _ in range(3):
        np.testing.assert_allclose(
            F.hardswish(x).numpy(), x.numpy() * np.clip(x.numpy() + 3, 0, 6) / 6, 1e-6, 1e-6
        )
    assert len(ran) == 2  # the first call is watched


def test_calls_of_other_sizes_and_threads_in_between(low):
    """What a call needs stays as the one before has left it, where nothing else is asked."""
    threads = torch.get_num_threads()
    try:
        for again in range(3):
            for rows, count in ((30, 1), (40, 1), (40, 2), (30, 2), (30, 1)):
                torch.set_num_threads(count)
                x = torch.arange(float(rows * 20)).reshape(rows, 20) / 100 + again
                for _ in range(2):
                    np.testing.assert_allclose(
                        F.softmax(x, 1).numpy(), F.softmax(x.double(), 1).numpy(), 1e-5
                    )
                    np.testing.assert_allclose(x.sum().numpy(), x.numpy().sum(), 1e-5)
    finally:
        torch.set_num_threads(threads)
