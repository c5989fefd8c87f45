"""Every gradient rule, in float64 against torch and finite differences, by the one reverse walk;
and what rules read, the walk's order, depth and errors."""

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import autodiff, dtypes, interpret, ops
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.op import REGISTRY, OpError, get
from graphc.ir.types import TensorType
from tests import opinfo
from tests.opinfo import OPINFOS, WITHOUT_RECORD, OpInfo, Sample
from tests.opinfo_core import torch

DIFFERENTIABLE = sorted(name for name, info in OPINFOS.items() if not info.gradient)
f32, f64 = dtypes.f32, dtypes.f64


def type_of(array: np.ndarray) -> TensorType:
    return TensorType(dtypes.from_numpy(array.dtype), array.shape)


def call(name: str, arrays: list[np.ndarray], attrs: dict[str, Any]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return list(opinfo.as_tuple(TABLE[name](*arrays, **attrs)))


def gradients(
    name: str, sample: Sample, needs: list[bool], seeds: list[np.ndarray | None]
) -> list[np.ndarray | None]:
    """The operator's gradients by its traced rule, from what the rule says it reads alone."""
    arrays = list(sample.arrays)
    program = autodiff.vjp_program(
        get(name), [type_of(a) for a in arrays], sample.attrs, needs, [s is not None for s in seeds]
    )
    outs = call(name, arrays, sample.attrs)
    given = [seeds[i] for i in program.grads]
    read = [*given, *(arrays[i] for i in program.inputs), *(outs[i] for i in program.outs)]
    found = interpret.evaluate(program.graph, read, TABLE)
    result: list[np.ndarray | None] = [None] * len(arrays)
    for position, gradient in zip(program.results, found, strict=True):
        assert type_of(gradient) == type_of(arrays[position]), f"{name}{sample}"
        result[position] = gradient
    return result


def is_float(array: np.ndarray) -> bool:
    return dtypes.from_numpy(array.dtype).is_float


def needs_of(name: str, sample: Sample) -> list[bool]:
    needs = [is_float(a) for a in sample.arrays]
    if name in ("cross_entropy", "nll_loss"):
        needs[2:] = [False] * len(needs[2:])  # class weights take no gradient, as in torch
    return needs


def torch_gradients(
    info: OpInfo, sample: Sample, needs: list[bool], seeds: list[np.ndarray | None]
) -> list[np.ndarray | None]:
    leaves = [
        opinfo.wide(opinfo.to_torch(a)).requires_grad_(need)
        for a, need in zip(sample.arrays, needs, strict=True)
    ]
    outs = opinfo.as_tuple(info.reference(*leaves, **sample.attrs))
    chosen = [
        (o, opinfo.wide(opinfo.to_torch(s)))
        for o, s in zip(outs, seeds, strict=True)
        if s is not None and o.requires_grad
    ]
    wanted = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
    found: Any = [None] * len(wanted)
    if chosen:
        found = torch.autograd.grad(
            [o for o, _ in chosen], wanted, [s.to(o.dtype) for o, s in chosen], allow_unused=True
        )
    results = iter(found)
    return [
        opinfo.from_torch(g) if need and (g := next(results)) is not None else None
        for need in needs
    ]


def seeds_for(outs: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray | None]:
    return [
        np.asarray(rng.uniform(-1, 1, o.shape)).astype(o.dtype) if is_float(o) else None
        for o in outs
    ]


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_matches_torch(name: str, dtype: str) -> None:
    info = OPINFOS[name]
    rng = np.random.default_rng(1)
    for sample in opinfo.samples(info, dtypes.by_name(dtype)):
        needs = needs_of(name, sample)
        if not sample.gradient or not any(needs):
            continue
        outs = call(name, list(sample.arrays), sample.attrs)
        seeds = seeds_for(outs, rng)
        if all(s is None for s in seeds):
            continue
        ours = gradients(name, sample, needs, seeds)
        theirs = torch_gradients(info, sample, needs, seeds)
        for i, (have, want) in enumerate(zip(ours, theirs, strict=True)):
            what = f"gradient {i} of {name}{sample}"
            if have is None and want is None:
                continue
            assert have is not None, what
            want = np.zeros(have.shape) if want is None else want
            kind = dtypes.from_numpy(have.dtype)
            opinfo.assert_close(have, want, kind, 32.0 * info.tolerance, what)


NUMERIC = [name for name in DIFFERENTIABLE if not OPINFOS[name].numeric]


@pytest.mark.parametrize("name", NUMERIC)
def test_gradient_matches_finite_differences(name: str) -> None:
    """Projected on one random direction, so the cost does not grow with the shape."""
    rng = np.random.default_rng(2)
    step = 1e-6
    for sample in opinfo.samples(OPINFOS[name], f64):
        needs = needs_of(name, sample)
        if not sample.gradient or not any(needs):
            continue
        arrays = [np.asarray(a) for a in sample.arrays]
        directions = [
            rng.uniform(-1, 1, a.shape) if need else None
            for a, need in zip(arrays, needs, strict=True)
        ]

        def moved(by: float, arrays: Any = arrays, directions: Any = directions) -> Any:
            return [a if d is None else a + by * d for a, d in zip(arrays, directions, strict=True)]

        outs = call(name, arrays, sample.attrs)
        seeds = seeds_for(outs, rng)
        if outs[0].dtype != np.float64:  # a cast
            continue
        ahead, behind = (
            call(name, moved(step), sample.attrs),
            call(name, moved(-step), sample.attrs),
        )
        numeric = sum(
            float(np.sum(s * (a - b))) / (2 * step)
            for s, a, b in zip(seeds, ahead, behind, strict=True)
            if s is not None
        )
        found = gradients(name, sample, needs, seeds)
        exact = sum(
            float(np.sum(g * d))
            for g, d in zip(found, directions, strict=True)
            if g is not None and d is not None
        )
        size = sum(float(np.sum(np.abs(g))) for g in found if g is not None)
        assert abs(numeric - exact) <= 1e-6 * max(1.0, size), f"{name}{sample}: {numeric} {exact}"


def test_every_rule_is_tested_or_says_why_not() -> None:
    with_rule = {name for name, op in REGISTRY.items() if op.vjp is not None}
    untested = with_rule - set(DIFFERENTIABLE) - set(WITHOUT_RECORD)
    control = {"cond", "scan", "while_loop", "unwind"}  # tests/autograd/test_control.py
    assert untested - control <= {"floor_divide"}  # torch has no gradient to compare with
    assert all(OPINFOS[name].gradient for name in untested - control)


# --- what rules read -------------------------------------------------------------------------


def vector(dtype: Any = f32, *shape: int) -> TensorType:
    return TensorType(dtype, shape or (3,))


@pytest.mark.parametrize(
    ("name", "count", "attrs", "inputs", "outs"),
    [
        ("add", 2, {}, (), ()),
        ("neg", 1, {}, (), ()),
        ("mul", 2, {}, (0, 1), ()),
        ("exp", 1, {}, (), (0,)),
        ("relu", 1, {}, (), (0,)),
        ("tanh", 1, {}, (), (0,)),
        ("sin", 1, {}, (0,), ()),
        ("sum", 1, {"dims": (0,), "keepdim": False}, (), ()),
        ("reshape", 1, {"shape": (3, 1)}, (), ()),
        ("softmax", 1, {"dim": 0}, (), (0,)),
    ],
)
def test_saved_values(name: str, count: int, attrs: Any, inputs: Any, outs: Any) -> None:
    found = autodiff.saved_values(get(name), [vector()] * count, attrs, [True] * count)
    assert found == (inputs, outs)


def test_saved_values_depend_on_what_is_needed() -> None:
    assert autodiff.saved_values(ops.mul, [vector()] * 2, {}, [True, False]) == ((1,), ())


def test_programs_are_cached_by_signature() -> None:
    one = autodiff.vjp_program(ops.exp, [vector()], {}, [True])
    assert one is autodiff.vjp_program(ops.exp, [vector()], {}, [True])
    assert one is not autodiff.vjp_program(ops.exp, [vector(f64)], {}, [True])


# --- the walk over graphs --------------------------------------------------------------------


def chain(length: int) -> Graph:
    builder = Builder()
    x = Expr(builder, builder.input(vector()))
    for _ in range(length):
        x = x * 1.0000001
    return builder.build([x.node])


def test_ten_thousand_nodes_deep() -> None:
    joint = autodiff.joint_graph(chain(10_000))
    ones = np.ones(3, np.float32)
    _, gradient = interpret.evaluate(joint, [ones, ones], TABLE)
    np.testing.assert_allclose(gradient, 1.0, rtol=2e-3)


def test_values_used_twice_accumulate_and_gradients_broadcast_back() -> None:
    builder = Builder()
    x, y = (Expr(builder, builder.input(vector(f64, *s))) for s in ((2, 3), (3,)))
    total = ops.sum(x * y + y * y, dims=(0, 1), keepdim=False)
    (seed,) = (builder.const(1.0, f64),)
    gx, gy = autodiff.backward(builder, [total.node], [seed], [x.node, y.node])
    assert gx is not None and gy is not None
    arrays = [np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])]
    found = interpret.evaluate(builder.build([gx, gy]), arrays, TABLE)
    np.testing.assert_array_equal(found[0], np.broadcast_to(arrays[1], (2, 3)))
    np.testing.assert_array_equal(found[1], arrays[0].sum(0) + 4 * arrays[1])


