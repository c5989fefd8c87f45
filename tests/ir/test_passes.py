"""cse, dce, fold, decompose, partition, the pass driver and the interpreter."""

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import autodiff, dtypes, interpret, ops, verify
from graphc.ir.dim import DimEnv
from graphc.ir.graph import Builder, Expr, Graph, Node
from graphc.ir.op import REGISTRY, get
from graphc.ir.passes import run
from graphc.ir.passes.cse import cse
from graphc.ir.passes.dce import dce
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.fold import fold
from graphc.ir.passes.partition import split
from graphc.ir.passes.simplify import simplify
from graphc.ir.passes.simplify.canonicalize import canonicalize
from graphc.ir.passes.specialise import specialise
from graphc.ir.types import TensorType

f32, i64 = dtypes.f32, dtypes.i64
STATE = TensorType(i64, (626,))


def tensor(*shape: int, dtype: Any = f32) -> TensorType:
    return TensorType(dtype, shape)


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def value(builder: Builder, *shape: Any, dtype: Any = f32) -> Expr:
    return Expr(builder, builder.input(TensorType(dtype, shape)))


def linear(x: Any, w: Any) -> Any:
    return ops.dot_general(x, w, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(0,))


def random_inputs(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(n.tensor_type.static_shape).astype(n.dtype.numpy)
        if n.dtype.is_float
        else rng.integers(0, 3, n.tensor_type.static_shape).astype(n.dtype.numpy)
        for n in graph.inputs
    ]


def assert_same_values(a: Graph, b: Graph, tolerance: float = 0.0) -> None:
    arrays = random_inputs(a)
    old, new = (interpret.evaluate(g, arrays, TABLE) for g in (a, b))
    for x, y in zip(old, new, strict=True):
        np.testing.assert_allclose(y, x, rtol=tolerance, atol=tolerance)


# --- cse -------------------------------------------------------------------------------------


def copies(*numbers: int) -> tuple[Graph, list[Node]]:
    """exp of one input, made by several builders, in the given backward calls."""
    first = Builder()
    x = first.input(tensor(3))
    nodes = []
    for number in numbers:
        other = Builder()
        with other.at(None, number):
            nodes.append(ops.exp(Expr(other, x)).node)
    total = Expr(first, nodes[0])
    for node in nodes[1:]:
        total = total + Expr(first, node)
    return first.build([total.node]), nodes


def test_cse_merges_and_prefers_the_forward_value() -> None:
    graph, _ = copies(2, 0, 1)
    merged = cse(graph)
    assert names(merged) == ["input", "exp", "add", "add"]
    assert merged.nodes[1].backward == 0
    verify.verify(merged)
    assert_same_values(graph, merged)
    assert cse(merged) is merged


def test_cse_keeps_attributes_constants_and_random_draws_apart() -> None:
    builder = Builder()
    x = value(builder, 2, 2)
    state = builder.input(STATE)
    draws = [builder.results(builder.emit(get("rng_uniform"), state, shape=(2, 2), dtype=f32))[0]
             for _ in range(2)]
    parts = [
        ops.sum(x, dims=(0,), keepdim=False), ops.sum(x, dims=(1,), keepdim=False),
        x + 0.0, x + -0.0, x * Expr(builder, builder.const(1.0, f32)),
    ]
    graph = builder.build([*draws, *(p.node for p in parts)])
    assert len(cse(graph).nodes) == len(graph.nodes)


# --- dce -------------------------------------------------------------------------------------


def body(types: list[TensorType], make: Any) -> Graph:
    builder = Builder()
    values = [Expr(builder, builder.input(t)) for t in types]
    return builder.build([e.node for e in make(*values)], "body")


