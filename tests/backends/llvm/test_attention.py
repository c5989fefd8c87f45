"""Attention's native code against its meaning: widths, lengths, masks, targets, threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphc.backends.llvm.backend import BACKEND
from graphc.backends.llvm.target import Target
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim, evaluate
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Attention, Kernel
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.plan_attention import shared_sums
from graphc.ir.kernel.templates.attention import RESULTS
from graphc.ir.ops._counter import DRAW
from graphc.ir.record import replaced

from ...ir import kernel_cases as cases
from .contractions import guarded, narrow_targets, run, unharmed

f32, f64 = dtypes.f32, dtypes.f64


def kernel(
    name: str, batch: int, m: int, n: int, e: int, f: int, causal: bool = False,
    mask: tuple[Any, ...] = (), dtype: DType = f32, dropout: float = 0.0,
    results: Sequence[str] = (), drawn: bool = False,
) -> Kernel:
    shapes = [(batch, m, e), (batch, n, e), (batch, n, f)]
    if name == "attention_grad":
        shapes += [(batch, m, f), (batch, m), (batch, m)]
    inputs = [(dtype, shape) for shape in shapes]
    more = [mask] if mask else []
    attrs: dict[str, Any] = {"causal": causal, "scale": e**-0.5}
    if dropout:
        more.append((DRAW.dtype, DRAW.shape) if drawn else (dtypes.bool_, (batch, m, n)))
        attrs["dropout"] = dropout
    names = list(RESULTS[name])
    wanted = [names.index(result) for result in results or names]

    def function(*x: Any) -> Any:
        return tuple(getattr(ops, name)(*x, **attrs)[number] for number in wanted)

    graph = cases.build(function, *inputs, *more)
    (found,) = cases.kernels(cases.compiled(graph))
    assert isinstance(found.template, Attention)
    return found


def operands(found: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    assert isinstance(found.template, Attention)
    reads = {operand.buffer: name for name, operand in found.template.inputs}
    arrays = []
    for param in found.params:
        size = evaluate(param.size, {})
        array = rng.standard_normal(size)
        if param.dtype is dtypes.i64:
            arrays.append(rng.integers(2**62, size=size) | 1)
            continue
        if reads.get(param.name) == "lse":
            array = array + 4.0
        if param.dtype is dtypes.bool_:
            array = array > -1.0
        arrays.append(array.astype(param.dtype.numpy))
    return arrays


def check(found: Kernel, target: Target | None = None, threads: int = 1) -> list[np.ndarray]:
    """The native results, which are the interpreter's, with nothing written beside them."""
    before = operands(found)
    want = [x.copy() for x in before]
    run_kernel(found, want, (), TABLE)
    memory: list[np.ndarray] = []
    buffers: list[np.ndarray] = []
    for param, array in zip(found.params, before, strict=True):
        whole, inside = guarded(array.size, array.dtype)
        inside[:] = np.nan if param.access == "out" else array
        memory.append(whole)
        buffers.append(inside)
    run(found, buffers, target=target, threads=threads)
    results = []
    for param, whole, got, expected in zip(found.params, memory, buffers, want, strict=True):
        tolerance = 2e-5 if param.dtype is f32 else 1e-12
        assert param.access == "in" or unharmed(whole)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
        if param.access == "out":
            results.append(got.copy())
    return results


SIZES = [
    (2, 1, 300, 64, 40), (2, 7, 200, 33, 128), (1, 2, 130, 256, 256), (2, 4, 3, 5, 1),
    (1, 1, 1, 1, 1), (3, 5, 7, 3, 2), (2, 64, 96, 16, 16), (2, 65, 97, 64, 64),
    (1, 130, 200, 40, 24), (1, 17, 300, 80, 7), (1, 200, 33, 96, 128),
    (2, 42, 90, 24, 48), (1, 97, 34, 33, 45),
]


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(name: str, sizes: tuple[int, int, int, int, int]) -> None:
    for causal in (False, True):
        check(kernel(name, *sizes, causal=causal))


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
@pytest.mark.parametrize("dtype", [f32, f64], ids=lambda d: d.name)
def test_masks(name: str, dtype: DType) -> None:
    for shape in ((70, 100), (1, 100), (70, 1), (2, 70, 100), (2, 1, 100)):
        for mask in ((dtype, shape), (dtypes.bool_, shape)):
            check(kernel(name, 2, 70, 100, 24, 20, mask=mask, dtype=dtype))


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
def test_dropout(name: str) -> None:
    check(kernel(name, 2, 70, 100, 24, 20, causal=True, dropout=0.25))
    check(kernel(name, 2, 70, 100, 24, 20, mask=(f64, (70, 100)), dtype=f64, dropout=0.6))


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
@pytest.mark.parametrize("queries", [1, 4])
def test_few_queries(name: str, queries: int) -> None:
    """Decoding: vectors along keys; all that many queries may have."""
    sizes = (3, queries, 150, 24, 20)
    check(kernel(name, *sizes, causal=True))
    for shape in ((queries, 150), (queries, 1), (3, 1, 150)):
        check(kernel(name, *sizes, mask=(dtypes.bool_, shape)))
        check(kernel(name, *sizes, mask=(f64, shape), dtype=f64))
    for drawn in (False, True):
        check(kernel(name, *sizes, dropout=0.25, drawn=drawn))
        check(kernel(name, *sizes, dropout=0.25, dtype=f64, drawn=drawn, causal=True))


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
def test_dropout_that_is_drawn(name: str) -> None:
    """No mask: the kernel draws, at ragged ends and in any block the same numbers."""
    for sizes in ((3, 70, 100, 24, 20), (1, 5, 7, 3, 2)):
        for dtype, dropout in ((f32, 0.25), (f64, 0.9)):
            found = kernel(name, *sizes, causal=True, dtype=dtype, dropout=dropout, drawn=True)
            once = check(found)
            again = check(found, threads=8)
            assert all(a.tobytes() == b.tobytes() for a, b in zip(once, again, strict=True))
    mask = (dtypes.bool_, (70, 100))
    check(kernel(name, 2, 70, 100, 24, 20, mask=mask, dropout=0.5, drawn=True))