def test_gradient_of_gradient() -> None:
    builder = Builder()
    x = builder.input(TensorType(f64, ()))
    y = ops.exp(Expr(builder, x) * Expr(builder, x))
    (first,) = autodiff.backward(builder, [y.node], [None], [x])
    assert first is not None
    (second,) = autodiff.backward(builder, [first], [None], [x], backward_id=2)
    assert second is not None and second.backward == 2
    (value,) = interpret.evaluate(builder.build([second]), [np.array(0.5)], TABLE)
    assert value == pytest.approx((2 + 4 * 0.25) * np.exp(0.25), rel=1e-14)


def test_new_nodes_carry_line_and_backward_number() -> None:
    from graphc.ir.graph import Loc

    builder = Builder()
    x = builder.input(vector())
    with builder.at(Loc("model.py", 7)):
        y = ops.sum(ops.exp(Expr(builder, x)), dims=(0,), keepdim=False)
    before = set(builder.build([y.node]).nodes)
    (gx,) = autodiff.backward(builder, [y.node], [None], [x], backward_id=3)
    assert gx is not None
    new = [n for n in builder.build([gx]).nodes if n not in before]
    assert new and all(n.backward == 3 and n.loc == Loc("model.py", 7) for n in new)


def test_no_path_gives_none_and_integers_carry_no_gradient() -> None:
    builder = Builder()
    x, y = builder.input(vector()), builder.input(vector())
    whole = ops.cast(ops.cast(Expr(builder, x), dtype=dtypes.i64), dtype=f32)
    out = ops.sum(whole + Expr(builder, y), dims=(0,), keepdim=False)
    gx, gy = autodiff.backward(builder, [out.node], [None], [x, y])
    assert gx is None and gy is not None


