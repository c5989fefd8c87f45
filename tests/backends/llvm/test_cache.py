"""The object cache: keys, damage, and directories that must not be trusted."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import graphc
from graphc import config
from graphc.backends.host.store import Store
from graphc.backends.llvm import cache as module
from graphc.backends.llvm.cache import MAGIC, ObjectCache, cache_key
from graphc.backends.llvm.library import LLVMError
from graphc.backends.llvm.target import host_target

TARGET = host_target()
TEXT = "define i64 @f() {\n  ret i64 7\n}\n"


def stored(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_second_request_compiles_nothing(tmp_path: Path) -> None:
    first = ObjectCache(tmp_path)
    data = first.compile(TEXT, TARGET)
    assert first.compile(TEXT, TARGET) == data and (first.hits, first.misses) == (1, 1)
    second = ObjectCache(tmp_path)
    assert second.compile(TEXT, TARGET) == data and (second.hits, second.misses) == (1, 0)
    assert [path.suffix for path in stored(tmp_path)] == [".o"]


def test_memory_alone() -> None:
    cache = ObjectCache()
    assert cache.directory is None
    assert cache.compile(TEXT, TARGET) == cache.compile(TEXT, TARGET)
    assert (cache.hits, cache.misses) == (1, 1)


def test_key_depends_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        cache_key(TEXT, TARGET, 1, "none"),
        cache_key(TEXT + " ", TARGET, 1, "none"),
        cache_key(TEXT, TARGET._replace(features=""), 1, "none"),
        cache_key(TEXT, TARGET, 2, "none"),
        cache_key(TEXT, TARGET, 1, "light"),
    }
    monkeypatch.setattr(module, "llvm_version", lambda: "LLVM 0")
    keys.add(cache_key(TEXT, TARGET, 1, "none"))
    monkeypatch.setattr(module, "source_digest", lambda: b"other sources")
    keys.add(cache_key(TEXT, TARGET, 1, "none"))
    assert len(keys) == 7


def test_every_source_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "backends/llvm/emit.py", "backends/llvm/deep/tile.py", "backends/host/machine.py",
        "ir/dim.py", "ir/passes/cse.py",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("pass\n")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "backends/llvm/cache.py"))
    digest = module.source_digest.__wrapped__
    digests = [digest(), digest()]
    for name in names:
        (tmp_path / name).write_text("pass  # another\n")
        digests.append(digest())
    (tmp_path / "ir/dim.py").rename(tmp_path / "ir/passes/dim.py")
    digests.append(digest())
    assert digests[0] == digests[1] and len(set(digests)) == 7


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign", "longer"])
def test_damaged_entries_are_replaced(tmp_path: Path, damage: str) -> None:
    good = ObjectCache(tmp_path).compile(TEXT, TARGET)
    (path,) = stored(tmp_path)
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    path.write_bytes(
        {
            "truncated": data[:-5],
            "flipped": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
            "empty": b"",
            "foreign": good,
            "longer": data + b"\0",
        }[damage]
    )
    cache = ObjectCache(tmp_path)
    assert cache.compile(TEXT, TARGET) == good and cache.misses == 1
    assert path.read_bytes() == data


def test_an_entry_that_lies_in_anothers_place_is_none(tmp_path: Path) -> None:
    """Somebody's copy, or a file system that mixed two up: it is whole, but other code."""
    cache, other = ObjectCache(tmp_path), TEXT.replace("7", "8")
    good, wrong = cache.compile(TEXT, TARGET), cache.compile(other, TARGET)
    assert good != wrong
    first, second = stored(tmp_path)
    first_data, second_data = first.read_bytes(), second.read_bytes()
    first.write_bytes(second_data)
    second.write_bytes(first_data)
    cache = ObjectCache(tmp_path)
    assert (cache.compile(TEXT, TARGET), cache.compile(other, TARGET)) == (good, wrong)
    assert cache.misses == 2