def test_dce_drops_unused_results_and_operands_of_sub_graphs() -> None:
    types = [tensor(3)] * 3
    inner = body(types, lambda a, b, c: (a * 2.0, b + b, a + c))
    builder = Builder()
    x, y, z = (value(builder, 3) for _ in range(3))
    fused = builder.emit(get("fusion"), x.node, y.node, z.node, kind="loop", graphs=(inner,))
    results = builder.results(fused)
    for chosen, inputs in (((0,), 1), ((0, 2), 2), ((1,), 1), ((0, 1, 2), 3)):
        graph = builder.build([results[i] for i in chosen])
        small = dce(graph)
        verify.verify(small)
        (node,) = [n for n in small.nodes if n.op.name == "fusion"]
        assert len(node.graphs[0].outputs) == len(chosen) and len(node.inputs) == inputs
        assert small.inputs == graph.inputs
        assert_same_values(graph, small)


def test_dce_trims_cond_and_what_it_held_alive() -> None:
    branch = body([tensor(3), tensor(3)], lambda a, b: (a, b))
    builder = Builder()
    flag = builder.input(tensor(dtype=dtypes.bool_))
    x, y = value(builder, 3), value(builder, 3)
    node = builder.emit(get("cond"), flag, x.node, ops.exp(y).node, graphs=(branch, branch))
    graph = builder.build([builder.results(node)[0]])
    small = dce(graph)
    assert "exp" not in names(small)
    assert_same_values(graph, small)


# --- fold ------------------------------------------------------------------------------------


def test_fold_computes_small_constant_parts() -> None:
    builder = Builder()
    x = value(builder, 3)
    c = Expr(builder, builder.const([1.0, 2.0, 3.0], f32))
    part = ops.exp(c) * 2.0 + ops.full.like(x, shape=(3,), value=1.0, dtype=f32)
    values, order = ops.sort(part, dim=0, descending=True, stable=True)
    graph = builder.build([(x + values).node, order.node])
    folded = fold(graph, TABLE)
    assert names(folded) == ["input", "const", "add", "const"]
    verify.verify(folded)
    assert_same_values(graph, folded)


def test_fold_leaves_large_random_and_failing_parts() -> None:
    builder = Builder()
    x = value(builder, 100)
    big = ops.exp(Expr(builder, builder.const(np.ones(100), f32)))
    state = Expr(builder, builder.const(np.zeros(626), i64))
    draw = ops.rng_uniform(state, shape=(2,), dtype=f32)[0]
    one = Expr(builder, builder.const(1, i64))
    graph = builder.build([(x * big).node, draw.node, ops.floor_divide(one, 0).node])
    assert fold(graph, TABLE) is graph


def test_fold_leaves_empty_parts_of_symbolic_size() -> None:
    env = DimEnv()
    size = env.new("n", 4)
    builder = Builder(env)
    x = value(builder, size)
    empty = ops.full.like(x, shape=(0, size), value=1.0, dtype=f32)
    graph = builder.build([ops.cast(empty, dtype=dtypes.f64).node])
    assert fold(graph, TABLE) is graph


# --- decompose -------------------------------------------------------------------------------


def composites() -> Graph:
    builder = Builder()
    x, w = value(builder, 6, 4), value(builder, 4)
    y, mean, variance = ops.batch_norm(x, w, w, eps=1e-5)
    z = ops.gelu(ops.layer_norm(y, w, normalized_dims=(1,), eps=1e-5), approximate="none")
    target = value(builder, 6, dtype=i64)
    attrs = {"ignore_index": -100, "label_smoothing": 0.1, "reduction": "mean"}
    loss = ops.cross_entropy(ops.log_softmax(z, dim=1), target, **attrs)
    return builder.build([loss.node, mean.node, variance.node])


def test_decompose_leaves_what_is_claimed() -> None:
    graph = composites()
    primitive = decompose(graph)
    assert not any(n.op.decompose for n in primitive.nodes)
    verify.verify(primitive)
    assert_same_values(graph, primitive, 1e-5)
    some = decompose(graph, lambda node: node.op.name in ("gelu", "batch_norm"))
    assert [n for n in names(some) if REGISTRY[n].decompose] == ["batch_norm", "gelu"]
    assert decompose(graph, lambda node: True) is graph


def test_decomposed_nodes_keep_line_and_backward_number() -> None:
    builder = Builder()
    x = value(builder, 6, 4)
    with builder.at(None, 3):
        y = ops.softmax(x, dim=1)
    nodes = decompose(builder.build([y.node])).nodes
    assert {n.backward for n in nodes if n.op.name != "input"} == {3}


