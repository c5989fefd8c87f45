"""com.microsoft's operators, held to ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as torch
from tests.onnx import writing
from tests.onnx.suite import given

onnx = pytest.importorskip("onnx")
helper = onnx.helper

RNG = np.random.default_rng(0)
B, S, P, N, G, H = 2, 5, 3, 4, 2, 16  # batch, length, past, heads, groups, width


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i(high: int, *shape: int, kind: Any = np.int32) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(kind)


def weights(*shape: int) -> np.ndarray:
    """int8 of 7 bits: on CPUs without VNNI ONNX Runtime adds two products of u8 with s8 in int16
    (vpmaddubsw), which saturates for larger ones."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def one(x: float, kind: Any = np.float32) -> np.ndarray:
    return np.array(x, kind)


COS, SIN = np.cos(f(16, H // 2)), np.sin(f(16, H // 2))
BYTES = i(256, 3, 4, kind=np.uint8)
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)
QKV = f(B, S, 16), f(16, 3 * N * H), f(3 * N * H)

# name -> (operator, inputs, how many outputs are asked for, attributes)
CASES: dict[str, tuple[str, list[Any], tuple[int, ...], dict[str, Any]]] = {
    "Gelu": ("Gelu", [f(3, 4)], (0,), {}),
    "FastGelu": ("FastGelu", [f(3, 4), f(4)], (0,), {}),
    "BiasGelu": ("BiasGelu", [f(3, 4), f(4)], (0,), {}),
    "QuickGelu": ("QuickGelu", [f(3, 4)], (0,), {"alpha": 1.5}),
    "FusedMatMul": (
        "FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], (0,), {"transA": 1, "transB": 1, "alpha": 0.5}
    ),
    "FusedMatMul of batches": (
        "FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], (0,), {"transBatchA": 1, "alpha": 0.5}
    ),
    "FusedConv": (
        "FusedConv", [f(2, 3, 6, 6), f(4, 3, 3, 3), f(4)], (0,),
        {"activation": "LeakyRelu", "activation_params": [0.2]},
    ),
    "FusedGemm": ("FusedGemm", [f(2, 3), f(3, 4), f(4)], (0,), {"activation": "Relu"}),
    "SkipLayerNormalization": (
        "SkipLayerNormalization", [f(B, S, H), f(B, S, H), f(H), f(H), f(H)], (0, 3),
        {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization", [f(B, S, H), f(B, S, H), f(H)], (0, 3),
        {"epsilon": 1e-5},
    ),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [i(9, B, S), i(2, B, S), f(9, H), f(7, H), f(2, H), f(H), f(H), MASK], (0, 1), {},
    ),
    "Attention": ("Attention", [*QKV], (0,), {"num_heads": N}),
    "Attention with a mask": ("Attention", [*QKV, MASK], (0,), {"num_heads": N}),
    "Attention with lengths": (
        "Attention", [*QKV, np.array([4, 3], np.int32)], (0,), {"num_heads": N}
    ),
    "Attention of a past": (
        "Attention", [*QKV, None, f(2, B, N, P, H)], (0, 1), {"num_heads": N, "unidirectional": 1}
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        [f(B, S, N * H), f(B, S, N * H), f(B, S, N * H), f(3 * N * H), MASK, f(B, N, S, S)], (0,),
        {"num_heads": N},
    ),
    "MultiHeadAttention of a past": (
        "MultiHeadAttention",
        [f(B, S, N * H), f(B, S, N * H), f(B, S, N * H), None, None, None, f(B, N, P, H),
         f(B, N, P, H)], (0, 1, 2), {"num_heads": N},
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        [f(B, S, N * H), f(B, S, G * H), f(B, S, G * H), None, None,
         np.array([S - 1, S - 1], np.int32), one(S, np.int32), COS, SIN], (0, 1, 2),
        {"num_heads": N, "kv_num_heads": G, "do_rotary": 1},
    ),
    "GroupQueryAttention of a past": (
        "GroupQueryAttention",
        [f(B, 1, N * H), f(B, 1, G * H), f(B, 1, G * H), f(B, G, P, H), f(B, G, P, H),
         np.array([P, P], np.int32), one(P + 1, np.int32), COS, SIN], (0, 1, 2),
        {"num_heads": N, "kv_num_heads": G, "do_rotary": 1, "rotary_interleaved": 1},
    ),
    "GroupQueryAttention, packed, of a window": (
        "GroupQueryAttention",
        [f(B, S, (N + 2 * G) * H), None, None, None, None,
         np.array([S - 1, S - 1], np.int32), one(S, np.int32)], (0, 1, 2),
        {"num_heads": N, "kv_num_heads": G, "local_window_size": 2},
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding", [f(B, S, N * H), i(16, B, S, kind=np.int64), COS, SIN], (0,), {}
    ),
    "RotaryEmbedding of an offset": (
        "RotaryEmbedding", [f(B, N, S, H), np.array([3], np.int64), COS, SIN], (0,),
        {"interleaved": 1},
    ),
    "MatMulNBits": (
        "MatMulNBits", [f(3, 64), i(256, 6, 2, 16, kind=np.uint8), f(12)], (0,),
        {"K": 64, "N": 6, "bits": 4, "block_size": 32},
    ),
    "MatMulNBits with zero points": (
        "MatMulNBits",
        [f(3, 64), i(256, 6, 2, 16, kind=np.uint8), f(12), i(256, 6, kind=np.uint8)], (0,),
        {"K": 64, "N": 6, "bits": 4, "block_size": 32},
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        [BYTES, i(256, 4, 5, kind=np.uint8), one(0.1), one(0.2), one(3, np.uint8),
         one(7, np.uint8), f(5)], (0,), {},
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul",
        [f(3, 4), i(256, 4, 5, kind=np.uint8), one(0.2), one(7, np.uint8), f(5)], (0,), {},
    ),
    "QLinearAdd": (
        "QLinearAdd",
        [BYTES, one(0.1), one(3, np.uint8), BYTES[::-1].copy(), one(0.2), one(9, np.uint8),
         one(0.3), one(1, np.uint8)], (0,), {},
    ),
    "QLinearMul": (
        "QLinearMul",
        [BYTES, one(0.1), one(3, np.uint8), BYTES[::-1].copy(), one(0.2), one(9, np.uint8),
         one(5.3), one(1, np.uint8)], (0,), {},
    ),
    "QLinearSigmoid": (
        "QLinearSigmoid",
        [BYTES, one(0.05), one(128, np.uint8), one(1 / 256), one(0, np.uint8)], (0,), {},
    ),
    "QLinearConcat": (
        "QLinearConcat",
        [one(0.2), one(4, np.uint8), BYTES, one(0.1), one(3, np.uint8), BYTES, one(0.3),
         one(9, np.uint8)], (0,), {"axis": 1},
    ),
    "QLinearWhere": (
        "QLinearWhere",
        [BYTES > 100, BYTES, one(0.1), one(3, np.uint8), BYTES[::-1].copy(), one(0.3),
         one(9, np.uint8), one(0.2), one(4, np.uint8)], (0,), {},
    ),
    "QLinearAveragePool": (
        "QLinearAveragePool",
        [i(256, 2, 3, 7, 6, kind=np.uint8), one(0.1), one(3, np.uint8), one(0.15),
         one(9, np.uint8)], (0,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 0, 0]},
    ),
    "QLinearAveragePool, channels last": (
        "QLinearAveragePool",
        [i(256, 2, 7, 6, 3, kind=np.uint8), one(0.1), one(3, np.uint8), one(0.15),
         one(9, np.uint8)], (0,),
        {"kernel_shape": [2, 2], "strides": [2, 2], "channels_last": 1, "ceil_mode": 1},
    ),
    "QGemm": (
        "QGemm",
        [BYTES, one(0.1), one(3, np.uint8), weights(5, 4), f(5) ** 2,
         np.array([1, -2, 0, 3, 4], np.int8), i(2000, 5), one(3.1), one(7, np.uint8)], (0,),
        {"transB": 1},
    ),
    "QGemm to floats": (
        "QGemm",
        [BYTES.T.copy(), one(0.1), one(3, np.uint8), i(256, 4, 5, kind=np.uint8), one(0.2),
         one(9, np.uint8), i(2000, 3, 5)], (0,), {"transA": 1, "alpha": 1.5},
    ),
    "QAttention": (
        "QAttention",
        [i(256, B, S, 16, kind=np.uint8), weights(16, 3 * N * H), f(3 * N * H),
         one(0.01), one(0.02), MASK, one(120, np.uint8), one(3, np.int8)], (0,), {"num_heads": N},
    ),
    "QAttention of a past": (
        "QAttention",
        [i(256, B, S, 16, kind=np.uint8), weights(16, 3 * N * H), f(3 * N * H),
         one(0.01), f(3 * N * H) ** 2 * 0.01, None, one(120, np.uint8),
         np.zeros(3 * N * H, np.int8), f(2, B, N, P, H)], (0, 1),
        {"num_heads": N, "unidirectional": 1},
    ),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool",
        [i(256, 2, 3, 4, 4, kind=np.uint8), one(0.1), one(3, np.uint8), one(0.1),
         one(3, np.uint8)], (0,), {},
    ),
}


