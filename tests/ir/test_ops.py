"""Operator records: complete, named consistently, and typed as torch types them."""

import re
from pathlib import Path

import numpy as np
import pytest

from graphc.ir import dtypes, interpret, ops
from graphc.ir.dim import Dim, DimEnv
from graphc.ir.graph import OPERATORS, Builder, Expr
from graphc.ir.op import ELEMENTWISE, REGISTRY, Op, OpError
from graphc.ir.types import TensorType, TupleType, Type

FAMILIES = ELEMENTWISE | {
    "reduce", "arg_reduce", "movement", "index", "contract", "window", "sort", "cumulative",
    "create", "random", "composite", "control", "structure", "routine",
}
f32, i64, bool_ = dtypes.f32, dtypes.i64, dtypes.bool_
WINDOW = {"stride": (1, 1), "pad_low": (0, 0), "pad_high": (0, 0), "dilation": (1, 1)}
RECORDS = [op for op in REGISTRY.values() if op.name not in ("input", "const", "get")]


def tensor(*shape: int | Dim, dtype: dtypes.DType = f32) -> TensorType:
    return TensorType(dtype, shape)


def infer(name: str, *types: TensorType, env: DimEnv | None = None, **attrs: object) -> Type:
    return REGISTRY[name].infer(types, attrs, env or DimEnv())


def shape(name: str, *types: TensorType, env: DimEnv | None = None, **attrs: object) -> tuple:
    result = infer(name, *types, env=env, **attrs)
    assert isinstance(result, TensorType)
    return result.shape


# --- records ---------------------------------------------------------------------------------


def test_every_record_is_an_attribute_of_the_package() -> None:
    assert all(getattr(ops, name) is op for name, op in REGISTRY.items())
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = ops.nonesuch


@pytest.mark.parametrize("op", RECORDS, ids=lambda op: op.name)
def test_a_record_is_complete(op: Op) -> None:
    assert op.family in FAMILIES
    assert op.doc and op.doc[-1] == "."
    assert (op.vjp is None) != (op.nondifferentiable == "")
    assert (op.decompose is not None) == (op.family == "composite")
    assert op.domain[0] < op.domain[1]


def test_elementwise_operators_have_a_fixed_arity_and_the_builder_knows_five() -> None:
    arity = {"unary": 1, "cast": 1, "binary": 2, "compare": 2, "ternary": 3}
    for op in RECORDS:
        if op.elementwise:
            assert op.arity == arity[op.family]
            assert op.attrs == (("dtype",) if op.name == "cast" else ())
    assert set(OPERATORS) == {"add", "sub", "mul", "div", "neg"}


def test_every_operator_that_a_rule_names_is_registered() -> None:
    folder = Path(ops.__file__).parent
    for file in sorted(folder.glob("*.py")):
        for name in re.findall(r"(?<![.\w])ops\.(\w+)\b", file.read_text()):
            assert name in REGISTRY, f"{file.name} uses ops.{name}"


def test_no_module_is_named_like_an_operator() -> None:
    modules = {file.stem for file in Path(ops.__file__).parent.glob("*.py")}
    assert not modules & set(REGISTRY)


# --- shapes ----------------------------------------------------------------------------------


def test_broadcasting() -> None:
    assert shape("add", tensor(3, 1), tensor(2, 1, 4)) == (2, 3, 4)
    assert shape("mul", tensor(), tensor(0, 2)) == (0, 2)
    assert shape("where", tensor(4, dtype=bool_), tensor(3, 1), tensor()) == (3, 4)
    assert infer("lt", tensor(2), tensor(2)) == tensor(2, dtype=bool_)


