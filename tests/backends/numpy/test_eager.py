"""The Backend "eager": what was recorded, operator by operator, to the bit of eager mode."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import pytest

import graphc as torch
from graphc import nn
from graphc.ir.kernel import Launch, leaves


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_training_step_has_eager_modes_bits(backend: str) -> None:
    torch.manual_seed(0)
    start = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(),
        nn.Linear(64, 8), nn.LayerNorm(8), nn.Softmax(1), nn.Dropout(0.3), nn.Linear(8, 3),
    )
    x, target = torch.randn(5, 3, 4, 4), torch.tensor([0, 2, 1, 1, 0])

    def state(compiled: bool) -> list[Any]:
        torch.manual_seed(1)
        model = copy.deepcopy(start)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step, backend=backend) if compiled else step
        losses = [run(x) for _ in range(3)]
        return [*losses, *model.state_dict().values()]

    for found, want in zip(state(True), state(False), strict=True):
        assert torch.equal(found, want)


def test_kernels_only_fill_and_copy() -> None:
    """What NumPy has a function for is a routine, composites included."""
    function = torch.compile(lambda x: torch.softmax(x * 2 + x.t(), 1).sum(0), backend="eager")
    explanation = torch.explain(function, torch.ones(3, 3))
    kinds = {name: step.kind for step in explanation.steps for name in step.ops}
    assert {kinds[name] for name in ("mul", "permute", "add", "softmax", "sum")} == {"routine"}
    (part,) = explanation.parts
    kernels = [s.kernel for s in leaves(part.built.program.steps) if isinstance(s, Launch)]
    assert {kernel.name for kernel in kernels} <= {"fill", "copy"}
    assert not explanation.callbacks


def test_numbers_that_overflow_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch.compile(lambda x: (x * 1e30 * 1e30).log().sqrt(), backend="eager")(
            torch.ones(2)
        )
    assert found.isinf().all()


@pytest.mark.parametrize("sizes", [(3, 3, 3), (40, 600, 70), (1, 5, 1)], ids=str)
def test_products_of_infinite_numbers_warn_of_nothing(sizes: tuple[int, int, int]) -> None:
    """Eagerly, called several times: of matrices, of turned ones, of rows in several dims."""
    n, k, m = sizes
    x, w = torch.full((n, k), math.inf), torch.arange(k * m).reshape(m, k) - 5.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            found = [x @ w.t().contiguous(), torch.nn.functional.linear(x, w), x[None] @ w.t()]
            assert all(not y.isfinite().any() for y in found)


def test_torchs_decorator_of_old_takes_a_name() -> None:
    function = torch._dynamo.optimize("aot_eager")(lambda x: x + 1)
    assert torch.equal(function(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(RuntimeError, match=r"'typo'; there are .*inductor"):
        torch._dynamo.optimize("typo")(lambda x: x)
