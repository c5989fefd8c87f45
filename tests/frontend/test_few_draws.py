"""Few random numbers drawn in place, against the way that they go by NumPy, to the bit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import _native
from graphc.frontend import drawn_in_place
from graphc.frontend.random_state import default_generator
from graphc.frontend.values import Eager
from graphc.ir.kernel.routine import HostRoutine
from graphc.nn import functional as F

_ENOUGH = 80  # draws, after which native code is at hand

DRAWS: tuple[Callable[[], Any], ...] = (
    lambda: torch.randn(4), lambda: torch.randn(3), lambda: torch.randn(()),
    lambda: torch.randn(2, 8), lambda: torch.randn(17), lambda: torch.randn(0),
    lambda: torch.randn(5, dtype=torch.float64), lambda: torch.randn(40, dtype=torch.float64),
    lambda: torch.rand(3, 3), lambda: torch.rand(7, dtype=torch.float64), lambda: torch.rand(2000),
    lambda: torch.randint(0, 10, (5,)), lambda: torch.randint(-5, 2**40, (3,)),
    lambda: torch.randint(0, 9, (4,), dtype=torch.int32), lambda: torch.randperm(5),
    lambda: F.dropout(torch.ones(4, 4), 0.3), lambda: F.dropout(torch.ones(3).double(), 0.9),
    lambda: F.dropout(torch.full((2, 2), -3.0), 1 / 3), lambda: F.dropout(torch.ones(5), 1.0),
    lambda: F.dropout(torch.ones(3, 5).t(), 0.5), lambda: F.dropout(torch.ones(5).half(), 0.3),
    lambda: F.dropout(torch.ones(()), 0.5, inplace=True),
    lambda: torch.bernoulli(torch.full((3,), 0.4)),
    lambda: torch.ones(3).uniform_(1, 2), lambda: torch.ones(3).normal_(),
    lambda: torch.randn(4, dtype=torch.bfloat16), lambda: torch.randn_like(torch.ones(2, 3).t()),
    lambda: torch.empty(3).exponential_(), lambda: torch.empty(2, 4).double().exponential_(0.5),
    lambda: torch.empty(0).exponential_(), lambda: torch.empty(512).exponential_(),
    lambda: torch.empty(513).exponential_(), lambda: torch.empty(3).half().exponential_(),
    lambda: torch.multinomial(torch.tensor([0.2, 0.5, 0.3]), 1),
    lambda: torch.multinomial(torch.tensor([[0.2, 0.5], [3.0, 4.0]]).double(), 2),
    lambda: torch.distributions.Categorical(torch.tensor([[0.2, 0.8]])).sample(),
    lambda: torch.randperm(0), lambda: torch.randperm(1), lambda: torch.randperm(1024),
    lambda: torch.randperm(1025), lambda: torch.randperm(6, dtype=torch.int32),
    lambda: torch.empty(6).bernoulli_(0.25), lambda: torch.randn(3, generator=OWN),
    lambda: torch.empty(4, 4).uniform_(), lambda: torch.empty(3, 5).t().uniform_(-1, 2),
    lambda: torch.empty(5).uniform_(-0.25, 0.75), lambda: torch.empty(2000).uniform_(-1, 1),
    lambda: torch.empty(3).double().uniform_(), lambda: torch.empty(4, 4).normal_(0, 0.02),
    lambda: torch.empty(5).normal_(0, 0.5), lambda: torch.empty(20).normal_(1.5, 0.5),
    lambda: torch.empty(5).normal_(1.5, 0.5), lambda: torch.empty(17).double().normal_(0, 2),
    lambda: torch.empty(3).normal_(0, 0), lambda: torch.empty(20).normal_(0, 1e-42),
    lambda: torch.empty(2, 3).normal_(generator=OWN), lambda: torch.empty(3).half().normal_(),
    lambda: torch.empty(16).normal_(0, 3), lambda: torch.empty(33).normal_(-1, 0.1),
    lambda: torch.empty(0).normal_(0, 2), lambda: torch.empty(()).normal_(0, 2),
    lambda: torch.empty(18).normal_(mean=2, std=3), lambda: torch.empty(4).uniform_(generator=OWN),
    lambda: torch.empty(16).normal_(2, 0.5, generator=OWN), lambda: torch.empty(1).uniform_(-0.0),
    lambda: torch.bernoulli(torch.rand(4, 5)), lambda: torch.bernoulli(torch.rand(3, 3).t()),
)
OWN = torch.Generator()


@pytest.fixture(autouse=True)
def at_hand(monkeypatch: pytest.MonkeyPatch, only_the_cpu: None) -> Iterator[None]:
    """On the CPU alone, with the native code loaded."""
    for _ in range(_ENOUGH):
        torch.randn(4)
    if _native.drawer("rng_normal", {"shape": (4,), "dtype": torch.float32}) is None:
        pytest.skip("no compiler for this machine")
    yield


def drawn(seed: int) -> list[Any]:
    torch.manual_seed(seed)
    OWN.manual_seed(seed + 1)
    order = np.random.default_rng(seed).integers(0, len(DRAWS), 200)
    found = [DRAWS[i]() for i in order]
    return [*found, default_generator.get_state(), OWN.get_state()]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_numbers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = drawn(seed)
    monkeypatch.setattr(Eager, "drawer", staticmethod(lambda *_: None))
    monkeypatch.setattr(drawn_in_place, "_known", {})
    for one, other in zip(ours, drawn(seed), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one._graphc_array.tobytes() == other._graphc_array.tobytes()


def test_a_draw_is_a_write_to_the_state_alone() -> None:
    state = default_generator.state
    kept, copy, version = default_generator.get_state(), state._graphc_array.copy(), state._version
    first = torch.randn(4)
    assert state._version == version + 1 and not np.array_equal(state._graphc_array, copy)
    default_generator.set_state(kept)
    assert torch.randn(4).tolist() == first.tolist()


def test_a_state_that_is_none_goes_the_long_way() -> None:
    generator = torch.Generator().manual_seed(3)
    torch.randn(1, generator=generator)
    generator.state._graphc_array[624] = 700
    fill = Eager.drawer("rng_uniform", {"shape": (3,), "dtype": torch.float32})
    assert fill is not None
    memory, before = np.zeros(3, np.float32), generator.state._graphc_array.copy()
    assert fill(generator.state._graphc_array, memory) is None
    assert not memory.any() and np.array_equal(generator.state._graphc_array, before)


def test_modes_and_compiled_functions_go_on_in_one_stream() -> None:
    compiled = torch.compile(lambda x: x * torch.rand(3))
    x = torch.ones(3)
    compiled(x)
    torch.manual_seed(5)
    with torch.inference_mode():
        ours = [torch.rand(3), compiled(x), torch.rand(3), compiled(x)]
        assert ours[0].is_inference()
    torch.manual_seed(5)
    assert torch.rand(12).tolist() == torch.cat(ours).tolist()


def test_threads_draw_different_numbers() -> None:
    found: list[float] = []

    def draw() -> None:
        for _ in range(200):
            found.extend(torch.rand(2, dtype=torch.float64).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1600


def test_exponential_numbers_are_drawn_in_native_code() -> None:
    for dtype in (torch.float32, torch.float64):
        assert _native.drawer("rng_exponential", {"shape": (2, 3), "dtype": dtype}) is not None
    assert _native.drawer("rng_exponential", {"shape": (3,), "dtype": torch.float16}) is None
    assert _native.drawer("rng_exponential", {"shape": (513,), "dtype": torch.float32}) is None


def test_orders_are_drawn_in_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[Any] = []
    monkeypatch.setattr("graphc.frontend.random_state._drawn_slowly", slow.append)
    for n in (1, 2, 1024):
        assert sorted(torch.randperm(n).tolist()) == list(range(n)) and not slow
    assert _native.drawer("rng_permutation", {"n": 1025}) is None


def test_compiled_code_draws_few_numbers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[str] = []
    called = HostRoutine.run

    def noting(routine: Any, *args: Any) -> None:
        hosts.append(routine._op)
        called(routine, *args)

    def all_of_them(x: Any) -> list[Any]:
        return [
            F.dropout(x, 0.4), torch.rand(3), torch.randn(40), torch.randn(3), torch.randperm(4),
            torch.randint(0, 9, (2,)), torch.empty(5).exponential_(), torch.rand(3000),
            torch.rand(0), torch.randn(2, dtype=torch.float64), torch.rand((), dtype=torch.half),
        ]

    compiled, x = torch.compile(all_of_them), torch.ones(4, 4)
    compiled(x)
    torch.manual_seed(7)
    want = [part for _ in range(40) for part in all_of_them(x)]
    state = default_generator.get_state()
    torch.manual_seed(7)
    monkeypatch.setattr(HostRoutine, "run", noting)
    have = [part for _ in range(40) for part in compiled(x)]
    assert torch.equal(default_generator.get_state(), state)
    for one, other in zip(have, want, strict=True):
        assert one.dtype == other.dtype and one.tolist() == other.tolist()
    assert set(hosts) <= {"rng_uniform"} and len(hosts) == 40  # of halves


def test_few_numbers_while_a_compiled_backward_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has saved is none of the state's memory."""
    weight = torch.ones(4, 4, requires_grad=True)
    compiled = torch.compile(lambda x: F.dropout((x * weight).exp(), 0.5).sum())
    x = torch.full((4, 4), 0.5)
    torch.manual_seed(2)
    losses = [compiled(x)]
    slow: list[Any] = []
    monkeypatch.setattr("graphc.frontend.random_state._drawn_slowly", slow.append)
    numbers = torch.rand(5)
    assert not slow
    losses.append(compiled(x))
    monkeypatch.undo()
    (losses[0] + losses[1]).backward()
    ours, weight.grad = weight.grad, None
    torch.manual_seed(2)
    first = F.dropout((x * weight).exp(), 0.5).sum()
    assert torch.rand(5).tolist() == numbers.tolist()
    (first + F.dropout((x * weight).exp(), 0.5).sum()).backward()
    assert ours is not None
    np.testing.assert_allclose(ours.numpy(), weight.grad.numpy(), rtol=1e-6)