# --- the driver ------------------------------------------------------------------------------


def test_driver_runs_in_order_with_one_hook_and_checks_signatures() -> None:
    seen: list[str] = []

    def hook(name: str, before: Graph, after: Graph, seconds: float) -> None:
        verify.verify(after, name)
        assert seconds >= 0.0
        seen.append(name)

    graph = composites()
    pipeline = [("decompose", decompose), ("simplify", simplify), ("cse", cse), ("dce", dce)]
    result = run(pipeline, graph, hook)
    assert seen == ["decompose", "simplify", "cse", "dce"]
    assert_same_values(graph, result, 1e-5)
    with pytest.raises(ValueError, match="pass drop changed the inputs"):
        run([("drop", lambda g: Graph("g", g.inputs[:2], g.outputs[1:]))], graph)
    with pytest.raises(ValueError, match="pass swap changed the types of the outputs"):
        run([("swap", lambda g: Graph("g", g.inputs, g.outputs[::-1]))], graph)


def test_passes_keep_unused_inputs() -> None:
    builder = Builder()
    x, unused = value(builder, 3), builder.input(tensor(5))
    graph = builder.build([(x * 1.0 + ops.exp(x)).node])
    for one in (canonicalize, simplify, cse, dce, decompose, lambda g: fold(g, TABLE)):
        assert one(graph).inputs == (x.node, unused)


# --- partition -------------------------------------------------------------------------------


def joint_model() -> tuple[Graph, int, int]:
    builder = Builder()
    x, w1, w2 = value(builder, 8, 4), value(builder, 4, 16), value(builder, 16, 2)
    state = Expr(builder, builder.input(STATE))
    mask, after = ops.rng_bernoulli(state, shape=(8, 16), p=0.5, dtype=f32)
    hidden = ops.gelu(linear(x, w1), approximate="tanh") * mask
    out = ops.tanh(linear(ops.relu(hidden), w2))
    graph = builder.build([out.node, after.node])
    return simplify(autodiff.joint_graph(graph)), 4, 2


