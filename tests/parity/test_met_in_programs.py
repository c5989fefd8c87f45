"""What programs in the style of public repositories met, each as a few calls beside torch's."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "j": 6, "e": 7, "h": 2, "q": 3, "k": 5}


def test_generators_that_nobody_seeded_begin_at_one_seed() -> None:
    def draw(t: Any) -> Any:
        generator = t.Generator()
        first = t.rand(3, generator=generator).tolist()
        again = t.Generator()
        return (
            generator.initial_seed(), first, t.randperm(5, generator=again).tolist(),
            [int(x) for part in t.utils.data.random_split(range(9), [4, 5], t.Generator())
             for x in part],
        )

    assert draw(graphc) == draw(torch)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("equation", [
    "aej,bej->", "adj,bcj->", "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "aj,j->ja",
    "a,j->ja", "aj,k->kaj", "abj,abj->ba", "aaj,jk->ka", "abj,jk->kab",
])
def test_products_named_by_labels_lie_in_memory_as_torch_s(equation: str, compiled: bool) -> None:
    """view() of what einsum gives works where it does in torch."""
    inputs, output = equation.split("->")
    orders = [output] if output else [
        "".join(each) for each in itertools.permutations(sorted(set(inputs) - set(",j")))
    ]
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=[SIZES[x] for x in part]).astype(np.float32) for part in inputs.split(",")
    ]
    for order in orders[:: 5 if compiled else 1]:
        def call(*xs: Any, t: Any = graphc, e: str = f"{inputs}->{order}") -> Any:
            return t.einsum(e, *xs)

        have = (graphc.compile(call) if compiled else call)(*map(graphc.from_numpy, arrays))
        want = call(*map(torch.from_numpy, arrays), t=torch)
        assert have.stride() == want.stride(), order
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)


def test_what_may_be_cast_implicitly() -> None:
    names = "bool uint8 int8 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
    for a, b in itertools.product(names, names):
        asked = [t.can_cast(getattr(t, a), getattr(t, b)) for t in (graphc, torch)]
        assert asked[0] == asked[1], (a, b)


@pytest.mark.parametrize("call", [
    lambda t: t.ones(2, 3, 4).fill_diagonal_(3),
    lambda t: t.ones(2).to(t.ones(1), 3),
    lambda t: t.ones(2).to(t.ones(1), t.int32),
    lambda t: t.ones(2).to(t.float32, 3),
    lambda t: t.ones(2).to("cpu", "cpu"),
    lambda t: t.ones(2).to(t.float32, t.int32),
])
def test_calls_that_are_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises((RuntimeError, TypeError)) as want:
        call(torch)
    with pytest.raises(want.type) as have:
        call(graphc)
    assert str(have.value)[:40] == str(want.value)[:40]


def test_calls_like_those_are_not() -> None:
    x = graphc.ones(2)
    assert x.to("cpu", graphc.float64, False, True).dtype == graphc.float64
    assert x.to(None, graphc.int32).dtype == graphc.int32
    assert x.to(graphc.ones(1, dtype=graphc.int32), True, copy=True).dtype == graphc.int32
    assert graphc.ones(3, 3, 3).fill_diagonal_(2).sum().item() == 30


def test_sspaddmm_is_sparse_as_its_first_two() -> None:
    def call(t: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's beta notices
            a = t.tensor([[1.0, 0.0], [0.0, 2.0]]).to_sparse()
            b = t.tensor([[0.0, 3.0], [0.0, 0.0]]).to_sparse()
            found = t.sspaddmm(a, b, t.ones(2, 2) * 3, beta=2, alpha=3)
        return str(found.layout), found.to_dense().tolist()

    assert call(graphc) == call(torch)


@pytest.mark.parametrize("name", ["Adam", "SGD", "LBFGS"])
@pytest.mark.parametrize("compiled", [False, True])
def test_loaded_state_is_the_optimizer_s_own(name: str, compiled: bool) -> None:
    """A state_dict that is loaded twice has gone on in between, as in torch."""
    if compiled and name == "LBFGS":
        pytest.skip("its step calls the closure")

    def train(t: Any, compiled: bool = False) -> Any:
        weight = t.nn.Parameter(t.tensor([1.0, -2.0, 3.0]))
        kind = getattr(t.optim, name)
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = kind([weight], lr=0.05, **options)

        def loss() -> Any:
            optimizer.zero_grad()
            found = (weight**4).sum()
            found.backward()
            return found

        def update() -> Any:
            return optimizer.step(loss) if name == "LBFGS" else (loss(), optimizer.step())[0]

        step = graphc.compile(update) if compiled else update
        step()
        kept = copy.deepcopy(optimizer.state_dict())
        losses = []
        for _ in range(3):
            optimizer.load_state_dict(kept)
            losses += [step().item() for _ in range(2)]
        another = kind([t.nn.Parameter(t.ones(3))], lr=0.1)
        another.load_state_dict(optimizer.state_dict())
        shared = [
            mine is theirs for mine, theirs in zip(
                another.state_dict()["state"][0].values(),
                optimizer.state_dict()["state"][0].values(), strict=True,
            ) if isinstance(mine, t.Tensor)
        ]
        return losses, shared

    have, want = train(graphc, compiled), train(torch)
    assert have[1] == want[1]
    np.testing.assert_allclose(have[0], want[0], rtol=1e-5)


@pytest.mark.parametrize("call", [
    lambda t: t.manual_seed(2**70),
    lambda t: t.Generator().manual_seed(-(2**63) - 1),
    lambda t: t.Generator().manual_seed(1.5),
    lambda t: t.Generator().manual_seed("3"),
    lambda t: t.randn(2, generator=1),
    lambda t: t.func.vmap(lambda x: x.item())(t.ones(3)),
    lambda t: t.func.vmap(lambda x: x if x > 0 else -x)(t.ones(3)),
])
def test_seeds_and_values_that_are_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError)) as want:
        call(torch)
    with pytest.raises(want.type) as have:
        call(graphc)
    if "generator" not in str(want.value):
        assert str(have.value)[:30] == str(want.value)[:30]


def test_pinverse_keeps_what_linalg_leaves_out() -> None:
    values = [[1.0, 0.0], [0.0, 1e-9]]
    for t in (graphc, torch):
        assert t.tensor(values).pinverse()[1, 1].item() == pytest.approx(1e9)
        assert t.pinverse(t.tensor(values), rcond=1e-3)[1, 1].item() == 0
        assert t.linalg.pinv(t.tensor(values))[1, 1].item() == 0
