"""numpy() of tensors that require gradients: refused where gradients are recorded, as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc


@pytest.mark.parametrize("m", [torch, graphc])
def test_without_grad_mode_it_is_the_memory(m: Any) -> None:
    w = m.nn.Parameter(m.zeros(3))
    for mode in (m.no_grad, m.inference_mode):
        with mode():
            w.numpy()[:] += 1
            assert np.asarray(w).tolist() == w.tolist()
    assert w.tolist() == [2.0, 2.0, 2.0]
    for take in (lambda: w.numpy(), lambda: np.asarray(w), lambda: (w * 1).numpy()):
        with pytest.raises(RuntimeError, match="requires grad"):
            take()


def test_a_refusal_shares_no_memory() -> None:
    w = graphc.nn.Parameter(graphc.zeros(3))
    with pytest.raises(RuntimeError, match="requires grad"):
        w.numpy()
    assert not w._graphc_storage.exposed
    with graphc.no_grad():
        w.numpy()
    assert w._graphc_storage.exposed
