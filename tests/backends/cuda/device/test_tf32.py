"""torch's settings of TF32 on the device: followed in every mode, as they are switched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends import cudnn
from graphc.backends.flags import CUDA
from graphc.ir.tf32 import Setting, rounded

MATMUL = CUDA["matmul"]
# large enough for a product's code to be worth it
A = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((128, 64)).astype(np.float32)
X = np.random.default_rng(2).standard_normal((2, 16, 10, 10)).astype(np.float32)
W = np.random.default_rng(3).standard_normal((32, 16, 3, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    yield
    Setting.matmul = ""
    cudnn.allow_tf32, cudnn.conv.fp32_precision = True, "tf32"


def on(*arrays: np.ndarray) -> list[Any]:
    return [torch.from_numpy(array).to("cuda") for array in arrays]


def conv(x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(x, w, padding=1)


def narrowed(found: Any, function: Callable[..., Any], *given: np.ndarray) -> bool:
    """Whether a result is that of rounded operands; else it is that of the operands as they are."""
    value = found.detach().cpu().numpy()
    is_so = []
    for operands in (given, [rounded(array) for array in given]):
        want = function(*[torch.from_numpy(array).double() for array in operands]).numpy()
        is_so.append(np.allclose(value, want, rtol=1e-5, atol=2e-5))
    assert sum(is_so) == 1
    return is_so[1]


def test_products_do_where_it_is_said() -> None:
    run = torch.compile(lambda a, b: a @ b, fullgraph=True)
    for function in (lambda a, b: a @ b, run):
        Setting.matmul = ""
        seen = [narrowed(function(*on(A, B)), torch.matmul, A, B)]
        for precision in ("high", "medium", "highest"):
            torch.set_float32_matmul_precision(precision)
            seen.append(narrowed(function(*on(A, B)), torch.matmul, A, B))
        MATMUL.allow_tf32 = True
        seen.append(narrowed(function(*on(A, B)), torch.matmul, A, B))
        MATMUL.fp32_precision = "ieee"
        seen.append(narrowed(function(*on(A, B)), torch.matmul, A, B))
        assert seen == [False, True, True, False, True, False]


def test_convolutions_do_unless_it_is_said() -> None:
    """As in PyTorch, whose default for them is TF32."""
    run = torch.compile(conv, fullgraph=True)
    for function in (conv, run):
        seen = [narrowed(function(*on(X, W)), conv, X, W)]
        with cudnn.flags(enabled=True, allow_tf32=False):
            seen.append(narrowed(function(*on(X, W)), conv, X, W))
        cudnn.conv.fp32_precision = "ieee"
        seen.append(narrowed(function(*on(X, W)), conv, X, W))
        cudnn.conv.fp32_precision = "tf32"
        assert seen == [True, False, False]


def test_a_setting_that_is_switched_inside() -> None:
    """Each operator has the one in whose time it runs; the CPU's have none."""
    def both(a: Any, b: Any) -> tuple[Any, Any, Any]:
        first = a @ b
        torch.set_float32_matmul_precision("high")
        second = a @ b
        torch.set_float32_matmul_precision("highest")
        return first, second, a @ b

    for run in (both, torch.compile(both)):
        found = run(*on(A, B))
        assert [narrowed(x, torch.matmul, A, B) for x in found] == [False, True, False]
        on_cpu = run(torch.from_numpy(A), torch.from_numpy(B))
        assert not any(narrowed(x, torch.matmul, A, B) for x in on_cpu)


def test_gradients_and_other_dtypes() -> None:
    def step(a: Any, b: Any) -> Any:
        a = a.detach().requires_grad_()
        (a @ b).sum().backward()
        return a.grad

    torch.set_float32_matmul_precision("high")
    for run in (step, torch.compile(step)):
        assert narrowed(run(*on(A, B)), lambda a, b: b.sum(1).expand(64, 128), A, B)
    wide = torch.from_numpy(A).double().to("cuda") @ torch.from_numpy(B).double().to("cuda")
    np.testing.assert_allclose(wide.cpu().numpy(), A.astype("f8") @ B, rtol=1e-10)
