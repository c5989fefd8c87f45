"""Bad input: the error PyTorch raises, eager and compiled, at the user's line; nothing changes."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.frontend.errors import TraceError
from tests.graphc import bad_input_cases
from tests.graphc.bad_input_cases import CASES, Case
from tests.reference import torch

HERE = __file__


def error_of(torch: Any, case: Case, compiled: bool = False) -> Exception:
    function, arguments = case
    run = graphc.compile(function) if compiled else function
    given = arguments(torch)
    before = [np.array(a.detach().numpy()) if hasattr(a, "detach") else a for a in given]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:
            run(torch, *given)
    for a, b in zip(given, before, strict=True):
        if hasattr(a, "detach"):
            np.testing.assert_array_equal(a.detach().numpy(), b)
    return caught.value


def leads_to(file: str, error: Exception) -> bool:
    """Whether the message names a line of a file, or the traceback below the test does."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return file in str(error) or any(frame.filename == file for frame in frames)


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_torchs_and_names_the_line(name: str) -> None:
    expected = error_of(torch, CASES[name])
    eager = error_of(graphc, CASES[name])
    compiled = error_of(graphc, CASES[name], compiled=True)
    for error in (eager, compiled):
        assert isinstance(error, type(expected)), (expected, error)
        assert leads_to(bad_input_cases.__file__, error), error


@pytest.mark.parametrize("compiled", [False, True])
def test_results_at_the_edge_of_integers_are_defined(compiled: bool) -> None:
    def f(a: Any, b: Any) -> Any:
        return a // b, a % b, graphc.div(a, b, rounding_mode="trunc"), graphc.fmod(a, b), -a

    run = graphc.compile(f) if compiled else f
    for dtype, least in ((graphc.int8, -128), (graphc.int32, -(2**31)), (graphc.int64, -(2**63))):
        a = graphc.tensor([least, least], dtype=dtype)
        b = graphc.tensor([-1, 1], dtype=dtype)
        got = [r.tolist() for r in run(a, b)]
        assert got == [[least, least], [0, 0], [least, least], [0, 0], [least, least]]


@pytest.mark.parametrize("compiled", [False, True])
def test_shifts_past_the_width_and_casts_out_of_range(compiled: bool) -> None:
    def shifts(a: Any, b: Any) -> Any:
        return a << b, a >> b

    def casts(a: Any) -> Any:
        return a.to(graphc.int64), a.to(graphc.int8), a.to(graphc.uint8), a.bool()

    if compiled:
        shifts, casts = graphc.compile(shifts), graphc.compile(casts)
    a = graphc.tensor([1, -8, 5, -8, 7], dtype=graphc.int32)
    left, right = shifts(a, graphc.tensor([31, 32, 40, 33, 2], dtype=graphc.int32))
    assert left.tolist() == [-(2**31), 0, 0, 0, 28]
    assert right.tolist() == [0, -1, 0, -1, 1]
    nan, inf = float("nan"), float("inf")
    wide, narrow, unsigned, truth = casts(graphc.tensor([3.9, -3.9, 300.0, nan, inf, 1e30]))
    least = -(2**63)
    assert wide.tolist() == [3, -3, 300, least, least, least]
    assert narrow.tolist() == [3, -3, 44, 0, 0, 0]
    assert unsigned.tolist() == [3, 253, 44, 0, 0, 0]
    assert truth.tolist() == [True] * 6


VALUES: dict[str, Callable[[Any], Any]] = {
    "item": lambda a: a.sum().item(),
    "bool": lambda a: a if a.sum() > 0 else -a,
    "print": lambda a: print(a),
    "str": lambda a: str(a),
    "tolist": lambda a: a.tolist(),
    "numpy": lambda a: a.numpy(),
    "asarray": lambda a: np.asarray(a),
    "float": lambda a: float(a.sum()),
    "int": lambda a: int(a.sum()),
    "format": lambda a: f"{a.sum():.3f}",
    "nonzero": lambda a: a.nonzero(),
    "mask": lambda a: a[a > 0],
    "range": lambda a: list(range(a.sum().long())),
    "a list's index": lambda a: [1, 2, 3][a.sum().long()],
    "slice": lambda a: a[: a.sum().long()],
    "size": lambda a: graphc.zeros(a.sum().long()),
    "equal": lambda a: graphc.equal(a, a),
    "allclose": lambda a: graphc.allclose(a, a),
    "in": lambda a: 1.0 in a,
}


