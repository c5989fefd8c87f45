"""The same seed gives the same numbers as PyTorch's CPU generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from tests.parity.random_cases import CASES, SIZES

torch = pytest.importorskip("torch")

EXACT: dict[str, Callable[[Any], Any]] = {
    "rand": lambda t: (t.rand(3, 4), t.rand(5), t.rand(()), t.rand(2, dtype=t.float64)),
    "randn small": lambda t: (t.randn(3), t.randn(15), t.randn(())),
    "randn double": lambda t: (t.randn(3, dtype=t.float64), t.randn(40, dtype=t.float64)),
    "randint": lambda t: (t.randint(10, (20,)), t.randint(-5, 5, (3, 4)), t.randint(0, 2**40, (5,)),
                          t.randint(3, size=(4,), dtype=t.int32),
                          t.randint(low=2, high=9, size=(3,)),
                          t.randint(0, 5, (4,), dtype=t.float32)),
    "randperm": lambda t: (t.randperm(10), t.randperm(1), t.randperm(0), t.randperm(1000)),
    "likes": lambda t: (t.rand_like(t.zeros(3)), t.randint_like(t.zeros(4), 5),
                        t.randint_like(t.zeros(4, dtype=t.int64), 2, 9)),
    "uniform_": lambda t: (t.empty(5).uniform_(), t.empty(40).uniform_(-2, 3),
                           t.empty(5, dtype=t.float64).uniform_(1, 2), t.empty(7).uniform_(0, 0.1)),
    "random_": lambda t: (t.empty(5, dtype=t.int64).random_(0, 10), t.empty(9).random_(7),
                          t.zeros(6, dtype=t.int64).random_(), t.zeros(6, dtype=t.uint8).random_(),
                          t.zeros(5).random_()),
    "bernoulli tensor": lambda t: (t.bernoulli(t.full((20,), 0.3)),
                                   t.full((9,), 0.5, dtype=t.float64).bernoulli()),
    "mixed order": lambda t: (t.rand(3), t.randn(20), t.randperm(5), t.rand(2), t.randn(2),
                              t.randint(9, (3,))),
    "spare normal": lambda t: (t.randn(1), t.rand(1), t.randn(1), t.randn(3), t.randn(2)),
}
CLOSE: dict[str, Callable[[Any], Any]] = {
    "randn": lambda t: (t.randn(3, 7), t.randn(16), t.randn(100), t.randn_like(t.zeros(33))),
    "normal_": lambda t: (t.empty(5).normal_(), t.empty(40).normal_(1, 2),
                          t.empty(33, dtype=t.float64).normal_(-1, 0.5)),
    "normal": lambda t: (t.normal(0.0, 1.0, (4,)), t.normal(t.zeros(20), t.ones(20)),
                         t.normal(t.arange(3.0), 2.0), t.normal(1.0, t.ones(3))),
    "log_normal_": lambda t: t.empty(5).log_normal_(),
}
BY_CHANCE: dict[str, Callable[[Any], Any]] = {
    "bernoulli_": lambda t: (t.empty(50).bernoulli_(0.3), t.empty(9, dtype=t.int64).bernoulli_()),
    "exponential_": lambda t: (t.empty(50).exponential_(), t.empty(9).exponential_(2.0)),
    "dropout": lambda t: t.nn.functional.dropout(t.ones(30), 0.4),
    "multinomial": lambda t: (t.multinomial(t.tensor([1.0, 2, 3, 4]), 2),
                              t.multinomial(t.ones(2, 5), 1)),
}


def _compare(run: Callable[[Any], Any], tolerance: float) -> None:
    results = []
    for t in (torch, graphc):
        t.manual_seed(1234)
        found = run(t)
        found = found if isinstance(found, tuple) else (found,)
        results.append([*found, t.rand(2)])  # the stream goes on from the same place
    for i, (want, have) in enumerate(zip(*results, strict=True)):
        assert str(have.dtype) == str(want.dtype)
        np.testing.assert_allclose(
            have.numpy(), want.numpy(), rtol=tolerance, atol=tolerance / 10, err_msg=f"{i}"
        )


@pytest.mark.parametrize("name", list(EXACT))
def test_exact(name: str) -> None:
    _compare(EXACT[name], 0.0)


@pytest.mark.parametrize("name", list(CLOSE))
def test_close(name: str) -> None:
    _compare(CLOSE[name], 1e-6)


# NumPy's tan and exp of float64 differ from the C library's in the last bit
_LAST_BIT = {("cauchy_", "float64"), ("cauchy_ scale", "float64"), ("log_normal_", "float64"),
             ("log_normal_ scale", "float64")}


@pytest.mark.parametrize("name", list(CASES))
def test_every_draw_bit_for_bit(name: str) -> None:
    kinds, draw = CASES[name]
    for kind in kinds:
        for size in SIZES:
            results = []
            for t in (torch, graphc):
                t.manual_seed(123)
                drawn = draw(t, size, getattr(t, kind))
                results.append((str(drawn.dtype), drawn.double().numpy(), t.rand(2).tolist()))
            want, have = results
            told = f"{name} {kind} {size}"
            assert have[0] == want[0] and have[2] == want[2], told
            room = 5e-16 if (name, kind) in _LAST_BIT else 0.0
            np.testing.assert_allclose(have[1], want[1], rtol=room, atol=0, err_msg=told)


@pytest.mark.parametrize("name", ["uniform_ bounds", "normal_ bounds", "normal_ strided",
                                  "exponential_ rate", "poisson", "_standard_gamma", "randperm",
                                  "random_", "multinomial", "gumbel_softmax"])
def test_compiled_draws_stay_in_step(name: str) -> None:
    _, draw = CASES[name]

    def step() -> Any:
        return draw(graphc, (17,), graphc.float32)

    compiled = graphc.compile(step)
    told = []
    for function in (step, compiled):
        graphc.manual_seed(7)
        told.append([function().tolist(), graphc.rand(2).tolist(), function().tolist(),
                     graphc.randn(3).tolist(), function().tolist(), graphc.rand(1).tolist()])
    assert told[0] == told[1]


@pytest.mark.parametrize("seed", [0, 5, 2**63 + 1, -3])
@pytest.mark.parametrize("drawn", [0, 1, 3, 624, 700])
def test_states_go_both_ways(seed: int, drawn: int) -> None:
    states = []
    for t in (torch, graphc):
        t.manual_seed(seed)
        t.rand(drawn)
        t.randn(drawn % 2)
        states.append(t.get_rng_state())
    theirs, ours = (state.numpy().copy() for state in states)
    assert ours.dtype == np.uint8 and (ours == theirs).all()
    torch.manual_seed(9)
    graphc.manual_seed(9)
    graphc.set_rng_state(graphc.from_numpy(theirs))
    torch.set_rng_state(torch.from_numpy(ours))
    assert graphc.initial_seed() == torch.initial_seed()
    assert graphc.randn(5).tolist() == torch.randn(5).tolist()
    assert graphc.rand(700).tolist() == torch.rand(700).tolist()


def test_states_inside_a_compiled_function() -> None:
    def step() -> Any:
        state = graphc.get_rng_state()
        first = graphc.rand(4)
        with graphc.random.fork_rng():
            graphc.rand(9)
        middle = graphc.randn(3)
        graphc.set_rng_state(state)
        return first, middle, graphc.rand(4)

    compiled = graphc.compile(step)
    told = []
    for function in (step, compiled):
        graphc.manual_seed(4)
        told.append([[x.tolist() for x in function()], graphc.rand(2).tolist(),
                     [x.tolist() for x in function()], graphc.rand(2).tolist()])
    assert told[0] == told[1]
    assert told[0][0][0] == told[0][0][2]


def test_a_state_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="ByteTensor"):
        graphc.set_rng_state(graphc.zeros(5056))
    with pytest.raises(RuntimeError, match="size"):
        graphc.set_rng_state(graphc.zeros(7, dtype=graphc.uint8))


@pytest.mark.parametrize("left", [0, 1, 624, 625, 700, 2**31 - 1])
def test_a_state_with_a_place_that_there_is_not(left: int) -> None:
    """It was read from other memory."""
    for t in (torch, graphc):
        generator = t.Generator()
        state = generator.get_state().clone()
        state.numpy().view(np.uint32)[2] = left
        if 0 < left <= 624:
            assert t.rand(3, generator=generator.set_state(state)).shape == (3,)
            continue
        with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
            generator.set_state(state)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 3.0, 20.0, 150.0])
def test_gradients_of_gamma_and_dirichlet(alpha: float) -> None:
    gradients = []
    for t in (torch, graphc):
        t.manual_seed(1)
        a = t.full((6,), alpha, dtype=t.float64, requires_grad=True)
        b = t.tensor([[alpha, alpha * 2, 1.0]] * 5, dtype=t.float64, requires_grad=True)
        t._standard_gamma(a).sum().backward()
        x = t.distributions.Dirichlet(b).rsample() if t is torch else t._sample_dirichlet(b)
        (x * t.tensor([1.0, 2.0, -3.0], dtype=t.float64)).sum().backward()
        gradients.append((a.grad.numpy(), b.grad.numpy()))
    for want, have in zip(*gradients, strict=True):
        np.testing.assert_allclose(have, want, rtol=5e-4, atol=1e-4)


@pytest.mark.parametrize("name", list(BY_CHANCE))
def test_chances(name: str) -> None:
    _compare(BY_CHANCE[name], 1e-6)


def test_with_replacement() -> None:
    _compare(lambda t: t.multinomial(t.tensor([[0.1, 0.2, 0.3, 0.4]]), 50, replacement=True), 0.0)


def test_generator_and_state() -> None:
    results = []
    for t in (torch, graphc):
        generator = t.Generator().manual_seed(7)
        first = t.rand(3, generator=generator)
        t.manual_seed(3)
        state = t.get_rng_state()
        second = t.rand(3)
        t.set_rng_state(state)
        assert (t.rand(3) == second).all()
        assert t.initial_seed() == 3
        results.append((first.tolist(), second.tolist()))
    assert results[0] == results[1]


def test_statistics() -> None:
    graphc.manual_seed(0)
    x = graphc.empty(20000).exponential_(2.0)
    assert abs(x.mean().item() - 0.5) < 0.02
    assert abs(graphc.empty(20000).bernoulli_(0.3).mean().item() - 0.3) < 0.02
    counts = graphc.multinomial(graphc.tensor([1.0, 3.0]), 8000, replacement=True)
    assert abs(counts.float().mean().item() - 0.75) < 0.03
    without = graphc.multinomial(graphc.ones(5, 9), 9)
    assert (without.sort(1).values == graphc.arange(9)).all()
    assert abs(graphc.empty(20001).cauchy_().median().item()) < 0.1
    assert abs(graphc.empty(20000).geometric_(0.25).mean().item() - 4) < 0.2
