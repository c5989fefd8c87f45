"""Calls that native code makes as a whole: results are new, errors the user's, and what such a call
cannot do is done in another way."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import config as configuration
from graphc import nn
from graphc.engine.version import shortcut
from graphc.nn import functional as F

pytestmark = [
    pytest.mark.usefixtures("only_the_cpu", "nothing_before"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]


def whole(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A compiled function whose calls with such arguments native code makes."""
    compiled = torch.compile(function, **options)
    for _ in range(3):
        compiled(*args)
    of = compiled._compiled_function if isinstance(compiled, nn.Module) else compiled
    assert of._versions.direct is not None
    return compiled


def by_native_code(compiled: Any) -> int:
    """How many calls were made so."""
    of = compiled._compiled_function if isinstance(compiled, nn.Module) else compiled
    return int(of.newest.native_calls.value)


def test_results_are_new_and_like_any_other() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    compiled = whole(lambda x: x * 2, x)
    first, second = compiled(x), compiled(x)
    assert by_native_code(compiled) >= 2
    assert first is not second and first.data_ptr() != second.data_ptr()
    usual = x * 2
    for result in (first, second):
        assert type(result) is torch.Tensor and torch.equal(result, usual)
        for name in ("requires_grad", "grad_fn", "is_leaf", "_version", "device"):
            assert getattr(result, name) == getattr(usual, name), name
        own, other = result._graphc_storage, usual._graphc_storage
        for name in type(own).__slots__:
            if name not in ("__weakref__", "array"):
                assert getattr(own, name) == getattr(other, name), name
        assert own.array is result._graphc_array
    first.add_(1)
    assert first._version == 1 and second._version == 0
    assert torch.equal(second, usual) and torch.equal(compiled(x), usual)
    second.requires_grad_().sum().backward()
    assert second.grad.tolist() == [[1, 1, 1], [1, 1, 1]]
    second.tag = "mine"
    assert weakref.ref(second)() is second and gc.is_tracked(second)


def test_large_results_take_memory_of_graphc() -> None:
    x = torch.rand(1 << 19)
    compiled = whole(lambda x: x + 1, x)
    kept = [compiled(x) for _ in range(3)]
    assert by_native_code(compiled) >= 3
    assert len({each.data_ptr() for each in kept}) == 3
    for each in kept:
        assert torch.equal(each, x + 1)


@pytest.mark.parametrize("direct, function", [
    (True, lambda x: (x + 1, x - 1, x * 3)),
    (False, lambda x: [x + 1, x - 1, x * 3]),
    (False, lambda x: (x + 1, 7, x - 1)),
    (False, lambda x: (x - 1, x - 1, (x + 1,))),
    (False, lambda x: {"a": x + 1, "b": (x - 1, x * 2)}),
])
def test_containers(direct: bool, function: Callable[..., Any]) -> None:
    x = torch.tensor([1.0, 2.0])
    compiled = torch.compile(function)
    for _ in range(4):
        found, wanted = compiled(x), function(x)
        assert str(found) == str(wanted) and type(found) is type(wanted)
    assert (compiled._versions.direct is not None) is direct
    if isinstance(found, list | dict):
        assert compiled(x) is not compiled(x)


def test_references_are_counted_right() -> None:
    x = torch.rand(100)
    compiled = whole(lambda x: (x + 1, x - 1), x)
    storage = x._graphc_storage
    constants = None, False, 0, compiled.newest.guards.seen
    before = [sys.getrefcount(each) for each in (x, x._graphc_array, storage, *constants[3:])]
    none = sys.getrefcount(None)
    for _ in range(2000):
        compiled(x)
    after = [sys.getrefcount(each) for each in (x, x._graphc_array, storage, *constants[3:])]
    assert after == before
    assert abs(sys.getrefcount(None) - none) < 500
    gone = [weakref.ref(part) for each in compiled(x) for part in (each, each._graphc_array)]
    assert [each() for each in gone] == [None] * 4


