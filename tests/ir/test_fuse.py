"""What is fused with what, and that fused graphs mean the same."""

from collections import Counter

import pytest

from graphc.backends.host.machine import CPU
from graphc.ir import ops
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.passes.fuse import fuse
from graphc.ir.text import parse_graph, print_graph
from graphc.ir.types import TensorType

from . import kernel_cases as cases
from .kernel_cases import build, check, dot, f32, i64, total
from .random_graphs import random_graph


def kinds(graph: Graph) -> Counter[str]:
    return Counter(n.attrs["kind"] for n in graph.nodes if n.op.name == "fusion")


def fusions(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == "fusion"]


def names(node: Node) -> list[str]:
    return [n.op.name for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]


def test_an_adam_step_is_one_kernel_for_all_parameters() -> None:
    def adam(p, g, m, v, q, h, n, w):
        results = []
        for x, dx, a, b in ((p, g, m, v), (q, h, n, w)):
            a = a * 0.9 + dx * 0.1
            b = b * 0.999 + dx * dx * 0.001
            results += [x - a / (ops.sqrt(b) + 1e-8), a, b]
        return results

    graph = build(adam, *[(30, 40)] * 4, *[(7,)] * 4)
    mutated = dict(enumerate((0, 2, 3, 4, 6, 7)))
    assert kinds(fuse(graph, CPU, mutated=mutated)) == {"loop": 2}
    program = check(graph, mutated)
    assert len(cases.kernels(program)) == 1
    assert program.outputs_in_place == mutated


def test_a_training_step_of_a_linear_layer() -> None:
    def step(x, w, b, g):
        y = ops.relu(dot(x, w) + b)
        gy = ops.where(ops.le(y, 0.0), g * 0.0, g)
        gw = ops.dot_general(gy, x, batch_a=(), batch_b=(), contract_a=(0,), contract_b=(0,))
        return w - gw * 0.1, b - total(gy, (0,)) * 0.1, y

    graph = build(step, (8, 6), (5, 6), (5,), (8, 5))
    fused = fuse(graph, CPU, mutated=(0, 1))
    contractions = [n for n in fusions(fused) if n.attrs["kind"] == "contraction"]
    assert names(contractions[0])[:3] == ["dot_general", "add", "relu"]
    assert kinds(fused)["contraction"] == 2
    check(graph, {0: 1, 1: 2})


def test_residuals_and_permutes_go_into_epilogues() -> None:
    def heads(a, b, r):
        y = ops.dot_general(a, b, batch_a=(0,), batch_b=(0,), contract_a=(2,), contract_b=(1,))
        y = ops.permute(y, dims=(1, 0, 2))
        return ops.tanh(y + r) * 2.0

    graph = build(heads, (3, 4, 6), (3, 6, 5), (4, 3, 5))
    assert kinds(fuse(graph, CPU)) == {"contraction": 1}
    check(graph)


def test_views_of_one_buffer_are_absorbed_into_operands() -> None:
    def attention(x):
        parts = []
        for i in range(3):
            y = ops.slice(x, starts=(0, 0, 8 * i), stops=(2, 6, 8 * i + 8), steps=(1, 1, 1))
            parts.append(ops.permute(ops.reshape(y, shape=(2, 6, 2, 4)), dims=(0, 2, 1, 3)))
        q, k, v = parts
        heads = {"batch_a": (0, 1), "batch_b": (0, 1)}
        p = cases.softmax(ops.dot_general(q, k, **heads, contract_a=(3,), contract_b=(3,)), 3)
        y = ops.dot_general(p, v, **heads, contract_a=(3,), contract_b=(2,))
        return ops.reshape(ops.permute(y, dims=(0, 2, 1, 3)), shape=(2, 6, 8))

    graph = build(attention, (2, 6, 24))
    assert kinds(fuse(graph, CPU)) == {"contraction": 2, "rows": 1}
    check(graph)


