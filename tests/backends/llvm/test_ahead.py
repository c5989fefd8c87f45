"""Libraries that are begun before a program is: those that it will be linked with, each once."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import backends, config
from graphc.backends.llvm import ahead as module
from graphc.backends.llvm import cache as cache_module
from graphc.backends.llvm import compile_program
from graphc.backends.llvm.ahead import Ahead, libraries_of
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.contraction import emit_library, template_libraries
from graphc.backends.llvm.library import MAPS_IMAGES, LLVMError
from graphc.backends.llvm.target import host_target
from graphc.engine import pipeline

BACKEND: Any = backends.get("llvm")
TARGET = host_target()
TEXT = "define i64 @f() {\n  ret i64 7\n}\n"
F = torch.nn.functional


def ones(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.ones(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_programs_are_linked_with_what_was_foretold(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked: set[str] = set()

    def noted(kernel: Any, target: Any) -> Any:
        names = template_libraries(kernel, target)
        linked.update(names)
        return names

    monkeypatch.setattr(compile_program, "template_libraries", noted)
    name = "f32" if dtype is torch.float32 else "f64"
    query = ones(2, 4, 64, 16, dtype=dtype)
    for operator, function, given in (
        ("dot_general", F.linear, (ones(64, 96, dtype=dtype), ones(48, 96, dtype=dtype))),
        ("conv", F.conv2d, (ones(2, 8, 16, 16, dtype=dtype), ones(8, 8, 3, 3, dtype=dtype))),
        ("attention", F.scaled_dot_product_attention, (query, query, query)),
    ):
        linked.clear()
        with config.override(cache_dir=None):
            torch.compile(function, fullgraph=True)(*given)
        assert linked == set(libraries_of(operator, name)), operator
        for library in linked:
            assert emit_library(library, TARGET).text()


def test_what_is_not_certain_is_not_begun() -> None:
    assert libraries_of("add", "f32") == libraries_of("dot_general", "bf16") == []


def test_each_library_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_object(text: str, *rest: Any) -> bytes:
        compiled.append(text)
        return b"object"

    monkeypatch.setattr(cache_module, "compile_object", compile_object)
    monkeypatch.setattr(module.cpus, "available", lambda: 2)
    ahead = Ahead(ObjectCache())
    for _ in range(2):
        ahead.begin("dot_general", "f32")
        ahead.begin("conv", "f32")
        ahead.begin("add", "f32")
    for thread in threading.enumerate():
        if thread.name == "graphc libraries":
            thread.join()
    assert len(compiled) == len(set(compiled)) == 5


def test_one_core_compiles_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.cpus, "available", lambda: 1)
    before = threading.active_count()
    Ahead(ObjectCache()).begin("conv", "f32")
    assert threading.active_count() == before


def test_who_needs_it_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, leave = threading.Event(), threading.Event()
    calls: list[str] = []

    def compile_object(text: str, *rest: Any) -> bytes:
        calls.append(text)
        inside.set()
        leave.wait(20)
        return b"object"

    monkeypatch.setattr(cache_module, "compile_object", compile_object)
    cache, results = ObjectCache(), []
    threads = [
        threading.Thread(target=lambda: results.append(cache.compile(TEXT, TARGET)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert inside.wait(20) and cache.is_begun(TEXT, TARGET)
    leave.set()
    for thread in threads:
        thread.join()
    assert results == [b"object"] * 3 and calls == [TEXT] and not cache.is_begun(TEXT, TARGET)


def test_an_error_is_everybodys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> bytes:
        raise LLVMError("no")

    monkeypatch.setattr(cache_module, "compile_object", fails)
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
    key = cache_module.cache_key(TEXT, TARGET, 1, "none")
    cache._begun[key] = cache_module._Begun(gone, threading.Event())  # as a forked child finds it
    assert cache.compile(TEXT, TARGET)


@pytest.mark.skipif(not MAPS_IMAGES, reason="programs are kept on Linux, x86-64")
def test_nothing_is_begun_where_programs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BACKEND, "keeps", True)
    with config.override(cache_dir=tmp_path / "cache", check=0, debug=0, dump=None):
        settings = config.current()
        assert pipeline.begins(settings, "llvm") is not None
        step = torch.compile(lambda x: x * 2)
        step(ones(3))
        assert list((tmp_path / "cache").rglob("*.program"))
        assert pipeline.begins(settings, "llvm") is None
    assert pipeline.begins(settings, "numpy") is None


def test_a_recording_is_no_other_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BACKEND, "keeps", True)
    with config.override(cache_dir=tmp_path / "cache", check=0, debug=0, dump=None):
        weight = torch.nn.Parameter(torch.ones(5, 7))
        step = torch.compile(lambda x: F.linear(x, weight).relu(), fullgraph=True)
        given = torch.from_numpy(np.arange(21, dtype=np.float32).reshape(3, 7))
        assert step(given).tolist() == (given @ weight.T).relu().tolist()
        assert step.compile_count == 1
