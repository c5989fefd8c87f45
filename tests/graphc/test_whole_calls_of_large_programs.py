"""Calls that native code makes as a whole, of programs whose memory is others' between calls."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import nn
from graphc.backends.host.allocator import address_of
from graphc.backends.llvm import executable, words
from graphc.backends.llvm.arenas import ARENAS, SHARED, Arenas, Share
from graphc.engine.version import gradients_left, shortcut

pytestmark = [
    pytest.mark.usefixtures("only_the_cpu", "nothing_before"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]
WIDTH = 800  # of products whose arena is larger than what a program keeps


def _function(x: Any, index: Any) -> Any:
    y = x @ x
    return y[index].softmax(1) @ y


def _made() -> tuple[Any, Any, Any]:
    """A compiled function whose calls native code makes, and its arguments."""
    gc.collect()  # programs of other tests
    torch.manual_seed(2)
    x, index = torch.rand(WIDTH, WIDTH), torch.arange(0, WIDTH, 3)
    compiled = torch.compile(_function)
    for _ in range(3):
        compiled(x, index)
    assert compiled._versions.direct is not None
    lease = compiled._versions.direct._lease
    arena, scratch, _ = lease.sizes
    assert arena + scratch > SHARED and not lease.shared and lease.arena.size == 0
    return compiled, x, index


def _by_native_code(compiled: Any) -> int:
    return int(compiled.newest.native_calls.value)


def test_memory_is_others_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(WIDTH, WIDTH)
    _function(x, torch.arange(0, WIDTH, 3))  # eager mode's programs live on
    arenas = Arenas()
    monkeypatch.setattr(executable, "Share", lambda: Share(arenas))
    compiled, x, index = _made()
    wanted = _function(x, index)
    other = torch.compile(lambda x: (x @ x) @ (x @ x).tanh())
    for _ in range(4):
        count = _by_native_code(compiled)
        assert torch.allclose(compiled(x, index), wanted, rtol=1e-4)
        assert _by_native_code(compiled) == count + 1
        other(x)
    size = sum(compiled._versions.direct._lease.sizes[:2])
    second = sum(other._versions.direct._lease.sizes[:2])
    assert max(size, second) <= arenas.kept <= max(size, second) + 4096
    compiled.reset()
    other.reset()
    del compiled, other
    gc.collect()
    assert arenas.kept == 0


def test_native_code_takes_the_memory_of_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x, index = _made()
    wanted = _function(x, index)
    compiled(x, index)
    shelf, kept = compiled._versions.direct._lease.shelf, ARENAS.kept
    arena = next(each for each in ARENAS.free.values() if address_of(each) == shelf.words[2])
    before = sys.getrefcount(arena)

    def unasked(*args: Any) -> Any:
        raise AssertionError("Python is asked")

    with monkeypatch.context() as patch:
        patch.setattr(Share, "take", unasked)
        patch.setattr(Share, "give_back", unasked)
        for _ in range(40):  # more than the dictionary has room for
            assert torch.allclose(compiled(x, index), wanted, rtol=1e-4)
    assert sys.getrefcount(arena) == before and ARENAS.free[id(arena)] is arena
    assert ARENAS.kept == kept and shelf.words[5] == 0


def test_memory_that_is_another_one_now() -> None:
    """What lies under the same number, but elsewhere, or is smaller, is not what a call is laid
    out for."""
    compiled, x, index = _made()
    wanted = _function(x, index)
    shelf = compiled._versions.direct._lease.shelf
    for word, change in ((2, 64), (3, 1 << 40)):
        compiled(x, index)
        shelf.words[word] += change
        assert torch.allclose(compiled(x, index), wanted, rtol=1e-4)
        assert shelf.words[2] in map(address_of, ARENAS.free.values())
        assert shelf.words[3] < 1 << 40  # it was laid out anew


def test_memory_that_nobody_wants_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(WIDTH, WIDTH)
    wanted = _function(x, torch.arange(0, WIDTH, 3))
    arenas = Arenas()
    monkeypatch.setattr(executable, "Share", lambda: Share(arenas))
    compiled, x, index = _made()
    wanted = _function(x, index)
    compiled(x, index)
    most = arenas.most.value
    assert most and arenas.kept >= most
    arenas.most.value = 0
    assert torch.allclose(compiled(x, index), wanted, rtol=1e-4)
    assert arenas.kept == 0
    arenas.most.value = most
    for _ in range(2):
        count = _by_native_code(compiled)
        assert torch.allclose(compiled(x, index), wanted, rtol=1e-4)
        assert arenas.kept >= most and _by_native_code(compiled) == count + 1


def test_threads_at_the_same_time() -> None:
    compiled, x, index = _made()
    wrong: list[int] = []

    def work(seed: int) -> None:
        own = x * seed
        wanted = _function(own, index)
        for _ in range(8):
            if not torch.allclose(compiled(own, index), wanted, rtol=1e-4):
                wrong.append(seed)

    count = _by_native_code(compiled)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and _by_native_code(compiled) > count
    assert not compiled._versions.direct._lease.shared


def test_an_error_gives_the_memory_back() -> None:
    compiled, x, index = _made()
    kept, bad = ARENAS.kept, index.clone()
    bad[3] = WIDTH
    for _ in range(2):
        with pytest.raises(IndexError, match=str(WIDTH)):
            compiled(x, bad)
        assert ARENAS.kept == kept and not compiled._versions.direct._lease.shared
        count = _by_native_code(compiled)
        assert torch.allclose(compiled(x, index), _function(x, index), rtol=1e-4)
        assert _by_native_code(compiled) == count + 1


@pytest.mark.parametrize("name, error", [
    ("take", MemoryError), ("give_back", KeyboardInterrupt),
])
def test_what_is_raised_on_the_way(
    name: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, x, index = _made()
    wanted = _function(x, index)
    gc.collect()  # of the first call
    kept = ARENAS.kept
    before = [sys.getrefcount(each) for each in (x._graphc_array, index._graphc_array)]

    def raises(self: Share, of: Any) -> Any:
        raise error("here")

    with monkeypatch.context() as patch:
        patch.setattr(Share, name, raises)
        for _ in range(2):
            compiled._versions.direct._lease.shelf.words[1] = 0  # so that Python is asked
            with pytest.raises(error, match="here"):
                compiled(x, index)
    gc.collect()  # of errors
    after = [sys.getrefcount(each) for each in (x._graphc_array, index._graphc_array)]
    assert after == before
    for _ in range(2):
        count = _by_native_code(compiled)
        assert torch.allclose(compiled(x, index), wanted, rtol=1e-4)
        assert _by_native_code(compiled) == count + 1
    assert ARENAS.kept == kept and not compiled._versions.direct._lease.shared


def test_a_call_inside_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x, index = _made()
    take, inner = Share.take, list[Any]()

    def again(self: Share, size: int) -> Any:
        if not inner:
            inner.append(None)
            inner.append(compiled(x * 2, index))
        return take(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(Share, "take", again)
        compiled._versions.direct._lease.shelf.words[1] = 0  # so that Python is asked
        outer = compiled(x, index)
    assert torch.allclose(outer, _function(x, index), rtol=1e-4)
    assert torch.allclose(inner[1], _function(x * 2, index), rtol=1e-4)


def test_more_threads_may_need_memory_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    a, b = torch.rand(300, 2100), torch.rand(2100, 300)
    try:
        torch.set_num_threads(1)
        monkeypatch.setattr(executable, "SHARED", sys.maxsize)
        compiled = torch.compile(lambda a, b: (a @ b).softmax(1).sum(1))
        for _ in range(3):
            compiled(a, b)
        lease = compiled._versions.direct._lease
        # how much a thread needs is the CPU's
        monkeypatch.setattr(executable, "SHARED", sum(lease.sizes[:2]) + 4096)
        for count in (1, 64, 1, 64):
            torch.set_num_threads(count)
            for _ in range(2):
                compiled(a, b)
            before = _by_native_code(compiled)
            assert torch.allclose(compiled(a, b), (a @ b).softmax(1).sum(1), rtol=1e-4)
            assert _by_native_code(compiled) == before + 1
            assert not lease.shared and lease.block[words.WORKERS] == count
            assert (lease.arena.size == 0) is (count == 64)
    finally:
        torch.set_num_threads(threads)


# --- gradients that are written where those before them lie ---------------------------------------


def _stepped(monkeypatch: pytest.MonkeyPatch, empty: Any = None) -> tuple[Any, Any, Any, Any]:
    """A step whose calls native code makes, its model, the same in eager mode; `empty`: what makes
    memory in the former's native calls."""
    monkeypatch.setattr(gradients_left, "OVERWRITTEN", 1)
    made = []
    for compiled in (True, False):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 5))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        made += [torch.compile(step) if compiled else step, model]
    step, model, eager, plain = made
    with monkeypatch.context() as patch:
        if empty is not None:
            patch.setattr(np, "empty", empty)
        for _ in range(4):
            step(*_batch())
            eager(*_batch())
    assert step._versions.shortcuts[0].native is not None
    return step, model, eager, plain


