"""Shared objects: what they show, what they need, and that equal objects give equal bytes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphc.backends.host import elf
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.freestanding.levels import target_named
from graphc.backends.llvm.target import Target
from graphc.export.aot.linking import LinkError, link_shared, linkers, stubs
from tests.export.emulated_library import EmulatedLibrary

X86, ARM = target_named("x86-64"), target_named("aarch64")

SUM = """
@table = internal constant [4 x i64] [i64 1, i64 20, i64 300, i64 4000]
@places = internal constant [2 x ptr] [ptr @table, ptr @hidden_add]
@count = internal global i64 0
declare i64 @hidden_add(i64, i64)
declare ptr @memset(ptr, i32, i64)
define i64 @model_sum(ptr %out) nounwind {
  %filled = call ptr @memset(ptr %out, i32 7, i64 8)
  %place = getelementptr [2 x ptr], ptr @places, i64 0, i64 0
  %table = load volatile ptr, ptr %place
  %at = getelementptr i64, ptr %table, i64 3
  %a = load i64, ptr %at
  %before = load i64, ptr @count
  %after = add i64 %before, 1
  store i64 %after, ptr @count
  %sum = call i64 @hidden_add(i64 %a, i64 %after)
  ret i64 %sum
}
"""
ADD = """
declare double @fmod(double, double)
define i64 @hidden_add(i64 %a, i64 %b) nounwind {
  %sum = add i64 %a, %b
  ret i64 %sum
}
define i64 @model_rest(i64 %a) nounwind {
  %x = sitofp i64 %a to double
  %r = call double @fmod(double %x, double 7.0)
  %n = fptosi double %r to i64
  ret i64 %n
}
"""
EXPORTS = ["model_rest", "model_sum"]


def objects(target: Target = X86) -> list[bytes]:
    return [ObjectCache().compile(text, target) for text in (SUM, ADD)]


@pytest.fixture(autouse=True)
def a_linker() -> None:
    if not linkers.available("x86_64"):
        pytest.skip("there is no linker for x86-64: apt install binutils, or pip install ziglang")


def tell(path: Path, *options: str) -> str:
    readelf = shutil.which("readelf") or pytest.skip("readelf is not installed")
    return subprocess.run(
        [readelf, "-W", *options, path], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(params=["of the system", "of ziglang"])
def each_linker(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ours = [
        command for command in linkers._candidates("x86_64")
        if ("ziglang" in command) == (request.param == "of ziglang")
    ]
    if not ours:
        pytest.skip(f"there is no linker {request.param} here")
    monkeypatch.setattr(linkers, "_candidates", lambda arch: ours)
    linkers.linker.cache_clear()
    yield
    linkers.linker.cache_clear()


@pytest.mark.usefixtures("each_linker")
def test_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "libmodel.so"
    path.write_bytes(link_shared(objects(), EXPORTS, X86.triple, path.name))
    library = ctypes.CDLL(str(path))
    out = ctypes.c_int64()
    library.model_sum.restype = library.model_rest.restype = ctypes.c_int64
    assert [library.model_sum(ctypes.byref(out)) for _ in range(3)] == [4001, 4002, 4003]
    assert out.value == 0x0707070707070707
    assert library.model_rest(ctypes.c_int64(40)) == 5


def test_what_shows(tmp_path: Path) -> None:
    path = tmp_path / "libmodel.so"
    path.write_bytes(link_shared(objects(), EXPORTS, X86.triple, path.name))
    library = EmulatedLibrary(path.read_bytes())
    assert library.exports == {*EXPORTS}
    with pytest.raises(AttributeError):
        ctypes.CDLL(str(path)).hidden_add  # noqa: B018


@pytest.mark.usefixtures("each_linker")
def test_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "libmodel.so"
    path.write_bytes(link_shared(objects(), EXPORTS, X86.triple, path.name))
    told = tell(path, "--dynamic")
    needed = {line.split("[")[1].rstrip("]") for line in told.splitlines() if "(NEEDED)" in line}
    assert needed == {"libc.so.6", "libm.so.6"}
    assert "Library soname: [libmodel.so]" in told and "BIND_NOW" in told
    assert "RUNPATH" not in told and "RPATH" not in told and "TEXTREL" not in told
    segments = tell(path, "--segments")
    assert "GNU_RELRO" in segments and "RWE" not in segments
    (stack,) = [line for line in segments.splitlines() if "GNU_STACK" in line]
    assert "RW " in stack and "E" not in stack.split("GNU_STACK")[1].replace("0x", "")
    assert "build-id" not in tell(path, "--sections") and ".symtab" not in tell(path, "--sections")


def test_equal_objects_give_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = link_shared(objects(), EXPORTS, X86.triple, "libmodel.so")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LD_RUN_PATH", str(tmp_path))  # GNU ld would keep it
    assert link_shared(objects(), EXPORTS[::-1], X86.triple, "libmodel.so") == first
    assert str(tmp_path).encode() not in first


def test_two_models_do_not_meet(tmp_path: Path) -> None:
    """The second would call the first's functions of the same name, were they to be seen."""
    found = []
    for name, change in (("a", "add i64 %a, %b"), ("b", "mul i64 %a, %b")):
        texts = [SUM, ADD.replace("add i64 %a, %b", change)]
        compiled = [ObjectCache().compile(text, X86) for text in texts]
        path = tmp_path / f"lib{name}.so"
        path.write_bytes(link_shared(compiled, EXPORTS, X86.triple, path.name))
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        library.model_sum.restype = ctypes.c_int64
        out = ctypes.c_int64()
        found.append([library.model_sum(ctypes.byref(out)) for _ in range(3)])
    assert found == [[4001, 4002, 4003], [4000, 8000, 12000]]


