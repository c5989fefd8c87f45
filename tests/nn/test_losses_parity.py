"""Every loss against PyTorch's: values and gradients, for each reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.nn.both import SPACES, close, compare_functions, compare_modules

RNG = np.random.default_rng(1)


def f(*shape: int) -> np.ndarray:
    """Normal values."""
    return RNG.standard_normal(shape)


def uniform(*shape: int) -> np.ndarray:
    """Values in (0.05, 0.95)."""
    return RNG.uniform(0.05, 0.95, shape)


def fixed(values: np.ndarray) -> Callable[[Any], Any]:
    """Makes a tensor without a gradient in a space."""
    return lambda s: s.torch.from_numpy(values.copy())


N, C = 6, 5
X, Y = f(N, C), f(N, C)
CLASSES = RNG.integers(0, C, N)
IGNORED = np.where(np.arange(N) == 2, -100, CLASSES)
PIXELS = RNG.integers(0, C, (2, 3, 4))
SIGNS = np.sign(f(N))
PROBABILITIES = np.exp(f(N, C)) / np.exp(f(N, C)).sum()
WEIGHT = fixed(np.linspace(0.5, 2.0, C))

# id: (loss of (F-space, reduction, *inputs), inputs)
LOSSES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mse": (lambda s, r, x, y: s.F.mse_loss(x, y, reduction=r), (X, Y)),
    "l1": (lambda s, r, x, y: s.F.l1_loss(x, y, reduction=r), (X, Y)),
    "smooth l1": (lambda s, r, x, y: s.F.smooth_l1_loss(x, y, reduction=r, beta=0.7), (X, Y)),
    "smooth l1, beta 0": (
        lambda s, r, x, y: s.F.smooth_l1_loss(x, y, reduction=r, beta=0.0), (X, Y)),
    "huber": (lambda s, r, x, y: s.F.huber_loss(x, y, reduction=r, delta=0.6), (X, Y)),
    "cross entropy": (lambda s, r, x, t: s.F.cross_entropy(x, t, reduction=r), (X, CLASSES)),
    "cross entropy, weight": (
        lambda s, r, x, t: s.F.cross_entropy(x, t, WEIGHT(s).to(x.dtype), reduction=r),
        (X, IGNORED)),
    "cross entropy, smoothing": (
        lambda s, r, x, t: s.F.cross_entropy(
            x, t, WEIGHT(s).to(x.dtype), reduction=r, label_smoothing=0.1), (X, IGNORED)),
    "cross entropy, smoothing alone": (
        lambda s, r, x, t: s.F.cross_entropy(x, t, reduction=r, label_smoothing=0.2),
        (X, CLASSES)),
    "linear cross entropy": (
        lambda s, r, x, w, b, t: s.F.linear_cross_entropy(x, w, t, linear_bias=b, reduction=r),
        (X, f(C, C), f(C), CLASSES)),
    "linear cross entropy of 2 dims": (
        lambda s, r, x, w, b, t: s.F.linear_cross_entropy(x, w, t, linear_bias=b, reduction=r),
        (f(2, 5), f(6, 3, 4, 5), f(6, 3, 4), PIXELS)),
    "cross entropy, pixels": (
        lambda s, r, x, t: s.F.cross_entropy(x, t, reduction=r, ignore_index=1),
        (f(2, C, 3, 4), PIXELS)),
    "cross entropy, one": (
        lambda s, r, x, t: s.F.cross_entropy(x, t, reduction=r), (f(C), np.array(2))),
    "cross entropy, probabilities": (
        lambda s, r, x, y: s.F.cross_entropy(
            x, y, WEIGHT(s).to(x.dtype), reduction=r, label_smoothing=0.1), (X, PROBABILITIES)),
    "cross entropy, probabilities 3d": (
        lambda s, r, x, y: s.F.cross_entropy(x, y, reduction=r), (f(2, C, 3), uniform(2, C, 3))),
    "nll": (lambda s, r, x, t: s.F.nll_loss(s.F.log_softmax(x, 1), t, reduction=r), (X, CLASSES)),
    "nll, weight": (
        lambda s, r, x, t: s.F.nll_loss(x, t, WEIGHT(s).to(x.dtype), reduction=r), (X, IGNORED)),
    "nll, pixels": (
        lambda s, r, x, t: s.F.nll_loss(x, t, reduction=r), (f(2, C, 3, 4), PIXELS)),
    "bce": (lambda s, r, x, y: s.F.binary_cross_entropy(x, y, reduction=r),
            (uniform(N, C), uniform(N, C))),
    "bce, weight": (
        lambda s, r, x, y: s.F.binary_cross_entropy(x, y, WEIGHT(s).to(x.dtype), reduction=r),
        (uniform(N, C), uniform(N, C))),
    "bce logits": (
        lambda s, r, x, y: s.F.binary_cross_entropy_with_logits(x, y, reduction=r),
        (X * 3, uniform(N, C))),
    "bce logits, pos_weight": (
        lambda s, r, x, y: s.F.binary_cross_entropy_with_logits(
            x, y, WEIGHT(s).to(x.dtype), pos_weight=WEIGHT(s).to(x.dtype), reduction=r),
        (X * 3, uniform(N, C))),
    "kl": (lambda s, r, x, y: s.F.kl_div(x, y, reduction=r), (-uniform(N, C), uniform(N, C))),
    "kl, log target": (
        lambda s, r, x, y: s.F.kl_div(x, y, reduction=r, log_target=True), (X, Y)),
    "poisson": (
        lambda s, r, x, y: s.F.poisson_nll_loss(x, y, reduction=r), (X, uniform(N, C) * 3)),
    "poisson, full": (
        lambda s, r, x, y: s.F.poisson_nll_loss(x, y, log_input=False, full=True, reduction=r),
        (uniform(N, C), uniform(N, C) * 3)),
    "gaussian": (
        lambda s, r, x, y, v: s.F.gaussian_nll_loss(x, y, v, full=True, reduction=r),
        (X, Y, uniform(N, C))),
    "gaussian, var of a row": (
        lambda s, r, x, y, v: s.F.gaussian_nll_loss(x, y, v, reduction=r), (X, Y, uniform(N, 1))),
    "hinge": (
        lambda s, r, x: s.F.hinge_embedding_loss(
            x, s.torch.from_numpy(np.sign(Y)).to(x.dtype), margin=0.8, reduction=r), (X,)),
    "margin ranking": (
        lambda s, r, x, y: s.F.margin_ranking_loss(
            x, y, s.torch.from_numpy(SIGNS).to(x.dtype), margin=0.3, reduction=r), (f(N), f(N))),
    "cosine": (
        lambda s, r, x, y: s.F.cosine_embedding_loss(
            x, y, s.torch.from_numpy(SIGNS).to(x.dtype), margin=0.1, reduction=r), (X, Y)),
    "soft margin": (
        lambda s, r, x: s.F.soft_margin_loss(
            x, s.torch.from_numpy(np.sign(Y)).to(x.dtype), reduction=r), (X,)),
    "multilabel soft margin": (
        lambda s, r, x: s.F.multilabel_soft_margin_loss(
            x, s.torch.from_numpy((Y > 0) * 1.0).to(x.dtype), WEIGHT(s).to(x.dtype), reduction=r),
        (X,)),
    "multi margin": (
        lambda s, r, x, t: s.F.multi_margin_loss(x, t, margin=0.7, reduction=r), (X, CLASSES)),
    "multi margin, squared": (
        lambda s, r, x, t: s.F.multi_margin_loss(
            x, t, p=2, weight=WEIGHT(s).to(x.dtype), reduction=r), (X, CLASSES)),
    "triplet": (
        lambda s, r, x, y, z: s.F.triplet_margin_loss(x, y, z, reduction=r), (X, Y, f(N, C))),
    "triplet, swap": (
        lambda s, r, x, y, z: s.F.triplet_margin_loss(x, y, z, p=1, swap=True, reduction=r),
        (X, Y, f(N, C))),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str, reduction: str) -> None:
    if name.startswith("kl") and reduction == "mean":
        pytest.skip("torch warns that mean is no mean; batchmean is tested below")
    loss, inputs = LOSSES[name]
    compare_functions(lambda s, *x: loss(s, reduction, *x), inputs, "float64")


@pytest.mark.parametrize("name", LOSSES)
def test_loss_in_float32(name: str) -> None:
    loss, inputs = LOSSES[name]
    compare_functions(lambda s, *x: loss(s, "sum", *x), inputs, "float32")


def test_kl_batchmean() -> None:
    compare_functions(
        lambda s, x, y: s.F.kl_div(x, y, reduction="batchmean"), (X, uniform(N, C)), "float64"
    )


MODULES: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "CrossEntropyLoss": (lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1), (X, CLASSES)),
    "NLLLoss": (lambda nn: nn.NLLLoss(ignore_index=2), (X, CLASSES)),
    "MSELoss": (lambda nn: nn.MSELoss(reduction="sum"), (X, Y)),
    "L1Loss": (lambda nn: nn.L1Loss(), (X, Y)),
    "SmoothL1Loss": (lambda nn: nn.SmoothL1Loss(beta=0.5), (X, Y)),
    "HuberLoss": (lambda nn: nn.HuberLoss(delta=0.5), (X, Y)),
    "BCELoss": (lambda nn: nn.BCELoss(), (uniform(N, C), uniform(N, C))),
    "BCEWithLogitsLoss": (lambda nn: nn.BCEWithLogitsLoss(), (X, uniform(N, C))),
    "KLDivLoss": (lambda nn: nn.KLDivLoss(reduction="batchmean"), (X, uniform(N, C))),
    "PoissonNLLLoss": (lambda nn: nn.PoissonNLLLoss(full=True), (X, uniform(N, C) * 3)),
    "GaussianNLLLoss": (lambda nn: nn.GaussianNLLLoss(), (X, Y, uniform(N, C))),
    "HingeEmbeddingLoss": (lambda nn: nn.HingeEmbeddingLoss(), (X, np.sign(Y))),
    "MarginRankingLoss": (lambda nn: nn.MarginRankingLoss(0.2), (f(N), f(N), SIGNS)),
    "CosineEmbeddingLoss": (lambda nn: nn.CosineEmbeddingLoss(), (X, Y, SIGNS.astype(np.int64))),
    "SoftMarginLoss": (lambda nn: nn.SoftMarginLoss(), (X, np.sign(Y).astype(np.int64))),
    "MultiLabelSoftMarginLoss": (
        lambda nn: nn.MultiLabelSoftMarginLoss(), (X, (Y > 0).astype(np.int64))),
    "MultiMarginLoss": (lambda nn: nn.MultiMarginLoss(margin=0.5), (X, CLASSES)),
    "TripletMarginLoss": (lambda nn: nn.TripletMarginLoss(), (X, Y, f(N, C))),
}


@pytest.mark.parametrize("name", MODULES)
def test_loss_module(name: str) -> None:
    make, inputs = MODULES[name]
    if name in ("HingeEmbeddingLoss", "MarginRankingLoss"):
        inputs = (*inputs[:-1], inputs[-1].astype(np.int64))
    compare_modules(make, inputs, "float64")


def test_messages() -> None:
    errors: list[list[str]] = []
    for s in SPACES:
        x = s.torch.zeros(4, 3)
        cases: list[Callable[[], Any]] = [
            lambda s=s, x=x: s.F.cross_entropy(x, s.torch.zeros(5).long()),
            lambda s=s, x=x: s.F.cross_entropy(x, s.torch.zeros(4).long(), reduction="avg"),
            lambda s=s, x=x: s.F.binary_cross_entropy_with_logits(x, s.torch.zeros(3)),
            lambda s=s, x=x: s.F.nll_loss(x, s.torch.zeros(4, 2).long()),
        ]
        texts = []
        for case in cases:
            with pytest.raises((ValueError, RuntimeError)) as info:
                case()
            texts.append(str(info.value).split("\n")[0])
        errors.append(texts)
    assert errors[1][:3] == errors[0][:3]


def test_out_of_range_target_raises() -> None:
    s = SPACES[1]
    with pytest.raises((IndexError, RuntimeError)):
        s.F.cross_entropy(s.torch.zeros(2, 3), s.torch.tensor([0, 3]))


def test_all_targets_ignored() -> None:
    given = [s.torch.full((2,), -100, dtype=s.torch.int64) for s in SPACES]
    found = [
        s.F.cross_entropy(s.torch.zeros(2, 3), t) for s, t in zip(SPACES, given, strict=True)
    ]
    close(found[1], found[0], 0.0)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss"])
@pytest.mark.parametrize("shapes", [((), (2,)), ((2,), ()), ((), ()), ((2,), (1,))])
@pytest.mark.parametrize("kinds", [("float64", "float32"), ("float32", "float64")])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_losses_of_two_dtypes_are_of_the_wider(
    name: str, shapes: tuple[Any, Any], kinds: tuple[str, str]
) -> None:
    """One without dims counts as much as the other, in torch by broadcasting first."""
    found = []
    for m in [s.torch for s in SPACES]:
        x = m.ones(shapes[0], dtype=getattr(m, kinds[0]), requires_grad=True)
        loss = getattr(m.nn.functional, name)(x, m.full(shapes[1], 3.0, dtype=getattr(m, kinds[1])))
        loss.backward()
        found.append((str(loss.dtype), loss.item(), x.grad.tolist()))
    assert found[0] == found[1]
