"""Compiling, linking in the process, and the errors that LLVM would answer with an abort."""

import ctypes
import gc
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphc.backends.host.elf import global_names
from graphc.backends.llvm import direct, jit
from graphc.backends.llvm.binding import binding, package
from graphc.backends.llvm.direct import llvm_version
from graphc.backends.llvm.jit import (
    LLVMError,
    compile_assembly,
    compile_object,
)
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.target import host_target, make_target

ROOT = Path(__file__).parents[3]
TARGET = host_target()
HOST_IS_ELF = "linux" in TARGET.triple
INTEGER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def compiled(*texts: str) -> list[bytes]:
    return [compile_object(text, TARGET) for text in texts]


def test_objects_call_each_other() -> None:
    """Both ways, and into libm."""
    even = """
declare i64 @odd(i64)
declare double @floor(double)
define i64 @even(i64 %n) {
  %zero = icmp eq i64 %n, 0
  br i1 %zero, label %yes, label %no
yes:
  %f = call double @floor(double 1.5)
  %one = fptosi double %f to i64
  ret i64 %one
no:
  %m = sub i64 %n, 1
  %r = call i64 @odd(i64 %m)
  ret i64 %r
}"""
    odd = """
declare i64 @even(i64)
define i64 @odd(i64 %n) {
  %zero = icmp eq i64 %n, 0
  br i1 %zero, label %no, label %yes
no:
  ret i64 0
yes:
  %m = sub i64 %n, 1
  %r = call i64 @even(i64 %m)
  ret i64 %r
}"""
    library = Library(compiled(even, odd))
    assert [INTEGER(library.address("even"))(n) for n in range(4)] == [1, 0, 1, 0]
    assert INTEGER(library.address("odd"))(7) == 1


def test_what_is_not_to_be_optimised_needs_no_passes() -> None:
    text = """
define i64 @first(i64 %n) noinline optnone {
  %m = add i64 %n, 1
  ret i64 %m
}
define i64 @second(i64 %n)ATTRIBUTES {
  %m = mul i64 %n, 3
  ret i64 %m
}"""
    none, some = (text.replace("ATTRIBUTES", each) for each in (" noinline optnone", ""))
    assert compile_object(none, TARGET) == compile_object(none, TARGET, opt_level=0)
    assert compile_object(some, TARGET) != compile_object(some, TARGET, opt_level=0)
    library = Library(compiled(none))
    assert [INTEGER(library.address(name))(5) for name in ("first", "second")] == [6, 15]


def test_host_symbols_belong_to_their_library() -> None:
    caller = """
declare i64 @given(i64)
define i64 @ask(i64 %n) {
  %r = call i64 @given(i64 %n)
  ret i64 %r
}"""
    objects = compiled(caller)
    functions = [INTEGER(lambda n: n + 1), INTEGER(lambda n: n * 10)]
    libraries = [
        Library(objects, {"given": ctypes.cast(function, ctypes.c_void_p).value or 0})
        for function in functions
    ]
    assert [INTEGER(library.address("ask"))(5) for library in libraries] == [6, 50]


def test_globals_and_constants() -> None:
    text = """
@table = constant [3 x i64] [i64 4, i64 5, i64 6]
@counter = global i64 40
define i64 @bump(i64 %i) {
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p
  %c = load i64, ptr @counter
  %s = add i64 %c, %v
  store i64 %s, ptr @counter
  ret i64 %s
}"""
    library = Library(compiled(text))
    bump = INTEGER(library.address("bump"))
    assert [bump(0), bump(2)] == [44, 50]
    assert ctypes.c_int64.from_address(library.address("counter")).value == 50


def test_same_name_in_two_libraries() -> None:
    texts = [f"define i64 @f(i64 %n) {{\n  ret i64 {value}\n}}" for value in (1, 2)]
    libraries = [Library(compiled(text)) for text in texts]
    assert [INTEGER(library.address("f"))(0) for library in libraries] == [1, 2]


def test_many_libraries_come_and_go() -> None:
    objects = compiled("define i64 @f(i64 %n) {\n  %r = add i64 %n, 1\n  ret i64 %r\n}")
    for number in range(50):
        assert INTEGER(Library(objects).address("f"))  # dropped at once
        library = Library(objects)
        assert INTEGER(library.address("f"))(number) == number + 1
        del library
    gc.collect()


