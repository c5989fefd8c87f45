"""Calls that native code makes as a whole, of programs whose memory is others' between calls."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import graphc as torch
from graphc import config as configuration
from graphc.backends.llvm import words
from graphc.backends.llvm.arenas import ARENAS, SHARED, Share
from graphc.engine.version import shortcut
from graphc.frontend.storage import readers

pytestmark = [
    pytest.mark.usefixtures("only_the_cpu"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]
WIDTH = 800  # of products whose arena is larger than what a program keeps


@pytest.fixture(autouse=True)
def nothing_before() -> Iterator[None]:
    """As in a process that has used no config.override() and no graph that waits for a backward."""
    used, waiting = configuration.overridden, dict(readers)
    configuration.overridden = 0
    readers.clear()
    yield
    configuration.overridden = used
    readers.update({key: one for key, one in waiting.items() if one[1]() is not None})


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


def test_memory_is_others_between_calls() -> None:
    gc.collect()
    before = ARENAS.kept
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
    assert ARENAS.kept <= max(before, size, second) + 4096
    compiled.reset()
    other.reset()
    del compiled, other
    gc.collect()
    assert ARENAS.kept <= before


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
        outer = compiled(x, index)
    assert torch.allclose(outer, _function(x, index), rtol=1e-4)
    assert torch.allclose(inner[1], _function(x * 2, index), rtol=1e-4)


def test_more_threads_may_need_memory_of_others() -> None:
    threads = torch.get_num_threads()
    a, b = torch.rand(300, 700), torch.rand(700, 300)
    try:
        torch.set_num_threads(1)
        compiled = torch.compile(lambda a, b: (a @ b).softmax(1).sum(1))
        for _ in range(3):
            compiled(a, b)
        lease = compiled._versions.direct._lease
        for count in (1, 64, 1, 64):
            torch.set_num_threads(count)
            for _ in range(2):
                compiled(a, b)
            before = _by_native_code(compiled)
            assert torch.allclose(compiled(a, b), (a @ b).softmax(1).sum(1), rtol=1e-4)
            assert _by_native_code(compiled) == before + 1
            assert not lease.shared and lease.block[words.WORKERS] == count
            assert (sum(lease.sizes[:2]) > SHARED) is (lease.arena.size == 0) is (count == 64)
    finally:
        torch.set_num_threads(threads)
