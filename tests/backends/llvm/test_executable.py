"""Programs from build to result: arena, constants, symbolic sizes, callbacks, checks, threads."""

import threading

import numpy as np
import pytest

from graphc.backends.host.memory import HOST
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.driver import emit_driver
from graphc.backends.llvm.executable import Executable, build
from graphc.backends.llvm.target import host_target
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.failure import check_error
from graphc.ir.kernel import BufferRef, Launch, Program, Routine
from graphc.ir.kernel.program import Fetch
from graphc.ir.types import TensorType

from .native import kernel_of, pool

RNG = np.random.default_rng(3)
N = Dim.var("batch")
VECTOR = TensorType(dtypes.f32, (N,))

MUL_ADD = kernel_of("""kernel mul_add(
    a: f32[n] in, b: f32[n] in, c: f32[1] in, o: f32[n] out) dims (n) {
  stage { parallel p in [(n + 255) // 256] chunk [2] { vector v in [min(256, n + -256*p)] {
    store o[256*p + v] = add.f32(mul.f32(a[256*p + v], b[256*p + v]), c[0])
  } } } }""")

PICK = kernel_of("""kernel pick(i: i64[4] in, w: f32[10] in, o: f32[4] out) dims () {
  stage { vector v in [4] {
    t = i[v]
    ok = logical_and.bool(ge.bool(t, 0:i64), lt.bool(t, 10:i64))
    check ok, "IndexError: index {value} is bad", t
    store o[v] = w[t]
  } } }""")


def arena(offset: int | Dim) -> BufferRef:
    return BufferRef("arena", 0, offset)


def chain() -> Program:
    """sort(a * b + 0.5), and that times b plus 0.5, with a symbolic size."""
    first, second, const = BufferRef("input", 0), BufferRef("input", 1), BufferRef("const", 0)
    behind = 4 * N + 64
    steps = (
        Launch(MUL_ADD, (first, second, const, arena(behind)), (N,), ("mul", "add"), ("m.py:3",)),
        Routine("sorted", (), (arena(behind),), (VECTOR,), (BufferRef("output", 1),), (VECTOR,)),
        Launch(MUL_ADD, (arena(behind), second, const, BufferRef("output", 0)), (N,)),
    )
    half = np.array([0.5], np.float32)
    types = (VECTOR, VECTOR)
    return Program("chain", ("batch",), types, types, (half,), steps, 8 * N + 128)