def test_a_product_read_in_two_layouts_is_stored_once() -> None:
    def function(a, b, w, g):
        y = ops.dot_general(a, b, batch_a=(0,), batch_b=(0,), contract_a=(2,), contract_b=(1,))
        rows = ops.reshape(ops.permute(y, dims=(1, 0, 2)), shape=(4, 10))
        return dot(rows, w), total(y * g, (2,))

    graph = build(function, (2, 4, 3), (2, 3, 5), (6, 10), (2, 4, 5))
    assert kinds(fuse(graph, CPU)) == {"contraction": 2, "rows": 1}
    check(graph)


@pytest.mark.parametrize("shape", [(4, 6, 8), (64, 33)])
def test_layer_norm_is_one_kernel(shape: tuple[int, ...]) -> None:
    graph = build(cases.layer_norm, shape, shape[-1:], shape[-1:])
    assert kinds(fuse(graph, CPU)) == {"rows": 1}
    check(graph)


def test_batch_norm_backward_shares_its_loads() -> None:
    def backward(g, x, y):
        gy = ops.where(ops.gt(y, 0.0), g, g * 0.0)
        dims = (0, 2, 3)
        bias, slope = total(gy, dims, True), total(gy * x, dims, True)
        return gy - bias - x * slope, ops.reshape(bias, shape=(3,)), ops.reshape(slope, shape=(3,))

    graph = build(backward, *[(2, 3, 4, 5)] * 3)
    assert kinds(fuse(graph, CPU)) == {"rows": 1}
    check(graph)


def test_batch_norm_gradients_are_one_kernel_beside_their_updates() -> None:
    def step(g, x, w, b):
        dims = (0, 2, 3)
        bias, slope = total(g, dims, True), total(g * x, dims, True)
        column = ops.reshape(w, shape=(1, 3, 1, 1))
        gx = (g - bias / 40.0 - x * (slope / 40.0)) * column
        flat = [ops.reshape(v, shape=(3,)) for v in (slope, bias)]
        return gx, w - flat[0] * 0.1, b - flat[1] * 0.1

    graph = build(step, (2, 3, 4, 5), (2, 3, 4, 5), (3,), (3,))
    assert kinds(fuse(graph, CPU, mutated=(1, 2))) == {"rows": 1, "loop": 2}
    check(graph, {1: 2, 2: 3})


def test_an_early_reduction_does_not_wait_for_a_later_kernel() -> None:
    # the count is made before the product: the gradient and the loss both divide by it
    def function(x, w, valid):
        count = total(valid, (0,))
        y = dot(x, w)
        return total(total(y, (1,)) * valid, (0,)) / count, cases.softmax(y, 1) / count

    fused = fuse(build(function, (8, 6), (5, 6), (8,)), CPU)
    assert ["sum"] in [names(n) for n in fusions(fused)]
    check(build(function, (8, 6), (5, 6), (8,)))


def test_sgd_updates_go_with_their_gradients() -> None:
    def step(x, g, w):
        gw = ops.dot_general(g, x, batch_a=(), batch_b=(), contract_a=(0,), contract_b=(0,))
        return w - gw * 0.1

    graph = build(step, (8, 6), (8, 5), (5, 6))
    assert kinds(fuse(graph, CPU, mutated=(0,))) == {"contraction": 1}
    program = check(graph, {0: 2})
    assert program.arena_bytes == 0 and len(program.steps) == 1


def test_sums_over_the_same_axes_become_one_kernel() -> None:
    graph = build(lambda g, x: (total(g, (0, 1)), total(g * x, (0, 1))), (4, 6, 8), (4, 6, 8))
    assert kinds(fuse(graph, CPU)) == {"rows": 1}
    check(graph)


