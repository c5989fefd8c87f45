"""scaled_dot_product_attention against PyTorch, values and gradients, in lengths that cross the
blocks of the CPU's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

Call = Callable[..., Any]


def _attend(m: Any, *args: Any, **options: Any) -> Any:
    return m.nn.functional.scaled_dot_product_attention(*args, **options)


def _heads(m: Any, x: Any, weight: Any) -> Any:
    """Heads of one projection, put together again."""
    batch, length, width = x.shape
    q, k, v = (
        part.reshape(batch, length, 4, width // 4).transpose(1, 2)
        for part in (x @ (weight * 0.2)).chunk(3, -1)
    )
    return _attend(m, q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)


def _dropped(m: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    m.manual_seed(3)
    return _attend(m, q, k, v, mask, dropout_p=0.2)


def _padded(m: Any, q: Any, k: Any, v: Any) -> Any:
    """Keys that do not count, and a row that attends to nothing."""
    seen = m.arange(k.shape[-2]) < k.shape[-2] - 3
    mask = seen & (m.arange(q.shape[-2]) != 2).unsqueeze(1)
    return _attend(m, q, k, v, mask)


def _both(m: Any, q: Any, k: Any, v: Any) -> Any:
    """Causal, and some keys do not count; no row is left with nothing."""
    seen = (m.arange(k.shape[-2]) % 3 != 1).expand(q.shape[-2], k.shape[-2])
    added = m.arange(k.shape[-2] * 1.0).to(q.dtype).cos().expand(1, 1, q.shape[-2], k.shape[-2])
    return _attend(m, q, k, v, seen, is_causal=True) + _attend(
        m, q, k, v, added, is_causal=True, scale=0.2)


Q, K, V = (2, 3, 70, 24), (2, 3, 130, 24), (2, 3, 130, 20)
CASES: dict[str, tuple[Call, list[tuple[int, ...]]]] = {
    "plain": (_attend, [Q, K, V]),
    "causal": (lambda m, *x: _attend(m, *x, is_causal=True, scale=0.3), [Q, K, V]),
    "bool mask": (_padded, [Q, K, V]),
    "mask, and causal": (_both, [Q, K, (2, 3, 130, 24)]),
    "float mask": (_attend, [Q, K, V, (70, 130)]),
    "mask of keys": (_attend, [Q, K, V, (2, 1, 1, 130)]),
    "dropout": (_dropped, [Q, K, V, (70, 130)]),
    "one query": (_attend, [(2, 3, 1, 24), K, V]),
    "grouped": (
        lambda m, *x: _attend(m, *x, is_causal=True, enable_gqa=True),
        [(2, 6, 40, 16), (2, 2, 40, 16), (2, 2, 40, 16)],
    ),
    "no heads": (_attend, [(33, 8), (50, 8), (50, 8)]),
    "projection": (_heads, [(2, 70, 32), (32, 96)]),
}


def _results(m: Any, call: Call, arrays: list[Any]) -> list[Any]:
    given = [m.tensor(a).requires_grad_() for a in arrays]
    result = call(*given)
    weights = np.cos(np.arange(result.numel())).reshape(tuple(result.shape))
    result.backward(m.tensor(weights, dtype=result.dtype))
    return [x.detach().numpy() for x in (result, *(x.grad for x in given))]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", list(CASES))
def test_attention(name: str, dtype: str) -> None:
    call, shapes = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    want = _results(torch, lambda *x: call(torch, *x), arrays)
    compiled = graphc.compile(lambda *x: call(graphc, *x))
    for function in (lambda *x: call(graphc, *x), compiled):
        for got, expected in zip(_results(graphc, function, arrays), want, strict=True):
            tolerance = 2e-5 if dtype == "f4" else 1e-12
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_two_versions_for_any_length() -> None:
    rng = np.random.default_rng(0)
    compiled = graphc.compile(lambda *x: _attend(graphc, *x, is_causal=True))
    for length in (20, 33, 64, 65, 200):
        arrays = [rng.standard_normal((2, 3, length, 16)).astype("f4") for _ in range(3)]
        want = _results(torch, lambda *x: _attend(torch, *x, is_causal=True), arrays)
        for got, expected in zip(_results(graphc, compiled, arrays), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
    assert compiled.compile_count == 2  # the first length as it is, then any


LAYOUTS: dict[str, Call] = {
    "rows": lambda m, x: x,
    "heads inside": lambda m, x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "parts of one": lambda m, x: m.stack([x, x], 3).permute(3, 0, 1, 2, 4)[1],
    "batch inside": lambda m, x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "width outside": lambda m, x: x.mT.contiguous().mT,
    "cut": lambda m, x: m.cat([x, x], 2)[:, :, 1 : x.shape[2] + 1],
    "expanded": lambda m, x: x[:1].expand(x.shape),
}
WITH: dict[str, Call] = {
    "plain": lambda m, x: {},
    "causal": lambda m, x: {"is_causal": True},
    "mask": lambda m, x: {"attn_mask": m.zeros(5, 5)},
    "trained mask": lambda m, x: {"attn_mask": m.zeros(5, 5, requires_grad=True)},
    "dropout": lambda m, x: {"dropout_p": 0.5},
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("more", list(WITH))
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_the_result_lies_as_the_query_does(layout: str, more: str, compiled: bool) -> None:
    """So that `.transpose(1, 2).view(...)` works where it does in PyTorch."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 3, 5, 4)).astype("f4") for _ in range(3)]

    def call(m: Any, *x: Any) -> Any:
        m.manual_seed(1)
        query, key, value = (LAYOUTS[layout](m, a) for a in x)
        result = _attend(m, query, key, value, **WITH[more](m, query))
        return result, result[1:], *(result.view(-1) if result.is_contiguous() else ())

    want = call(torch, *map(torch.tensor, arrays))
    run = graphc.compile(call) if compiled else call
    have = run(graphc, *map(graphc.tensor, arrays))
    for got, expected in zip(have, want, strict=True):
        assert got.stride() == expected.stride()
        np.testing.assert_allclose(
            got.detach().numpy(), expected.detach().numpy(), rtol=2e-5, atol=2e-6
        )


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("heads", [(3, 2), (3, 6), (2, 2), (4, 4), (12, 12)], ids=str)
def test_heads_of_key_and_value_are_grouped_apart(heads: tuple[int, int], compiled: bool) -> None:
    found = []
    for t in (torch, graphc):
        q, k, v = (t.linspace(-1, 1, 2 * n * 12).reshape(2, n, 3, 4).sin() for n in (6, *heads))

        def call(q: Any, k: Any, v: Any, t: Any = t) -> Any:
            return t.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        run = graphc.compile(call) if compiled and t is graphc else call
        try:
            found.append(run(q, k, v).tolist())
        except RuntimeError as error:
            assert "must divide the number of heads" in str(error)
            found.append("refused")
    if "refused" in found:
        assert found[0] == found[1]
    else:
        np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_scores_that_are_all_minus_infinity_give_0(compiled: bool) -> None:
    """By overflow, without any mask; as PyTorch's fused kernel. A row beside it is as ever."""
    run = graphc.compile(_attended) if compiled else _attended
    have, want = run(graphc), _attended(torch)
    for ours, theirs in zip(have, want, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5)


def _attended(t: Any) -> Any:
    q = t.tensor([[[[1e30], [1.0]]]], requires_grad=True)
    k, v = t.tensor([[[[-1e30], [-2e30]]]]), t.tensor([[[[3.0], [5.0]]]])
    result = t.nn.functional.scaled_dot_product_attention(q, k * 1e-30, v)
    lost = t.nn.functional.scaled_dot_product_attention(q[:, :, :1], k, v)
    return result, lost