def run_split(graph: Graph, forward_inputs: int, forward_outputs: int) -> Any:
    parts = split(graph, forward_inputs, forward_outputs)
    verify.verify(parts.forward)
    verify.verify(parts.backward)
    arrays = random_inputs(graph)
    first = interpret.evaluate(parts.forward, arrays[:forward_inputs], TABLE)
    saved = [arrays[i] if kind == "input" else first[i] for kind, i in parts.saved]
    second = interpret.evaluate(parts.backward, [*saved, *arrays[forward_inputs:]], TABLE)
    for have, want in zip([*first[:forward_outputs], *second],
                          interpret.evaluate(graph, arrays, TABLE), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    return parts


def test_split_computes_the_same_and_never_repeats_what_is_dear() -> None:
    graph, inputs, outputs = joint_model()
    parts = run_split(graph, inputs, outputs)
    count = names(graph)
    for dear in ("dot_general", "rng_bernoulli"):
        both = names(parts.forward).count(dear) + names(parts.backward).count(dear)
        assert both == count.count(dear)
    assert "rng_bernoulli" not in names(parts.backward)
    # one value of the hidden layer before gelu, and the mask: gelu, relu are computed again
    kept = [n.shape for n in parts.backward.inputs[: len(parts.saved)]]
    assert kept.count((8, 16)) == 2
    assert parts.forward.inputs == graph.inputs[:inputs]


def test_split_keeps_the_smaller_of_two() -> None:
    builder = Builder()
    x = value(builder, 100, 100)
    small = ops.sum(x, dims=(0,), keepdim=False)
    out = ops.exp(ops.expand(ops.sin(small), shape=(100, 100)))
    graph = autodiff.joint_graph(builder.build([ops.sum(out, dims=(0, 1), keepdim=False).node]))
    parts = run_split(graph, 1, 1)
    assert [n.shape for n in parts.backward.inputs[: len(parts.saved)]] == [(100,)]


def test_split_of_a_chain_saves_nothing_but_the_input() -> None:
    builder = Builder()
    x = value(builder, 50)
    y = x
    for _ in range(200):
        y = ops.tanh(y)
    graph = autodiff.joint_graph(builder.build([y.node]))
    parts = run_split(graph, 1, 1)
    assert set(parts.saved) <= {("input", 0), ("output", 0)} and len(parts.forward.outputs) == 1


def test_split_refuses_outputs_that_read_cotangents() -> None:
    builder = Builder()
    x, g = value(builder, 3), value(builder, 3)
    with pytest.raises(ValueError, match="depends on a cotangent"):
        split(builder.build([(x * g).node]), 1, 1)


# --- the interpreter -------------------------------------------------------------------------


def test_interpreter_binds_symbolic_sizes() -> None:
    env = DimEnv()
    n, m = env.new("n", 4), env.new("m", 3)
    builder = Builder(env)
    x = value(builder, n, m)
    y = value(builder, n * 2)
    flat = ops.reshape(x, shape=(n * m,))
    wide = ops.expand(ops.sum(y, dims=(0,), keepdim=True), shape=(m,))
    size = ops.full.like(x, shape=(n,), value=n * m, dtype=f32)
    graph = builder.build([flat.node, wide.node, size.node])
    a, b = np.ones((5, 2), np.float32), np.ones(10, np.float32)
    found = interpret.evaluate(graph, [a, b], TABLE)
    assert [f.shape for f in found] == [(10,), (2,), (5,)] and found[2][0] == 10
    with pytest.raises(ValueError, match="got size 11 for 2"):
        interpret.evaluate(graph, [a, np.ones(11, np.float32)], TABLE)


def test_interpreter_solves_a_size_that_is_no_plain_name() -> None:
    env = DimEnv()
    n = env.new("n", 4)
    builder = Builder(env)
    x = value(builder, n * 2 + 1)
    graph = builder.build([ops.full.like(x, shape=(n,), value=0.0, dtype=f32).node, x.node])
    assert interpret.evaluate(graph, [np.ones(15, np.float32)], TABLE)[0].shape == (7,)


def test_interpreter_checks_inputs() -> None:
    graph = body([tensor(3)], lambda a: (a,))
    one = np.ones(3, np.float32)
    for bad in ([], [one, one], [np.ones(4, np.float32)], [np.ones(3)]):
        with pytest.raises(ValueError, match="graph body"):
            interpret.evaluate(graph, bad, TABLE)


def test_interpreter_frees_values_after_their_last_use() -> None:
    import weakref

    builder = Builder()
    x = value(builder, 1000)
    y = x
    for _ in range(50):
        y = ops.exp(y)
    alive: list[Any] = []
    most = 0

    def observe(node: Node, array: Any) -> None:
        nonlocal most
        alive.append(weakref.ref(array))
        most = max(most, sum(r() is not None for r in alive))

    interpret.evaluate(builder.build([y.node]), [np.zeros(1000, np.float32)], TABLE, None, observe)
    assert most <= 3


# --- specialise ------------------------------------------------------------------------------


def test_dims_that_guards_fix_are_numbers_everywhere() -> None:
    builder = Builder()
    n, m, k = (builder.env.new(name, hint) for name, hint in (("n", 3), ("m", 3), ("k", 6)))
    x, y, z = value(builder, 3), value(builder, m), value(builder, n, k)
    total = x + y  # decides m == 3
    wide = ops.expand(total, shape=(n, 3)) * ops.slice(
        z, starts=(0, k - 3), stops=(n, k), steps=(1, 1)
    )
    builder.env.equal(n, m)
    graph = specialise(builder.build([wide.node]))
    verify.verify(graph)
    assert [node.shape for node in graph.inputs] == [(3,), (3,), (3, k)]
    assert graph.outputs[0].shape == (3, 3)
    assert tuple(graph.env.hints) == ("n", "m", "k")  # a call still passes all


def test_nothing_to_specialise() -> None:
    builder = Builder()
    n = builder.env.new("n", 3)
    graph = builder.build([(value(builder, n) * 2.0).node])
    assert specialise(graph) is graph
