"""The text form: printing and parsing are exact inverses, and bad text says which line."""

import math
from typing import Any

import numpy as np
import pytest

from graphc.ir import autodiff, dtypes, ops, verify
from graphc.ir.dim import DimEnv, maximum
from graphc.ir.graph import Builder, Constant, Expr, Graph, Loc, Node, attr_key
from graphc.ir.op import get
from graphc.ir.text import ParseError, parse_graph, print_graph
from graphc.ir.types import TensorType

f32, i64 = dtypes.f32, dtypes.i64


def assert_same(a: Graph, b: Graph) -> None:
    """Same structure, attributes, lines and numbers, node by node."""
    assert a.name == b.name
    if a.env.hints:  # a sub-graph without dims of its own reads back with those around it
        assert (a.env.hints, a.env.guards) == (b.env.hints, b.env.guards)
    assert len(a.nodes) == len(b.nodes)
    place_a, place_b = ({n: i for i, n in enumerate(g.nodes)} for g in (a, b))
    for x, y in zip(a.nodes, b.nodes, strict=True):
        assert (x.op, x.type, x.loc, x.backward) == (y.op, y.type, y.loc, y.backward)
        assert [place_a[s] for s in x.inputs] == [place_b[s] for s in y.inputs]
        assert {k: attr_key(v) for k, v in x.attrs.items()} == {
            k: attr_key(v) for k, v in y.attrs.items()
        }
        for inner_a, inner_b in zip(x.graphs, y.graphs, strict=True):
            assert_same(inner_a, inner_b)
    assert [place_a[n] for n in a.inputs] == [place_b[n] for n in b.inputs]
    assert [place_a[n] for n in a.outputs] == [place_b[n] for n in b.outputs]


def round_trip(graph: Graph) -> Graph:
    text = print_graph(graph)
    parsed = parse_graph(text)
    assert print_graph(parsed) == text
    assert_same(graph, parsed)
    verify.verify(parsed)
    return parsed


def test_reads_as_it_should() -> None:
    builder = Builder()
    x = Expr(builder, builder.input(TensorType(f32, (4, 8)), "x"))
    with builder.at(Loc("model.py", 12, "forward")):
        y = ops.sum(x * 0.1, dims=(0,), keepdim=False)
    graph = builder.build([y.node], "f")
    assert print_graph(graph) == (
        "graph f(%0 x: f32[4,8]) {\n"
        "  %1 = const, value=[0.1] : f32[]  # model.py:12 in forward\n"
        "  %2 = mul %0, %1 : f32[4,8]  # model.py:12 in forward\n"
        "  %3 = sum %2, dims=(0,), keepdim=False : f32[8]  # model.py:12 in forward\n"
        "  return %3\n"
        "}\n"
    )
    round_trip(graph)
    assert str(graph) == print_graph(graph)


@pytest.mark.parametrize("dtype", dtypes.ALL)
def test_constants_to_the_bit(dtype: dtypes.DType) -> None:
    builder = Builder()
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 256, (5, 7, dtype.itemsize), dtype=np.uint8)
    raw = bits.reshape(5, 7 * dtype.itemsize).view(dtype.numpy) if dtype.kind != "bool" else (
        bits.reshape(5, 7) > 128
    )
    arrays = [raw, raw[0], raw[:1, :1], raw[:0], np.zeros((), dtype.numpy)]
    if dtype.is_float:
        odd = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 1e-45, 3.4e38, 1 / 3]
        with np.errstate(all="ignore"):
            arrays.append(np.array(odd).astype(dtype.numpy))
    nodes = [builder.const(a, dtype) for a in arrays]
    parsed = round_trip(builder.build(nodes))
    for node, array in zip(parsed.outputs, arrays, strict=True):
        assert node.attrs["value"] == Constant(array)