@pytest.mark.parametrize("target", [X86, ARM], ids=lambda target: target.arch)
def test_another_cpu_runs_it(target: Target) -> None:
    if not linkers.available(target.arch):
        pytest.skip(f"there is no linker for {target.arch} here: pip install ziglang")
    library = EmulatedLibrary(link_shared(objects(target), EXPORTS, target.triple, "libmodel.so"))
    out = ctypes.c_int64()
    assert library.call("model_sum", ctypes.addressof(out)) == 4001
    assert out.value == 0x0707070707070707
    assert library.call("model_rest", 40) == 5


# --- what is refused ------------------------------------------------------------------------------


def test_a_name_that_nobody_has() -> None:
    text = """declare void @PyErr_CheckSignals()
    define void @f() {
      call void @PyErr_CheckSignals()
      ret void
    }"""
    with pytest.raises(LinkError, match="calls PyErr_CheckSignals, which neither libc"):
        link_shared([ObjectCache().compile(text, X86)], ["f"], X86.triple, "libf.so")


def test_an_export_that_nobody_defines() -> None:
    with pytest.raises(LinkError, match="no object defines model_more, which"):
        link_shared(objects(), [*EXPORTS, "model_more"], X86.triple, "libmodel.so")


def test_a_name_of_two_objects() -> None:
    with pytest.raises(LinkError, match="objects 0 and 2 both define model_sum"):
        link_shared([*objects(), objects()[0]], EXPORTS, X86.triple, "libmodel.so")


def test_objects_of_another_cpu() -> None:
    with pytest.raises(LinkError, match="object 0 is no ELF object for x86_64"):
        link_shared(objects(ARM), EXPORTS, X86.triple, "libmodel.so")
    with pytest.raises(LinkError, match="object 0 is no ELF object"):
        link_shared([b"\x7fELF but not quite"], [], X86.triple, "libmodel.so")
    with pytest.raises(LinkError, match="linked for Linux on x86_64, aarch64, not arm64-apple"):
        link_shared(objects(), EXPORTS, "arm64-apple-darwin", "libmodel.so")


def test_where_there_is_no_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linkers, "_candidates", lambda arch: [("true",)])
    linkers.linker.cache_clear()
    try:
        with pytest.raises(LinkError, match=r"no linker for aarch64 .*\(true cannot\).*aot\]"):
            link_shared(objects(ARM), EXPORTS, ARM.triple, "libmodel.so")
        assert not linkers.available("aarch64")
    finally:
        linkers.linker.cache_clear()


def test_what_the_linker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linkers.EMULATIONS, "x86_64", "elf_pdp11")
    linkers.linker("x86_64")  # known already
    with pytest.raises(LinkError, match=r"cannot link:\n.*elf_pdp11"):
        link_shared(objects(), EXPORTS, X86.triple, "libmodel.so")


# --- stubs ----------------------------------------------------------------------------------------


def test_a_stub_is_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "libc.so.6"
    path.write_bytes(stubs.stub("libc.so.6", ["free", "malloc"], "x86_64"))
    told = tell(path, "--dyn-syms")
    assert [line.split()[-1] for line in told.splitlines() if "FUNC" in line] == ["free", "malloc"]


def test_the_system_has_the_names_of_the_stubs() -> None:
    """Of this machine's system: what the tables say is where the loader finds it."""
    for file, names in stubs._LIBRARIES.items():
        try:
            library = ctypes.CDLL(file)
        except OSError:
            pytest.skip(f"there is no {file} here")
        everywhere = ctypes.CDLL("libc.so.6")  # where threads are since glibc 2.34
        missing = [name for name in names
                   if not hasattr(library, name) and not hasattr(everywhere, name)]
        assert not missing, (file, sorted(missing))


def test_elf_names_the_machine() -> None:
    assert [elf.machine(found[0]) for found in (objects(), objects(ARM))] == [62, 183]
