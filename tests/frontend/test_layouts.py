"""The strides of results of permuted operands: `view` and the order of random draws show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda t, x: t.softmax(x, -1),
    "log_softmax": lambda t, x: t.log_softmax(x, 1),
    "logsumexp": lambda t, x: t.logsumexp(x, 1),
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda t, x: t.nn.functional.rms_norm(x, x.shape[-1:]),
    "einsum over one dim": lambda t, x: t.einsum("abcd->dba", x),
    "einsum over two dims": lambda t, x: t.einsum("abcd->ca", x),
    "cumsum": lambda t, x: t.cumsum(x, 1),
    "sum": lambda t, x: x.sum(1),
    "mean": lambda t, x: x.mean(3, keepdim=True),
    "amax": lambda t, x: t.amax(x, 1),
    "cat": lambda t, x: t.cat([x, x]),
    "stack": lambda t, x: t.stack([x, x]),
    "add a row-major one": lambda t, x: x + t.ones(x.shape),
    "add to a row-major one": lambda t, x: t.ones(x.shape) + x,
    "scale by a norm": lambda t, x: x / x.norm(dim=1, keepdim=True),
    "relu": lambda t, x: t.relu(x),
    "gelu": lambda t, x: t.nn.functional.gelu(x),
    "silu": lambda t, x: t.nn.functional.silu(x),
    "softplus": lambda t, x: t.nn.functional.softplus(x),
    "where": lambda t, x: t.where(x > 0, x, x * 2),
    "dropout": lambda t, x: t.nn.functional.dropout(x, 0.5),
    "zeros_like": lambda t, x: t.zeros_like(x),
    "full_like": lambda t, x: t.full_like(x, 2, dtype=t.int64),
    "empty_like": lambda t, x: t.empty_like(x).fill_(1),
    "rand_like": lambda t, x: t.rand_like(x),
    "randn_like": lambda t, x: t.randn_like(x),
    "randint_like": lambda t, x: t.randint_like(x, 9),
    "gumbel_softmax": lambda t, x: t.nn.functional.gumbel_softmax(x),
    "flip": lambda t, x: x.flip(1),
    "rot90": lambda t, x: x.rot90(1, (0, 2)),
    "sort": lambda t, x: x.sort(1)[0],
    "argsort": lambda t, x: x.argsort(2),
    "topk": lambda t, x: x.topk(2, 1)[0],
    "cummax": lambda t, x: x.cummax(1)[0],
    "gather": lambda t, x: x.gather(0, t.zeros_like(x, dtype=t.int64)),
    "index_select": lambda t, x: x.index_select(1, t.tensor([0, 1])),
    "polygamma": lambda t, x: t.polygamma(1, x + 2),
    "bessel_j0": lambda t, x: t.special.bessel_j0(x),
    "renorm": lambda t, x: x.renorm(2, 0, 1.0),
    "masked_scatter": lambda t, x: x.masked_scatter(x > 0, x),
}
OF_PARTS = [
    "relu", "where", "dropout", "zeros_like", "rand_like", "randn_like", "randint_like", "silu",
    "flip", "sort",
]
PERMUTATIONS = [(0, 2, 3, 1), (0, 2, 1, 3), (3, 0, 1, 2)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CALLS)
def test_strides_are_torchs(name: str, compiled: bool) -> None:
    _compare(name, compiled, lambda x: x)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", OF_PARTS)
def test_of_parts_of_permuted_memory(name: str, compiled: bool) -> None:
    _compare(name, compiled, lambda x: x[..., 1:, 1:])


def _compare(name: str, compiled: bool, part: Callable[[Any], Any]) -> None:
    data = np.linspace(-1, 1, 2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    for order in PERMUTATIONS:
        found = []
        for t in (torch, graphc):
            seen: list[tuple[int, ...]] = []

            def call(x: Any, t: Any = t, seen: list[tuple[int, ...]] = seen) -> Any:
                result = CALLS[name](t, x)
                seen.append(tuple(int(n) for n in result.stride()))
                return result

            t.manual_seed(0)
            run = graphc.compile(call) if compiled and t is graphc else call
            result = run(part(t.from_numpy(data).permute(order)))
            found.append((seen[0], result.numpy()))
        assert found[1][0] == found[0][0], order
        np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (2, 0, 3), (0,)])
def test_strides_of_nothing(shape: tuple[int, ...]) -> None:
    def run(t: Any) -> list[Any]:
        x = t.ones(shape)
        return [x.stride(), (x * 2).stride(), x.clone().stride(-1), t.zeros(shape).stride(0)]

    assert run(graphc) == run(torch) == graphc.compile(lambda: run(graphc))()


def test_a_key_that_a_parameter_dict_has_not() -> None:
    for t in (torch, graphc):
        with pytest.raises(AttributeError):
            t.nn.ParameterDict({"a": t.ones(1)})["b"]


def test_a_row_major_copy_of_few_is_torchs() -> None:
    def outcomes(engine: Any) -> list[Any]:
        found: list[Any] = []
        x = engine.arange(24.0).reshape(2, 3, 4)
        turned = x.transpose(0, 2), x.permute(1, 2, 0)
        for y in (*turned, x[:, ::2], x[:1].expand(3, 3, 4), x[..., 0]):
            z = y.contiguous()
            z.add_(1)
            found.append((z.tolist(), z.stride(), z._version, z._is_view(), z.is_leaf))
        with engine.inference_mode():
            found.append(x.transpose(0, 1).contiguous().is_inference())
        w = x.clone().requires_grad_()
        z = w.transpose(0, 1).contiguous()
        z.sum().backward()
        found += [z.requires_grad, z.is_leaf, w.grad.tolist()]
        with engine.no_grad():
            found.append(w.transpose(0, 1).contiguous().requires_grad)
        return found

    assert outcomes(graphc) == outcomes(torch)
