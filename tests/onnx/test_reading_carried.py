"""Element types that tensors do not have, carried by others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as torch
from tests.onnx.suite import given
from tests.onnx.test_reading import model_of

onnx = pytest.importorskip("onnx")
helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto


def node_of(op: str, *inputs: np.ndarray, out: int, **attributes: Any) -> Any:
    """A model of one node, without declared shapes."""
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)], "one", infos,
        [helper.make_tensor_value_info("y", out, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def run(op: str, *inputs: np.ndarray, out: int, compiled: bool = False, **attributes: Any) -> Any:
    model = torch.onnx.load(node_of(op, *inputs, out=out, **attributes))
    function = torch.compile(model, fullgraph=True) if compiled else model
    return function(*[given(x) for x in inputs]).numpy()


FLOATS = np.concatenate([
    np.array([0, -0.0, 1e-9, -1e-9, 447.9, 448, 464, 465, 1e6, -1e6, 5.99, 57344, 61440]),
    np.random.default_rng(0).standard_normal(400) * 10.0 ** (np.arange(400) % 9 - 4),
    np.arange(-300, 300) / 64, 2.0 ** np.arange(-20, 17),
]).astype(np.float32)
SMALL = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", SMALL)
def test_rounding_to_small_floats(kind: int, compiled: bool) -> None:
    """To the nearest, to even, from float32, float64 and float16; the bits of zeros too."""
    dtypes = [np.float32] if compiled else [np.float32, np.float64, np.float16]
    for dtype in dtypes:
        with np.errstate(all="ignore"):
            x = FLOATS.astype(dtype)
            want = x.astype(SMALL[kind]).astype(np.float32)
        options = {} if kind == TensorProto.FLOAT4E2M1 else {"saturate": 0}
        found = run("Cast", x, out=kind, to=kind, compiled=compiled, **options).astype(np.float32)
        np.testing.assert_array_equal(found.view(np.int32) & ~_NAN(found), want.view(np.int32)
                                      & ~_NAN(want), err_msg=str(dtype))


def _NAN(x: np.ndarray) -> Any:
    """All bits of a NaN, whose own nobody promises."""
    return np.where(np.isnan(x), np.int32(0x807FFFFF - (1 << 32)), np.int32(0))


BITS = {
    np.uint16: [0, 1, 2, 7, 255, 32768, 65535],
    np.uint32: [0, 1, 2, 7, 65536, 2**31, 2**32 - 1],
    np.uint64: [0, 1, 2, 7, 2**32, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 2, 2**64 - 1],
}
OPERATORS: dict[str, Any] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum,
    "Less": np.less, "GreaterOrEqual": np.greater_equal, "Equal": np.equal,
    "BitwiseXor": np.bitwise_xor, "Div": np.floor_divide, "Mod": np.mod,
}


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", OPERATORS)
def test_unsigned_integers(name: str, kind: Any) -> None:
    values = np.array(BITS[kind], kind)
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    if name in ("Div", "Mod"):
        a, b = a[b > 0], b[b > 0]
    with np.errstate(all="ignore"):
        want = OPERATORS[name](a, b)
    number = helper.np_dtype_to_tensor_dtype(want.dtype)
    for compiled in (False, True) if name in ("Div", "Less", "Mul") else (False,):
        found = run(name, a, b, out=number, compiled=compiled)
        np.testing.assert_array_equal(found, given(want).numpy())


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("way", ["LEFT", "RIGHT"])
def test_shifts(kind: Any, way: str) -> None:
    bits = np.dtype(kind).itemsize * 8
    values, by = np.array(BITS[kind], kind), np.array([0, 1, 5, bits - 1], kind)
    a, b = (x.reshape(-1) for x in np.meshgrid(values, by))
    want = np.left_shift(a, b) if way == "LEFT" else np.right_shift(a, b)
    found = run("BitShift", a, b, out=helper.np_dtype_to_tensor_dtype(a.dtype), direction=way)
    np.testing.assert_array_equal(found, given(want).numpy())


@pytest.mark.parametrize("kind", BITS)
def test_unsigned_casts(kind: Any) -> None:
    values = np.array(BITS[kind], kind)
    number = helper.np_dtype_to_tensor_dtype(values.dtype)
    for other in (np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_):
        wanted = helper.np_dtype_to_tensor_dtype(np.dtype(other))
        found = run("Cast", values, out=wanted, to=wanted)
        np.testing.assert_array_equal(found, values.astype(other), err_msg=str(other))
    whole = values.astype(np.float64)
    whole = whole[whole < 2.0 ** (8 * values.itemsize)]
    found = run("Cast", whole, out=number, to=number)
    np.testing.assert_array_equal(found, given(whole.astype(kind)).numpy())


def test_weights_of_four_bits() -> None:
    """Blocks of int4 that are dequantized, as language models have them: weights stay as they are,
    and what follows is trained."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-8, 8, (8, 6)).astype(ml_dtypes.int4)
    scale = rng.random((2, 6)).astype(np.float32)
    model = model_of(
        """four (float[n, 8] x) => (float[n, 6] y) {
            w = DequantizeLinear<axis = 0, block_size = 4>(weight, scale)
            y = MatMul(x, w)
        }""",
        weight=weight, scale=scale,
    )
    loaded = torch.onnx.load(model.SerializeToString())
    assert loaded.state_dict()["weight"].dtype is torch.int8
    x = rng.standard_normal((3, 8)).astype(np.float32)
    want = x @ (weight.astype(np.float32) * scale.repeat(4, 0))
    for function in (loaded, torch.compile(loaded, fullgraph=True)):
        np.testing.assert_allclose(function(torch.tensor(x)).detach().numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("kind", [*BITS, ml_dtypes.int4])
def test_gathered(kind: Any) -> None:
    """By rows that are inputs, or numbers of the file."""
    x = np.arange(8).astype(kind).reshape(4, 2)
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    for rows in (np.array([3, -4]), np.array([[1], [2]])):
        found = run("Gather", x, rows, out=number)
        np.testing.assert_array_equal(found, np.arange(8).reshape(4, 2)[rows])
    model = model_of("one (float[n] a) => (float[1, 2] y) { b = Gather(x, rows) y = Cast<to = 1>(b)"
                     " }", x=x, rows=np.array([-1]))
    assert torch.onnx.load(model)(torch.zeros(1)).tolist() == [[6, 7]]


def test_a_mean_of_integers_whose_sum_is_larger() -> None:
    x = np.array([[2**31 - 1, 2**31 - 3, 7], [-(2**31), -(2**31), 1]], np.int32)
    found = run("ReduceMean", x, np.array([1]), out=TensorProto.INT32, keepdims=0)
    assert found.tolist() == [1431655766, -1431655765]


def test_what_is_not_computed_is_named() -> None:
    x = np.array([1, 2], np.uint16)
    model = torch.onnx.load(node_of("Neg", x, out=TensorProto.UINT16))
    with pytest.raises(torch.onnx.OnnxError, match=r"Neg\): its input is uint16(.|\n)*Cure: cast"):
        model(torch.tensor([1, 2], dtype=torch.int32))
    with pytest.raises(TypeError, match=r"is uint16, carried by torch\.int32, in the file"):
        model(torch.tensor([1, 2]))


def test_inputs_are_cut_to_their_type() -> None:
    x = np.array([1, 2], np.uint16)
    model = torch.onnx.load(node_of("Identity", x, out=TensorProto.UINT16))
    found = model(torch.tensor([-1, 65537], dtype=torch.int32))
    assert found.tolist() == [65535, 1]
