"""A checkpointed function whose first call is the one that eager mode learns its steps from: what
is saved the second time, in the backward pass, is what the first time saved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import Tensor
from graphc.utils.checkpoint import checkpoint

CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[1],)),
    "mse_loss": lambda x: F.mse_loss(x, x.detach() * 0.5),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x.detach() * 0.5),
    "binary_cross_entropy_with_logits":
        lambda x: F.binary_cross_entropy_with_logits(x, x.detach()),
    "std": lambda x: x.std(1),
    **{name: getattr(F, name) for name in "tanhshrink mish elu selu hardswish logsigmoid".split()},
}


@pytest.mark.parametrize("columns", [17, 2003])  # sizes that no other test has met
@pytest.mark.parametrize("name", CASES)
def test_a_first_call_in_a_checkpoint(name: str, columns: int) -> None:
    function, slopes = CASES[name], []
    for call in (lambda x: checkpoint(function, x, use_reentrant=False), function):
        x = torch.linspace(-3, 3, 3 * columns).reshape(3, columns).requires_grad_()
        call(x * 1).sum().backward()
        assert x.grad is not None
        slopes.append(x.grad)
    torch.testing.assert_close(*slopes)
