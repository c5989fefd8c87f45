"""Attention as a template: what is absorbed into its operands, and that it means what the operator
does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret, ops
from graphc.ir.dim import Dim
from graphc.ir.kernel import Attention, Kernel
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import KernelError, verify_kernel
from graphc.ir.ops._counter import DRAW, squares32
from graphc.ir.passes.lower.attention import whole_template

from . import kernel_cases as cases

Q, KV, V = (2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)
ROWS, OUT = Q[:-1], (*Q[:-1], 6)


def forward(*masks: Any, causal: bool = False) -> Kernel:
    return cases.only_kernel(
        lambda *x: ops.attention(*x, causal=causal, scale=0.5), Q, KV, V, *masks
    )


def gradient(*masks: Any, causal: bool = False) -> Kernel:
    return cases.only_kernel(
        lambda *x: ops.attention_grad(*x, causal=causal, scale=0.5), Q, KV, V, OUT, ROWS, ROWS,
        *masks,
    )


MASKS = [(), (4, 5), (3, 1, 5), (2, 1, 4, 1), (dtypes.bool_, (4, 5)), (dtypes.bool_, (2, 1, 1, 5))]


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("make", [forward, gradient])
def test_masks(make: Any, mask: Any) -> None:
    for causal in (False, True):
        kernel = make(*([mask] if mask else ()), causal=causal)
        assert isinstance(kernel.template, Attention)
        assert kernel.template.causal is causal
        assert ("mask" in dict(kernel.template.inputs)) == bool(mask)


def test_dropout() -> None:
    kept = (dtypes.bool_, (2, 3, 4, 5))
    for mask in ((), ((4, 5),), ((dtypes.bool_, (4, 1)),)):
        for name, inputs in (
            ("attention", (Q, KV, V)), ("attention_grad", (Q, KV, V, OUT, ROWS, ROWS)),
        ):
            kernel = cases.only_kernel(
                lambda *x, name=name: getattr(ops, name)(*x, causal=True, scale=0.5, dropout=0.25),
                *inputs, *mask, kept,
            )
            template = kernel.template
            assert isinstance(template, Attention) and template.dropout == 0.25
            assert [(name in dict(template.inputs)) for name in ("mask", "kept")] == [
                bool(mask), True
            ]


def test_dropout_that_is_drawn() -> None:
    """A draw in place of what is kept: the same numbers as from a mask."""
    draw = np.array([2**61 + 12345, 5 << 32], np.int64)
    for name, inputs in (
        ("attention", (Q, KV, V)), ("attention_grad", (Q, KV, V, OUT, ROWS, ROWS)),
    ):
        def function(*x: Any, name: str = name) -> Any:
            return getattr(ops, name)(*x, causal=True, scale=0.5, dropout=0.25)

        graph = cases.build(function, *inputs, (DRAW.dtype, DRAW.shape))
        (kernel,) = cases.kernels(cases.compiled(graph))
        assert isinstance(kernel.template, Attention)
        assert dict(kernel.template.inputs)["draw"].dtype is dtypes.i64
        assert parse_kernel(print_kernel(kernel)) == kernel
        given = [*cases.arrays(graph)[:-1], draw]
        cases.check(graph, inputs=given)
        places = np.arange(2 * 3 * 4 * 5, dtype=np.uint64).reshape(2, 3, 4, 5) + np.uint64(5 << 32)
        kept = squares32(places, np.uint64(draw[0])) < 2**32 * 0.75
        masked = cases.build(function, *inputs, (dtypes.bool_, kept.shape))
        for a, b in zip(
            interpret.evaluate(graph, given, TABLE),
            interpret.evaluate(masked, [*given[:-1], kept], TABLE), strict=True,
        ):
            np.testing.assert_array_equal(a, b)
    text = print_kernel(kernel)
    with pytest.raises(KernelError, match="spans"):
        verify_kernel(parse_kernel(text.replace("[d]: i64", "[(d + 1)]: i64")))


def test_views_of_operands_are_indices() -> None:
    """Heads in the middle, one of three in a projection, and heads that are shared."""

    def heads(x: Any) -> Any:
        return ops.permute(x, dims=(0, 2, 1, 3))

    def shared(x: Any) -> Any:
        wide = ops.expand(ops.reshape(x, shape=(2, 1, 1, 5, 8)), shape=(2, 1, 3, 5, 8))
        return ops.reshape(wide, shape=(2, 3, 5, 8))

    def function(q: Any, kv: Any) -> Any:
        k = ops.slice(kv, starts=(0, 0, 0), stops=(2, 5, 8), steps=(1, 1, 1))
        v = ops.slice(kv, starts=(0, 0, 8), stops=(2, 5, 16), steps=(1, 1, 1))
        k, v = (shared(ops.reshape(x, shape=(2, 1, 5, 8))) for x in (k, v))
        return ops.attention(heads(q), k, v, causal=False, scale=0.5)[0]

    kernel = cases.only_kernel(function, (2, 4, 3, 8), (2, 5, 16))
    assert isinstance(kernel.template, Attention)
    inputs = dict(kernel.template.inputs)
    b, m, n, e, f = (Dim.var(name) for name in "bmnef")
    assert inputs["q"].index == (b // 3) * 96 + (b % 3) * 8 + m * 24 + e
    assert inputs["k"].index == (b // 3) * 80 + n * 16 + e
    assert inputs["v"].index == (b // 3) * 80 + n * 16 + f + 8
    assert [name for name, _ in kernel.template.results] == ["out"]


def test_a_result_that_is_read_permuted_is_stored_so() -> None:
    """Whether or not others, which then read it back, want it as it is."""

    def function(q: Any, k: Any, v: Any, weight: Any) -> Any:
        out = ops.attention(q, k, v, causal=False, scale=0.5)[0]
        rows = ops.reshape(ops.permute(out, dims=(0, 2, 1, 3)), shape=(8, 18))
        plain = (ops.sum(out * out, dims=(3,), keepdim=False),) if weight.type.shape[1] == 7 else ()
        return (cases.dot(rows, ops.permute(weight, dims=(1, 0))), *plain)

    for columns in (5, 7):
        program = cases.check(cases.build(function, Q, KV, V, (18, columns)))
        template = cases.kernels(program)[0].template
        assert isinstance(template, Attention)
        b, m, f = (Dim.var(name) for name in "bmf")
        assert dict(template.results)["out"].index == (b // 3) * 72 + (b % 3) * 6 + m * 18 + f
        assert len(program.steps) == 2 + (columns == 7)


def test_only_what_is_read_is_a_result() -> None:
    kernel = cases.only_kernel(
        lambda *x: ops.attention_grad(*x, causal=True, scale=0.5)[1], Q, KV, V, OUT, ROWS, ROWS
    )
    assert isinstance(kernel.template, Attention)
    assert [name for name, _ in kernel.template.results] == ["dk"]


def test_symbolic_sizes() -> None:
    length, keys = Dim.var("length"), Dim.var("keys")
    graph = cases.build(
        lambda *x: ops.attention(*x, causal=True, scale=0.5), (2, length, 8), (2, keys, 8),
        (2, keys, 3), dims={"length": 5, "keys": 7},
    )
    (kernel,) = cases.kernels(cases.compiled(graph))
    verify_kernel(kernel)
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert isinstance(kernel.template, Attention) and len(kernel.dims) == 2


def test_work_is_counted() -> None:
    kernel, causal = forward(), forward(causal=True)
    assert kernel.template is not None and causal.template is not None
    assert kernel.template.multiplications == 2 * 6 * 4 * 5 * 8
    assert causal.template.multiplications == 6 * 4 * 5 * 8


@pytest.mark.parametrize("old, new, message", [
    ("v a2[(30*b", "v a2[(31*b", "spans"),
    ("v a2", "w a2", "has the operands"),
    ("acc f32", "acc f64", "is f32"),
    ("store lse o0", "store lse a1", "input a1"),
])
def test_verifier(old: str, new: str, message: str) -> None:
    text = print_kernel(forward())
    assert old in text
    with pytest.raises(KernelError, match=message):
        verify_kernel(parse_kernel(text.replace(old, new)))


def test_16_bit_floats_are_summed_in_wider_ones() -> None:
    """As the operator's decomposition does it; a backend may take them or not."""
    half, row = dtypes.f16, (dtypes.f32, (4,))
    q, k = (half, (4, 8)), (half, (5, 8))
    for name, inputs, kinds in (
        ("attention", (q, k, k), {"out": half, "lse": dtypes.f32}),
        ("attention_grad", (q, k, k, q, row, row), dict.fromkeys(("dq", "dk", "dv"), half)),
    ):
        def function(*x: Any, name: str = name) -> Any:
            return tuple(getattr(ops, name)(*x, causal=False, scale=0.5))

        graph = cases.build(function, *inputs)
        node = next(n for n in graph.nodes if n.op.name == name)
        template = whole_template(node)
        assert template is not None and (template.dtype, template.wide) == (half, dtypes.f32)
        (kernel,) = cases.kernels(cases.check(graph))
        assert isinstance(kernel.template, Attention) and kernel.template.dtype is half
        assert {name: x.dtype for name, x in kernel.template.results} == kinds


def test_rows_that_attend_to_nothing() -> None:
    """0 and infinity; a gradient of zeros."""
    mask = np.ones((4, 5), bool)
    mask[1] = False
    graph = cases.build(
        lambda *x: ops.attention(*x, causal=False, scale=0.5), Q, KV, V, (dtypes.bool_, (4, 5))
    )
    inputs = [*cases.arrays(graph)[:3], mask]
    cases.check(graph, inputs=inputs)
    rng = np.random.default_rng(0)
    lse = np.full(ROWS, 3.0, np.float32)
    lse[..., 1] = np.inf
    more = [rng.standard_normal(OUT).astype("f4"), lse, np.zeros(ROWS, np.float32)]
    graph = cases.build(
        lambda *x: ops.attention_grad(*x, causal=False, scale=0.5), Q, KV, V, OUT, ROWS, ROWS,
        (dtypes.bool_, (4, 5)),
    )
    cases.check(graph, inputs=[*inputs[:3], *more, mask])