def test_symbolic_sizes_stay_symbolic_without_guards() -> None:
    env = DimEnv()
    n = env.new("n", 6)
    x = tensor(n, 4)
    assert shape("add", x, tensor(4), env=env) == (n, 4)
    assert shape("add", x, tensor(1, 4), env=env) == (n, 4)
    assert shape("reshape", x, env=env, shape=(n * 2, 2)) == (n * 2, 2)
    assert shape("concat", x, x, tensor(3, 4), env=env, dim=0) == (n * 2 + 3, 4)
    assert shape("sum", x, env=env, dims=(1,), keepdim=True) == (n, 1)
    assert shape("pad", x, env=env, low=(1, 0), high=(0, 0), interior=(0, 1), value=0.0) == (
        n + 1, 7,
    )
    where = {"starts": (0, 0), "stops": (n, 4), "steps": (2, 3)}
    assert shape("slice", x, env=env, **where) == ((n + 1) // 2, 2)
    weight = tensor(5, 4)
    dims = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (1,)}
    assert shape("dot_general", x, weight, env=env, **dims) == (n, 5)
    image = tensor(n, 3, 8, 8)
    assert shape("conv", image, tensor(6, 3, 3, 3), env=env, **WINDOW, groups=1) == (n, 6, 6, 6)
    assert not env.guards


def test_decisions_about_symbolic_sizes_become_guards() -> None:
    env = DimEnv()
    n, m = env.new("n", 6), env.new("m", 6)
    assert shape("add", tensor(n), tensor(m), env=env) in ((n,), (m,))
    assert shape("add", tensor(n), tensor(6), env=env) == (6,)
    assert [guard.text() for guard in env.guards] == ["n == m", "n == 6"]
    env = DimEnv()
    n = env.new("n", 6)
    where = {"starts": (0,), "stops": (5,), "steps": (1,)}
    assert shape("slice", tensor(n), env=env, **where) == (5,)
    assert [guard.text() for guard in env.guards] == ["5 <= n"]
    with pytest.raises(OpError, match=r"size of tensor a \(n\) must match"):
        infer("add", tensor(n), tensor(5), env=env)


def test_movement_shapes() -> None:
    assert shape("permute", tensor(2, 3, 4), dims=(2, 0, 1)) == (4, 2, 3)
    assert shape("expand", tensor(3, 1), shape=(2, 3, 5)) == (2, 3, 5)
    assert shape("pad", tensor(3, 0), low=(1, 2), high=(0, 1), interior=(2, 2), value=0) == (8, 3)
    where = {"starts": (1, 0), "stops": (5, 0), "steps": (2, 1)}
    assert shape("slice", tensor(6, 3), **where) == (2, 0)
    assert shape("slice_update", tensor(6, 3), tensor(2, 0), **where) == (6, 3)
    assert shape("as_strided", tensor(3, 4), size=(3, 2), stride=(1, 2), offset=1) == (3, 2)


def test_indexing_shapes() -> None:
    index = tensor(2, 1, dtype=i64), tensor(5, dtype=i64)
    assert shape("index", tensor(7, 3, 4, 6), *index, dim=1) == (7, 2, 5, 6)
    assert shape(
        "index_put", tensor(7, 3, 4, 6), tensor(5, 1), *index, dim=1, accumulate=True
    ) == (7, 3, 4, 6)
    assert shape("gather", tensor(4, 3), tensor(2, 9, dtype=i64), dim=1) == (2, 9)


def test_window_and_contraction_shapes() -> None:
    x, w = tensor(2, 4, 9, 9), tensor(6, 2, 3, 3)
    window = WINDOW | {"stride": (2, 2), "pad_low": (1, 1), "dilation": (1, 2)}
    assert shape("conv", x, w, **window, groups=2) == (2, 6, 4, 3)
    g = tensor(2, 6, 4, 3)
    assert shape("conv_input_grad", g, w, input_shape=x.shape, **window, groups=2) == x.shape
    assert shape("conv_weight_grad", x, g, weight_shape=w.shape, **window, groups=2) == w.shape
    pooled = infer("max_pool", x, window=(2, 3), **window)
    assert pooled == TupleType((tensor(2, 4, 5, 3), tensor(2, 4, 5, 3, dtype=i64)))
    picked = tensor(2, 4, 5, 3), tensor(2, 4, 5, 3, dtype=i64)
    assert shape("max_pool_grad", *picked, plane_shape=(9, 9)) == x.shape
    dims = {"batch_a": (0,), "batch_b": (2,), "contract_a": (1,), "contract_b": (0,)}
    assert shape("dot_general", tensor(2, 3, 4), tensor(3, 5, 2), **dims) == (2, 4, 5)