def test_softmax_rows_are_not_torn_apart_by_a_column_sum() -> None:
    def function(x):
        y = cases.softmax(x, 1)
        return y, total(y, (0,))

    assert [names(n) for n in fusions(fuse(build(function, (64, 10)), CPU))] == [
        ["amax", "sub", "exp", "sum", "div"], ["sum"],
    ]


def test_costly_values_are_not_computed_again_per_row() -> None:
    graph = build(lambda x, w: x * ops.exp(w), (300, 40), (40,))
    assert sorted(map(names, fusions(fuse(graph, CPU)))) == [["exp"], ["mul"]]
    per_row = build(lambda x, w: x * ops.exp(w), (300, 40), (300, 1))
    assert len(fusions(fuse(per_row, CPU))) == 1


def test_checks_of_an_embedding_gradient_are_not_repeated() -> None:
    def step(weight, ids, g):
        y = ops.index(weight, ids, dim=0)
        zeros = ops.full.like(weight, shape=(7, 4), value=0.0, dtype=f32)
        return y * 2.0, weight - ops.index_put(zeros, g, ids, dim=0, accumulate=True)

    graph = build(step, (7, 4), (i64, (5,)), (5, 4))
    assert kinds(fuse(graph, CPU))["scatter_unchecked"] == 1
    program = check(graph, {1: 0})
    # the update need not wait for anything but the look-up
    assert program.first_visible_write >= 1


def test_no_two_kernels_wait_for_each_other() -> None:
    # the sum joins the add, whose other operand is made of the raw product
    def function(a, b):
        y = dot(a, b)
        return ops.relu(y) + dot(ops.exp(y), b), y * total(y, (0, 1), True)

    check(build(function, (4, 4), (4, 4)))


def test_routines_stay_steps_of_their_own() -> None:
    graph = build(lambda x: ops.relu(ops.tanh(x) * 2.0), (8, 4))
    fused = fuse(graph, CPU, lambda node: node.op.name == "tanh")
    assert [n.op.name for n in fused.nodes] == ["input", "tanh", "fusion"]
    sorted_ = build(lambda x: ops.sort(x * 2.0, dim=0, descending=False, stable=True)[0], (8, 4))
    assert [n.op.name for n in fuse(sorted_, CPU).nodes] == ["input", "fusion", "sort", "get"]
    check(sorted_)


def test_values_without_elements() -> None:
    graph = build(
        lambda x, y: (total(x, (0,)), ops.concat(x, y, dim=0) * 2.0, x + 1.0), (0, 3), (2, 3)
    )
    check(graph)


def test_an_operand_that_is_made_of_a_view_of_the_other() -> None:
    """The right one is read from a copy of the rows, so the left one is, too."""

    def function(x):
        rows = ops.slice(x, starts=(0, 0), stops=(5, 8), steps=(1, 1))
        flat = ops.reshape(rows, shape=(40,))
        first = ops.slice(flat, starts=(0,), stops=(8,), steps=(1,))
        return ops.dot_general(
            rows, first, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(0,))

    check(build(function, (5, 11)))


def test_a_long_chain_is_cut_without_recursion() -> None:
    builder = Builder()
    node = builder.input(TensorType(f32, (4,)))
    for i in range(10_000):
        node = builder.emit(ops.sin if i % 2 else ops.cos, node)
    fused = fuse(builder.build([node]), CPU)
    assert len(fusions(fused)) < 200


def test_fused_graphs_print_and_parse() -> None:
    fused = fuse(build(cases.layer_norm, (4, 8), (8,), (8,)), CPU)
    assert print_graph(parse_graph(print_graph(fused))) == print_graph(fused)


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(seed: int) -> None:
    maker = random_graph(seed)
    check(maker.graph(), maker.mutated, maker.arrays(seed))


@pytest.mark.parametrize("seed", range(100, 115))
def test_random_graphs_with_symbolic_sizes(seed: int) -> None:
    maker = random_graph(seed, symbolic=True)
    check(maker.graph(), maker.mutated, maker.arrays(seed))