def test_what_the_world_says_is_asked_each_time() -> None:
    x = torch.rand(4)
    compiled = whole(lambda x: x + 1, x)
    calls = compiled.newest.native_calls  # of this version: others may come
    count = calls.value
    with torch.compiler.set_stance("force_eager"):
        compiled(x)
    assert calls.value == count
    seen: list[Any] = []
    parameter = torch.rand(4, requires_grad=True)
    of = whole(lambda x: x * x, x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(1), t)[1], lambda t: t):
        of(parameter)
    assert seen
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(compiled(x), x + 1)
        assert calls.value == count
    finally:
        torch.set_default_dtype(torch.float32)
    compiled(x)
    before = calls.value
    compiled(x)
    assert calls.value == before + 1 > count
    with torch.profiler.profile() as profile:
        compiled(x)
    assert calls.value == before + 1 and profile.key_averages()


def test_another_number_of_threads() -> None:
    a = torch.rand(64, 64)
    compiled = whole(lambda a: a @ a, a)
    wanted, threads = a @ a, torch.get_num_threads()
    try:
        for count in (1, 3, 2):
            torch.set_num_threads(count)
            for _ in range(4):
                compiled(a)
            before = by_native_code(compiled)
            assert torch.allclose(compiled(a), wanted)
            assert by_native_code(compiled) == before + 1
    finally:
        torch.set_num_threads(threads)


def test_an_error_of_native_code_leaves_the_next_call_as_it_was() -> None:
    x, good, bad = torch.rand(5), torch.tensor([1, 4]), torch.tensor([1, 5])
    compiled = whole(lambda x, i: x[i] + 1, x, good)
    references = sys.getrefcount(bad._graphc_array)
    for _ in range(3):
        with pytest.raises(IndexError, match="5"):
            compiled(x, bad)
        count = by_native_code(compiled)
        assert torch.equal(compiled(x, good), x[good] + 1)
        assert by_native_code(compiled) == count + 1
    gc.collect()  # of errors
    after = sys.getrefcount(bad._graphc_array)
    assert after == references


def test_no_memory_for_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(1 << 10)
    right = np.empty
    fails = False

    def empty(*args: Any) -> Any:
        if fails:
            raise MemoryError("none left")
        return right(*args)

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", empty)
        compiled = whole(lambda x: (x + 1, x - 1), x)
    references = sys.getrefcount(x._graphc_array)
    fails = True
    with pytest.raises(MemoryError, match="none left"):
        compiled(x)
    after = sys.getrefcount(x._graphc_array)
    assert after == references
    fails = False
    count = by_native_code(compiled)
    assert torch.equal(compiled(x)[1], x - 1) and by_native_code(compiled) == count + 1


def test_a_call_inside_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    x, inner = torch.rand(1 << 10), list[Any]()
    right, depth = np.empty, 0

    def empty(*args: Any) -> Any:
        nonlocal depth
        if inner and not depth:
            depth = 1
            inner.append(inner[0](x + 1))
            depth = 0
        return right(*args)

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", empty)
        compiled = whole(lambda x: x * 2, x)
    inner.append(compiled)
    assert torch.equal(compiled(x), x * 2)
    assert len(inner) > 1 and all(torch.equal(each, (x + 1) * 2) for each in inner[1:])


def test_threads_and_memory_that_goes_meanwhile() -> None:
    size = 1 << 16
    compiled = whole(lambda x: (x.sin() + x.cos()).exp(), torch.rand(size))
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = torch.full((size,), float(seed))
        wanted = compiled(x)[0].item()
        for i in range(40):
            box = [torch.full((size,), float(seed))]
            if i % 10 == 0:
                gc.collect()
            result = compiled(box.pop())
            if not bool((result == wanted).all()):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_functions_that_go_while_others_run() -> None:
    size = 1 << 16
    compiled = whole(lambda x: x.sin().exp(), torch.rand(size))
    ends = threading.Event()

    def drop() -> None:
        while not ends.is_set():
            compiled._versions.shortcuts = ()
            gc.collect()

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        x = torch.rand(size)
        wanted = x.sin().exp()
        for _ in range(50):
            assert torch.allclose(compiled(x), wanted)
    finally:
        ends.set()
        thread.join()


