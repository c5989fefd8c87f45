"""torch.batch_norm, torch.kl_div, ...: with what torch's operators of these names take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

CASES: dict[str, Callable[[Any], Any]] = {
    "batch_norm": lambda t: t.batch_norm(
        rows(t), t.full((3,), 2.0), t.full((3,), 0.5), t.zeros(3), t.ones(3), False, 0.1, 1e-5,
        False),
    "instance_norm": lambda t: t.instance_norm(
        rows(t)[None], t.full((2,), 2.0), t.full((2,), 0.5), None, None, True, 0.1, 1e-5, False),
    "layer_norm": lambda t: t.layer_norm(
        rows(t), (3,), t.full((3,), 2.0), None, 1e-5, cudnn_enable=True),
    "group_norm": lambda t: t.group_norm(rows(t), 3, None, t.ones(3), 1e-3, False),
    "embedding": lambda t: (
        t.embedding(rows(t), t.tensor([1, 0])), t.embedding(rows(t), t.tensor([1]), 1, True)),
    **{
        f"embedding_bag {mode} {padding} {last}": lambda t, given=(mode, padding, last): bag(
            t, *given)
        for mode in (0, 1, 2) for padding in (None, 5, -2) for last in (False, True)
    },
    "embedding_bag weights": lambda t: t.embedding_bag(
        table(t), t.tensor([1, 0, 2]), t.tensor([0, 1]), per_sample_weights=rows(t)[0]),
    "dropout": lambda t: (t.dropout(rows(t), 0.5, True), t.dropout(rows(t), p=0.5, train=False)),
    "alpha_dropout": lambda t: t.alpha_dropout(rows(t), 0.5, True),
    "feature_alpha_dropout": lambda t: t.feature_alpha_dropout(rows(t), p=0.5, train=True),
    **{
        f"{name} {given}": lambda t, name=name, given=given: LOSSES[name](getattr(t, name), t)(
            *given)
        for name in (
            "kl_div", "binary_cross_entropy_with_logits", "hinge_embedding_loss",
            "margin_ranking_loss", "cosine_embedding_loss", "triplet_margin_loss", "ctc_loss",
        )
        for given in ((), (0,), (1,), (2,))
    },
    "poisson_nll_loss": lambda t: [
        t.poisson_nll_loss(rows(t), rows(t).abs(), True, False, 1e-8, n) for n in (0, 1, 2)],
    "log_target": lambda t: t.kl_div(rows(t), rows(t), 2, log_target=True),
}


def rows(t: Any) -> Any:
    return t.tensor([[0.1, -0.7, 0.3], [0.8, 0.2, -0.4]])


def table(t: Any) -> Any:
    return t.tensor([[0.0, 1.0], [2.0, -1.0], [2.0, 3.0], [-4.0, 0.5], [2.0, 9.0], [7.0, 7.0]])


def bag(t: Any, mode: int, padding: int | None, last: bool) -> Any:
    offsets = t.tensor([0, 2, 2, 7, 8])
    return t.embedding_bag(
        table(t), t.tensor([1, 2, 5, 5, 0, 4, 4, 5]), offsets, False, mode, False, None, last,
        padding)


def _with(*first: Any) -> Callable[[Any, Any], Callable[..., Any]]:
    """Calls of a function whose arguments before the reduction are given."""
    def bind(function: Any, t: Any) -> Callable[..., Any]:
        return lambda *given: function(*(f(t) if callable(f) else f for f in first), *given)
    return bind


def ones(t: Any) -> Any:
    return t.ones(2)


LOSSES = {
    "kl_div": _with(rows, lambda t: rows(t).abs()),
    "binary_cross_entropy_with_logits": _with(rows, lambda t: rows(t).abs(), None, None),
    "hinge_embedding_loss": _with(rows, lambda t: t.ones(2, 3), 0.5),
    "margin_ranking_loss": _with(lambda t: rows(t)[:, 0], lambda t: rows(t)[:, 1], ones, 0.5),
    "cosine_embedding_loss": _with(rows, lambda t: rows(t) + 1, ones, 0.1),
    "triplet_margin_loss": _with(
        rows, lambda t: rows(t) + 1, lambda t: rows(t) * 2, 1.0, 2.0, 1e-6, False),
    "ctc_loss": _with(
        lambda t: rows(t)[:, None].log_softmax(2), lambda t: t.tensor([[1]]), (2,), (1,), 0),
}


@pytest.mark.parametrize("name", list(CASES))
def test_as_torch(name: str) -> None:
    found = []
    for t in (graphc, torch):
        t.manual_seed(3)
        result = CASES[name](t)
        parts = result if isinstance(result, (list, tuple)) else [result]
        found.append([part.numpy() for part in parts])
    for have, want in zip(*found, strict=True):
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def test_what_is_no_reduction_is_refused() -> None:
    with pytest.raises(ValueError, match="3 is not a valid value for reduction"):
        graphc.kl_div(rows(graphc), rows(graphc), 3)


def test_dropout_says_whether_it_trains() -> None:
    for t in (graphc, torch):
        with pytest.raises(TypeError, match="missing 1 required positional"):
            t.dropout(rows(t), 0.5)