def test_the_memory_is_drawn_into() -> None:
    for draw in (
        lambda x: x.uniform_(), lambda x: x.uniform_(-1, 1), lambda x: x.normal_(),
        lambda x: x.normal_(0, 0.02), lambda x: x.bernoulli_(0.5),
    ):
        x = torch.zeros(4, 4)
        view, version = x[1:], default_generator.state._version
        draw(view)
        assert x._version == 1 and default_generator.state._version == version + 1
        assert x[0].eq(0).all() and x[1:].ne(0).any()
        leaf = torch.zeros(4, 4, requires_grad=True)
        with pytest.raises(RuntimeError, match="leaf"):
            draw(leaf)
        with torch.no_grad():
            draw(leaf)
        assert leaf.ne(0).any()


def test_what_was_drawn_before_is_drawn_by_the_same_rules() -> None:
    x = torch.zeros(4, 4)
    for _ in range(2):
        x.uniform_(-1, 1).normal_(0, 0.02).uniform_().normal_()
    assert len(drawn_in_place._known) >= 4
    for draw, error in (
        (lambda: x.uniform_(1, -1), "from"), (lambda: x.normal_(0, -1.0), "std"),
        (lambda: x.expand(2, 4, 4).uniform_(-1, 1), "single memory location"),
    ):
        with pytest.raises(RuntimeError, match=error):
            draw()
    with torch.inference_mode():
        inferred = torch.zeros(4, 4)
        assert inferred.uniform_(-1, 1) is inferred
    assert x.t().uniform_(-1, 1).ne(0).all() and torch.zeros(4, 4).double().uniform_().ne(0).all()
    torch.manual_seed(0)
    by_stream = x.uniform_(-1, 1).tolist()
    with torch.config.override(random="counter"):
        torch.manual_seed(0)
        assert x.uniform_(-1, 1).tolist() != by_stream
    torch.manual_seed(0)
    assert x.uniform_(-1, 1).tolist() == by_stream
    compiled = torch.compile(lambda x: x.uniform_(-1, 1) * 1)
    torch.manual_seed(0)
    assert compiled(x).tolist() == by_stream and x.tolist() == by_stream