def test_errors_name_the_operator_and_the_cure() -> None:
    builder = Builder()
    x = builder.input(vector())
    with pytest.raises(OpError, match="only for scalar outputs"):
        autodiff.backward(builder, [ops.exp(Expr(builder, x)).node], [None], [x])
    body = Builder()
    inner = body.input(vector())
    graph = body.build([ops.exp(Expr(body, inner)).node], "body")
    group = builder.emit(get("fusion"), x, graphs=(graph,), kind="loop")
    total = ops.sum(Expr(builder, group), dims=(0,), keepdim=False)
    with pytest.raises(OpError, match="fusion is not differentiable"):
        autodiff.backward(builder, [total.node], [None], [x])


def test_walk_visits_consumers_first_and_drops_what_it_handed_out() -> None:
    sources = {"loss": ["h", "w"], "h": ["x", "w"], "x": [], "w": []}
    order = autodiff.reverse_order(["loss"], lambda step: sources[step])
    assert order[0] == "loss" and order.index("h") < order.index("w") < 4
    seen: list[tuple[str, Any]] = []

    def rule(step: str, grads: list[int | None]) -> list[tuple[str, int, int]]:
        seen.append((step, grads))
        return [(source, 0, 1) for source in sources[step]]

    autodiff.walk(order, [("loss", 0, 1)], rule, lambda a, b: a + b)
    assert dict(seen) == {"loss": [1], "h": [1], "x": [1], "w": [2]}
