"""Every rewrite rule: a graph on which it fires, and the same bits before and after.

Inputs hold NaN, infinities and zeros of both signs, so a rule that nearly holds fails here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret, ops, rewrite, verify
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.op import get
from graphc.ir.passes import simplify
from graphc.ir.types import TensorType

f32, i32, u8, boolean = dtypes.f32, dtypes.i32, dtypes.u8, dtypes.bool_
A, B, M = (4, 6), (6,), (3, 4, 5)


def whole(shape: tuple[int, ...]) -> dict[str, Any]:
    return region((0,) * len(shape), shape)


def region(starts: Any, stops: Any, steps: Any = None) -> dict[str, Any]:
    return {"starts": starts, "stops": stops, "steps": steps or (1,) * len(starts)}


def padding(low: Any, high: Any, value: float = 0.0) -> dict[str, Any]:
    return {"low": low, "high": high, "interior": (0,) * len(low), "value": value}


def dims(*which: int, keepdim: bool = False) -> dict[str, Any]:
    return {"dims": which, "keepdim": keepdim}


def filled(x: Any, shape: Any, value: Any, dtype: Any = None) -> Any:
    return ops.full.like(x, shape=shape, value=value, dtype=dtype or x.dtype)


def array(x: Any, value: Any) -> Any:
    return Expr(x.builder, x.builder.const(value, x.dtype))


def view(x: Any) -> Any:
    return ops.expand(x, shape=(4, 6))


def scanned(carry: Any, rows: Any, index: int, reverse: bool = False) -> Any:
    """A result of a scan whose steps hand out: a carried sum, a row, a product, the product."""
    inner = Builder()
    types = (carry.type, TensorType(rows.dtype, rows.shape[1:]))
    c, row = (Expr(inner, inner.input(type_)) for type_ in types)
    total, product = c + row, c * row
    body = inner.build([total.node, row.node, product.node, product.node], "body")
    results = ops.scan(carry, rows, n_carried=1, reverse=reverse, graphs=(body,))
    return results[0] + results[index] if index < 3 else results[2] * results[3]


def running(carry: Any, rows: Any, reverse: bool = False) -> Any:
    """The running sums of the rows."""
    inner = Builder()
    types = (carry.type, TensorType(rows.dtype, rows.shape[1:]))
    c, row = (Expr(inner, inner.input(type_)) for type_ in types)
    total = c * row + row
    body = inner.build([total.node, total.node], "body")
    return ops.scan(carry, rows, n_carried=1, reverse=reverse, graphs=(body,))[1]


def cut(x: Any, starts: Any, stops: Any, steps: Any) -> Any:
    return ops.slice(x, starts=starts, stops=stops, steps=steps)


_DOT = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (0,)}
_STRIDED = {"size": (2, 3), "stride": (6, 2), "offset": 1}

# rule -> (dtype, shapes of the inputs, function) for each of its spellings
Case = tuple[Any, tuple[tuple[int, ...], ...], Callable[..., Any]]
CASES: dict[str, list[Case]] = {
    "canonicalize.constant_second": [
        (f32, (A,), lambda x: ops.add(array(x, 2.5), x)),
        (f32, (A,), lambda x: ops.maximum(array(x, [1.0] * 6), x)),
        (i32, (A,), lambda x: ops.bitwise_and(array(x, 6), x)),
    ],
    "canonicalize.compare_with_constant_second": [
        (f32, (A,), lambda x: ops.lt(array(x, 1.0), x)),
        (f32, (A,), lambda x: ops.ge(array(x, 0.0), x)),
        (f32, (A,), lambda x: ops.eq(array(x, 0.0), x)),
    ],
    "canonicalize.where_not": [
        (f32, (A, A), lambda x, y: ops.where(ops.logical_not(ops.lt(x, y)), x, y)),
    ],
    "canonicalize.same_shape": [
        (f32, (A,), lambda x: ops.reshape(x, shape=A)),
        (f32, (A,), lambda x: ops.expand(x, shape=A)),
    ],
    "canonicalize.same_dtype": [(f32, (A,), lambda x: ops.cast(x, dtype=f32))],
    "canonicalize.same_order": [(f32, (A,), lambda x: ops.permute(x, dims=(0, 1)))],
    "canonicalize.whole_slice": [(f32, (A,), lambda x: ops.slice(x, **whole(A)))],
    "canonicalize.flip_of_ones": [(f32, ((1, 6),), lambda x: ops.flip(x, dims=(0,)))],
    "canonicalize.pad_by_nothing": [(f32, (A,), lambda x: ops.pad(x, **padding((0, 0), (0, 0))))],
    "canonicalize.concat_of_one": [(f32, (A,), lambda x: ops.concat(x, dim=0))],
    "canonicalize.rounded_integer": [(i32, (A,), lambda x: ops.floor(x))],
    "canonicalize.reduce_of_ones": [
        (f32, ((4, 1, 6),), lambda x: ops.sum(x, **dims(1))),
        (f32, ((4, 1, 6),), lambda x: ops.amax(x, **dims(1, keepdim=True))),
        (f32, (A,), lambda x: ops.prod(x, **dims())),
    ],
    "canonicalize.permute_of_ones": [
        (f32, ((4, 1, 6),), lambda x: ops.permute(x, dims=(1, 0, 2))),
    ],
    "canonicalize.expand_by_ones": [(f32, (A,), lambda x: ops.expand(x, shape=(1, 1, 4, 6)))],
    "canonicalize.moved_fill": [
        (f32, (A,), lambda x: ops.reshape(filled(x, (3, 8), 2.5), shape=A)),
        (f32, (A,), lambda x: ops.permute(filled(x, (6, 4), -0.0), dims=(1, 0))),
        (i32, (A,), lambda x: ops.slice(filled(x, (6, 7), 3), **region((1, 1), (5, 7)))),
        (boolean, (A,), lambda x: ops.flip(filled(x, A, True), dims=(0,))),
    ],
    "canonicalize.moved_number": [
        (f32, (A,), lambda x: ops.expand(array(x, 0.1), shape=A)),
        (f32, (A,), lambda x: ops.reshape(array(x, [[7.0]]), shape=())),
        (boolean, (A,), lambda x: ops.expand(array(x, True), shape=A)),
    ],
    "canonicalize.fill_of_nothing": [(f32, (A,), lambda x: filled(x, (), 0.1))],
    "canonicalize.cast_number": [
        (i32, (A,), lambda x: ops.cast(array(x, 3), dtype=f32)),
        (f32, (A,), lambda x: ops.cast(filled(x, A, -0.0), dtype=dtypes.f64)),
        (i32, (A,), lambda x: ops.cast(filled(x, A, 7), dtype=u8)),
    ],
    "canonicalize.fill_operand": [
        (f32, (A,), lambda x: x + filled(x, A, 2.0)),
        (f32, (A,), lambda x: filled(x, B, 2.0) / x),
        (f32, (A,), lambda x: ops.where(ops.lt(x, 0.0), filled(x, A, 2.0), x)),
    ],
    "algebra.times_one": [
        (f32, (A,), lambda x: x * 1.0),
        (f32, (A,), lambda x: x / 1.0),
        (f32, (A,), lambda x: ops.pow(x, 1.0)),
        (f32, (B,), lambda x: x * filled(x, A, 1.0)),
        (i32, (A,), lambda x: x * 1),
    ],
    "algebra.plus_negative_zero": [
        (f32, (A,), lambda x: x + -0.0),
        (f32, (A,), lambda x: x - 0.0),
    ],
    "algebra.plus_integer_zero": [
        (i32, (A,), lambda x: x + 0),
        (i32, (A,), lambda x: ops.bitwise_or(x, 0)),
        (i32, (A,), lambda x: ops.shift_right(x, 0)),
    ],
    "algebra.times_integer_zero": [
        (i32, (A,), lambda x: x * 0),
        (i32, (A,), lambda x: ops.bitwise_and(x, 0)),
    ],
    "algebra.logical_identity": [
        (boolean, (A,), lambda x: ops.logical_and(x, True)),
        (boolean, (A,), lambda x: ops.logical_or(x, False)),
    ],
    "algebra.logical_absorption": [
        (boolean, (A,), lambda x: ops.logical_and(x, False)),
        (boolean, (A,), lambda x: ops.logical_or(x, True)),
    ],
    "algebra.twice_the_same": [
        (f32, (A,), lambda x: ops.maximum(x, x)),
        (f32, (A,), lambda x: ops.fmin(x, x)),
        (boolean, (A,), lambda x: ops.logical_or(x, x)),
    ],
    "algebra.integer_minus_itself": [
        (i32, (A,), lambda x: x - x),
        (boolean, (A,), lambda x: ops.bitwise_xor(x, x)),
    ],
    "algebra.undone": [
        (f32, (A,), lambda x: ops.neg(ops.neg(x))),
        (boolean, (A,), lambda x: ops.logical_not(ops.logical_not(x))),
        (i32, (A,), lambda x: ops.bitwise_not(ops.bitwise_not(x))),
    ],
    "algebra.even_of_sign": [
        (f32, (A,), lambda x: ops.abs(-x)),
        (f32, (A,), lambda x: ops.square(ops.abs(x))),
        (f32, (A,), lambda x: ops.cos(-x)),
    ],
    "algebra.idempotent": [
        (f32, (A,), lambda x: ops.relu(ops.relu(x))),
        (f32, (A,), lambda x: ops.floor(ops.floor(x))),
        (f32, (A,), lambda x: ops.sign(ops.sign(x))),
    ],
    "algebra.times_minus_one": [
        (f32, (A,), lambda x: x * -1.0),
        (f32, (A,), lambda x: x / -1.0),
        (i32, (A,), lambda x: x * -1),
    ],
    "algebra.add_negated": [
        (f32, (A, A), lambda x, y: x + -y),
        (f32, (A, A), lambda x, y: x - (-y)),
    ],
    "algebra.negated_plus": [(f32, (A, B), lambda x, y: -x + y)],
    "algebra.product_of_negated": [
        (f32, (A, A), lambda x, y: -x * -y),
        (f32, (A, A), lambda x, y: -x / -y),
    ],
    "algebra.negated_times_number": [
        (f32, (A,), lambda x: -x * 2.5),
        (f32, (A,), lambda x: -x / array(x, [[3.0]])),
        (i32, (A,), lambda x: -x * 3),
    ],
    "algebra.power_two": [(f32, (A,), lambda x: ops.pow(x, 2.0))],
    "algebra.power_three": [
        (f32, (A,), lambda x: ops.pow(x, 3.0)), (i32, (A,), lambda x: ops.pow(x, 3)),
    ],
    "algebra.power_zero": [(f32, (A,), lambda x: ops.pow(x, 0.0))],
    "algebra.power_minus_one": [(f32, (A,), lambda x: ops.pow(x, -1.0))],
    "algebra.multiplied_by_itself": [(f32, (A,), lambda x: x * x), (i32, (A,), lambda x: x * x)],
    "algebra.one_over": [(f32, (A,), lambda x: 1.0 / x)],
    "algebra.divide_by_power_of_two": [
        (f32, (A,), lambda x: x / 8.0),
        (dtypes.bf16, (A,), lambda x: x / -0.25),
        (dtypes.f16, (A,), lambda x: x / 1024.0),
    ],
    "algebra.integer_numbers_together": [
        (i32, (A,), lambda x: (x + (2**31 - 1)) + 7),
        (u8, (A,), lambda x: (x * 200) * 3),
    ],
    "algebra.where_known": [
        (f32, (A, A), lambda x, y: ops.where(filled(x, (), True, boolean), x, y)),
        (f32, (A, A), lambda x, y: ops.where(filled(x, A, False, boolean), x, y)),
    ],
    "algebra.where_same": [(f32, (A, A), lambda x, y: ops.where(ops.lt(x, y), x, x))],
    "algebra.where_within_then": [
        (f32, (A, A), lambda x, y: (c := ops.lt(x, y)) and ops.where(c, ops.where(c, x, y), y * y)),
    ],
    "algebra.where_within_else": [
        (f32, (A, A), lambda x, y: (c := ops.lt(x, y)) and ops.where(c, x, ops.where(c, y * y, y))),
    ],
    "algebra.negated_equality": [
        (f32, (A, A), lambda x, y: ops.logical_not(ops.eq(x, y))),
        (f32, (A, A), lambda x, y: ops.logical_not(ops.ne(x, y))),
    ],
    "algebra.negated_order": [(i32, (A, A), lambda x, y: ops.logical_not(ops.lt(x, y)))],
    "algebra.bool_of_cast_bool": [
        (boolean, (A,), lambda x: ops.ne(ops.cast(x, dtype=f32), 0.0)),
    ],
    "algebra.cast_through_wider": [
        (f32, (A,), lambda x: ops.cast(ops.cast(x, dtype=dtypes.f64), dtype=f32)),
        (dtypes.bf16, (A,), lambda x: ops.cast(ops.cast(x, dtype=f32), dtype=dtypes.f64)),
        (u8, (A,), lambda x: ops.cast(ops.cast(x, dtype=dtypes.f16), dtype=i32)),
    ],
    "movement.reshape_twice": [
        (f32, (A,), lambda x: ops.reshape(ops.reshape(x, shape=(24,)), shape=(2, 12))),
    ],
    "movement.expand_twice": [
        (f32, (B,), lambda x: ops.expand(ops.expand(x, shape=A), shape=(2, 4, 6))),
    ],
    "movement.permute_twice": [
        (f32, (M,), lambda x: ops.permute(ops.permute(x, dims=(2, 0, 1)), dims=(0, 2, 1))),
    ],
    "movement.flip_twice": [
        (f32, (M,), lambda x: ops.flip(ops.flip(x, dims=(0, 1)), dims=(1, 2))),
        (f32, (M,), lambda x: ops.flip(ops.flip(x, dims=(1,)), dims=(1,))),
    ],
    "movement.slice_twice": [
        (f32, ((20,),), lambda x: ops.slice(
            ops.slice(x, **region((1,), (18,), (2,))), **region((1,), (9,), (3,)))),
        (f32, (A,), lambda x: ops.slice(
            ops.slice(x, **region((1, 0), (4, 6))), **region((0, 2), (0, 5)))),
    ],
    "movement.pad_twice": [
        (f32, (A,), lambda x: ops.pad(
            ops.pad(x, **padding((1, 0), (0, 2))), **padding((0, 1), (1, 0)))),
    ],
    "movement.concat_of_concats": [
        (f32, (A, A), lambda x, y: ops.concat(x, ops.concat(y, x, dim=1), dim=1)),
    ],
    "movement.slice_of_padding": [
        (f32, (A,), lambda x: ops.slice(
            ops.pad(x, **padding((1, 2), (3, 0))), **region((1, 2), (5, 8)))),
    ],
    "movement.slice_of_concat": [
        (f32, (A, A), lambda x, y: ops.slice(
            ops.concat(x, y, dim=0), **region((5, 0), (8, 6), (2, 1)))),
    ],
    "movement.slice_of_expand": [
        (f32, ((4, 1),), lambda x: ops.slice(view(x), **region((1, 2), (3, 6), (1, 2)))),
    ],
    "movement.read_what_was_written": [
        (f32, (A, (2, 6)), lambda x, y: ops.slice(
            ops.slice_update(x, y, **region((1, 0), (3, 6))), **region((1, 0), (3, 6)))),
        (f32, (A, (2, 6)), lambda x, y: ops.slice(
            ops.slice_update(x, y, **region((1, 0), (3, 6))), **region((3, 0), (4, 6)))),
    ],
    "movement.overwritten": [
        (f32, (A, (2, 6)), lambda x, y: ops.slice_update(
            ops.slice_update(x, y, **region((1, 0), (3, 6))), y * y, **region((1, 0), (3, 6)))),
        (f32, ((24,), (2, 3)), lambda x, y: ops.as_strided_update(
            ops.as_strided_update(x, y, **_STRIDED), y * y, **_STRIDED)),
    ],
    "movement.written_back": [
        (f32, (A,), lambda x: ops.slice_update(
            x, ops.slice(x, **region((1, 0), (3, 6))), **region((1, 0), (3, 6)))),
        (f32, ((24,),), lambda x: ops.as_strided_update(
            x, ops.as_strided(x, **_STRIDED), **_STRIDED)),
    ],
    "movement.whole_written": [(f32, (A, A), lambda x, y: ops.slice_update(x, y, **whole(A)))],
    "movement.drop_expand": [
        (f32, (A, B), lambda x, y: x + view(y)),
        (f32, (A, (4, 1)), lambda x, y: ops.lt(view(y), x)),
        (f32, (A, B), lambda x, y: ops.clamp(x, view(y), view(y))),
    ],
    "movement.expand_after": [
        (f32, (B, B), lambda x, y: view(x) * view(y)),
        (f32, (B,), lambda x: view(x) * 2.5),
    ],
    "movement.unary_before_expand": [
        (f32, (B,), lambda x: ops.sqrt(view(x))),
        (f32, (B,), lambda x: ops.cast(view(x), dtype=dtypes.f64)),
    ],
    "movement.extremum_of_repeated": [
        (f32, (B,), lambda x: ops.amax(view(x), **dims(0))),
        (f32, ((4, 1),), lambda x: ops.amin(view(x), **dims(1, keepdim=True))),
        (boolean, (B,), lambda x: ops.any(view(x), **dims(0))),
    ],
    "movement.reshape_of_repeated_number": [
        (f32, ((1, 1),), lambda x: ops.reshape(view(x), shape=(24,))),
    ],
    "movement.extremum_twice": [
        (f32, (M,), lambda x: ops.amax(ops.amax(x, **dims(1)), **dims(1))),
        (f32, (M,), lambda x: ops.amin(
            ops.amin(x, **dims(0, keepdim=True)), **dims(2, keepdim=True))),
    ],
    "movement.reduce_of_permute": [
        (f32, (M,), lambda x: ops.sum(ops.permute(x, dims=(2, 0, 1)), **dims(0))),
        (f32, (M,), lambda x: ops.amax(ops.permute(x, dims=(1, 0, 2)), **dims(0, 1))),
    ],
    "movement.dot_of_permuted": [
        (f32, ((6, 4), B), lambda x, y: ops.dot_general(
            ops.permute(x, dims=(1, 0)), y, **_DOT)),
        (f32, (A, (5, 6)), lambda x, y: ops.dot_general(
            x, ops.permute(y, dims=(1, 0)), **_DOT)),
    ],
    "movement.permuted_dot": [
        (f32, (A, (6, 5)), lambda x, y: ops.permute(ops.dot_general(x, y, **_DOT), dims=(1, 0))),
    ],
    "loops.stacked_sequence": [
        (f32, (B, A), lambda c, x: scanned(c, x, 1)),
        (f32, (B, A), lambda c, x: scanned(c, x, 1, reverse=True)),
    ],
    "loops.stacked_twice": [(f32, (B, A), lambda c, x: scanned(c, x, 3))],
    "loops.last_row": [
        (f32, (B, A), lambda c, x: cut(running(c, x), (3, 1), (4, 5), (1, 2))),
        (f32, (B, A), lambda c, x: cut(
            ops.permute(running(c, x, reverse=True), dims=(1, 0)), (0, 0), (6, 1), (1, 1))),
    ],
}
SPELLINGS = [(rule, i) for rule, cases in CASES.items() for i in range(len(cases))]


def build(case: Case) -> Graph:
    dtype, shapes, function = case
    builder = Builder()
    values = [Expr(builder, builder.input(TensorType(dtype, shape))) for shape in shapes]
    return builder.build([function(*values).node])


def inputs(graph: Graph, finite: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    arrays = []
    for node in graph.inputs:
        shape = node.tensor_type.static_shape
        if not node.dtype.is_float:
            values = rng.integers(0, 256, shape)
            if node.dtype.kind == "int":
                values = values - 128
        else:
            values = rng.uniform(-9, 9, shape).round(1)
            odd = [0.0, -0.0, 1e-41, *(() if finite else (np.nan, np.inf, -np.inf))]
            chosen = rng.random(shape) < 0.4
            values = np.where(chosen, rng.choice(odd, shape), values)
        with np.errstate(all="ignore"):
            arrays.append(np.asarray(values).astype(node.dtype.numpy))
    return arrays


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, zeros with their signs, any NaN like any other."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not dtypes.from_numpy(a.dtype).is_float:
        return bool(np.array_equal(a, b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))


def hits() -> dict[str, int]:
    return {rule.name: rule.hits for rule in rewrite.all_rules()}


@pytest.mark.parametrize(("rule", "index"), SPELLINGS)
def test_rule_fires_and_keeps_every_bit(rule: str, index: int) -> None:
    graph = build(CASES[rule][index])
    before = hits()
    result = simplify.simplify(graph)
    assert hits()[rule] > before[rule], f"{rule} did not fire on\n{graph}"
    verify.verify(result)
    assert [n.type for n in result.outputs] == [n.type for n in graph.outputs]
    # products are summed in an order of BLAS's choice: NaN and infinity would be equal anyway
    arrays = inputs(graph, finite="dot" in rule)
    (old,) = interpret.evaluate(graph, arrays, TABLE)
    (new,) = interpret.evaluate(result, arrays, TABLE)
    if "dot" in rule:
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-4)
    elif rule == "canonicalize.reduce_of_ones":  # a sum of one -0.0 is 0.0 in NumPy
        np.testing.assert_array_equal(new, old)
    else:
        assert same_bits(old, new), f"{graph}\n{result}\n{old}\n{new}"


def test_every_rule_has_a_case() -> None:
    """A rule that never fires in the test suite fails it."""
    assert {rule.name for rule in rewrite.all_rules()} == set(CASES)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 0.0,  # -0.0 + 0.0 is 0.0
        lambda x: x - x,  # NaN
        lambda x: x * 0.0,  # NaN, and signs
        lambda x: x / x,
        lambda x: x / 3.0,  # 1/3 is inexact
        lambda x: x / 2.0**-127,  # its inverse overflows the normal numbers
        lambda x: (x * 3.0) * 5.0,  # two roundings
        lambda x: ops.logical_not(ops.lt(x, 1.0)),  # NaN
        lambda x: ops.cast(ops.cast(x, dtype=dtypes.f16), dtype=f32),  # rounds
        lambda x: ops.pow(x, 0.5),  # infinities
        lambda x: ops.sqrt(ops.square(x)),  # overflow
    ],
)
def test_what_only_nearly_holds_stays(function: Callable[..., Any]) -> None:
    graph = build((f32, (A,), function))
    names = [n.op.name for n in graph.nodes]
    assert [n.op.name for n in simplify.simplify(graph).nodes] == names


def test_rules_reach_into_sub_graphs() -> None:
    body = Builder()
    x = Expr(body, body.input(TensorType(f32, A)))
    graph = body.build([(x * 1.0).node], "body")
    builder = Builder()
    value = builder.input(TensorType(f32, A))
    flag = builder.input(TensorType(boolean, ()))
    branch = builder.emit(get("cond"), flag, value, graphs=(graph, graph))
    result = simplify.simplify(builder.build([branch]))
    assert [len(g.nodes) for g in result.outputs[0].graphs] == [1, 1]


def test_long_chains_and_rules_without_an_end() -> None:
    graph = build((f32, (A,), lambda x: _chain(x, 10_000)))
    assert len(simplify.simplify(graph).nodes) == 1
    rules = rewrite.Rules("looping")
    p, wild = rewrite.p, rewrite.wild

    def swap(m: rewrite.Match) -> Any:
        return m.root.op(m.y, m.x)

    rules.by_op["add"] = [(p.add(wild("x"), wild("y")), rewrite.Rule("swap", (), swap))]
    with pytest.raises(rewrite.RewriteError, match=r"did not end after .* swap"):
        rewrite.apply(build((f32, (A, A), lambda x, y: x + y)), rules)


def _chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = x * 1.0
    return x


def test_a_rule_may_not_change_a_type() -> None:
    rules = rewrite.Rules("wrong")
    pattern = rewrite.p.sum(rewrite.wild("x"))
    rules.by_op["sum"] = [(pattern, rewrite.Rule("drop", (pattern,), lambda m: m.x))]
    with pytest.raises(rewrite.RewriteError, match="types must agree"):
        rewrite.apply(build((f32, (A,), lambda x: ops.sum(x, **dims(0)))), rules)
