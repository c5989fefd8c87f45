"""Compiled functions from several Python threads, from inside themselves and from hooks."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn as nn
import graphc.nn.functional as F
from graphc import backends
from graphc.backends.llvm import binding
from graphc.frontend import state_version

RNG = np.random.default_rng(4)
COUNT = 4


def floats(*shape: int) -> graphc.Tensor:
    return graphc.from_numpy(RNG.standard_normal(shape).astype("float32"))


def in_threads(work: Callable[[int], Any], count: int = COUNT) -> list[Any]:
    """work(0) .. work(count - 1) at once; their results, or the first error."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(60)
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5))


def test_one_function_from_many_threads() -> None:
    run = graphc.compile(lambda x, w: ((x @ w).relu() - 1).softmax(1))
    w = floats(30, 50)
    inputs = [floats(40, 30) for _ in range(COUNT)]
    expected = [run.function(x, w).numpy() for x in inputs]

    def work(number: int) -> list[Any]:
        return [run(inputs[number], w) for _ in range(30)]

    for results, want in zip(in_threads(work), expected, strict=True):
        for result in results:  # all kept: each call has outputs of its own
            np.testing.assert_allclose(result.numpy(), want, rtol=1e-5, atol=1e-6)
        assert len({r.data_ptr() for r in results}) == len(results)
    assert run.compile_count == 1


def test_one_function_with_sizes_of_its_own_in_each_thread() -> None:
    run = graphc.compile(lambda x: (x * 2).sum(1) + x.amax(1))
    inputs = [floats(3 + n, 17 + 5 * n) for n in range(8)]

    def work(number: int) -> None:
        for i in range(24):
            x = inputs[(i + number) % len(inputs)]
            want = (x.numpy() * 2).sum(1) + x.numpy().max(1)
            np.testing.assert_allclose(run(x).numpy(), want, rtol=1e-4, atol=1e-5)

    in_threads(work)
    assert run.compile_count <= 2


def test_compiling_different_functions_at_once() -> None:
    shared = model()
    x = floats(6, 20)
    want = shared(x).detach().numpy()

    def work(number: int) -> None:
        for power in range(3):
            def function(x: Any, power: int = power) -> Any:
                return shared(x) * (number + 1) + power

            run = graphc.compile(function)
            for _ in range(3):
                np.testing.assert_allclose(
                    run(x).detach().numpy(), want * (number + 1) + power, rtol=1e-4, atol=1e-5
                )

    in_threads(work)


def test_compiling_while_others_run_eagerly() -> None:
    """A trace is seen by its own thread only, parameters included."""
    shared = model()
    x = floats(6, 20)
    want = shared(x).detach().numpy()

    def work(number: int) -> None:
        for i in range(12):
            if number % 2:
                np.testing.assert_allclose(shared(x).detach().numpy(), want, rtol=1e-5, atol=1e-6)
            else:
                run = graphc.compile(lambda x, i=i: shared(x) + float(i))
                np.testing.assert_allclose(run(x).detach().numpy(), want + i, rtol=1e-4, atol=1e-5)

    in_threads(work)


def training(seed: int, compiled: bool) -> list[np.ndarray]:
    """Losses and parameters of a few steps on data of its own."""
    rng = np.random.default_rng(seed)
    net = model()
    with graphc.no_grad():
        for p in net.parameters():
            p.copy_(graphc.from_numpy(rng.standard_normal(p.shape).astype("float32") * 0.2))
    optimizer = graphc.optim.AdamW(net.parameters(), lr=0.02)
    x = graphc.from_numpy(rng.standard_normal((32, 20)).astype("float32"))
    y = graphc.from_numpy(rng.integers(0, 5, 32))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = graphc.compile(step) if compiled else step
    losses = [run(x, y) for _ in range(12)]
    return [t.detach().numpy().copy() for t in (*losses, *net.parameters())]


