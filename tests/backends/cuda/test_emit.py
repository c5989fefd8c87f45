"""CUDA C from the same kernels as the CPU's: its meaning on an emulated block, and its cubins."""

import numpy as np
import pytest

from graphc.backends.cuda.backend import BACKEND
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.libraries import RELEASES
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.kernel import Kernel
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.passes.lower.template_loops import as_loops

from ...ir import kernel_cases as cases
from . import needs
from .emulated import SCHEDULES, CheckFalse, EmulatedBackend

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


# a Check whose loop carries what comes behind it
GATHER_SUM = GATHER.replace("gather(", "gather_sum(").replace(
    "vector v in [20] {", "vector v in [20] carry c: f32 = 0.0:f32 {"
).replace("store o[v] = w[t]\n", "x = w[t]\n    next c add x\n").replace(
    "} } }", "}\n    store o[0] = c\n  } }"
)
HALVES = """kernel halves(
    a: f16[600] in, b: bf16[600] in, o: f16[600] out, m: bf16[2] out) dims () {
  stage { parallel p in [2] chunk [1] {
    vector v in [300] carry c: bf16 = -inf:bf16 { next c max b[300*p + v] }
    store m[p] = c
  } }
  stage { vector v in [600] {
    x = where.bf16(gt.bool(b[v], 0.5:bf16), b[v], 2.0:bf16)
    store o[v] = mul.f16(exp.f16(a[v]), cast.f16(x))
  } } }"""
# sums and products that leave the range of their integers
WRAPS = """kernel wraps(a: i32[600] in, s: i32[2] out, p: i32[2] out, m: i64[2] out,
    o: bool[600] out, t: i64[3] inout) dims () {
  stage { parallel p0 in [2] chunk [1] {
    vector v in [300] carry c: i32 = 7:i32, d: i32 = 3:i32, e: i64 = 5:i64 {
      x = a[300*p0 + v]
      y = cast.i64(x)
      next c add x
      next d mul x
      next e mul add.i64(mul.i64(y, y), 1:i64)
      store o[300*p0 + v] = gt.bool(add.i32(x, 1:i32), x)
    }
    store s[p0] = c
    store p[p0] = d
    store m[p0] = e
  } }
  stage { serial r in [600] { serial n in [3] {
    store t[n] add= mul.i64(cast.i64(a[r]), 9223372036854775807:i64)
  } } } }"""
# more than 48 KiB of shared memory
TILE = """kernel tile(a: f32[14000] in, o: f32[14000] out) dims () {
  stage { parallel p in [1] chunk [1] {
    local t: f32[14000]
    vector v in [14000] { store t[v] = a[v] }
    vector w in [14000] { store o[w] = t[13999 + -1*w] }
  } } }"""
# what the first thread stores, and all read before and after
UNIFORM = """kernel uniform(a: f32[300] inout, o: f32[300] out) dims () {
  stage {
    x = a[0]
    store a[0] = add.f32(x, 1.0:f32)
    y = a[0]
    vector v in [300] { store o[v] = add.f32(mul.f32(x, 10.0:f32), y) }
  } }"""


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
        lowered[name] = print_kernel(as_loops(kernel, BACKEND.machine))
    return lowered


KERNELS = {
    **templates(),
    "POINTWISE": POINTWISE,
    "SOFTMAX": SOFTMAX,
    "TWO_STAGES": TWO_STAGES,
    "GATHER": GATHER,
    "GATHER_SUM": GATHER_SUM,
    "HALVES": HALVES,
    "WRAPS": WRAPS,
    "TILE": TILE,
    "UNIFORM": UNIFORM,
}
LENGTH = 700  # of n


def kernel_of(text: str) -> Kernel:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    return kernel


def buffers_of(kernel: Kernel) -> list[np.ndarray]:
    buffers: list[np.ndarray] = []
    for param in kernel.params:
        size = param.size if isinstance(param.size, int) else LENGTH
        if param.dtype is dtypes.i64:
            buffers.append(RNG.integers(0, 50, size))
        elif not param.dtype.is_float and param.dtype is not dtypes.bool_:
            info = np.iinfo(param.dtype.numpy)
            edges = [info.max, info.min, info.max - 2]
            rest = RNG.integers(info.min, info.max, size, param.dtype.numpy) | 1
            buffers.append(np.where(np.arange(size) % 100 < 3, np.resize(edges, size), rest))
            buffers[-1] = buffers[-1].astype(param.dtype.numpy)
        else:
            buffers.append(RNG.standard_normal(size).astype(param.dtype.numpy))
    return buffers


@pytest.mark.parametrize("name", KERNELS)
def test_the_emitted_code_means_the_kernel(name: str, emulated: EmulatedBackend) -> None:
    kernel = kernel_of(KERNELS[name])
    dims = [LENGTH] * len(kernel.dims)
    buffers = buffers_of(kernel)
    reference = [b.copy() for b in buffers]
    run_kernel(kernel, reference, dims, TABLE)
    for kernel_text in KERNELS.values():
        emulated.add(kernel_of(kernel_text))  # all are compiled at the first launch
    for schedule in SCHEDULES:
        emulated.schedule = schedule
        results = [b.copy() for b in buffers]
        emulated.launch(kernel, results, dims)
        for got, want, param in zip(results, reference, kernel.params, strict=True):
            cases.assert_close(got, want, param.dtype)


def test_a_failed_check_is_reported(emulated: EmulatedBackend) -> None:
    for name in ("GATHER", "GATHER_SUM"):
        places = RNG.integers(0, 50, 20)
        places[13] = 1 << 40
        kernel = kernel_of(KERNELS[name])
        buffers = [places, RNG.standard_normal(50).astype("f4"), np.zeros(20, "f4")]
        with pytest.raises(CheckFalse, match=f"IndexError: {1 << 40}"):
            emulated.launch(kernel, buffers, [])
        assert buffers[2][13] == 0


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


def test_emitting_is_pure() -> None:
    assert emit(kernel_of(SOFTMAX)) == emit(kernel_of(SOFTMAX))