def expected(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    half = np.float32(0.5)
    t = a * b + half
    return t * b + half, np.sort(t)


def vectors(size: int, count: int = 2) -> list[np.ndarray]:
    return [RNG.standard_normal(size).astype("f4") for _ in range(count)]


def chain_executable(**options: object) -> Executable:
    table = {"sorted": np.sort}
    return build(chain(), pool=pool(2), memory=HOST, table=table, **options)  # type: ignore[arg-type]


def test_a_program_end_to_end() -> None:
    executable = chain_executable()
    for size in (1000, 7, 5000, 2):
        inputs, outputs = vectors(size), [np.zeros(size, "f4") for _ in range(2)]
        executable.run(inputs, outputs, [size])
        for got, want in zip(outputs, expected(*inputs), strict=True):
            assert (got == want).all()


def test_kernels_are_compiled_once_and_cached() -> None:
    cache = ObjectCache()
    first = chain_executable(cache=cache).stats
    assert [k.cached for k in first.kernels] == [False]
    assert first.kernels[0].object_bytes > 500 and first.emit > 0
    again = chain_executable(cache=cache).stats
    assert [k.cached for k in again.kernels] == [True] and again.emit == 0


def test_threads_may_call_one_executable() -> None:
    executable = chain_executable()
    failures: list[BaseException] = []

    def work(size: int) -> None:
        try:
            for _ in range(20):
                inputs, outputs = vectors(size), [np.zeros(size, "f4") for _ in range(2)]
                executable.run(inputs, outputs, [size])
                assert (outputs[1] == expected(*inputs)[1]).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(500 + 333 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_callback_may_run_the_program_again() -> None:
    depth = 0
    results: list[np.ndarray] = []

    def recurse(x: np.ndarray) -> np.ndarray:
        nonlocal depth
        depth += 1
        if depth < 3:
            call()
        return np.sort(x)

    executable = build(chain(), pool=pool(2), memory=HOST, table={"sorted": recurse})

    def call() -> None:
        inputs, outputs = vectors(100), [np.zeros(100, "f4") for _ in range(2)]
        executable.run(inputs, outputs, [100])
        assert (outputs[0] == expected(*inputs)[0]).all()
        results.append(outputs[0])

    call()
    assert len(results) == 3


def test_a_callback_that_raises_stops_the_call() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError(f"no {x.size}")

    executable = build(chain(), pool=pool(1), memory=HOST, table={"sorted": fail})
    inputs, outputs = vectors(9), [np.zeros(9, "f4") for _ in range(2)]
    with pytest.raises(ValueError, match="no 9"):
        executable.run(inputs, outputs, [9])
    assert (outputs[0] == 0).all()


def test_a_callback_without_an_implementation_is_named_at_build() -> None:
    with pytest.raises(NotImplementedError, match="'sorted'"):
        build(chain(), pool=pool(1), memory=HOST, table={})


def pick_program() -> Program:
    index, weight, four = (
        TensorType(dtypes.i64, (4,)),
        TensorType(dtypes.f32, (10,)),
        TensorType(dtypes.f32, (4,)),
    )
    buffers = (BufferRef("input", 0), BufferRef("input", 1))
    steps = (
        Launch(PICK, (*buffers, arena(0)), (), ("index",), ("net.py:12",)),
        Launch(PICK, (*buffers, BufferRef("output", 0)), (), ("index",), ("net.py:13",)),
    )
    return Program("pick", (), (index, weight), (four,), (), steps, 64)


def test_a_failed_check_raises_its_exception_with_the_line() -> None:
    executable = build(pick_program(), pool=pool(1), memory=HOST, table={})
    index, weight, o = np.array([1, 2, 3, 11]), *vectors(10, 1), np.zeros(4, "f4")
    with pytest.raises(IndexError, match=r"index 11 is bad\n.*net\.py:12"):
        executable.run([index, weight], [o])
    assert (o == 0).all(), "the step after the failed one ran"
    index[3] = 0
    executable.run([index, weight], [o])
    assert (o == weight[index]).all()


def test_check_error_picks_the_class() -> None:
    assert type(check_error("IndexError: a: b", ())) is IndexError
    assert str(check_error("IndexError: a: b", ())) == "a: b"
    assert type(check_error("ZeroDivisionError", ())) is RuntimeError
    assert type(check_error("print: x", ())) is RuntimeError


def test_trace_shows_every_step() -> None:
    executable = chain_executable()
    inputs, outputs = vectors(50), [np.zeros(50, "f4") for _ in range(2)]
    seen: list[tuple[int, float]] = []
    where = arena(4 * N + 64)

    def visit(number: int, step: object, fetch: Fetch) -> None:
        seen.append((number, float(fetch(where, np.dtype("f4"), 50)[0])))

    executable.trace(inputs, outputs, lambda *_: None, visit, [50])
    first = float(inputs[0][0] * inputs[1][0] + np.float32(0.5))
    assert seen == [(0, first), (1, first), (2, first)]


def test_a_wrong_number_of_arrays_is_refused() -> None:
    executable = chain_executable()
    inputs, outputs = vectors(50), [np.zeros(50, "f4") for _ in range(2)]
    with pytest.raises(ValueError, match="takes 2 inputs, 2 outputs and 1 dims, got 1, 2 and 1"):
        executable.run(inputs[:1], outputs, [50])


def test_an_empty_program() -> None:
    nothing = Program("nothing", (), (), (), (), (), 0)
    build(nothing, pool=pool(1), memory=HOST, table={}).run([], [])


def test_the_driver_is_a_pure_table() -> None:
    text, layout = emit_driver(chain(), ["k_a", "", "k_a"], [False, True, False], host_target())
    assert text == emit_driver(chain(), ["k_a", "", "k_a"], [False, True, False], host_target())[0]
    assert (layout.inputs, layout.outputs, layout.constants, layout.dims) == (9, 11, 13, 14)
    assert layout.words == 16  # one offset is computed from the dim
