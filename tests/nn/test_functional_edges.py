"""The edges of nn.functional: invalid and empty inputs, complex and half precision, draws."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from tests.nn.both import SPACES

# each raises in torch: the same class, and a message that begins likewise
ERRORS: dict[str, Callable[[Any], Any]] = {
    "adaptive pool of too few dims": lambda s: s.F.adaptive_avg_pool2d(s.torch.ones(2, 2), (2, 2)),
    "adaptive pool, one size": lambda s: s.F.adaptive_max_pool2d(s.torch.ones(2, 2), 2),
    "adaptive pool to less than nothing": (
        lambda s: s.F.adaptive_avg_pool2d(s.torch.ones(1, 1, 1, 1), (-1, 0))),
    "adaptive pool of integers": (
        lambda s: s.F.adaptive_avg_pool2d(s.torch.ones(1, 1, 4, 4).int(), 2)),
    "adaptive pool of integers, 1d": (
        lambda s: s.F.adaptive_avg_pool1d(s.torch.ones(1, 1, 4).int(), 3)),
    "adaptive pool of integers, 3d": (
        lambda s: s.F.adaptive_avg_pool3d(s.torch.ones(1, 1, 4, 4, 4).int(), 3)),
    "adaptive pool of integers to one": (
        lambda s: s.F.adaptive_avg_pool2d(s.torch.ones(1, 1, 4, 4).int(), 1)),
    "adaptive max pool of integers": (
        lambda s: s.F.adaptive_max_pool1d(s.torch.ones(1, 1, 4).int(), 2)),
    "adaptive max pool of integers, 3d": (
        lambda s: s.F.adaptive_max_pool3d(s.torch.ones(1, 1, 4, 4, 4).int(), 1)),
    "adaptive pool of no height": lambda s: s.F.adaptive_avg_pool2d(s.torch.ones(1, 0, 4), 3),
    "adaptive max pool of no channels": (
        lambda s: s.F.adaptive_max_pool2d(s.torch.ones(1, 0, 4, 4), 3)),
    "linear cross entropy of 3 dims": lambda s: s.F.linear_cross_entropy(
        s.torch.ones(2, 3, 4), s.torch.ones(5, 4), s.torch.zeros(2, 3, dtype=s.torch.int64)),
    "linear cross entropy of another bias": lambda s: s.F.linear_cross_entropy(
        s.torch.ones(2, 4), s.torch.ones(5, 3, 4), s.torch.zeros(2, 3, dtype=s.torch.int64),
        linear_bias=s.torch.ones(5)),
    "linear cross entropy of another size": lambda s: s.F.linear_cross_entropy(
        s.torch.ones(2, 3), s.torch.ones(5, 4), s.torch.zeros(2, dtype=s.torch.int64)),
    "linear cross entropy of no batch": lambda s: s.F.linear_cross_entropy(
        s.torch.ones(4), s.torch.ones(5, 3, 4), s.torch.zeros(3, dtype=s.torch.int64)),
    "linear cross entropy of probabilities, ignoring": lambda s: s.F.linear_cross_entropy(
        s.torch.ones(2, 4), s.torch.ones(5, 4), s.torch.ones(2, 5), ignore_index=1),
    "mean pool of no channels": lambda s: s.F.avg_pool2d(s.torch.ones(1, 0, 4, 4), 2),
    "mean pool of less than its window": lambda s: s.F.avg_pool3d(
        s.torch.ones(1, 2, 3, 3, 3), 4, 2, ceil_mode=True),
    "group norm of one value": lambda s: s.F.group_norm(s.torch.ones(1, 2, 1, 1), 2),
    "interpolated from nothing": lambda s: s.F.interpolate(s.torch.ones(1, 2, 0), 4),
    "interpolated to nothing": (
        lambda s: s.F.interpolate(s.torch.ones(1, 2, 3, 3), 0, mode="bilinear")),
    "circular padding of more than there is": (
        lambda s: s.F.pad(s.torch.ones(1, 2, 1, 4), (0, 0, 2, 0), mode="circular")),
    "max pool of no length": lambda s: s.F.max_pool1d(s.torch.ones(1, 3, 0), 1),
    "max pool of no channels": lambda s: s.F.max_pool2d(s.torch.ones(1, 0, 2, 2), 1),
    "conv bias of another dtype": (
        lambda s: s.F.conv1d(s.torch.ones(1, 1, 4), s.torch.ones(1, 1, 2), s.torch.ones(1).double())
    ),
    "group norm of one dim": lambda s: s.F.group_norm(s.torch.ones(1), 1),
    "rms norm over nothing": lambda s: s.F.rms_norm(s.torch.ones(1, 2), ()),
    "rms norm of another shape": lambda s: s.F.rms_norm(s.torch.ones(2, 3), (2,)),
    "layer norm weight": lambda s: s.F.layer_norm(s.torch.ones(2, 3), (3,), s.torch.ones(2)),
    "prelu weight": lambda s: s.F.prelu(s.torch.ones(2, 8), s.torch.ones(2, 4)),
    "softshrink": lambda s: s.F.softshrink(s.torch.ones(1), -0.5),
    "huber delta": lambda s: s.F.huber_loss(s.torch.ones(3), s.torch.ones(3), delta=0.0),
    "huber reduction": lambda s: s.F.huber_loss(s.torch.ones(3), s.torch.ones(3), reduction="x"),
    "triplet margin": (
        lambda s: s.F.triplet_margin_loss(*[s.torch.ones(2, 3)] * 3, margin=-1.0)),
    "multi margin power": (
        lambda s: s.F.multi_margin_loss(s.torch.ones(2, 3), s.torch.zeros(2).long(), p=3)),
    "multi margin weight": (
        lambda s: s.F.multi_margin_loss(
            s.torch.ones(2, 3), s.torch.zeros(2).long(), weight=s.torch.ones(2, 3))),
    "gaussian variance of another size": (
        lambda s: s.F.gaussian_nll_loss(*[s.torch.ones(2, 3)] * 2, s.torch.ones(2, 2))),
    "gaussian variance below 0": (
        lambda s: s.F.gaussian_nll_loss(*[s.torch.ones(2, 3)] * 2, -s.torch.ones(2, 3))),
    "one_hot beyond the classes": lambda s: s.F.one_hot(s.torch.tensor([5]), 3),
    "one_hot below 0": lambda s: s.F.one_hot(s.torch.tensor([-1]), 3),
    "bce of no probabilities": (
        lambda s: s.F.binary_cross_entropy(s.torch.ones(2) * 2, s.torch.ones(2))),
    "elu of integers": lambda s: s.F.elu(s.torch.ones(2).long()),
    "pixel_unshuffle": lambda s: s.F.pixel_unshuffle(s.torch.ones(1, 3, 3, 2), 2),
    "conv groups": (
        lambda s: s.F.conv1d(s.torch.ones(1, 3, 4), s.torch.ones(2, 3, 3), groups=0)),
    "bilinear of another size": (
        lambda s: s.F.bilinear(s.torch.ones(2, 1), s.torch.ones(2, 3), s.torch.ones(4, 8, 3))),
    "bilinear of other batches": (
        lambda s: s.F.bilinear(s.torch.ones(2, 8), s.torch.ones(1, 3), s.torch.ones(4, 8, 3))),
    "bilinear of other ranks": (
        lambda s: s.F.bilinear(s.torch.ones(2, 8), s.torch.ones(3), s.torch.ones(4, 8, 3))),
    "bilinear bias": (
        lambda s: s.F.bilinear(
            s.torch.ones(2, 8), s.torch.ones(2, 3), s.torch.ones(4, 8, 3), s.torch.ones(1))),
    "conv bias of another size": (
        lambda s: s.F.conv1d(s.torch.ones(1, 3, 4), s.torch.ones(2, 3, 3), s.torch.ones(3))),
    "lanczos without antialias": (
        lambda s: s.F.interpolate(s.torch.ones(1, 1, 4, 4), 2, mode="lanczos")),
    "special function of numbers": lambda s: s.torch.special.zeta(2, 3),
    "polynomial of numbers": lambda s: s.torch.special.hermite_polynomial_h(2, 3),
}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors(name: str) -> None:
    theirs, ours = SPACES
    with pytest.raises(Exception) as expected:
        ERRORS[name](theirs)
    with pytest.raises(type(expected.value)) as found:
        ERRORS[name](ours)
    assert str(found.value)[:20] == str(expected.value)[:20]


def _complex(s: Any, *shape: int) -> Any:
    values = np.random.default_rng(len(shape)).standard_normal((2, *shape))
    return s.torch.from_numpy(values[0] + 1j * values[1])


COMPLEX: dict[str, Callable[[Any], Any]] = {
    "conv1d": lambda s: s.F.conv1d(
        _complex(s, 2, 4, 9), _complex(s, 3, 4, 2), _complex(s, 3), 2, 1),
    "conv2d": lambda s: s.F.conv2d(_complex(s, 1, 4, 5, 6), _complex(s, 6, 2, 2, 3), groups=2),
    "conv_transpose1d": lambda s: s.F.conv_transpose1d(
        _complex(s, 2, 4, 5), _complex(s, 4, 3, 2), _complex(s, 3), 2),
    "silu": lambda s: s.F.silu(_complex(s, 7)),
    "masked.var": lambda s: s.torch.masked.var(_complex(s, 7), 0, unbiased=True),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", sorted(COMPLEX))
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_complex(name: str, compiled: bool) -> None:
    run = COMPLEX[name]
    want = run(SPACES[0])
    have = (graphc.compile(lambda: run(SPACES[1])) if compiled else lambda: run(SPACES[1]))()
    assert str(have.dtype) == str(want.dtype)
    np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-10, atol=1e-12)


HALF: dict[str, Callable[..., Any]] = {
    "rms_norm, its own eps": lambda s, x, w: s.F.rms_norm(x * 1e-3, (6,), w),
    "group_norm": lambda s, x, w: s.F.group_norm(x.transpose(1, 2), 2, w, w),
    "instance_norm": lambda s, x, w: s.F.instance_norm(x.transpose(1, 2), weight=w, bias=w),
    "bilinear": lambda s, x, w: s.F.interpolate(x[None], (9, 5), mode="bilinear"),
    "bicubic": lambda s, x, w: s.F.interpolate(x[None], (9, 5), mode="bicubic"),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", sorted(HALF))
def test_half_precision_is_rounded_once(name: str, compiled: bool) -> None:
    arrays = [np.random.default_rng(5).standard_normal(n).astype(np.float16)
              for n in ((3, 7, 6), (6,))]
    theirs, ours = ([s.torch.from_numpy(a.copy()) for a in arrays] for s in SPACES)
    run = HALF[name]
    want = run(SPACES[0], *(x.double() for x in theirs)).numpy()
    if name.startswith("rms"):  # of float32, whatever the input's precision
        want = torch.nn.functional.rms_norm(
            (theirs[0] * 1e-3).double(), (6,), theirs[1].double(), torch.finfo(torch.float32).eps
        ).numpy()
    function: Any = lambda *x: run(SPACES[1], *x)  # noqa: E731
    have = (graphc.compile(function) if compiled else function)(*ours)
    assert have.dtype is graphc.float16
    bound = 2.0**-11 * np.abs(want) + 2.0**-14
    assert (np.abs(have.double().numpy() - want) <= 1.05 * bound + 4e-4 * ("bi" in name)).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rrelu_draws_for_negative_elements_alone(dtype: str, compiled: bool) -> None:
    x = np.random.default_rng(0).standard_normal(301).astype(dtype)
    def function(s: Any, x: Any) -> Any:
        return s.F.rrelu(x, 0.1, 0.7, training=True), s.torch.rand(3)

    results = []
    for s in SPACES:
        run = functools.partial(function, s)
        if compiled and s.torch is graphc:
            run = graphc.compile(lambda x, s=s: function(s, x))
        s.torch.manual_seed(11)
        results.append([y.numpy() for y in run(s.torch.from_numpy(x.copy()))])
    for want, have in zip(*results, strict=True):
        np.testing.assert_array_equal(have, want)


def test_empty_batches_and_everything_dropped() -> None:
    for s in SPACES:
        assert tuple(s.F.max_pool1d(s.torch.ones(0, 3, 4), 2).shape) == (0, 3, 2)
        assert tuple(s.F.adaptive_avg_pool2d(s.torch.ones(1, 0, 4, 4), 2).shape) == (1, 0, 2, 2)
        assert s.F.adaptive_avg_pool1d(s.torch.ones(2, 0), 1).isnan().all()
        assert tuple(s.F.adaptive_max_pool1d(s.torch.ones(0, 2, 4), 0).shape) == (0, 2, 0)
        assert tuple(s.F.batch_norm(s.torch.ones(3, 0), None, None, training=True).shape) == (3, 0)
        none = s.torch.ones(2, 3, 0)  # no numbers to compare: every row is attended alike
        attended = s.F.scaled_dot_product_attention(none, none, s.torch.arange(12.0).view(2, 3, 2))
        assert attended.tolist()[0] == [[2.0, 3.0]] * 3
        assert tuple(s.F.batch_norm(*[s.torch.ones(0)] * 3, training=True).shape) == (0,)
        assert tuple(s.F.instance_norm(s.torch.ones(0, 3, 4)).shape) == (0, 3, 4)
        kept = s.F.max_pool2d(s.torch.ones(0, 3, 4, 4), 2, return_indices=True)
        assert tuple(s.F.max_unpool2d(*kept, 2).shape) == (0, 3, 4, 4)
        ratio = s.F.fractional_max_pool3d(s.torch.ones(0, 1, 4, 4, 4), 2, output_size=2)
        assert tuple(ratio.shape) == (0, 1, 2, 2, 2)
        assert not s.F.alpha_dropout(s.torch.ones(4), 1.0, training=True).any()


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_pools_of_an_empty_batch(rank: int, kind: str, size: int) -> None:
    for shape in ((0, 3, *[4] * rank), (0, 3, *[5] * rank)):
        for space in SPACES:
            pool = getattr(space.F, f"adaptive_{kind}_pool{rank}d")
            x = space.torch.ones(shape).requires_grad_()
            y = pool(x, size)
            y.sum().backward()
            assert tuple(y.shape) == (0, 3, *[size] * rank) and tuple(x.grad.shape) == shape


def test_sparse_gradients() -> None:
    index = np.array([1, 1, 3])
    grads = []
    for s in SPACES:
        weight = s.torch.ones(4, 2, requires_grad=True)
        s.F.embedding(s.torch.from_numpy(index), weight, sparse=True).square().sum().backward()
        assert weight.grad is not None and weight.grad.is_sparse
        grads.append(weight.grad.to_dense().numpy())
    np.testing.assert_array_equal(grads[1], grads[0])


WEIGHTED: dict[str, Callable[..., Any]] = {
    "mse": lambda s, x, y, w: [
        s.F.mse_loss(x, y, reduction=r, weight=w) for r in ("mean", "sum", "none")],
    "l1": lambda s, x, y, w: [
        s.F.l1_loss(x, y, reduction=r, weight=w) for r in ("mean", "sum", "none")],
    "huber": lambda s, x, y, w: [
        s.F.huber_loss(x, y, r, 0.7, w) for r in ("mean", "sum", "none")],
    "normalize into": lambda s, x, y, w: [
        s.F.normalize(x.detach(), out=s.torch.empty(3, 4)), x],
    "static keys": lambda s, x, y, w: list(
        s.F.multi_head_attention_forward(
            x.reshape(3, 1, 4), y.reshape(3, 1, 4), y.reshape(3, 1, 4), 4, 2,
            s.torch.ones(12, 4), None, None, None, True, 0.0, w.repeat(2, 1)[:4], None,
            static_k=y.reshape(2, 3, 2), static_v=x.reshape(2, 3, 2))),
}


@pytest.mark.parametrize("name", sorted(WEIGHTED))
def test_weights_and_rare_arguments(name: str) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.random((3, 4)).astype(np.float32) for _ in range(3)]
    results = []
    for s in SPACES:
        inputs = [s.torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
        found = WEIGHTED[name](s, *inputs)
        sum(y.sum() for y in found).backward()
        results.append([y.detach().numpy() for y in found] + [
            None if x.grad is None else x.grad.numpy() for x in inputs])
    for have, want in zip(results[1], results[0], strict=True):
        assert (have is None) == (want is None)
        if want is not None:
            np.testing.assert_allclose(have, want, rtol=2e-5, atol=1e-6)


def test_losses_warn_of_broadcasting() -> None:
    for s in SPACES:
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            with pytest.warns(UserWarning, match="different to the input size"):
                getattr(s.F, name)(s.torch.ones(3, 1), s.torch.ones(3))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_images_of_bytes_are_resized_as_torch_does(mode: str, antialias: bool) -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, 3, 14, 11)).astype(np.uint8)
    options: list[dict[str, Any]] = [{"size": (5, 4)}, {"size": (31, 20)}, {"scale_factor": 1.7}]
    if not antialias:
        options.append({"size": (7, 23), "align_corners": True})
    for option in options:
        want, have = (
            s.F.interpolate(
                s.torch.from_numpy(image.copy()), mode=mode, antialias=antialias, **option)
            for s in SPACES
        )
        assert have.dtype is graphc.uint8
        np.testing.assert_array_equal(have.numpy(), want.numpy())


def test_shifts_take_a_dim_under_compile() -> None:
    x = graphc.arange(12).reshape(3, 4)
    shifted = graphc.compile(
        lambda x, d: (graphc.fft.fftshift(x, d), graphc.linalg.norm(x.double(), 1, d)))
    np.testing.assert_array_equal(shifted(x, 1)[0].numpy(), np.fft.fftshift(x.numpy(), 1))
