"""Kernels meet subnormal numbers only where their operands or results have some: Intel's CPUs take
some 150 cycles for each. What the CPU notes in MXCSR says whether they did."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn.functional as F
from graphc import Tensor
from graphc.backends.host import allocator
from graphc.backends.llvm import arenas, executable
from graphc.backends.llvm.binding import binding
from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.target import host_target

HOST = host_target()
pytestmark = pytest.mark.skipif(HOST.arch != "x86_64", reason="MXCSR is x86's")
SUBNORMAL, UNDERFLOW, FLAGS = 1 << 1, 1 << 4, 0x3F
FEW = "exp of -90"
ROOT = Path(__file__).parents[3]
_ENGINES: list[Any] = []  # which hold the code
_TEXT = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @exchanged(i32 %to, i32 %keep) {
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %old = load i32, ptr %place
  %kept = and i32 %old, %keep
  %new = or i32 %kept, %to
  store i32 %new, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret i32 %old
}
"""


def exchanging() -> Callable[[int, int], int]:
    """MXCSR, of which some bits are kept and some set."""
    llvm = binding()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), llvm.Target.from_triple(HOST.triple).create_target_machine()
    )
    engine.add_object_file(llvm.ObjectFileRef.from_data(compile_object(_TEXT, HOST)))
    engine.finalize_object()
    _ENGINES.append(engine)
    address = engine.get_function_address("exchanged")
    return ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)(address)


@contextmanager
def by_itself() -> Iterator[None]:
    threads = graphc.get_num_threads()
    graphc.set_num_threads(1)
    try:
        yield
    finally:
        graphc.set_num_threads(threads)


def gradients(function: Callable[..., Tensor]) -> Callable[..., object]:
    def of(*arguments: Tensor) -> object:
        return graphc.autograd.grad(function(*arguments).sum(), arguments)

    return of


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


HEADS = ((2, 3, 33, 20),) * 3
CASES: dict[str, tuple[Callable[..., object], tuple[tuple[int, ...], ...]]] = {
    "exp of masked": (lambda x: x.masked_fill(x < 0, -np.inf).exp(), ((33, 65),)),
    "exp of far": (lambda x: (x - 1000).exp(), ((33, 65),)),
    "exp2 of far": (lambda x: (x - 1000).exp2(), ((33, 65),)),
    "masked softmax": (lambda x: x.masked_fill(x < 0, -1e9).softmax(-1), ((33, 65),)),
    "causal": (causal, HEADS),
    "causal, gradients": (gradients(causal), HEADS),
    "attention": (whole, HEADS),
    "attention, gradients": (gradients(whole), HEADS),
    "causal, many": (causal, ((2, 3, 200, 40),) * 3),
    "causal, many, gradients": (gradients(causal), ((2, 3, 200, 40),) * 3),
    "turned right operand": (lambda a, b: a @ b.t(), ((96, 128), (65, 128))),
    "turned right operand, few": (lambda a, b: a @ b.t(), ((50, 33), (7, 33))),
    "linear, gradients": (gradients(F.linear), ((50, 33), (65, 33), (65,))),
    "convolution, gradients": (
        gradients(lambda x, w: F.conv2d(x, w, padding=1)), ((2, 17, 15, 15), (33, 17, 3, 3)),
    ),
    "volumes, gradients": (
        gradients(lambda x, w: F.conv3d(x, w, padding=1)), ((1, 5, 9, 9, 9), (7, 5, 3, 3, 3)),
    ),
}


def alone(arenas: object, size: int) -> np.ndarray:
    """An arena of its own that begins with small integers, which are subnormal as floats."""
    memory = allocator.alone(size)
    memory[: size // 4 * 4].view(np.int32)[:] = 3
    return memory


def met(
    function: Callable[..., object], tensors: list[Tensor], exchanged: Callable[[int, int], int]
) -> int:
    """What a call noted, by itself."""
    compiled = graphc.compile(function)
    with by_itself():
        for _ in range(4):  # code for calls is made in one of them, by LLVM in this thread
            compiled(*tensors)
        before = exchanged(0, ~FLAGS & 0xFFFFFFFF)
        try:
            compiled(*tensors)
            return exchanged(0, ~FLAGS & 0xFFFFFFFF) & (SUBNORMAL | UNDERFLOW)
        finally:
            exchanged(before & FLAGS, ~FLAGS & 0xFFFFFFFF)


def main() -> None:
    """Says what each case met, and what exp of -90 did."""
    arenas.Arenas.take = alone
    executable.SHARED = 0
    gc.disable()
    exchanged, random, noted = exchanging(), np.random.default_rng(0), {}
    for name, (function, shapes) in CASES.items():
        tensors = [
            graphc.from_numpy(random.standard_normal(shape, np.float32)).requires_grad_()
            for shape in shapes
        ]
        noted[name] = met(function, tensors, exchanged)
    noted[FEW] = met(lambda x: x.exp(), [graphc.full((64,), -90.0)], exchanged)
    print(json.dumps(noted))


@pytest.fixture(scope="module")
def noted() -> dict[str, int]:
    """Of a process of its own, in which nothing else runs between two looks."""
    code = "from tests.backends.llvm.test_subnormals import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_no_subnormal_number_is_met(name: str, noted: dict[str, int]) -> None:
    assert not noted[name]


def test_what_is_subnormal_is_noticed(noted: dict[str, int]) -> None:
    """Else the test above could not fail; and these results are kept."""
    assert noted[FEW] & UNDERFLOW
    result = graphc.compile(lambda x: x.exp())(graphc.full((64,), -90.0))
    np.testing.assert_allclose(result.numpy(), np.exp(np.full(64, -90.0)), rtol=1e-5)
