"""Functions that are compiled because they are called often: what they do is what they did."""

import inspect
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.compat import often
from graphc.compat import watch as watch_module
from graphc.compat.watch import Watch
from graphc.engine.detour import original, redirect, restore, twin_of
from graphc.frontend.context import local

ROOT = Path(__file__).parents[2]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch, only_the_cpu: None) -> Iterator[often._Watching]:
    fresh = often._Watching()
    monkeypatch.setattr(often, "watching", fresh)
    yield fresh
    if fresh._watch is not None:
        fresh._watch.stop()


def drive(watching: often._Watching, function: Callable[[int], Any], count: int) -> list[Any]:
    """Results of calls, each of which a backward pass follows."""
    results = []
    for i in range(count):
        results.append(function(i))
        watching.passed()
    return results


def is_detour(function: Any) -> bool:
    return original(function.__code__) is not function.__code__


def target(function: Any) -> Any:
    return next(c for c in function.__code__.co_consts if callable(c))


def test_a_function_that_computes_is_compiled_in_its_place(watching: often._Watching) -> None:
    def wave(x: Any, scale: float = 2.0, *, shift: int = 1) -> Any:
        return (x.sin() * scale + shift).exp().sum()

    kept, before = wave, inspect.signature(wave)
    inputs = [torch.tensor([float(i), 1.0]) for i in range(60)]
    want = [float((np.exp(np.sin(x.numpy()) * 2 + 1)).sum()) for x in inputs]
    have = drive(watching, lambda i: wave(inputs[i]), 60)
    np.testing.assert_allclose([float(x) for x in have], want, rtol=1e-6)
    assert kept is wave and is_detour(wave)
    compiled = target(wave)
    assert compiled.is_quick and compiled.compile_count == 1
    assert inspect.signature(wave) == before and "def wave" in inspect.getsource(wave)
    assert wave(inputs[1], shift=2) == pytest.approx(
        float((np.exp(np.sin(inputs[1].numpy()) * 2 + 2)).sum())
    )


def test_what_needs_values_is_its_own_code_again(watching: often._Watching) -> None:
    said: list[str] = []

    def part(x: Any) -> Any:
        return ((x * 2).sin() + x.cos()).tanh()

    def whole(x: Any) -> float:
        y = part(x)
        said.append(f"{y.sum().item():.4f}")
        if y.sum() > 0:
            return 1.0
        return y.mean().item()

    inputs = [torch.tensor([float(i) - 20, 1.0]) for i in range(60)]
    want = [whole(x) for x in inputs]
    texts, said[:] = list(said), []
    assert drive(watching, lambda i: whole(inputs[i]), 60) == pytest.approx(want)
    assert said == texts
    assert not is_detour(whole), "it needs values"
    assert is_detour(part), "what it calls does not"


