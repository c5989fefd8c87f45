"""Targets other than the host's: compiled in a helper process, whose death is an error here."""

import os
import threading
import warnings

import numpy as np
import pytest

from graphc.backends.host import memory
from graphc.backends.host.elf import global_names
from graphc.backends.llvm import apart
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.executable import build
from graphc.backends.llvm.jit import LLVMError, compile_object
from graphc.backends.llvm.target import Target, host_target, make_target, require_runnable
from graphc.ir import dtypes
from graphc.ir.kernel import BufferRef, Launch, Program
from graphc.ir.types import TensorType

from .native import kernel_of, pool

TEXT = "define i64 @f() {\n  ret i64 7\n}\n"
HOST = host_target()
X86 = pytest.mark.skipif(HOST.arch != "x86_64", reason="x86-64 features")
GENERIC = make_target(HOST.triple, "x86-64" if HOST.arch == "x86_64" else "generic")


def test_another_targets_object_is_the_one_made_in_process() -> None:
    cache = ObjectCache()
    assert cache.compile(TEXT, GENERIC) == compile_object(TEXT, GENERIC)
    assert apart._helper._process is not None
    assert global_names(cache.compile(TEXT, GENERIC)) == ({"f"}, set())
    assert (cache.hits, cache.misses) == (1, 1)


def test_another_architecture() -> None:
    other = "aarch64" if HOST.arch == "x86_64" else "x86_64"
    data = ObjectCache().compile(TEXT, make_target(f"{other}-unknown-linux-gnu"))
    machine = int.from_bytes(data[18:20], "little")
    assert machine == {"aarch64": 183, "x86_64": 62}[other]


def test_refused_code_is_an_error_like_the_hosts() -> None:
    with pytest.raises(LLVMError, match="LLVM rejects generated code") as caught:
        ObjectCache().compile("define i64 @f() {\n  ret i32 %x\n}\n", GENERIC)
    assert ">     2   ret i32 %x" in str(caught.value)


@X86
def test_a_fatal_error_of_llvm_does_not_end_this_process() -> None:
    cache = ObjectCache()
    impossible = make_target(HOST.triple, "i386")
    for _ in range(2):
        with pytest.raises(LLVMError, match=r"64-bit code requested.*doesn't support it") as caught:
            cache.compile(TEXT, impossible)
        assert "CPU 'i386'" in str(caught.value)
        assert len(cache.compile(TEXT + " ", GENERIC)) > 100  # by the next helper
    assert cache.hits <= 1


@X86
def test_threads_share_the_helper() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            text = TEXT.replace("7", str(number))
            assert ObjectCache().compile(text, GENERIC) == compile_object(text, GENERIC)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_a_helper_of_its_own() -> None:
    ObjectCache().compile(TEXT, GENERIC)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
        child = os.fork()
    if child == 0:
        try:
            made = apart.compile_apart(TEXT, GENERIC, 1, "none", True)
            os.write(writing, b"y" if made == compile_object(TEXT, GENERIC) else b"n")
            assert apart._helper._finalizer is not None
            apart._helper._finalizer()
        finally:
            os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"y"
    os.close(reading)
    os.waitpid(child, 0)
    assert len(apart.compile_apart(TEXT, GENERIC, 1, "none", True)) > 100


DOUBLE = kernel_of("""kernel double(a: f32[100] in, o: f32[100] out) dims () {
  stage { vector v in [100] { store o[v] = add.f32(a[v], a[v]) } } }""")


def program() -> Program:
    type_ = TensorType(dtypes.f32, (100,))
    step = Launch(DOUBLE, (BufferRef("input", 0), BufferRef("output", 0)), ())
    return Program("double", (), (type_,), (type_,), (), (step,), 0)


@X86
@pytest.mark.parametrize("cpu, features", [("x86-64", ""), ("x86-64", "+sse4.2")])
def test_a_program_for_an_older_machine_runs_here(cpu: str, features: str) -> None:
    target = make_target(HOST.triple, cpu, features)
    executable = build(program(), pool=pool(1), memory=memory.HOST, table={}, target=target)
    x, y = np.arange(100, dtype="f4"), np.zeros(100, "f4")
    executable.run([x], [y])
    assert (y == 2 * x).all()


@X86
@pytest.mark.parametrize(
    "target, message",
    [
        (make_target("aarch64-unknown-linux-gnu"), "this machine is x86_64"),
        (make_target(HOST.triple, "x86-64", "+amx-of-tomorrow"), "lacks amx-of-tomorrow"),
        (make_target(HOST.triple, "a-cpu-of-tomorrow"), "Cure: name a level"),
    ],
)
def test_code_that_this_machine_cannot_run_is_refused(target: Target, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(program(), pool=pool(1), memory=memory.HOST, table={}, target=target)


def test_what_runs_here() -> None:
    require_runnable(HOST)
    require_runnable(GENERIC)