def test_what_is_written_is_counted() -> None:
    x, y = torch.zeros(4), torch.ones(4)

    def add(x: Any, y: Any) -> Any:
        x.add_(y)
        return x * 2

    compiled = torch.compile(add)
    for i in range(1, 6):
        assert compiled(x, y).tolist() == [2 * i] * 4
        assert x._version == i
    assert by_native_code(compiled) > 0
    leaf = torch.ones(4, requires_grad=True)
    saved = torch.compile(lambda v, w: v * w)(x, leaf)  # whose backward reads x as it is now
    add_now = x.clone()
    compiled(x, y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()
    assert torch.equal(x, add_now + y)


def test_a_module_that_answers() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    x = torch.rand(2, 8)
    with torch.no_grad():
        compiled = whole(model, x)
        for change in (
            lambda: None, lambda: model[0].weight.mul_(2),
            lambda: setattr(model[0], "bias", nn.Parameter(torch.rand(4))),
            lambda: model.__setitem__(1, nn.Tanh()),
        ):
            change()
            for _ in range(3):
                assert torch.allclose(compiled(x), model(x), atol=1e-6)
        before = by_native_code(compiled)
        compiled(x)
        assert by_native_code(compiled) == before + 1
    assert compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()


def test_a_version_that_goes_leaves_nothing() -> None:
    x, scale = torch.rand(4), torch.rand(4)
    compiled = whole(lambda x: x * scale, x)
    entry = weakref.ref(compiled._versions.direct)
    kept = compiled._versions.direct
    compiled.reset()
    assert compiled._versions.direct is None
    del kept
    assert entry() is None


def _trained(compiled: bool) -> tuple[Any, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return torch.compile(step) if compiled else step, model, optimizer


def test_a_training_step_whose_rate_changes() -> None:
    x, y = torch.rand(4, 6), torch.tensor([0, 2, 1, 1])
    steps = [_trained(compiled) for compiled in (True, False)]
    kept: list[list[Any]] = [[], []]
    for i in range(12):
        losses = []
        for (step, model, optimizer), gradients in zip(steps, kept, strict=True):
            if i > 8:
                optimizer.param_groups[0]["lr"] = 0.1 / i
            losses.append(step(x, y))
            if i in (7, 10):  # somebody keeps a gradient, which is never written to again
                gradients.append(model[0].weight.grad)
        assert losses[0].requires_grad and torch.allclose(*losses, atol=1e-6)
    (step, model, optimizer), (_, other, _) = steps
    assert by_native_code(step) >= 4
    for mine, wanted in zip(
        [*model.parameters(), *kept[0]], [*other.parameters(), *kept[1]], strict=True
    ):
        assert torch.allclose(mine, wanted, atol=1e-6)
    with pytest.raises(RuntimeError, match="second time"):
        step(x, y).backward()


def test_rates_that_are_not_there_any_more() -> None:
    x, y = torch.rand(4, 6), torch.tensor([0, 2, 1, 1])
    step, model, optimizer = _trained(True)
    for _ in range(6):
        step(x, y)
    assert by_native_code(step) > 0
    before = [each.detach().clone() for each in model.parameters()]
    rate = optimizer.param_groups[0].pop("lr")
    with pytest.raises(KeyError, match="lr"):
        step(x, y)
    optimizer.param_groups[0]["lr"] = 0.0 * rate
    optimizer.param_groups[0]["momentum"] = 0.0
    step(x, y)
    for mine, wanted in zip(model.parameters(), before, strict=True):
        assert torch.equal(mine, wanted)
    groups = optimizer.param_groups[:]
    optimizer.param_groups.clear()
    step(x, y)
    for mine, wanted in zip(model.parameters(), before, strict=True):
        assert torch.equal(mine, wanted)
    optimizer.param_groups.extend(groups)
    optimizer.param_groups[0]["lr"] = rate
    step(x, y)
    assert not torch.equal(next(model.parameters()), before[0])


def test_numbers_among_the_arguments() -> None:
    x = torch.tensor([1.0, 2.0])
    compiled = torch.compile(lambda x, scale, *, shift: x * scale + shift)
    for i in range(8):
        assert compiled(x, float(i), shift=i / 2).tolist() == [i * 1.5, i * 2.5]
    count = by_native_code(compiled)
    assert compiled(x, 9.0, shift=0.5).tolist() == [9.5, 18.5]
    assert by_native_code(compiled) == count + 1
    assert compiled(x, 2, shift=1).tolist() == [3, 5]  # other types
    assert compiled(x, x, shift=x).tolist() == [2, 6]
    with pytest.raises(TypeError):
        compiled(x, None, shift=1.0)


def test_one_tensor_as_two_arguments(shortcut_calls: list[Any]) -> None:
    x, y = torch.rand(3, 3), torch.rand(3, 3)
    compiled = whole(lambda a, b: a @ b, x, x)
    del shortcut_calls[:]
    assert torch.allclose(compiled(x, x), x @ x) and len(shortcut_calls) == 1
    assert torch.allclose(compiled(y, y), y @ y) and len(shortcut_calls) == 2
    for _ in range(3):
        assert torch.allclose(compiled(x, y), x @ y)
        assert torch.allclose(compiled(y, x), y @ x)
        assert torch.allclose(compiled(y, y), y @ y)
    with pytest.raises(RuntimeError):
        compiled(x, torch.rand(4, 3))


def test_arguments_by_name(shortcut_calls: list[Any]) -> None:
    x, y, z = torch.rand(3), torch.rand(3), torch.rand(3)

    def function(x: Any, y: Any = 2.0, *rest: Any, z: Any = 3.0, flag: bool = True) -> Any:
        return (x - y) * z if flag else x + y

    compiled = torch.compile(function)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {"y": y, "z": z}), ((x,), {"z": z, "y": y}), ((x, y), {"z": z}), ((x, y, z), {}),
        ((), {"x": x, "y": y}), ((), {"y": x, "x": y}), ((x,), {"y": y, "flag": False}),
        ((x,), {"y": y, "flag": True}), ((x, y), {"z": [z][0]}), ((x,), {"flag": False, "z": x}),
    ]
    for _ in range(4):
        for args, kwargs in calls:
            assert torch.equal(compiled(*args, **kwargs), function(*args, **kwargs))
    args, kwargs = calls[0]
    for _ in range(3):
        compiled(*args, **kwargs)
    del shortcut_calls[:]
    assert torch.equal(compiled(*args, **kwargs), (x - y) * z) and len(shortcut_calls) == 1
    with pytest.raises(TypeError):
        compiled(x, y=y, what=z)
    with pytest.raises(TypeError):
        compiled(x, x=y)


def test_shapes_that_take_turns(shortcut_calls: list[Any]) -> None:
    compiled = torch.compile(lambda x: x * 2, dynamic=False)
    inputs = [torch.rand(size) for size in (3, 4, 5)]
    for _ in range(4):
        for x in inputs:
            compiled(x)
    del shortcut_calls[:]
    for x in [*inputs, *inputs]:
        assert torch.equal(compiled(x), x * 2)
    assert len(shortcut_calls) == 6 and compiled.compile_count == 3


def test_other_values_of_switches_are_asked_for() -> None:
    """Inside a block Python decides, after it native code again where no task can have its values;
    what override() began may live on in one."""
    x = torch.ones(3)
    compiled = whole(lambda x: x + 1, x)
    for block, goes_on in ((configuration.within, True), (configuration.override, False)):
        before = by_native_code(compiled)
        with block(debug=0):
            assert compiled(x).tolist() == [2.0, 2.0, 2.0]
            assert by_native_code(compiled) == before
        compiled(x)
        assert (by_native_code(compiled) > before) is goes_on