@pytest.mark.parametrize("name", VALUES)
def test_asking_for_a_value_under_trace_names_the_line_and_the_cure(name: str) -> None:
    with pytest.raises(TraceError) as caught:
        graphc.compile(VALUES[name], fullgraph=True)(graphc.ones(2))
    assert HERE in str(caught.value), caught.value
    assert "Cure" in str(caught.value)


def test_a_tensor_kept_from_a_call_is_a_real_one() -> None:
    kept: list[Any] = [None]
    box: dict[str, Any] = {}

    class Holder:
        pass

    holder = Holder()

    def f(x: Any, out: Any) -> Any:
        out.value = x * 2  # `out` is reached from the arguments: written back
        return x + 1

    graphc.compile(f)(graphc.ones(2), holder)
    assert holder.value.tolist() == [2.0, 2.0]  # type: ignore[attr-defined]

    def g(x: Any) -> Any:
        vault().append(x * 2)
        return x + 1

    hidden: list[Any] = []

    class Vault:
        def __call__(self) -> list[Any]:
            return self.items()

        items = staticmethod(iter([hidden] * 9).__next__)

    vault = Vault()
    graphc.compile(g)(graphc.ones(2))
    assert hidden[0].tolist() == [2.0, 2.0]
    assert kept == [None] and box == {}


# --- what a call that raises leaves ---------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(4, 3)
        self.calls = 0
        self.last: Any = None

    def forward(self, i: Any) -> Any:
        self.calls += 1
        self.last = self.out(self.drop(self.norm(self.embed(i))))
        return self.last


def everything(net: Net, opt: Any) -> list[Any]:
    """All the state that a graph writes, and what Python counts."""
    tensors = [*net.state_dict().values(), *(p.grad for p in net.parameters())]
    tensors += [v for s in opt.state.values() for v in s.values() if hasattr(v, "detach")]
    tensors += [graphc.get_rng_state(), net.last]
    plain: list[Any] = [None if t is None else t.detach().numpy().copy() for t in tensors]
    return [*plain, len(opt.state), net.calls]