def _batch() -> tuple[Any, Any]:
    return torch.arange(128.0).reshape(8, 16).sin(), torch.arange(8) % 5


def _same(model: Any, plain: Any) -> None:
    for mine, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine, wanted, atol=1e-6)
        assert torch.allclose(mine.grad, wanted.grad, atol=1e-6)


def _references(gradients: Any) -> list[int]:
    return [
        sys.getrefcount(part) for each in gradients
        for part in (each.tensor.grad, each.tensor.grad._graphc_array)
    ]


def test_gradients_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    step, model, eager, plain = _stepped(monkeypatch)
    weight = model[0].weight
    late = [each for each in step._versions.shortcuts[0].gradients if each.in_place]
    assert len(late) >= 3 and any(each.tensor is weight for each in late)
    before, place = _references(late), address_of(weight.grad._graphc_array)
    for _ in range(5):
        count = _by_native_code(step)
        assert torch.allclose(step(*_batch()), eager(*_batch()), atol=1e-6)
        assert _by_native_code(step) == count + 1
        assert address_of(weight.grad._graphc_array) == place
        _same(model, plain)
    assert _references(late) == before
    seen = weight.grad
    was = seen.clone()
    step(*_batch())  # somebody sees where it would be written to
    eager(*_batch())
    assert torch.equal(seen, was) and weight.grad is not seen
    _same(model, plain)
    count = _by_native_code(step)
    step(*_batch())
    eager(*_batch())
    assert _by_native_code(step) == count + 1 and torch.equal(seen, was)
    _same(model, plain)