def test_directory_is_made_private(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "cache"
    assert ObjectCache(directory).directory == directory
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_directory_that_others_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(mode)
    cache = ObjectCache(directory)
    assert cache.directory is None and cache.compile(TEXT, TARGET)
    assert not stored(directory)


def test_directory_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert ObjectCache(tmp_path).directory is None


def test_path_that_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    assert ObjectCache(path).directory is None
    assert ObjectCache(path / "below").directory is None


def test_unwritable_directory_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError("disk full")

    cache = ObjectCache(tmp_path)
    monkeypatch.setattr(os, "replace", full)
    assert cache.compile(TEXT, TARGET)
    assert not stored(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="a write beyond the limit ends there")
def test_what_is_written_in_part_is_none(tmp_path: Path) -> None:
    """As on a disk that is full: readers see all of an object or nothing, and nothing is left."""
    import resource

    cache = ObjectCache(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        data = cache.compile(TEXT, TARGET)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(data) > 200 and stored(tmp_path) == []
    assert ObjectCache(tmp_path).compile(TEXT, TARGET) == data and len(stored(tmp_path)) == 1


def test_several_threads(tmp_path: Path) -> None:
    cache, results = ObjectCache(tmp_path), []
    texts = [f"define i64 @f() {{\n  ret i64 {number}\n}}\n" for number in range(5)]

    def work() -> None:
        results.append([cache.compile(text, TARGET) for text in texts])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(result == results[0] for result in results)
    assert len(stored(tmp_path)) == 5


def test_who_needs_it_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, leave = threading.Event(), threading.Event()
    calls: list[str] = []

    def compile_object(text: str, *rest: Any) -> bytes:
        calls.append(text)
        inside.set()
        leave.wait(20)
        return b"object"

    monkeypatch.setattr(module, "compile_object", compile_object)
    cache, results = ObjectCache(), []
    threads = [
        threading.Thread(target=lambda: results.append(cache.compile(TEXT, TARGET)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert inside.wait(20)
    leave.set()
    for thread in threads:
        thread.join()
    assert results == [b"object"] * 3 and calls == [TEXT]


def test_an_error_is_everybodys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> bytes:
        raise LLVMError("no")

    monkeypatch.setattr(module, "compile_object", fails)
    cache = ObjectCache()
    for _ in range(2):
        with pytest.raises(LLVMError, match="no"):
            cache.compile(TEXT, TARGET)
    monkeypatch.undo()
    assert cache.compile(TEXT, TARGET) and cache.misses == 1


def test_a_thread_that_is_gone_keeps_nobody_waiting() -> None:
    cache = ObjectCache()
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    key = module.cache_key(TEXT, TARGET, 1, "none")
    cache._begun[key] = module._Begun(gone, threading.Event())  # as a forked child finds it
    assert cache.compile(TEXT, TARGET)


def settled() -> None:
    for thread in threading.enumerate():
        if thread.name == "graphc objects":
            assert not thread.daemon  # the process's end waits for it
            thread.join(20)


def test_objects_are_written_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread that nobody waits for: what is compiled is there before it is stored."""
    cache, goes_on, real = ObjectCache(tmp_path), threading.Event(), Store.write

    def write(store: Store, key: bytes, body: bytes) -> None:
        assert goes_on.wait(20)
        real(store, key, body)

    monkeypatch.setattr(Store, "write", write)
    with cache.behind():
        good = cache.compile(TEXT, TARGET)
    assert not stored(tmp_path) and cache.compile(TEXT, TARGET) == good and cache.misses == 1
    goes_on.set()
    settled()
    other = ObjectCache(tmp_path)
    assert other.compile(TEXT, TARGET) == good and (other.hits, other.misses) == (1, 0)
    cache.compile(TEXT.replace("7", "8"), TARGET)  # at once, as before
    assert len(stored(tmp_path)) == 2


def test_what_a_failed_build_has_made_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by whoever is there, where no thread may begin any more."""
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    cache = ObjectCache(tmp_path)
    with pytest.raises(LLVMError), cache.behind():
        cache.compile(TEXT, TARGET)
        cache.compile("nonsense", TARGET)
    assert len(stored(tmp_path)) == 1


def test_programs_write_their_objects_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[str] = []
    real = Store.write

    def write(store: Store, key: bytes, body: bytes) -> None:
        if store._suffix == ".o":
            writers.append(threading.current_thread().name)
        real(store, key, body)

    monkeypatch.setattr(Store, "write", write)
    with config.override(cache_dir=tmp_path, check=0, debug=0, dump=None):
        compiled = graphc.compile(lambda x: (x * 3.40625 + 0.71875).sum(0), dynamic=False)
        assert compiled(graphc.ones(3, 5)).tolist() == [3 * (3.40625 + 0.71875)] * 5
    settled()
    assert writers and set(writers) == {"graphc objects"}