def test_attributes_of_every_kind() -> None:
    env = DimEnv()
    n, m = env.new("n", 32), env.new("m", 7)
    builder = Builder(env)
    x = Expr(builder, builder.input(TensorType(f32, (n, maximum(n, m), 3)), 'odd "name" %'))
    y = ops.reshape(x, shape=(3 * n, maximum(n, m)))
    z = ops.slice(y, starts=(0, 0), stops=(n // 2 + 1, 2), steps=(1, 1))
    values = [
        z, ops.pad(z, low=(1, 0), high=(0, 0), interior=(0, 0), value=-0.0),
        ops.pad(z, low=(1, 0), high=(0, 0), interior=(0, 0), value=math.nan),
        ops.pad(z, low=(1, 0), high=(0, 0), interior=(0, 0), value=-math.inf),
        ops.full.like(x, shape=(n,), value=n * 2, dtype=i64),
        ops.full.like(x, shape=(), value=1e-300, dtype=dtypes.f64),
        ops.full.like(x, shape=(2,), value=True, dtype=dtypes.bool_),
        ops.cast(x, dtype=dtypes.bf16), ops.gelu(x, approximate="tanh"),
        *ops.sort(z, dim=1, descending=True, stable=False),
        ops.permute(x, dims=(2, 1, 0)), ops.sum(x, dims=(), keepdim=True),
    ]
    graph = builder.build([v.node for v in values], "<lambda> of f")
    assert graph.env.guards
    round_trip(graph)


def test_lines_backward_numbers_and_equal_nodes_stay_apart() -> None:
    one, other = Builder(), Builder()
    with one.at(Loc("/a b/c: d.py", 3, "Model.forward.<locals>.<lambda>")):
        x = Expr(one, one.input(TensorType(f32, ()), "at"))
        a = ops.exp(x)
    with other.at(Loc("back\\slash\n.py", 12), backward=2):
        b = ops.exp(Expr(other, x.node))
    graph = one.build([a.node, b.node])
    assert len(round_trip(graph).nodes) == 3


@pytest.mark.parametrize("module", ["", "blocks.0.attn", "a, module b", "odd\\, \nx", "optimizer"])
@pytest.mark.parametrize("optimizer", [False, True])
def test_modules_and_optimizer_steps_in_lines(module: str, optimizer: bool) -> None:
    builder = Builder()
    loc = Loc("net.py", 9, "Net.forward", module, optimizer)
    with builder.at(loc):
        y = ops.exp(Expr(builder, builder.input(TensorType(f32, ()), "0.weight")))
    graph = builder.build([y.node])
    assert round_trip(graph).outputs[0].loc == loc
    assert print_graph(graph, places=False) == (
        'graph graph(%0 "0.weight": f32[]) {\n  %1 = exp %0 : f32[]\n  return %1\n}\n'
    )


def test_a_place_says_line_module_and_phase() -> None:
    builder = Builder()
    x = Expr(builder, builder.input(TensorType(f32, ())))
    with builder.at(Loc("net.py", 9, "forward", "0.attn"), backward=1):
        y = ops.exp(x)
    with builder.at(Loc("net.py", 3, "step", optimizer=True), backward=1):
        z = ops.sin(x)
    assert (y.node.phase, y.node.place) == ("backward", "net.py:9, module 0.attn, backward")
    assert (z.node.phase, z.node.place) == ("optimizer", "net.py:3, optimizer")
    assert (x.node.phase, x.node.place) == ("forward", "")


def sub_graphs() -> Graph:
    env = DimEnv()
    n = env.new("n", 5)
    body = Builder(env)
    c, row = (Expr(body, body.input(TensorType(f32, s))) for s in ((), (4,)))
    inner = body.build([(c + ops.sum(row, dims=(0,), keepdim=False)).node, ops.exp(row).node])
    builder = Builder(env)
    start = builder.input(TensorType(f32, ()))
    rows = builder.input(TensorType(f32, (n, 4)))
    scan = builder.emit(get("scan"), start, rows, n_carried=1, reverse=True, graphs=(inner,))
    own = Builder()
    value = Expr(own, own.input(TensorType(f32, ()), "v"))
    branch = own.build([(value * 2.0).node], "then")
    flag = builder.input(TensorType(dtypes.bool_, ()))
    first = builder.results(scan)[0]
    both = builder.emit(get("cond"), flag, first, graphs=(branch, branch))
    return builder.build([both, *builder.results(scan)], "outer")


def test_sub_graphs() -> None:
    round_trip(sub_graphs())


def test_a_scan_from_before_it_could_be_reversed() -> None:
    text = print_graph(sub_graphs())
    old = text.replace(", reverse=True", "")
    assert old != text
    assert print_graph(parse_graph(old)) == text.replace("reverse=True", "reverse=False")


def test_inputs_that_are_not_numbered_by_place() -> None:
    program = autodiff.vjp_program(ops.mul, [TensorType(f32, (3,))] * 2, {}, [True, False])
    round_trip(program.graph)


def test_sizes_of_inputs_that_rely_on_guards() -> None:
    text = """graph f(%0 x: f32[n], %1 y: f32[((n // 2) + -1)]) {
  dims n=2
  guard 0 <= ((n // 2) + -1)
  return %1
}
"""
    graph = parse_graph(text)
    assert print_graph(graph) == text and graph.env.hints == {"n": 2}


def test_ten_thousand_nodes() -> None:
    builder = Builder()
    x = Expr(builder, builder.input(TensorType(f32, ())))
    for _ in range(10_000):
        x = ops.exp(x)
    text = print_graph(builder.build([x.node]))
    assert print_graph(parse_graph(text)) == text


GOOD = "graph f(%0 x: f32[4]) {\n  %1 = exp %0 : f32[4]\n  return %1\n}\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("exp %0", "expp %0", 2, "unknown operator 'expp'"),
        ("exp %0", "exp %7", 2, "%7 is used before it is defined"),
        (": f32[4]\n  r", ": f32[5]\n  r", 2, r"exp gives f32\[4\] here, the text says f32\[5\]"),
        ("%1 = exp", "%0 = exp", 2, "%0 is defined twice"),
        ("exp %0", "exp %0, %0", 2, "takes 1 inputs"),
        ("exp %0", "sum %0, dims=(3,), keepdim=False", 2, "Dimension out of range"),
        ("exp %0", "sum %0", 2, "dims"),
        ("f32[4]) {", "f33[4]) {", 1, "unknown dtype 'f33'"),
        ("return %1", "return %1 %1", 3, "expected '}'"),
        ("}\n", "", 4, "expected '}'"),
        ("exp %0", "exp ?", 2, "unexpected character"),
        ("graph f", "grph f", 1, "expected 'graph'"),
        ("}\n", "}\n}", 5, "expected the end of the text"),
        ("exp %0", "const, value=[1.0, 2.0]", 2, "does not fit"),
    ],
)
def test_bad_text_names_the_line(old: str, new: str, line: int, message: str) -> None:
    bad = GOOD.replace(old, new, 1)
    assert bad != GOOD
    with pytest.raises(ParseError, match=message) as error:
        parse_graph(bad)
    assert str(error.value).startswith(f"line {line}: ")


