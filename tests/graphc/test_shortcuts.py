"""Calls whose guards native code asks are never stale; Python decides where it says no."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.backends.host import allocator
from graphc.engine.version import shortcut
from graphc.nn import functional as F

# calls on another device than the CPU take the long way
pytestmark = [
    pytest.mark.usefixtures("only_the_cpu"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]


class Taken:
    """How many calls took a shortcut."""

    def __init__(self, calls: list[Any]) -> None:
        self._calls, self._before = calls, 0

    @property
    def count(self) -> int:
        return len(self._calls) - self._before

    def forget(self) -> None:
        self._calls.clear()

    @count.setter
    def count(self, value: int) -> None:
        self._before = len(self._calls) - value


@pytest.fixture
def taken(shortcut_calls: list[Any]) -> Taken:
    return Taken(shortcut_calls)


def held(function: Callable[..., Any], *args: Any) -> Any:
    """A compiled function that has a shortcut for such arguments."""
    compiled = torch.compile(function)
    for _ in range(3):
        compiled(*args)
    assert compiled._versions.shortcuts
    return compiled


# --- what is changed between calls, of a captured tensor and of an argument -----------------------


def rebound(t: Any) -> None:
    t.data = torch.full((4, 4), 5.0)


def resized(t: Any) -> None:
    t.data = torch.ones(1, 4)


def turned(t: Any) -> None:
    t.data = torch.arange(16.0).reshape(4, 4).t()


def of_another_dtype(t: Any) -> None:
    t.data = torch.ones(4, 4, dtype=torch.float64)


def set_to(t: Any) -> None:
    t.set_(torch.full((4, 4), 3.0))


def written(t: Any) -> None:
    t.data[1] = 7.0


def differentiated(t: Any) -> None:
    t.requires_grad_(not t.requires_grad)


def named(t: Any) -> None:
    t.note = 3
    assert vars(t)  # its attributes are in a dict from now on
    t.data = torch.full((4, 4), 6.0)


def of_another_class(t: Any) -> None:
    t.__class__ = Special
    t.data = torch.full((4, 4), 2.0)


def in_the_header(t: Any) -> None:
    t._graphc_array.shape = (2, 8)
    t._graphc_array.shape = (4, 4)
    t._graphc_array[0, 0] = 9.0


def in_another_dict(t: Any) -> None:
    t.__dict__ = dict(vars(t))  # of its own, which shares no keys
    t.data = torch.full((4, 4), 8.0)


def in_a_dict_of_other_keys(t: Any) -> None:
    t.__dict__ = {"other": 1, **vars(t), "_graphc_storage": t._graphc_storage, "_graphc_seen": 0}
    t.data = torch.full((4, 4), 4.0)


class Special(torch.Tensor):
    pass


CHANGES = (
    rebound, resized, turned, of_another_dtype, set_to, written, differentiated, named,
    of_another_class, in_the_header, in_another_dict, in_a_dict_of_other_keys,
)


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("captured", [True, False])
def test_a_tensor_that_changes(change: Any, captured: bool, taken: Taken) -> None:
    t, x = torch.rand(4, 4), torch.rand(4, 4)

    def function(x: Any, y: Any = None) -> Any:
        return (x * (t if y is None else y)).sum(0) * 2

    args = (x,) if captured else (x, t)
    compiled = held(function, *args)
    before = taken.count
    compiled(*args)
    assert taken.count == before + 1
    change(t)
    for _ in range(5):
        expected, found = function(*args), compiled(*args)
        assert found.dtype == expected.dtype and found.requires_grad == expected.requires_grad
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)


def test_hooks_of_a_captured_tensor() -> None:
    w, seen = torch.ones(3, requires_grad=True), list[Any]()

    def step(x: Any) -> Any:
        w.grad = None
        (w * x).sum().backward()
        return w.grad * 1

    compiled = held(step, torch.ones(3))
    handle = w.register_hook(lambda g: seen.append(1) or g * 2)
    assert compiled(torch.ones(3)).tolist() == [2, 2, 2] and seen
    handle.remove()
    assert compiled(torch.ones(3)).tolist() == [1, 1, 1]
    node = (w * 1).grad_fn.next_functions[0][0]
    node.register_hook(lambda *given: seen.append(2))
    compiled(torch.ones(3))
    assert seen[-1] == 2


def test_views_whose_base_begins_to_require_a_gradient(taken: Taken) -> None:
    base = torch.rand(4, 3)
    compiled = held(lambda x: x * 2, base[1])
    before = taken.count
    assert not compiled(base[2]).requires_grad and taken.count == before + 1
    part = base[3]
    base.mul_(torch.ones(3, requires_grad=True))
    assert compiled(part).requires_grad


def test_modes(taken: Taken) -> None:
    x = torch.rand(3, requires_grad=True)
    compiled = held(lambda x: x * 2, x)
    with torch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    seen = list[Any]()
    with torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append(compiled(x).requires_grad))
        thread.start()
        thread.join()
    assert seen == [True]
    half = torch.autocast("cpu", torch.bfloat16)
    product = held(lambda x: x @ x, torch.ones(3, 3))
    with half:
        assert product(torch.ones(3, 3)).dtype == torch.bfloat16
    assert product(torch.ones(3, 3)).dtype == torch.float32


def test_set_stance(taken: Taken) -> None:
    ran = list[Any]()

    def function(x: Any) -> Any:
        ran.append(1)
        return x + 1

    plain = torch.compile(lambda x: x + 1)
    x = torch.ones(2)
    for _ in range(4):
        plain(x)
    before = taken.count
    with torch.compiler.set_stance("force_eager"):
        plain(x)
    assert taken.count == before
    plain(x)
    assert taken.count == before + 1


def test_objects_that_die(taken: Taken) -> None:
    """Another object at the address of one that a version was for is not taken for it."""

    class Box:
        def __init__(self, by: float) -> None:
            self.by = by

    compiled = torch.compile(lambda box, x: x * box.by)
    x = torch.ones(2)
    for by in range(1, 9):
        box = Box(float(by))
        for _ in range(3):
            assert compiled(box, x).tolist() == [by, by]
        del box
        gc.collect()


def test_arguments_that_are_one(taken: Taken) -> None:
    def function(x: Any, y: Any) -> Any:
        x.mul_(2)
        return x + y

    compiled = held(function, torch.ones(3), torch.ones(3))
    before = taken.count
    assert compiled(torch.ones(3), torch.ones(3)).tolist() == [3, 3, 3] and taken.count > before
    x, y = torch.ones(3), torch.ones(5)
    assert compiled(x, x).tolist() == [4, 4, 4]
    assert compiled(y[:3], y[1:4]).tolist() == [4, 4, 3]
    assert compiled(y[:3], y[2:]).tolist() == [8, 5, 5]
    assert y.tolist() == [4, 4, 4, 1, 1]


def test_small_results_are_in_memory_that_takes_no_python(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(64, 64)
    compiled = held(lambda a, b: (a @ b, a + b), x, x.clone())

    def refuse(*args: Any) -> Any:
        raise AssertionError("Python looks for memory")

    monkeypatch.setattr(allocator.Allocator, "empty", refuse)
    before = taken.count
    product, total = compiled(x, x.clone())
    assert taken.count == before + 1
    assert product.tolist() == [[64.0] * 64] * 64 and total.tolist() == [[2.0] * 64] * 64


def test_numbers(taken: Taken) -> None:
    state = {"by": 2.0}

    def function(x: Any, n: float) -> Any:
        return x * n + state["by"]

    compiled = torch.compile(function)
    x = torch.ones(2)
    for n in (1.5, 2.5, 2.5, 2.5, 2.5, 3.5, 0.0, -0.0, 2, True):
        assert compiled(x, n).tolist() == function(x, n).tolist()
    assert taken.count
    state["by"] = 3.0
    assert compiled(x, 2.5).tolist() == [5.5, 5.5]
    state["by"] = 4
    assert compiled(x, 2.5).tolist() == [6.5, 6.5]


def test_an_index_that_native_code_refuses(taken: Taken) -> None:
    table, caught = torch.arange(8.0), list[Any]()

    def function(i: Any) -> Any:
        return table[i] + 1

    compiled = held(function, torch.tensor([1, 2]))
    for _ in range(3):
        with pytest.raises(IndexError, match="9"):
            compiled(torch.tensor([1, 9]))
        caught.append(compiled(torch.tensor([0, 7])).tolist())
    assert caught == [[1, 8]] * 3 and taken.count >= 3


def test_a_training_step(taken: Taken) -> None:
    def losses(wrap: Any) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = torch.rand(16, 4), torch.randint(0, 3, (16,))

        @wrap
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        found, kept = [], []
        for i in range(12):
            if i == 4:
                optimizer.param_groups[0]["lr"] = 0.02
            if i == 6:
                model.eval()
            if i == 7:
                model.train()
                kept.append(model[0].weight.grad)
                kept.append(kept[0].clone())
            if i == 9:
                model[3].weight.requires_grad_(False)
            if i == 10:
                model[3].weight.requires_grad_(True)
                model[0].weight.data = torch.rand(8, 4)
            found.append(step(x, y).item())
        assert kept[0].tolist() == kept[1].tolist()
        return [*found, *model[1].running_mean.tolist(), float(model[1].num_batches_tracked),
                *(p._version for p in model.parameters() if wrap is None)]

    expected = losses(lambda f: f)
    np.testing.assert_allclose(losses(torch.compile), expected, rtol=2e-4, atol=1e-6)
    assert taken.count >= 4


def test_a_counted_change(taken: Taken) -> None:
    """The learning rate is a run-time number; setting it counts as a write."""
    w = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.5)

    @torch.compile
    def step() -> Any:
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    expected = 1.0
    for i in range(14):
        optimizer.param_groups[0]["lr"] = rate = 0.1 / (1 + i)
        if i == 10:
            optimizer.param_groups[0]["weight_decay"] = 0.5
        expected -= rate * (2 * expected + (0.5 * expected if i >= 10 else 0))
        step()
        np.testing.assert_allclose(w.detach().numpy(), [expected] * 3, rtol=1e-5)
    assert taken.count >= 8


def test_versions_count_the_writes(taken: Taken) -> None:
    x = torch.ones(3)
    compiled = held(lambda x: x.add_(1).mul_(2), x)
    version, before = x._version, taken.count
    compiled(x)
    assert x._version == version + 2 and taken.count == before + 1


def test_a_compiled_module_and_its_backward(taken: Taken) -> None:
    model = nn.Linear(3, 3)
    compiled = torch.compile(model)
    x, found = torch.rand(5, 3), []
    for _ in range(5):
        model.zero_grad()
        compiled(x).square().sum().backward()
        found.append(model.weight.grad.clone())
    assert all(g.tolist() == found[0].tolist() for g in found) and taken.count


# --- threads --------------------------------------------------------------------------------------


def test_threads_that_call_one_function(taken: Taken) -> None:
    w = torch.rand(64, 64)
    compiled = held(lambda x: (x @ w).relu(), torch.rand(64, 64))
    wrong = list[Any]()

    def calls(seed: int) -> None:
        x = torch.full((64, 64), float(seed))
        expected = (x @ w).relu().numpy()
        for _ in range(200):
            if not np.allclose(compiled(x).numpy(), expected, rtol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=calls, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and taken.count >= 800


def test_memory_that_another_thread_frees_meanwhile(taken: Taken) -> None:
    """A call holds what it reads, though the tensor gets other memory while it runs."""
    w = torch.ones(1 << 20)

    def function(x: Any) -> Any:
        for _ in range(4):
            x = (x * w).sin()
        return x

    x = torch.ones(1 << 20)
    compiled = held(function, x)
    expected, stop = function(x).numpy(), threading.Event()

    def frees() -> None:
        while not stop.is_set():
            w.data = torch.ones(1 << 20)
            x.data = torch.ones(1 << 20)
            np.full(1 << 20, np.nan, np.float32)  # what is freed is taken
            time.sleep(0)

    thread = threading.Thread(target=frees)
    thread.start()
    try:
        for _ in range(10):
            np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-5)
    finally:
        stop.set()
        thread.join()
    assert taken.count >= 10


def test_references_are_let_go(taken: Taken) -> None:
    compiled = held(lambda x: x + 1, torch.rand(1000))
    x = torch.rand(1000)
    gone, before = weakref.ref(x._graphc_array), taken.count
    compiled(x)
    assert taken.count == before + 1
    taken.forget()
    del x
    gc.collect()
    assert gone() is None


# --- without native code --------------------------------------------------------------------------


def test_python_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "native_code", lambda: None)
    compiled = torch.compile(lambda x: x + 1)
    for _ in range(5):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert not compiled._versions.shortcuts


def test_numbers_of_sizes_alone(taken: Taken) -> None:
    compiled = torch.compile(lambda x: x.sum() / x.shape[0] + x.shape[0] * 0.5, dynamic=True)
    for n in (3, 4, 5, 5, 5, 6, 6, 6, 5):
        x = torch.arange(float(n))
        assert compiled(x).item() == pytest.approx(sum(range(n)) / n + n * 0.5)
    assert taken.count >= 2


def test_a_text_of_a_dictionary_that_gains_a_key(taken: Taken) -> None:
    state: dict[str, Any] = {"one": 1}

    def function(x: Any) -> Any:
        return x * 2 if "two" in state else x * (3 if "one" in state else 4)

    compiled = held(function, torch.ones(2))
    for change in (lambda: None, lambda: state.update(one=5), lambda: state.update(two=1),
                   lambda: state.pop("two"), lambda: state.pop("one")):
        change()
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == function(torch.ones(2)).tolist()
    assert taken.count


def test_an_error_behind_the_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is not written again by Python."""
    from graphc.engine.version.backward import CompiledBackwardPlan

    w, x = torch.ones(3, requires_grad=True), torch.zeros(3)
    compiled = held(lambda x: (x.add_(1), w * 2)[1], x)
    before = x.tolist()

    def history(*given: Any) -> Any:
        raise ValueError("behind")

    monkeypatch.setattr(CompiledBackwardPlan, "history", history)
    with pytest.raises(ValueError, match="behind"):
        compiled(x)
    assert x.tolist() == [before[0] + 1] * 3


@pytest.mark.parametrize("size, short", [(16, True), (1 << 18, False)])
def test_the_gil_is_kept_for_what_is_short(size: int, short: bool) -> None:
    compiled = held(lambda x: x + 1, torch.ones(size))
    assert compiled._versions.shortcuts[0].executable.releases is not short