@pytest.mark.parametrize("target", narrow_targets(), ids=lambda t: f"{t.vector_bytes} bytes")
@pytest.mark.parametrize("name", ["attention", "attention_grad"])
def test_narrow_registers(name: str, target: Target) -> None:
    for sizes in SIZES[1:5]:
        check(kernel(name, *sizes, causal=True), target)
    check(kernel(name, 2, 20, 30, 10, 12, mask=(dtypes.bool_, (20, 30)), dtype=f64), target)
    check(kernel(name, 2, 20, 30, 10, 12, dropout=0.5, drawn=True), target)


def test_a_query_has_the_same_bits_beside_any_number_of_others() -> None:
    """Few are computed in narrow tiles, more in wide ones."""
    lines = np.random.default_rng(0).standard_normal((64, 24)).astype(np.float32)
    seen: dict[int, bytes] = {}
    for m in (64, 48, 42, 33, 32, 17, 16):
        found = kernel("attention", 1, m, 50, 24, 24, causal=True, results=["out"])
        assert isinstance(found.template, Attention)
        (written,) = (param.name for param in found.params if param.access == "out")
        queries = dict(found.template.inputs)["q"].buffer
        buffers = [
            np.full(m * 24, np.nan, np.float32) if param.name == written
            else lines[: m if param.name == queries else 50].ravel().copy()
            for param in found.params
        ]
        run(found, buffers)
        (out,) = (x for x, p in zip(buffers, found.params, strict=True) if p.name == written)
        for query, row in enumerate(out.reshape(m, 24)):
            assert seen.setdefault(query, row.tobytes()) == row.tobytes(), (m, query)
    assert len(seen) == 64


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
def test_threads_change_no_bit(name: str) -> None:
    found = kernel(name, 5, 150, 210, 32, 48, causal=True)
    once = check(found)
    for threads in (2, 4):
        again = check(found, threads=threads)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(once, again, strict=True))


@pytest.mark.parametrize("sizes", [(1, 150, 210, 32, 48), (2, 210, 150, 7, 20), (1, 5, 300, 16, 8)],
                         ids=str)
@pytest.mark.parametrize("results", ["dq dk dv", "dk", "dq", "dq dv"])
def test_a_gradient_that_is_shared_by_blocks(
    sizes: tuple[int, int, int, int, int], results: str
) -> None:
    """With fewer heads than threads; scores are made twice, and no bit differs."""
    for causal in (False, True):
        options: dict[str, Any] = {"causal": causal, "dropout": 0.0 if causal else 0.25}
        found = kernel("attention_grad", *sizes, **options, results=results.split())
        once = check(found)
        again = check(found, threads=4)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(once, again, strict=True))


def test_when_blocks_share_a_gradient() -> None:
    template = kernel("attention_grad", 1, 70, 70, 16, 16).template
    assert isinstance(template, Attention)
    assert shared_sums(template) == (5, 7)
    results = tuple((name, operand) for name, operand in template.results if name != "dq")
    assert shared_sums(replaced(template, results=results)) == (4, 4)  # nothing is made twice


def test_what_has_code() -> None:
    """Floats of 32 bits and more, and heads of a known width that is not too large."""
    template = kernel("attention", 2, 16, 5, 256, 8).template
    assert template is not None and BACKEND.renders(template)
    assert BACKEND.renders(replaced(template, m=Dim.var("length")))
    assert BACKEND.renders(replaced(template, m=1))
    assert not BACKEND.renders(replaced(template, e=257))
    assert not BACKEND.renders(replaced(template, f=Dim.var("width")))
    assert not BACKEND.renders(replaced(template, dtype=dtypes.f16))
