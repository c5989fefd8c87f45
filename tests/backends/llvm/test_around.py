"""Large results go around the caches where the third one is far: the same numbers, behind a fence,
wherever they lie."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from graphc.backends.host.caches import third_cache
from graphc.backends.llvm import target as targets
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.target import Target, host_target, make_target

from .native import kernel_of

DOUBLE = """kernel k(a: f32[{size}] in, o: f32[{size}] out) dims ({dims}) {{
  stage {{
    vector v in [{size}] {{
      t0 = a[v]
      t1 = add.f32(t0, t0)
      store o[v] = t1
    }}
  }}
}}"""
FEATURES = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"


def far(around: int = 4096) -> Target:
    return make_target("x86_64-unknown-linux-gnu", "emeraldrapids", FEATURES)._replace(
        around=around
    )


def double(size: object, dims: str = "") -> str:
    return DOUBLE.format(size=size, dims=dims)


def test_large_results_go_around_the_caches_and_end_with_a_fence() -> None:
    text = emit(kernel_of(double(1024)), far())
    assert "!nontemporal" in text and text.count("call void @llvm.x86.sse.sfence()") == 1
    assembly = compile_assembly(text, far())
    assert "vmovntps" in assembly and "sfence" in assembly
    for small in (emit(kernel_of(double(1008)), far()), emit(kernel_of(double(1024)), far(0))):
        assert "!nontemporal" not in small and "sfence" not in small


def test_what_is_read_and_written_does_not() -> None:
    text = """kernel k(o: f32[1024] inout) dims () {
      stage { vector v in [1024] { t0 = o[v]
        t1 = add.f32(t0, t0)
        store o[v] = t1 } } }"""
    assert "!nontemporal" not in emit(kernel_of(text), far())


@pytest.mark.skipif(host_target().vector_bytes != 64, reason="this CPU has no such registers")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shift", [0, 1, 8, 15, 16])
@pytest.mark.parametrize("count", [1023, 1024, 1500, 5000])
def test_numbers_are_the_same_wherever_they_lie(known: bool, shift: int, count: int) -> None:
    from graphc.backends.llvm.jit import compile_object
    from graphc.backends.llvm.library import Library

    text = double(count) if known else double("n", "n")
    code = emit(kernel_of(text), host_target()._replace(around=4096), "k")
    library = Library([compile_object(code, host_target())])
    x = np.arange(count, dtype="f4")
    room = np.full(count + 64, -1, "f4")
    first = -room.ctypes.data // 4 % 16 + shift
    words = (ctypes.c_int64 * 3)(x.ctypes.data, room.ctypes.data + 4 * first, count)
    status = (ctypes.c_int64 * 6)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("k"))(words, status)
    np.testing.assert_array_equal(room[first : first + count], x + x)
    assert (room[:first] == -1).all() and (room[first + count :] == -1).all()


def test_the_third_cache_is_what_the_system_says(tmp_path: Path) -> None:
    assert third_cache(tmp_path) == 0  # it does not
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cache/index3"
    folder.mkdir(parents=True)
    (folder / "size").write_text("266240K\n")
    assert third_cache(tmp_path) == 266240 * 1024


def test_results_of_a_fifth_of_it_go_around_it_on_cpus_that_are_known(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "third_cache", lambda: 266240 * 1024)
    for cpu, around in (("emeraldrapids", 266240 * 1024 // 5), ("znver5", 0), ("", 0)):
        host = make_target("x86_64-unknown-linux-gnu", cpu, FEATURES)
        assert targets._asked(host).around == around