def test_composite_types() -> None:
    half = tensor(4, 3, 2, dtype=dtypes.bf16)
    moments = tensor(3), tensor(3)
    assert infer("batch_norm", half, *moments, eps=1e-5) == TupleType((half, *moments))
    assert infer("layer_norm", half, tensor(2), normalized_dims=(2,), eps=1e-5) == half
    loss = {"ignore_index": -100, "label_smoothing": 0.0}
    target = tensor(4, 2, dtype=i64)
    assert shape("cross_entropy", tensor(4, 3, 2), target, **loss, reduction="mean") == ()
    assert shape("cross_entropy", tensor(4, 3, 2), target, **loss, reduction="none") == (4, 2)
    q, kv = tensor(2, 5, 8), tensor(2, 7, 8)
    mask = tensor(5, 7, dtype=bool_)
    rows = tensor(2, 5)
    assert infer("attention", q, kv, kv, mask, causal=False, scale=1.0) == TupleType((q, rows))


# --- errors, in torch's words ----------------------------------------------------------------

NOWHERE = {"starts": (0,), "stops": (9,), "steps": (1,)}
MATMUL = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (0,)}
ERRORS = [
    ("add", (tensor(2, 3), tensor(2, 4)), {}, RuntimeError,
     "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"),
    ("add", (tensor(2), tensor(2, dtype=i64)), {}, RuntimeError, "one dtype"),
    ("exp", (tensor(2, dtype=i64),), {}, NotImplementedError, "not implemented for 'Long'"),
    ("bitwise_and", (tensor(2), tensor(2)), {}, NotImplementedError, "not implemented for 'Float'"),
    ("where", (tensor(2), tensor(2), tensor(2)), {}, RuntimeError, "boolean tensor"),
    ("sum", (tensor(2),), {"dims": (1,), "keepdim": False}, IndexError, "range of [-1, 0]"),
    ("amax", (tensor(0, 2),), {"dims": (0,), "keepdim": False}, IndexError, "non-zero size"),
    ("reshape", (tensor(2, 3),), {"shape": (4,)}, RuntimeError,
     "shape '[4]' is invalid for input of size 6"),
    ("permute", (tensor(2, 3),), {"dims": (0, 0)}, RuntimeError, "multiple times"),
    ("expand", (tensor(2, 3),), {"shape": (4, 3)}, RuntimeError,
     "The expanded size of the tensor (4) must match the existing size (2) at non-singleton"),
    ("slice", (tensor(5),), NOWHERE, IndexError, "stop 9 is beyond the size 5"),
    ("as_strided", (tensor(5),), {"size": (3,), "stride": (2,), "offset": 1}, RuntimeError,
     "require 6 elements, but the storage has 5"),
    ("concat", (tensor(2, 3), tensor(2, 4)), {"dim": 0}, RuntimeError,
     "Expected size 3 but got size 4 for tensor number 1"),
    ("gather", (tensor(3, 2), tensor(4, 2, dtype=i64)), {"dim": 1}, RuntimeError,
     "Size does not match at dimension 0 expected index [4, 2]"),
    ("gather", (tensor(3), tensor(2)), {"dim": 0}, RuntimeError, "Expected dtype int64"),
    ("index", (tensor(3), tensor(2, dtype=i64), tensor(2, dtype=i64)), {"dim": 0}, IndexError,
     "too many indices for tensor of dimension 1"),
    ("index", (tensor(3, 3), tensor(2, dtype=i64), tensor(3, dtype=i64)), {"dim": 0}, IndexError,
     "could not be broadcast together with shapes [2], [3]"),
    ("dot_general", (tensor(2, 3), tensor(4, 5)), MATMUL, RuntimeError,
     "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
    ("conv", (tensor(1, 4, 8, 8), tensor(2, 3, 3, 3)), {**WINDOW, "groups": 1}, RuntimeError,
     "to have 3 channels, but got 4 channels instead"),
    ("conv", (tensor(1, 3, 2, 2), tensor(2, 3, 3, 3)), {**WINDOW, "groups": 1}, RuntimeError,
     "Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3)."),
    ("max_pool", (tensor(3, 2, 2),), {"window": (4, 4), **WINDOW}, RuntimeError, "too small"),
    ("topk", (tensor(3),), {"k": 5, "dim": 0, "largest": True}, RuntimeError,
     "selected index k out of range"),
    ("batch_norm", (tensor(1, 3),), {"eps": 1e-5}, ValueError, "more than 1 value per channel"),
    ("nll_loss", (tensor(2, 3), tensor(1, dtype=i64)),
     {"ignore_index": -100, "reduction": "mean"}, ValueError,
     "Expected input batch_size (2) to match target batch_size (1)."),
]


@pytest.mark.parametrize("name, types, attrs, kind, text", ERRORS)
def test_bad_operands(
    name: str, types: tuple[TensorType, ...], attrs: dict, kind: type[Exception], text: str
) -> None:
    with pytest.raises(OpError, match=re.escape(text)) as caught:
        infer(name, *types, **attrs)
    assert caught.value.kind is kind


# --- sub-graphs ------------------------------------------------------------------------------


def body(*types: TensorType, results: object) -> object:
    """A sub-graph of inputs of `types` with the outputs that results(*inputs) gives."""
    builder = Builder()
    inputs = [Expr(builder, builder.input(type_)) for type_ in types]
    return builder.build([value.node for value in results(*inputs)])  # type: ignore[operator]


def test_control_flow_types_and_runs() -> None:
    from graphc.backends.numpy import TABLE

    builder = Builder()
    x = Expr(builder, builder.input(tensor(3)))
    rows = Expr(builder, builder.input(tensor(4, 3)))
    step = body(tensor(3), tensor(3), results=lambda h, r: (h + r, h * 2.0))
    last, stacked = ops.scan(x, rows, n_carried=1, reverse=False, graphs=(step,))
    twice = body(tensor(3), results=lambda a: (a * 2.0,))
    same = body(tensor(3), results=lambda a: (a,))
    small = body(tensor(3), results=lambda a: (ops.lt(ops.sum(a, dims=(0,), keepdim=False), 50.0),))
    positive = ops.gt(ops.sum(x, dims=(0,), keepdim=False), 0.0)
    chosen = ops.cond(positive, x, graphs=(twice, same))
    grown = ops.while_loop(x, graphs=(small, twice))
    assert (last.type, stacked.type) == (tensor(3), tensor(4, 3))
    graph = builder.build([v.node for v in (last, stacked, chosen, grown)])
    start, sequence = np.ones(3, np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    results = interpret.evaluate(graph, [start, sequence], TABLE)
    states = [start + sequence[:i].sum(0) for i in range(5)]
    np.testing.assert_array_equal(results[0], states[4])
    np.testing.assert_array_equal(results[1], 2 * np.stack(states[:4]))
    np.testing.assert_array_equal(results[2], 2 * start)
    np.testing.assert_array_equal(results[3], 32 * start)


def test_control_flow_signatures_are_verified() -> None:
    builder = Builder()
    x = Expr(builder, builder.input(tensor(3)))
    flag = Expr(builder, builder.input(tensor(dtype=bool_)))
    same = body(tensor(3), results=lambda a: (a,))
    shorter = body(tensor(2), results=lambda a: (a,))
    summed = body(tensor(3), results=lambda a: (ops.sum(a, dims=(0,), keepdim=False),))
    with pytest.raises(OpError, match="predicate must be one 0-d bool"):
        ops.cond(x, x, graphs=(same, same))
    with pytest.raises(OpError, match=r"false branch's input list has types \(f32\[2\]\)"):
        ops.cond(flag, x, graphs=(same, shorter))
    with pytest.raises(OpError, match=r"false branch's result has types \(f32\[\]\)"):
        ops.cond(flag, x, graphs=(same, summed))
    with pytest.raises(OpError, match="condition's result must be one 0-d bool"):
        ops.while_loop(x, graphs=(summed, same))
