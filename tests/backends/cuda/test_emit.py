"""CUDA C from the same kernels as the CPU's: its meaning on an emulated block, and its cubins."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from graphc.backends.cuda.backend import BACKEND
from graphc.backends.cuda.emit import emit, grid
from graphc.backends.cuda.libraries import RELEASES
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir import ops
from graphc.ir.kernel import Kernel
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.passes.lower.template_loops import as_loops

from ...ir import kernel_cases as cases
from . import needs

RNG = np.random.default_rng(0)

POINTWISE = """kernel chain(a: f32[n] in, b: f32[n] in, o: f32[n] out) dims (n) {
  stage { parallel p in [(n + 255) // 256] chunk [4] { vector v in [min(256, n + -256*p)] {
    t = add.f32(mul.f32(a[256*p + v], 1.5:f32), b[256*p + v])
    store o[256*p + v] = where.f32(gt.bool(t, 0.0:f32), tanh.f32(t), mul.f32(t, 0.01:f32))
  } } } }"""

SOFTMAX = """kernel softmax(a: f32[3000] in, o: f32[3000] out) dims () {
  stage { parallel p in [30] chunk [4] {
    vector v in [100] carry m: f32 = -inf:f32 { next m max a[100*p + v] }
    vector w in [100] carry s: f32 = 0.0:f32 { next s add exp.f32(sub.f32(a[100*p + w], m)) }
    vector x in [100] { store o[100*p + x] = div.f32(exp.f32(sub.f32(a[100*p + x], m)), s) }
  } } }"""

TWO_STAGES = """kernel total(
    a: f32[1000] in, part: f32[10] scratch, o: f32[1] out, i: i64[1] out) dims () {
  stage { parallel p in [10] chunk [1] {
    vector v in [100] carry c: f32 = 0.0:f32 { next c add a[100*p + v] }
    store part[p] = c
  } }
  stage {
    vector v in [10] carry t: f32 = 0.0:f32, m: f32 = -inf:f32, at: i64 = 0:i64 {
      next t add part[v]
      next m argmax part[v]
      next at index index[v]
    }
    store o[0] = t
    store i[0] = at
  } }"""

GATHER = """kernel gather(i: i64[20] in, w: f32[50] in, o: f32[20] out) dims () {
  stage { vector v in [20] {
    t = i[v]
    check logical_and.bool(ge.bool(t, 0:i64), lt.bool(t, 50:i64)), "IndexError: {value}", t
    store o[v] = w[t]
  } } }"""


def templates() -> dict[str, str]:
    """Products and convolutions, as the loops that this backend is given."""
    window = {
        "stride": (2, 1), "pad_low": (1, 0), "pad_high": (1, 1), "dilation": (1, 2), "groups": 2,
    }
    graphs = {
        "PRODUCT": cases.build(
            lambda a, b: ops.relu(ops.dot_general(
                a, b, batch_a=(0,), batch_b=(0,), contract_a=(2,), contract_b=(1,)
            )), (2, 3, 5), (2, 5, 4),
        ),
        "CONVOLUTION": cases.build(
            lambda x, w: ops.conv(x, w, **window), (2, 4, 6, 7), (6, 2, 3, 2)
        ),
        "INPUT_GRAD": cases.build(
            lambda g, w: ops.conv_input_grad(g, w, input_shape=(2, 4, 6, 7), **window),
            (2, 6, 3, 6), (6, 2, 3, 2),
        ),
        "WEIGHT_GRAD": cases.build(
            lambda x, g: ops.conv_weight_grad(x, g, weight_shape=(6, 2, 3, 2), **window),
            (2, 4, 6, 7), (2, 6, 3, 6),
        ),
    }
    lowered = {}
    for name, graph in graphs.items():
        (kernel,) = cases.kernels(cases.compiled(graph, machine=BACKEND.machine))
        assert not BACKEND.renders(kernel.template)
        lowered[name] = print_kernel(as_loops(kernel, BACKEND.machine))
    return lowered


KERNELS = {
    **templates(),
    "POINTWISE": POINTWISE,
    "SOFTMAX": SOFTMAX,
    "TWO_STAGES": TWO_STAGES,
    "GATHER": GATHER,
}
LENGTH = 700  # of n
THREADS = 8

# A block as threads of the CPU. One block runs after the other, so shared memory may be static.
EMULATION = """
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>
#define __global__
#define __device__ static
#define __shared__ static
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;
static std::barrier<>* block_barrier;
static inline void __syncthreads() { block_barrier->arrive_and_wait(); }
typedef unsigned long long Word;
static inline Word atomicCAS(Word* p, Word a, Word b) {
  __atomic_compare_exchange_n(p, &a, b, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return a;
}
template <class F> static void launch(unsigned blocks, unsigned threads, F kernel) {
  gridDim.x = blocks; blockDim.x = threads;
  for (unsigned b = 0; b < blocks; b++) {
    std::barrier<> barrier(threads);
    block_barrier = &barrier;
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; t++)
      all.emplace_back([=] { threadIdx.x = t; blockIdx.x = b; kernel(); });
    for (auto& thread : all) thread.join();
  }
}
"""


def kernel_of(text: str) -> Kernel:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    return kernel


def host_function(name: str, kernel: Kernel) -> str:
    """C++ with a function `name`(words, status) that launches a kernel's stages."""
    source = emit(kernel)
    types = {"f32": "float", "i64": "long long"}
    words = [f"({types[p.dtype.name]}*)args[{n}]" for n, p in enumerate(kernel.params)]
    words += [f"args[{len(words) + n}]" for n in range(len(kernel.dims))]
    env = [(dim, LENGTH) for dim in kernel.dims]
    calls = []
    for stage in source.stages:
        call = f"{stage.name}({', '.join(words)}, status)"
        calls.append(f"launch({grid(stage, env)}, {THREADS}, [=] {{ {call}; }});")
    run = f'extern "C" void {name}(long long* args, long long* status) {{ {" ".join(calls)} }}'
    return f"namespace {name.lower()} {{ {source.text} {run} }}"


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All kernels of this file as one C++ library."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to emulate a block")
    folder = tmp_path_factory.mktemp("cuda")
    path, library = folder / "kernels.cpp", folder / "kernels.so"
    functions = [host_function(name, kernel_of(text)) for name, text in KERNELS.items()]
    path.write_text(EMULATION + "\n".join(functions))
    options = "-std=c++20 -O0 -w -ffp-contract=off -pthread -shared -fPIC".split()
    subprocess.run(["g++", *options, str(path), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def emulate(library: ctypes.CDLL, name: str, buffers: list[np.ndarray]) -> np.ndarray:
    """Runs a kernel in place; returns the status words."""
    status = np.zeros(4, np.int64)
    words = [*(b.ctypes.data for b in buffers), LENGTH]
    args = (ctypes.c_int64 * len(words))(*words)
    getattr(library, name)(args, ctypes.c_void_p(status.ctypes.data))
    return status


@pytest.mark.parametrize("name", KERNELS)
def test_the_emitted_code_means_the_kernel(name: str, emulated: ctypes.CDLL) -> None:
    kernel = kernel_of(KERNELS[name])
    buffers: list[np.ndarray] = []
    for param in kernel.params:
        size = param.size if isinstance(param.size, int) else LENGTH
        if param.dtype.name == "i64":
            buffers.append(RNG.integers(0, 50, size))
        else:
            buffers.append(RNG.standard_normal(size).astype("f4"))
    reference = [b.copy() for b in buffers]
    status = emulate(emulated, name, buffers)
    assert status[0] == 0
    run_kernel(kernel, reference, [LENGTH] * len(kernel.dims), TABLE)
    for got, want in zip(buffers, reference, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_failed_check_is_reported(emulated: ctypes.CDLL) -> None:
    places = RNG.integers(0, 50, 20)
    places[13] = 1 << 40
    buffers = [places, RNG.standard_normal(50).astype("f4"), np.zeros(20, "f4")]
    status = emulate(emulated, "GATHER", buffers)
    assert list(status) == [1, 0, 0, 1 << 40] and buffers[2][13] == 0


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", KERNELS)
def test_nvrtc_makes_a_cubin(name: str, release: int, architecture: str) -> None:
    source = emit(kernel_of(KERNELS[name]))
    compiled = needs.compiler(release).compile(source.text, architecture)
    assert compiled.cubin[:4] == b"\x7fELF"
    assert set(compiled.uses) == {stage.name for stage in source.stages}
    for stage in source.stages:
        assert stage.name.encode() in compiled.cubin
        use = compiled.uses[stage.name]
        assert 0 < use.registers <= 64 and use.spilled == 0


def test_emitting_is_pure_and_names_what_is_missing() -> None:
    assert emit(kernel_of(SOFTMAX)) == emit(kernel_of(SOFTMAX))
    half = SOFTMAX.replace("f32", "f16")
    with pytest.raises(NotImplementedError, match="f16"):
        emit(parse_kernel(half))