def test_few_numbers_are_torchs() -> None:
    reference = pytest.importorskip("torch")

    def numbers(engine: Any) -> list[Any]:
        engine.manual_seed(11)
        found = []
        for shape in ((3,), (4, 4), (5, 7), (), (2, 16)):
            for dtype in (engine.float32, engine.float64):
                x = engine.zeros(shape, dtype=dtype)
                for _ in range(2):
                    for a, b in ((0, 1), (-1, 1), (0.5, 2)):
                        found += [x.uniform_(a, b).tolist(), x.normal_(a, b).tolist()]
        return found

    assert numbers(torch) == numbers(reference)


def test_dropout_of_few_numbers_is_torchs() -> None:
    reference = pytest.importorskip("torch")

    def outcomes(engine: Any) -> list[Any]:
        engine.manual_seed(5)
        found: list[Any] = []
        dropout = engine.nn.functional.dropout
        for _ in range(3):
            for p in (0.1, 0.5, 0.75, 0):
                for x in (engine.arange(6.0) - 2, engine.ones(4, 5), engine.ones(()).double()):
                    w = x.clone().requires_grad_()
                    y = dropout(w, p)
                    (y * y).sum().backward()
                    with engine.no_grad():
                        quiet = dropout(w, p)
                    assert not (p and quiet.requires_grad)
                    node = y.grad_fn.name() if p else None
                    found += [y.tolist(), w.grad.tolist(), quiet.tolist(), node]
                    found.append(dropout(x, p, False) is x)
        found.append(engine.nn.Dropout(0.25)(engine.ones(3, 3)).tolist())
        return found

    wanted = outcomes(reference)
    for one, other in zip(outcomes(torch), wanted, strict=True):
        assert str(one).replace("MulBackward0", "") == str(other).replace("MulBackward0", "")


def test_wrong_probabilities_draw_nothing() -> None:
    before = default_generator.get_state()
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(RuntimeError, match="p_in"):
            torch.bernoulli(torch.tensor([0.5, wrong]))
    assert default_generator.get_state().equal(before)