def test_a_training_step_per_thread() -> None:
    alone = [training(n, compiled=True) for n in range(COUNT)]
    together = in_threads(lambda n: training(n, compiled=True))
    for have, want in zip(together, alone, strict=True):
        for a, b in zip(have, want, strict=True):
            assert a.tobytes() == b.tobytes()
    eager = training(0, compiled=False)
    for a, b in zip(alone[0], eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_eager_backward_through_a_shared_compiled_model() -> None:
    net = model()
    run = graphc.compile(net)
    inputs = [floats(9, 20) for _ in range(COUNT)]

    def gradients(function: Any, x: Any) -> list[Any]:
        return [g.numpy() for g in graphc.autograd.grad(
            function(x).square().sum(), list(net.parameters())
        )]

    expected = [gradients(net, x) for x in inputs]

    def work(number: int) -> None:
        for _ in range(10):
            for a, b in zip(gradients(run, inputs[number]), expected[number], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    in_threads(work)


def test_one_thread_raises_and_the_others_go_on() -> None:
    run = graphc.compile(lambda w, i: w[i] * 2)
    w = floats(10, 300)
    good = graphc.arange(10).repeat(40)
    bad = good.clone()
    bad[-1] = 10

    def work(number: int) -> int:
        failed = 0
        for _ in range(30):
            if number == 0:
                with pytest.raises(IndexError, match="index 10 is out of bounds"):
                    run(w, bad)
                failed += 1
            else:
                np.testing.assert_array_equal(run(w, good).numpy(), w.numpy()[good.numpy()] * 2)
        return failed

    assert in_threads(work) == [30, 0, 0, 0]


def test_python_errors_under_trace_stay_in_their_thread() -> None:
    def work(number: int) -> None:
        for _ in range(6):
            def function(x: Any) -> Any:
                if number == 0:
                    raise KeyError("mine")
                return x + number

            run = graphc.compile(function)
            if number == 0:
                with pytest.raises(KeyError):
                    run(graphc.zeros(3))
            else:
                assert run(graphc.zeros(3)).tolist() == [number] * 3
            assert (graphc.ones(2) + 1).tolist() == [2.0, 2.0]  # eager again

    in_threads(work)


def test_modes_belong_to_their_thread() -> None:
    run = graphc.compile(lambda x: x * 2)

    def work(number: int) -> None:
        for _ in range(20):
            assert graphc.is_grad_enabled()
            x = graphc.ones(3, requires_grad=True)
            if number % 2:
                with graphc.no_grad():
                    assert not graphc.is_grad_enabled()
                    assert not run(x).requires_grad
            else:
                assert run(x).requires_grad

    with graphc.no_grad():
        in_threads(work)  # new threads start with gradients on
        assert not graphc.is_grad_enabled()


# --- calls within calls ----------------------------------------------------------------------


def test_a_compiled_call_in_an_autograd_hook() -> None:
    double = graphc.compile(lambda g: g * 2 + 1)
    run = graphc.compile(lambda x: (x * x).sum())
    seen: list[Any] = []

    def hook(g: Any) -> Any:
        seen.append(double(g))
        return seen[-1]

    for _ in range(2):
        x = graphc.tensor([1.0, 2.0], requires_grad=True)
        x.register_hook(hook)
        run(x).backward()
        assert x.grad.tolist() == [5.0, 9.0]
    assert [s.tolist() for s in seen] == [[5.0, 9.0]] * 2


def test_a_hook_runs_the_function_whose_backward_it_is_in() -> None:
    run = graphc.compile(lambda x: (x * x).sum())
    x = graphc.tensor([3.0], requires_grad=True)
    inner: list[float] = []

    def hook(g: Any) -> Any:
        y = graphc.tensor([5.0], requires_grad=True)
        with graphc.enable_grad():  # off in hooks, as in torch
            run(y).backward()
        inner.append(y.grad.item())

    x.register_hook(hook)
    run(x).backward()
    assert inner == [10.0] and x.grad.tolist() == [6.0]


def test_a_compiled_function_inside_another() -> None:
    inner = graphc.compile(lambda x: x.exp())
    outer = graphc.compile(lambda x: inner(x) + inner(x * 2))
    x = floats(7)
    for _ in range(2):
        want = np.exp(x.numpy()) + np.exp(2 * x.numpy())
        np.testing.assert_allclose(outer(x).numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(inner(x).numpy(), np.exp(x.numpy()), rtol=1e-5)


def test_recursion() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else run(x, n - 1) * x

    run = graphc.compile(power)
    x = graphc.tensor([2.0, 3.0])
    for n in (0, 1, 4):
        assert run(x, n).tolist() == [2.0 ** (n + 1), 3.0 ** (n + 1)]


def test_a_function_with_a_numpy_callback_from_many_threads() -> None:
    run = graphc.compile(lambda x: x.sort(1)[0] * 2 + 1)
    inputs = [floats(20, 50) for _ in range(COUNT)]

    def work(number: int) -> None:
        want = np.sort(inputs[number].numpy(), 1) * 2 + 1
        for _ in range(25):
            np.testing.assert_allclose(run(inputs[number]).numpy(), want, rtol=1e-6)

    in_threads(work)


def test_threads_change_the_number_of_threads() -> None:
    before = graphc.get_num_threads()
    run = graphc.compile(lambda x: (x.exp() + 1).sum(0))
    x = floats(400, 300)
    want = run(x).numpy().tobytes()

    def work(number: int) -> None:
        for i in range(12):
            if number == 0:
                graphc.set_num_threads(1 + i % 4)
            assert run(x).numpy().tobytes() == want

    try:
        in_threads(work)
    finally:
        graphc.set_num_threads(before)


# --- fork ------------------------------------------------------------------------------------


def in_child(check: Callable[[], bool]) -> None:
    """Forks; the child, which ends within a minute, must find the check true."""
    with warnings.catch_warnings():  # Python 3.12 warns of threads, which is the point here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if check() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_while_another_thread_compiles() -> None:
    """It compiles the same function itself: locks that were held at the fork are free there."""
    function = graphc.compile(lambda x: (x * 2).sin().sum(1))
    x, begun, ending = floats(50, 7), threading.Event(), threading.Event()
    function(x[:, :3])  # what only compiling needs is imported
    engine = backends.get("llvm")

    def compiling() -> None:
        with function._lock, engine._lock:  # as it has them meanwhile
            begun.set()
            ending.wait(60)

    def check() -> bool:
        found = function(x)
        return np.allclose(found.numpy(), function.function(x).numpy(), atol=1e-5)

    other = threading.Thread(target=compiling)
    other.start()
    try:
        begun.wait(60)
        in_child(check)
        with binding.LOCK:  # by the thread that forks, which has it in the child, too
            in_child(check)
    finally:
        ending.set()
        other.join()
    assert check()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_goes_on_with_what_was_compiled() -> None:
    """With threads of its own, a large arena of its own, and what it compiles itself."""
    before = graphc.get_num_threads()
    run = graphc.compile(lambda x: ((x.exp() @ x.T).sin() @ x).softmax(1))
    x = floats(600, 40)
    graphc.set_num_threads(3)
    want = run(x).numpy().tobytes()
    ending = threading.Event()

    def busy() -> None:
        while not ending.is_set():
            run(x)

    def check() -> bool:
        graphc.set_num_threads(2)
        late = graphc.compile(lambda x: (x * 3).cos().sum(0))
        fresh = np.allclose(late(x).numpy(), late.function(x).numpy(), rtol=1e-4, atol=1e-3)
        return fresh and all(run(x).numpy().tobytes() == want for _ in range(3))

    other = threading.Thread(target=busy)
    try:
        in_child(check)
        other.start()  # forks in the midst of another thread's calls
        for _ in range(3):
            in_child(lambda: run(x).numpy().tobytes() == want)
        assert run(x).numpy().tobytes() == want
    finally:
        ending.set()
        if other.ident is not None:
            other.join()
        graphc.set_num_threads(before)


def test_products_beside_numpys_own_threads() -> None:
    """NumPy's BLAS has a pool, too: each goes on while the other works, to the same bits."""
    run = graphc.compile(lambda a, b: (a @ b).relu())
    a, b = floats(300, 200), floats(200, 260)
    want = run(a, b).numpy().tobytes()
    product = a.numpy() @ b.numpy()

    def work(number: int) -> None:
        for _ in range(8):
            if number % 2:
                np.testing.assert_allclose(a.numpy() @ b.numpy(), product, rtol=1e-4, atol=1e-4)
            else:
                assert run(a, b).numpy().tobytes() == want

    in_threads(work)


def test_a_call_while_a_module_gets_another_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the former one; calls after the write find the new one."""
    module = nn.Dropout(1.0)
    compiled = graphc.compile(lambda x: module(x) + 5)
    x = graphc.ones(2)
    for _ in range(3):
        assert compiled(x).tolist() == [5, 5]
    bump, waiting = state_version.bump, [True]

    def another_thread_after_it() -> None:
        bump()
        if waiting:
            waiting.pop()
            assert compiled(x).tolist() == [5, 5]

    with monkeypatch.context() as patch:
        patch.setattr(state_version, "bump", another_thread_after_it)
        module.__class__ = nn.Identity  # type: ignore[assignment]
    assert compiled(x).tolist() == [6, 6]