def test_what_is_another_at_each_call_is_its_own_code_again(
    watching: often._Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: list[Any] = []
    begin = often._Trial.__init__

    def kept(self: Any, function: Any) -> None:
        begin(self, function)
        trials.append(self)

    monkeypatch.setattr(often._Trial, "__init__", kept)
    table = [torch.tensor([i / 9]) for i in range(60)]

    def pick(i: int) -> Any:
        return ((table[i] * 2).exp() + 1).log().sum()

    have = drive(watching, pick, 60)
    np.testing.assert_allclose(
        [float(x) for x in have], [np.log(np.exp(2.0 * i / 9) + 1) for i in range(60)], rtol=1e-5
    )
    assert not is_detour(pick)
    (trial,) = trials
    assert trial._compiled.compile_count == 2


def test_exceptions_and_effects_are_those_of_the_function(watching: often._Watching) -> None:
    log: list[int] = []

    def step(x: Any, i: int) -> Any:
        log.append(i)
        if i % 20 == 19:
            raise ValueError(f"at {i}")
        return ((x + 1).sin() * 2).exp().sum()

    x, caught = torch.ones(3), []
    for i in range(60):
        try:
            step(x, i)
        except ValueError as error:
            caught.append(str(error))
        watching.passed()
    assert log == list(range(60))
    assert caught == ["at 19", "at 39", "at 59"]


def test_changes_of_what_a_function_reads_are_seen(watching: often._Watching) -> None:
    factor = 1.0

    def inner(x: Any) -> Any:
        return (x.exp() + 1).log() * factor

    def outer(x: Any) -> Any:
        return (inner(x) * 2 + 1).sum()

    x = torch.zeros(2)
    for i in range(80):
        if i == 50:
            factor = 3.0
        assert float(outer(x)) == pytest.approx(2 * (np.log(2) * factor * 2 + 1), rel=1e-5)
        watching.passed()
    assert is_detour(outer)
    redirect(inner, twin_of(inner))
    assert float(outer(x)) == pytest.approx(2 * (np.log(2) * 6 + 1), rel=1e-5)
    inner.__code__ = (lambda x: x * factor).__code__  # another function by now
    assert float(outer(x)) == pytest.approx(2.0)


def test_generators_recursion_and_code_that_looks_around_stay(watching: often._Watching) -> None:
    def down(x: Any, n: int) -> Any:
        return x if n == 0 else down((x * 2 + 1).sin().cos(), n - 1)

    def looking(x: Any) -> Any:
        locals()
        return (x * 2 + 1).sin().cos()

    def many(x: Any) -> Iterator[Any]:
        yield (x * 2 + 1).sin().cos()

    def plain(x: Any) -> Any:
        return (x * 2 + 1).sin().cos()

    x = torch.ones(2)
    for _ in range(60):
        down(x, 3), looking(x), list(many(x)), plain(x)
        watching.passed()
    assert [is_detour(f) for f in (down, looking, many, plain)] == [False, False, False, True]


def test_a_function_within_no_grad_is_found(watching: often._Watching) -> None:
    @torch.no_grad()
    def average(x: Any, y: Any) -> Any:
        return x.mul_(0.9).add_(y * 0.1).clamp_(-1, 1)

    mean, inner = torch.zeros(3), vars(average)["__wrapped__"]
    for _ in range(60):
        average(mean, torch.ones(3))
        watching.passed()
    assert is_detour(inner)
    np.testing.assert_allclose(mean.numpy(), np.full(3, 1 - 0.9**60), rtol=1e-4)


def test_hooks_and_custom_functions_stay(watching: often._Watching) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return ((x + 1) * 2 - 2).exp().log()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return ((g + 1) * 2 - 2).neg().neg()

    w = torch.ones(2, requires_grad=True)
    for _ in range(60):
        Double.apply(w).sum().backward()
        watching.passed()
    assert not is_detour(Double.backward) and not is_detour(Double.forward)
    np.testing.assert_allclose(w.grad.numpy(), [120.0, 120.0])


def test_nothing_stays_on_after_a_watch(watching: often._Watching) -> None:


    drive(watching, lambda i: torch.ones(2) * i, 200)
    assert watching._watch is None
    assert sys.getprofile() is None and local.counted is None


def test_who_profiles_is_not_disturbed(watching: often._Watching) -> None:


    def profile(*event: Any) -> None:
        return None

    sys.setprofile(profile)
    try:
        drive(watching, lambda i: torch.ones(2) * i, 60)
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (lambda a, b=2, /, c=3, *rest, k=5, **more: (a, b, c, rest, k, more), (1,), {}),
    (lambda a, b=2, /, c=3, *rest, k=5, **more: (a, b, c, rest, k, more), (1, 4, 5, 6), {"z": 1}),
    (lambda *, k: k, (), {"k": 1}),
    (lambda **more: more, (), {"self": 1}),
    (lambda: 7, (), {}),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_a_detour_hands_on_all_that_it_gets(
    function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    want, code = function(*args, **kwargs), function.__code__
    assert redirect(function, twin_of(function))
    assert function.__code__ is not code
    assert function(*args, **kwargs) == want
    if "more" not in code.co_varnames:
        with pytest.raises(TypeError, match="lambda"):
            function(no=1)
    restore(function)
    assert function.__code__ is code


def test_a_detour_of_a_method_and_of_a_closure() -> None:
    class Base:
        def value(self) -> int:
            return 1

    class Derived(Base):
        def value(self, __more: int = 2) -> int:
            return super().value() + __more

    def make() -> Any:
        count = 0

        def up() -> int:
            nonlocal count
            count += 1
            return count

        return up

    up = make()
    for function in (Derived.value, up):
        assert redirect(function, twin_of(function))
    assert Derived().value() == 3
    assert [up(), up()] == [1, 2]
    restore(up)
    assert up() == 3


PROGRAM = """
import graphc as torch
from graphc import nn
torch.compiler.compile_program()
torch.compiler.compile_program()
torch.manual_seed(0)
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
    def pi(self, x):
        return torch.softmax(self.second(torch.relu(self.first(x))), -1)
policy, data = Policy(), torch.randn(40, 5, 4)
optimizer = torch.optim.SGD(policy.parameters(), 0.1)
def step(x):
    optimizer.zero_grad()
    loss = (policy.pi(x).log().square().mean() + x.sum() * 0)
    loss.backward()
    optimizer.step()
    return loss.item()
losses = [step(x) for x in data]
print(*["%.5f" % value for value in losses])
print(step.__code__.co_names == (), file=__import__("sys").stderr)
"""


def test_a_process_that_imports_graphc_switches_it_on(tmp_path: Path) -> None:
    found = {}
    for name, text in (("on", PROGRAM), ("off", PROGRAM.replace("torch.compiler.compile", "#"))):
        (tmp_path / f"{name}.py").write_text(text)
        done = subprocess.run(
            [sys.executable, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        )
        assert done.returncode == 0, done.stderr
        found[name] = [float(value) for value in done.stdout.split()], done.stderr.strip()
    assert found["on"][0] == pytest.approx(found["off"][0], abs=2e-5)
    assert (found["on"][1], found["off"][1]) == ("True", "False")


def test_the_closure_of_an_optimizer_is_compiled(watching: often._Watching) -> None:
    def trained(compiled: bool) -> tuple[list[float], int, Any]:
        weight = torch.tensor([2.0, -1.0], requires_grad=True)
        optimizer = torch.optim.LBFGS([weight], lr=0.2, max_iter=2)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((weight - 3).square() * 2 + weight.sin() * weight.cos()).sum()
            loss.backward()
            return loss

        for _ in range(40):
            optimizer.step(closure)
            if compiled:
                watching.passed()
        return weight.tolist(), optimizer.state[weight]["func_evals"], closure

    ours, evaluations, closure = trained(True)
    assert is_detour(closure) and target(closure).compile_count
    assert trained(False)[:2] == (pytest.approx(ours, rel=1e-5), evaluations)


@pytest.mark.parametrize("left", range(1, 8))
def test_a_watch_that_ends_as_it_is_paused_stays_ended(left: int) -> None:
    """Its calls are counted, and those of the pause itself may be the last ones."""
    running = [1]  # as of the one who watches, who knows nothing of a watch that is over
    watch = Watch(lambda: watch.stop() if running and running.pop() else None)
    assert watch.start()
    try:
        watch._events = watch_module._MOST - left
        for _ in range(4):
            with watch:
                pass
        assert local.counted is None and sys.getprofile() is None
    finally:
        watch.stop()