def test_several_python_threads() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(5):
                value = 100 * number + step
                text = f"define i64 @f(i64 %n) {{\n  %r = add i64 %n, {value}\n  ret i64 %r\n}}"
                library = Library(compiled(text))
                assert INTEGER(library.address("f"))(1) == value + 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_llvm_is_called_without_llvmlites_lock() -> None:
    """A thread that compiles waits for no other one's calls of llvmlite, short or long."""
    text = "define i64 @f(i64 %n) {\n  ret i64 %n\n}"
    ready, begun, over = (threading.Event() for _ in range(3))

    def work() -> None:
        compiled(text)
        ready.set()
        begun.wait()
        compiled(text)
        over.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(60)
    with binding().ffi.lib._lock:
        begun.set()
        assert over.wait(60)
    thread.join()


@pytest.mark.parametrize("verify", [True, False])
def test_llvmlites_own_calls_give_the_same_object(
    monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    """Of a llvmlite whose functions cannot be had."""
    text = "define <8 x float> @f(<8 x float> %x) {\n  ret <8 x float> %x\n}"
    direct = compile_object(text, TARGET, verify=verify)
    monkeypatch.setattr(jit, "direct", lambda: None)
    assert compile_object(text, TARGET, verify=verify) == direct


@pytest.mark.parametrize("other", [
    {"__version__": "0.51.0", "__path__": package().__path__},
    {"__version__": package().__version__, "__path__": ["/nowhere"]},
])
def test_another_llvmlite_is_noticed(monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    """Of other functions, or in a place that no file is in: its Python knows."""
    known = direct.llvm_version.__wrapped__(), direct.host_words()
    monkeypatch.setattr(direct, "package", lambda: SimpleNamespace(**other))
    assert direct.direct.__wrapped__() is None
    monkeypatch.setattr(direct, "direct", lambda: None)
    assert direct.llvm_version.__wrapped__().split(",")[1] == known[0].split(",")[1]
    triple, cpu, features = direct.host_words()
    assert (triple, cpu, sorted(features)) == (*known[1][:2], sorted(known[1][2]))


def test_functions_are_those_that_llvmlite_declares() -> None:
    assert package().__version__.startswith(direct.VERSION)
    assert f"llvmlite>={direct.VERSION}"[:-1] in (ROOT / "pyproject.toml").read_text()

    def kind(of: Any) -> Any:
        opaque = isinstance(of, type) and issubclass(of, ctypes._Pointer) and issubclass(
            of._type_, ctypes.Structure
        )
        return ctypes.c_void_p if opaque else of

    compared = 0
    for name, (result, *taken) in {**direct.LONG, **direct.SHORT}.items():
        theirs = getattr(binding().ffi.lib, f"LLVMPY_{name}")
        if theirs.argtypes is not None:
            assert [*map(kind, theirs.argtypes)] == taken, name
            compared += bool(taken)
        if theirs.restype is not ctypes.c_int:  # ctypes' own, where nothing is said
            assert kind(theirs.restype) is result, name
        else:
            assert result in (None, ctypes.c_int), name
    assert compared > 15


def test_compiling_imports_nothing_of_llvmlites_python() -> None:
    script = (
        "import sys\nfrom graphc.backends.llvm.jit import compile_object\n"
        "from graphc.backends.llvm.target import host_target\n"
        "assert compile_object('define void @f() {\\n  ret void\\n}', host_target())\n"
        "print('llvmlite' in sys.modules, 'llvmlite.binding' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["True", "False"]


def test_code_generators_are_used_again() -> None:
    """By whatever thread comes next."""
    text = "define i64 @f(i64 %n) {\n  ret i64 %n\n}"

    def of_all() -> set[int]:
        return {each.machine for each in jit._idle[TARGET, 1]}

    compile_object(text, TARGET)
    known = of_all()
    for _ in range(3):
        thread = threading.Thread(target=compile_object, args=(text, TARGET))
        thread.start()
        thread.join()
    assert of_all() == known


def test_errors_show_the_line() -> None:
    with pytest.raises(LLVMError) as raised:
        compiled("define void @f() {\n  %a = add i32 1, 2.0\n  ret void\n}")
    assert ">     2   %a = add i32 1, 2.0" in str(raised.value)
    assert "floating point constant invalid for type" in str(raised.value)


def test_the_verifier_runs() -> None:
    text = """define i32 @f(i1 %c) {
  br i1 %c, label %a, label %b
a:
  %v = add i32 1, 2
  br label %b
b:
  ret i32 %v
}"""
    with pytest.raises(LLVMError, match="does not dominate"):
        compiled(text)


def test_what_an_error_keeps_alive_is_freed_once() -> None:
    """The error's frames refer to it, so that a collection frees what they hold, in its order."""
    script = '''
import gc
from graphc.backends.llvm.jit import LLVMError, compile_object
from graphc.backends.llvm.target import host_target

def refused():
    try:
        compile_object("""define i64 @f() {
entry:
  br label %a
a:
  %x = add i64 %y, 1
  br label %b
b:
  %y = add i64 %x, 1
  ret i64 %y
}""", host_target())
    except LLVMError as error:
        kept = error

gc.disable()
for _ in range(3):
    refused()
print(gc.collect() > 0)
'''
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.skipif(not HOST_IS_ELF, reason="reads ELF symbol tables")
def test_symbols_are_checked_before_llvm_sees_them() -> None:
    caller = "declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}"
    objects = compiled(caller)
    assert global_names(objects[0]) == ({"f"}, {"nowhere"})
    with pytest.raises(LLVMError, match="undefined symbols: nowhere"):
        Library(objects)
    twice = compiled("define void @f() {\n  ret void\n}")
    with pytest.raises(LLVMError, match="two objects define 'f'"):
        Library([*twice, *twice])
    with pytest.raises(KeyError, match="no object of this library defines 'g'"):
        Library(twice).address("g")


def test_internal_names_may_repeat() -> None:
    """Helpers of two kernels may share a name as long as they are internal."""
    text = """
define internal i64 @helper(i64 %n) noinline {{
  %r = mul i64 %n, {}
  ret i64 %r
}}
define i64 @{}(i64 %n) {{
  %r = call i64 @helper(i64 %n)
  ret i64 %r
}}"""
    library = Library(compiled(text.format(2, "double"), text.format(3, "treble")))
    assert INTEGER(library.address("double"))(5) == 10
    assert INTEGER(library.address("treble"))(5) == 15


@pytest.mark.parametrize("passes", ["none", "light"])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_levels_and_passes(level: int, passes: str) -> None:
    text = """
define i64 @f(i64 %n) {
  %slot = alloca i64
  store i64 %n, ptr %slot
  %v = load i64, ptr %slot
  %w = mul i64 %v, 2
  %x = mul i64 %v, 2
  %r = add i64 %w, %x
  ret i64 %r
}"""
    library = Library([compile_object(text, TARGET, level, passes)])  # type: ignore[arg-type]
    assert INTEGER(library.address("f"))(3) == 12


def test_host_target() -> None:
    assert TARGET.vector_bytes in (16, 32, 64)
    assert TARGET.lanes(4) == TARGET.vector_bytes // 4
    assert TARGET.cpu and TARGET.triple == binding().get_process_triple()
    assert "+prefer-256-bit" not in TARGET.features
    assert "LLVM 2" in llvm_version()


def test_other_targets() -> None:
    assert make_target("x86_64-unknown-linux-gnu").vector_bytes == 16
    assert not make_target("x86_64-unknown-linux-gnu").has_fma
    avx2 = make_target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma")
    assert (avx2.vector_bytes, avx2.has_fma, avx2.arch) == (32, True, "x86_64")
    arm = make_target("arm64-apple-darwin", "apple-m1")
    assert (arm.vector_bytes, arm.has_fma, arm.arch) == (16, True, "aarch64")
    text = """
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
define <4 x float> @f(<4 x float> %x) {
  %r = call <4 x float> @llvm.fma.v4f32(<4 x float> %x, <4 x float> %x, <4 x float> %x)
  ret <4 x float> %r
}"""
    assert "fmla" in compile_assembly(text, arm)
    assert "vfmadd" in compile_assembly(text, avx2)