def model_of(name: str) -> Any:
    op, inputs, wanted, attributes = CASES[name]
    names = ["" if x is None else f"x{at}" for at, x in enumerate(inputs)]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True) if n
    ]
    outputs = [f"y{at}" if at in wanted else "" for at in range(max(wanted) + 1)]
    values = [onnx.ValueInfoProto(name=each) for each in outputs if each]
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attributes)
    return helper.make_model(
        helper.make_graph([node], "one", infos, values), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
    )


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    model = model_of(name)
    inputs = [x for x in CASES[name][1] if x is not None]
    feeds = dict(zip([each.name for each in model.graph.input], inputs, strict=True))
    want = writing.session(model.SerializeToString()).run(None, feeds)
    found = torch.onnx.load(model)(*map(given, inputs))
    found = found if isinstance(found, tuple) else (found,)
    for ours, theirs in zip(found, want, strict=True):
        ours = ours.numpy()
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        whole = theirs.dtype.kind in "iu"
        np.testing.assert_allclose(
            ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-4, atol=1 if whole else 2e-5
        )


def test_a_decoder_is_compiled_for_any_length() -> None:
    """Groups of queries behind what was kept, one program whatever its length."""
    op, inputs, _, attributes = CASES["GroupQueryAttention of a past"]
    infos = [
        helper.make_tensor_value_info("q", 1, ["b", 1, N * H]),
        *[helper.make_tensor_value_info(name, 1, ["b", 1, G * H]) for name in "kv"],
        *[helper.make_tensor_value_info(name, 1, ["b", G, "p", H]) for name in ("pk", "pv")],
        helper.make_tensor_value_info("mask", 7, ["b", "t"]),
    ]
    number = helper.make_node
    nodes = [
        number("ReduceSum", ["mask", "one"], ["sums"], keepdims=0),
        number("Sub", ["sums", "one"], ["last"]), number("Cast", ["last"], ["lasts"], to=6),
        number("Shape", ["mask"], ["sizes"]), number("Gather", ["sizes", "one"], ["whole"]),
        number("Squeeze", ["whole"], ["number"]), number("Cast", ["number"], ["total"], to=6),
        number(op, ["q", "k", "v", "pk", "pv", "lasts", "total", "cos", "sin"],
               ["y", "k2", "v2"], domain="com.microsoft", **attributes),
    ]
    numpy = onnx.numpy_helper.from_array
    model = helper.make_model(helper.make_graph(
        nodes, "decoder", infos, [onnx.ValueInfoProto(name=each) for each in ("y", "k2", "v2")],
        [numpy(np.array([1], np.int64), "one"), numpy(COS, "cos"), numpy(SIN, "sin")],
    ), ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)
    ])
    session = writing.session(model.SerializeToString())
    loaded = torch.onnx.load(model)
    compiled = torch.compile(loaded, dynamic=True, fullgraph=True)
    for past in (3, 5, 6):
        args = [*inputs[:3], f(B, G, past, H), f(B, G, past, H), np.ones((B, past + 1), np.int64)]
        names = [each.name for each in model.graph.input]
        want = session.run(None, dict(zip(names, args, strict=True)))
        for function in (loaded, compiled):
            for ours, theirs in zip(function(*map(given, args)), want, strict=True):
                np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-4, atol=2e-5)