def test_reserved_dim_names_are_refused() -> None:
    env = DimEnv()
    n = env.new("f32", 4)
    builder = Builder(env)
    graph = builder.build([builder.input(TensorType(f32, (n,)))])
    with pytest.raises(ValueError, match="may not be named 'f32'"):
        print_graph(graph)


# --- the verifier ----------------------------------------------------------------------------


def node(op: str, inputs: Any, type_: Any, **attrs: Any) -> Node:
    return Node(get(op), inputs, attrs, type_)


def test_verifier_finds_what_is_wrong() -> None:
    builder = Builder()
    x = builder.input(TensorType(f32, (4,)), "x")
    good = ops.exp(Expr(builder, x)).node
    verify.verify(builder.build([good]))
    foreign = Builder().input(TensorType(f32, (4,)), "y")
    bad: dict[str, list[Node]] = {
        r"exp gives f32\[4\], the node says f32\[5\]": [node("exp", (x,), TensorType(f32, (5,)))],
        "takes 1 inputs, not 2": [node("exp", (x, x), x.type)],
        "unknown attributes": [node("exp", (x,), x.type, dims=(0,))],
        r"lacks \['dim'\]": [node("softmax", (x,), x.type)],
        "not an input of its graph": [node("exp", (foreign,), x.type)],
        "output is a tuple": [ops.sort(Expr(builder, x), dim=0, descending=False, stable=True)[0]
                              .node.inputs[0]],
        "reads all the results": [node("exp", (ops.sort(
            Expr(builder, x), dim=0, descending=False, stable=True)[0].node.inputs[0],), x.type)],
    }
    for message, outputs in bad.items():
        with pytest.raises(verify.VerifyError, match=message):
            verify.verify(builder.build(outputs), after="a pass")


def test_verifier_shows_the_text_round_the_fault() -> None:
    builder = Builder()
    x = Expr(builder, builder.input(TensorType(f32, (4,)), "x"))
    for _ in range(30):
        x = ops.exp(x)
    with builder.at(Loc("model.py", 5)):
        wrong = Node(get("exp"), (x.node,), {}, TensorType(f32, (5,)), Loc("model.py", 5))
    with pytest.raises(verify.VerifyError) as error:
        verify.verify(builder.build([wrong], "f"), after="simplify")
    message = str(error.value)
    assert message.startswith("graph f after simplify: exp gives f32[4]")
    assert "at model.py:5" in message and ">>   %31 = exp %30" in message
    assert len(message.splitlines()) < 25


def test_verifier_looks_into_sub_graphs_and_guards() -> None:
    graph = sub_graphs()
    verify.verify(graph)
    env = DimEnv()
    n = env.new("n", 4)
    builder = Builder(env)
    x, y = (Expr(builder, builder.input(TensorType(f32, (s,)))) for s in (n, 4))
    total = builder.build([(x + y).node])
    verify.verify(total)
    env.guards.clear()
    with pytest.raises(verify.VerifyError, match="relies on n == 4"):
        verify.verify(total)