def assert_same(expected: list[Any], found: list[Any]) -> None:
    """Equal, but for rounding."""
    for want, have in zip(expected, found, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(have, want, 1e-4, 1e-5)
        else:
            assert want == have


def a_training_that_raises(kind: str, warm: int, compile: Any) -> list[list[Any]]:
    """Everything before the call that raises, after it, and after one more."""
    graphc.manual_seed(0)
    net = Net()
    opt = graphc.optim.AdamW(net.parameters(), lr=0.1)
    mode = {"fail": ""}

    def step(i: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(i), y)
        loss.backward()
        opt.step()
        if mode["fail"] == "python":
            raise KeyError("mine")
        if mode["fail"] == "trace":
            loss.item()
        return loss

    run = compile(step)
    good = graphc.tensor([0, 1, 2, 3]), graphc.tensor([0, 1, 2, 0])
    for _ in range(warm):
        run(*good)
    seen = [everything(net, opt)]
    bad = graphc.tensor([0, 1, 2, 9])
    arguments = {"index": (bad, good[1]), "target": (good[0], bad)}.get(kind, good)
    mode["fail"] = kind
    expected = {"python": KeyError, "trace": TraceError}.get(kind, IndexError)
    with pytest.raises(expected) as caught:
        run(*arguments)
    assert leads_to(HERE, caught.value)
    seen.append(everything(net, opt))
    mode["fail"] = ""
    run(*good)
    return [*seen, everything(net, opt)]


@pytest.mark.parametrize("warm", [0, 1, 2])
@pytest.mark.parametrize("kind", ["index", "target", "python"])
def test_a_call_that_raises_leaves_what_ran(kind: str, warm: int) -> None:
    expected = a_training_that_raises(kind, warm, lambda f: f)
    found = a_training_that_raises(kind, warm, lambda f: graphc.compile(f, fullgraph=True))
    for want, have in zip(expected, found, strict=True):
        assert_same(want, have)


@pytest.mark.parametrize("warm", [0, 1, 2])
def test_a_call_that_is_no_one_graph_changes_nothing(warm: int) -> None:
    before, after, _ = a_training_that_raises(
        "trace", warm, lambda f: graphc.compile(f, fullgraph=True)
    )
    assert_same(before, after)


def test_a_compiled_model_that_raises_leaves_what_ran() -> None:
    seen = []
    for how in (lambda net: net, graphc.compile):
        graphc.manual_seed(0)
        net = Net()
        opt = graphc.optim.SGD(net.parameters(), lr=0.1)
        run = how(net)
        run(graphc.tensor([0, 1, 2, 3])).sum().backward()
        with pytest.raises(IndexError):
            run(graphc.tensor([0, 1, 2, 5]))
        seen.append(everything(net, opt))
    assert_same(*seen)


def test_arguments_are_written_up_to_the_error() -> None:
    def f(a: Any, b: Any, i: Any) -> Any:
        a.add_(1)
        found = a[i]
        b[0] = 7
        return found

    run = graphc.compile(f)
    a, b = graphc.zeros(4), graphc.zeros(2)
    run(a, b, graphc.tensor([1]))
    b.zero_()
    with pytest.raises(IndexError):
        run(a, b, graphc.tensor([4]))
    assert a.tolist() == [2.0] * 4
    assert b.tolist() == [0.0, 0.0]
    assert a._version == 2


# --- backward through compiled functions -----------------------------------------------------


def test_backward_twice_through_a_compiled_function() -> None:
    run = graphc.compile(lambda x: (x * x).sum())
    for _ in range(2):
        x = graphc.ones(3, requires_grad=True)
        y = run(x)
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad.tolist() == [4.0] * 3
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
        assert x.grad.tolist() == [4.0] * 3


def test_backward_of_a_loss_whose_backward_ran_inside() -> None:
    net = nn.Linear(3, 1)

    def step(x: Any) -> Any:
        loss = net(x).square().sum()
        loss.backward()
        return loss

    run = graphc.compile(step)
    for _ in range(2):
        loss = run(graphc.ones(2, 3))
        before = net.weight.grad.tolist()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        assert net.weight.grad.tolist() == before


def test_a_write_between_a_compiled_forward_and_its_backward() -> None:
    run = graphc.compile(lambda x, w: (x * w).sum())
    x, w = graphc.ones(3), graphc.ones(3, requires_grad=True)
    loss = run(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()
    assert w.grad is None
    exponential = graphc.compile(lambda w: w.exp())
    y = exponential(w)
    with graphc.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()


def test_second_order_through_a_compiled_function_whose_inputs_overlap() -> None:
    def cubes(x: Any, y: Any) -> Any:
        return (x**3).sum() + (y**2).sum()

    found = []
    for run in (cubes, graphc.compile(cubes)):
        x = graphc.ones(4, requires_grad=True)
        y = x * 2
        (g,) = graphc.autograd.grad(run(y[:3], y[1:]), x, create_graph=True)
        found.append(graphc.autograd.grad((g * g).sum(), x)[0].tolist())
    assert found[0] == found[1]


def test_a_list_may_grow_inside_one_graph() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append(x)
        return x + 1

    compiled = graphc.compile(f, fullgraph=True)
    x = graphc.ones(2)
    for count in (1, 2, 3):
        compiled(x)
        assert len(seen) == count and seen[-1] is x
    assert compiled.compile_count == 1


def test_what_cannot_be_compiled() -> None:
    with pytest.raises(TypeError, match="function or a Module"):
        graphc.compile(3)
    with pytest.raises(TypeError):
        graphc.compile(lambda x: x)(graphc.ones(2), graphc.ones(2))
    with pytest.raises(AttributeError, match="frobnicate"):
        graphc.frobnicate  # noqa: B018
    with pytest.raises(AttributeError, match="frobnicate"):
        nn.Linear(2, 2).frobnicate  # noqa: B018


# --- errors name the Module ------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_a_shape_error_names_the_module(compiled: bool) -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))

        def forward(self, x: Any) -> Any:
            return self.blocks(x)

    net = graphc.compile(Wrong()) if compiled else Wrong()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"test_bad_input.*Wrong.forward, module blocks\.2"):
            net(graphc.ones(2, 3))
    with pytest.raises(RuntimeError) as caught:
        nn.Linear(3, 4)(graphc.ones(2, 5))
    assert ", module" not in str(caught.value)
