"""Code for other CPUs: what their inner loops look like, and models on narrower registers here."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc import backends, config
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.target import Target, make_target
from graphc.engine import pipeline
from graphc.ir import dtypes
from tests.ir.random_graphs import random_graph

from .contractions import Gemm, narrow_targets

NARROW = {f"{target.vector_bytes * 8} bits": target for target in narrow_targets()}


class Cpu(NamedTuple):
    """A CPU whose code is looked at: its registers, its multiply-add, how it names its stack."""

    target: Target
    registers: str
    fma: str
    stack: str


CPUS = {
    "AVX-512": Cpu(
        make_target("x86_64-unknown-linux-gnu", "skylake-avx512",
                    "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"),
        "%zmm", "vfmadd", r"\(%r[sb]p\)",
    ),
    "AVX2": Cpu(
        make_target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma"),
        "%ymm", "vfmadd", r"\(%r[sb]p\)",
    ),
    "NEON": Cpu(
        make_target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon"),
        "v", "fmla", r"\[sp",
    ),
}


def loops(assembly: str) -> Iterator[list[str]]:
    """The bodies of the innermost loops: from a label to a jump back to it, no label between."""
    body: list[str] = []
    label = ""
    for line in assembly.splitlines():
        text = line.split("#")[0].split("//")[0].strip()
        if re.fullmatch(r"\.?L\w+:", text):
            label, body = text[:-1], []
        elif text and not text.startswith("."):
            body.append(text)
            if re.match(r"(j\w+|b\.?\w*|cbn?z|tbn?z)\s", text) and text.split()[-1] == label:
                yield body[:]


@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64])
def test_the_inner_loop_of_a_product(name: str, dtype: Any) -> None:
    """All accumulators are in registers, and nothing goes through the stack."""
    cpu = CPUS[name]
    kernel = Gemm(96, 256, 128, dtype=dtype).kernel()
    texts = [
        emit_library(each, cpu.target).text() for each in template_libraries(kernel, cpu.target)
    ]
    bodies = [body for text in texts for body in loops(compile_assembly(text, cpu.target))]
    hottest = max(bodies, key=lambda body: sum(line.startswith(cpu.fma) for line in body))
    tiling = cpu.target.machine.tiling
    assert tiling is not None
    products = [line for line in hottest if line.startswith(cpu.fma)]
    assert len(products) >= tiling.rows * tiling.vectors
    assert len(products) % (tiling.rows * tiling.vectors) == 0
    assert all(cpu.registers in line for line in products), products
    assert not [line for line in hottest if re.search(cpu.stack, line)], hottest
    assert len(products) > 0.4 * len(hottest)  # the rest is loads and broadcasts


# --- whole programs on narrower registers of this machine -----------------------------------------


@functools.cache
def backend_of(name: str) -> str:
    """A backend for a narrower CPU, by name."""
    called = f"narrow {name}"
    backends.register(called, lambda: LlvmBackend(NARROW[name]), ("debug",))
    return called


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(40), nn.Linear(40, 120), nn.Linear(40, 7)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).view(3, 19, 3, 5, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.gelu(self.out(mixed.transpose(1, 2).reshape(3, 19, 40))).mean(1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTM(9, 21, batch_first=True), nn.Linear(21, 7)

    def forward(self, x: Any) -> Any:
        return self.out(self.cell(x)[0][:, -1])


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(53, 90), nn.Tanh(), nn.Linear(90, 7)), (37, 53)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 13, 3, padding=1), nn.BatchNorm2d(13), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(13, 13, 3, groups=13), nn.SiLU(), nn.Conv2d(13, 20, 1), nn.Flatten(),
            nn.Linear(20 * 25, 7),
        ), (3, 3, 14, 14),
    ),
    "attention": (Attends, (3, 19, 40)),
    "lstm": (Recurrent, (5, 11, 9)),
}


def steps(model: str, backend: str) -> list[np.ndarray]:
    """Losses and parameters of two steps."""
    make, shape = MODELS[model]
    torch.manual_seed(4)
    net = make()
    # eps: biases in front of norms and of softmax have a gradient of rounding errors alone
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, eps=1e-3)
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.standard_normal(shape, np.float32))
    y = torch.from_numpy(rng.integers(0, 7, shape[0]))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = torch.compile(step, backend=backend)
    return [t.detach().numpy().copy() for t in (run(x, y), run(x, y), *net.parameters())]


QUICK = [(name, "mlp") for name in NARROW][:1]


@pytest.mark.parametrize(("name", "model"), [
    pair if pair in QUICK else pytest.param(*pair, marks=pytest.mark.slow)
    for pair in itertools.product(NARROW, MODELS)
])
def test_training_steps_on_narrower_registers(name: str, model: str) -> None:
    expected = steps(model, "eager")
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(steps(model, backend_of(name)))
    finally:
        torch.set_num_threads(before)
    for one, three, eager in zip(*found, expected, strict=True):
        assert one.tobytes() == three.tobytes()  # whatever the registers, the threads change no bit
        np.testing.assert_allclose(one, eager, rtol=2e-3, atol=2e-4)


def same_as_numpy(backend: str, seeds: range) -> None:
    for seed in seeds:
        maker = random_graph(seed, 25)
        graph, values = maker.graph(), maker.arrays(seed)
        found: list[Any] = []
        for each in ("numpy", backend):
            given = [x.copy() for x in values]
            built = pipeline.build(
                graph, config=config.current()._replace(cache_dir=None), mutated=maker.mutated,
                backend=each,
            )
            results = [np.empty(n.shape, n.dtype.numpy) for n in graph.outputs]
            results = [given[maker.mutated[i]] if i in maker.mutated else r
                       for i, r in enumerate(results)]
            try:
                built.run(given, results)
            except Exception as error:  # an index out of range: both say so
                found.append(type(error))
            else:
                found.append(results)
        if isinstance(found[0], type):
            assert found[0] is found[1], seed
            continue
        for want, got, node in zip(*found, graph.outputs, strict=True):
            close = {"bf16": 0.05, "f16": 0.01, "f32": 2e-4}.get(node.dtype.name, 1e-9)
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=close, atol=close,
                err_msg=f"seed {seed}",
            )


@pytest.mark.parametrize("name", NARROW)
def test_random_graphs_on_narrower_registers(name: str) -> None:
    same_as_numpy(backend_of(name), range(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_many_random_graphs_on_narrower_registers(name: str) -> None:
    same_as_numpy(backend_of(name), range(100, 180))