@pytest.mark.parametrize("put", [
    lambda shape: None,
    lambda shape: torch.zeros(shape),
    lambda shape: torch.from_numpy(np.zeros(shape, np.float32)),
    lambda shape: torch.frombuffer(bytearray(4 * 24 * 16), dtype=torch.float32).reshape(shape),
    lambda shape: torch.from_numpy(np.frombuffer(
        bytearray(4 * 24 * 16 + 1), np.float32, 24 * 16, 1).reshape(shape)),
    lambda shape: torch.zeros(1).expand(shape),
    lambda shape: torch.zeros(shape[::-1]).t(),
], ids=["none", "own", "array", "buffer", "unaligned", "expanded", "columns"])
def test_gradients_that_a_user_has_put_there(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step, model, eager, plain = _stepped(monkeypatch)
    for _ in range(2):
        for each in (model, plain):
            each[0].weight.grad = put((24, 16))
        step(*_batch())
        eager(*_batch())
        _same(model, plain)


def test_a_gradient_that_goes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is the call's until it ends, and it is left all the same."""
    right, goes, weight = np.empty, False, None

    def empty(*args: Any, **named: Any) -> Any:
        nonlocal goes
        if goes:
            goes = False
            weight.grad = None
            gc.collect()
        return right(*args, **named)

    step, model, eager, plain = _stepped(monkeypatch, empty)
    weight = model[0].weight
    for _ in range(2):
        count, goes = _by_native_code(step), True
        step(*_batch())
        eager(*_batch())
        assert not goes and _by_native_code(step) == count + 1
        _same(model, plain)


def test_a_step_that_fails_leaves_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    step, model, eager, plain = _stepped(monkeypatch)
    x, y = _batch()
    for _ in range(2):
        with pytest.raises(IndexError):
            step(x, y + 3)
        with pytest.raises(IndexError):
            eager(x, y + 3)
        assert [p.grad is None for p in model.parameters()] == [
            p.grad is None for p in plain.parameters()]
        for _ in range(2):
            step(x, y)
            eager(x, y)
        _same(model, plain)
    count = _by_native_code(step)
    step(x, y)
    assert _by_native_code(step) == count + 1
