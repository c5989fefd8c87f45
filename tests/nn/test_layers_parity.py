"""Every layer against PyTorch's: text, state, outputs, gradients, buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.nn.both import SPACES, compare_modules

RNG = np.random.default_rng(0)


def f(*shape: int) -> np.ndarray:
    """Normal values."""
    return RNG.standard_normal(shape)


X2, X3, X4, X5 = f(6, 8), f(3, 4, 9), f(2, 4, 8, 7), f(2, 3, 5, 6, 4)
IDS = RNG.integers(0, 10, (3, 5))
MASK = np.triu(np.full((5, 5), -np.inf), 1)
PAD_MASK = np.array([[False, False, False, True, True], [False] * 5, [False] * 4 + [True]])
SEQ = f(5, 3, 8)

# id: (layer, inputs), in training mode
LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "Identity": (lambda nn: nn.Identity(3, key=1), (X2,)),
    "Linear": (lambda nn: nn.Linear(8, 5), (X2,)),
    "Linear no bias, 3d": (lambda nn: nn.Linear(9, 5, bias=False), (X3,)),
    "Linear 1d": (lambda nn: nn.Linear(4, 2), (f(4),)),
    "Bilinear": (lambda nn: nn.Bilinear(8, 3, 4), (X2, f(6, 3))),
    "Flatten": (lambda nn: nn.Flatten(), (X4,)),
    "Flatten dims": (lambda nn: nn.Flatten(2, -1), (X4,)),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, 4)), (X2,)),
    "Conv1d": (lambda nn: nn.Conv1d(4, 6, 3, padding=1), (X3,)),
    "Conv1d same": (lambda nn: nn.Conv1d(4, 6, 3, padding="same", dilation=2), (X3,)),
    "Conv1d reflect": (
        lambda nn: nn.Conv1d(4, 6, 3, padding=2, padding_mode="reflect"), (X3,)),
    "Conv2d": (lambda nn: nn.Conv2d(4, 6, 3), (X4,)),
    "Conv2d all": (
        lambda nn: nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), dilation=2, groups=2), (X4,)),
    "Conv2d depthwise": (lambda nn: nn.Conv2d(4, 8, 3, groups=4, bias=False), (X4,)),
    "Conv2d circular": (
        lambda nn: nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"), (X4,)),
    "Conv2d replicate": (
        lambda nn: nn.Conv2d(4, 2, 3, padding=1, padding_mode="replicate"), (X4,)),
    "Conv2d unbatched": (lambda nn: nn.Conv2d(4, 6, 3), (X4[0],)),
    "Conv3d": (lambda nn: nn.Conv3d(3, 2, 2, stride=(1, 2, 1), padding=1), (X5,)),
    "ConvTranspose1d": (
        lambda nn: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (X3,)),
    "ConvTranspose2d": (
        lambda nn: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        (X4,)),
    "ConvTranspose2d size": (lambda nn: nn.ConvTranspose2d(4, 2, 3, stride=2), (X4, [18, 16])),
    "ConvTranspose3d": (lambda nn: nn.ConvTranspose3d(3, 2, 2, dilation=2), (X5,)),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(3, stride=2, padding=1), (X3,)),
    "MaxPool2d": (lambda nn: nn.MaxPool2d(2), (X4,)),
    "MaxPool2d ceil": (
        lambda nn: nn.MaxPool2d(3, 2, padding=1, dilation=1, ceil_mode=True), (X4,)),
    "MaxPool2d indices": (lambda nn: nn.MaxPool2d(2, return_indices=True), (X4,)),
    "MaxPool3d": (lambda nn: nn.MaxPool3d(2), (X5,)),
    "AvgPool1d": (lambda nn: nn.AvgPool1d(3, 2), (X3,)),
    "AvgPool2d": (lambda nn: nn.AvgPool2d(2, padding=1), (X4,)),
    "AvgPool2d ceil": (
        lambda nn: nn.AvgPool2d(3, 2, padding=1, ceil_mode=True, count_include_pad=False), (X4,)),
    "AvgPool2d ceil pad": (lambda nn: nn.AvgPool2d(3, 2, padding=1, ceil_mode=True), (X4,)),
    "AvgPool2d divisor": (lambda nn: nn.AvgPool2d(2, divisor_override=3), (X4,)),
    "AvgPool3d": (lambda nn: nn.AvgPool3d(2), (X5,)),
    "AdaptiveAvgPool1d": (lambda nn: nn.AdaptiveAvgPool1d(4), (X3,)),
    "AdaptiveAvgPool2d": (lambda nn: nn.AdaptiveAvgPool2d((1, 1)), (X4,)),
    "AdaptiveAvgPool2d uneven": (lambda nn: nn.AdaptiveAvgPool2d((3, None)), (X4,)),
    "AdaptiveAvgPool3d": (lambda nn: nn.AdaptiveAvgPool3d(2), (X5,)),
    "AdaptiveMaxPool1d": (lambda nn: nn.AdaptiveMaxPool1d(3), (X3,)),
    "AdaptiveMaxPool2d": (lambda nn: nn.AdaptiveMaxPool2d((3, 2)), (X4,)),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(8), (X2,)),
    "BatchNorm1d 3d": (lambda nn: nn.BatchNorm1d(4, momentum=None), (X3,)),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(4), (X4,)),
    "BatchNorm2d bare": (
        lambda nn: nn.BatchNorm2d(4, affine=False, track_running_stats=False), (X4,)),
    "BatchNorm3d": (lambda nn: nn.BatchNorm3d(3, eps=1e-3), (X5,)),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(4), (X3,)),
    "InstanceNorm2d": (
        lambda nn: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (X4,)),
    "InstanceNorm3d": (lambda nn: nn.InstanceNorm3d(3), (X5,)),
    "LayerNorm": (lambda nn: nn.LayerNorm(8), (X2,)),
    "LayerNorm 2 dims": (lambda nn: nn.LayerNorm([8, 7], eps=1e-3), (X4,)),
    "LayerNorm no bias": (lambda nn: nn.LayerNorm(8, bias=False), (X2,)),
    "LayerNorm bare": (lambda nn: nn.LayerNorm(8, elementwise_affine=False), (X2,)),
    "RMSNorm": (lambda nn: nn.RMSNorm(8), (X2,)),
    "RMSNorm eps": (lambda nn: nn.RMSNorm([8, 7], eps=1e-4), (X4,)),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), (X4,)),
    "GroupNorm bare": (lambda nn: nn.GroupNorm(4, 4, affine=False), (X3,)),
    "LocalResponseNorm": (lambda nn: nn.LocalResponseNorm(3), (X4,)),
    "LocalResponseNorm even": (lambda nn: nn.LocalResponseNorm(2, alpha=0.1), (X4,)),
    "Embedding": (lambda nn: nn.Embedding(10, 4), (IDS,)),
    "Embedding padding": (lambda nn: nn.Embedding(10, 4, padding_idx=-2), (IDS,)),
    "Embedding i32": (lambda nn: nn.Embedding(10, 4), (IDS.astype(np.int32),)),
    "Dropout p=0": (lambda nn: nn.Dropout(0.0), (X2,)),
    "Dropout p=1": (lambda nn: nn.Dropout(1.0), (X2,)),
    "RNN": (lambda nn: nn.RNN(8, 5), (SEQ,)),
    "RNN relu": (lambda nn: nn.RNN(8, 5, 2, nonlinearity="relu", bias=False), (SEQ,)),
    "LSTM": (lambda nn: nn.LSTM(8, 5), (SEQ,)),
    "LSTM all": (
        lambda nn: nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True), (f(3, 5, 8),)),
    "LSTM state": (lambda nn: nn.LSTM(8, 5), (SEQ, (f(1, 3, 5), f(1, 3, 5)))),
    "LSTM proj": (lambda nn: nn.LSTM(8, 6, 2, proj_size=3, bidirectional=True), (SEQ,)),
    "LSTM unbatched": (lambda nn: nn.LSTM(8, 5), (SEQ[:, 0],)),
    "GRU": (lambda nn: nn.GRU(8, 5, 2), (SEQ, f(2, 3, 5))),
    "GRU bidirectional": (
        lambda nn: nn.GRU(8, 5, bidirectional=True, bias=False, batch_first=True), (SEQ,)),
    "RNNCell": (lambda nn: nn.RNNCell(8, 5, nonlinearity="relu"), (X2,)),
    "RNNCell tanh": (lambda nn: nn.RNNCell(8, 5, bias=False), (X2, f(6, 5))),
    "LSTMCell": (lambda nn: nn.LSTMCell(8, 5), (X2, (f(6, 5), f(6, 5)))),
    "GRUCell": (lambda nn: nn.GRUCell(8, 5), (X2[0], f(5))),
    "MHA": (lambda nn: nn.MultiheadAttention(8, 2), (SEQ, SEQ, SEQ)),
    "MHA batch_first": (
        lambda nn: nn.MultiheadAttention(8, 2, batch_first=True, bias=False),
        (f(3, 4, 8), f(3, 5, 8), f(3, 5, 8), PAD_MASK)),
    "MHA mask": (lambda nn: nn.MultiheadAttention(8, 2), (SEQ, SEQ, SEQ, None, True, MASK)),
    "MHA no weights": (
        lambda nn: nn.MultiheadAttention(8, 2), (SEQ, SEQ, SEQ, PAD_MASK, False, -np.inf == MASK)),
    "MHA heads": (
        lambda nn: nn.MultiheadAttention(8, 2), (SEQ, SEQ, SEQ, None, True, None, False)),
    "MHA extras": (
        lambda nn: nn.MultiheadAttention(8, 4, kdim=6, vdim=7, add_bias_kv=True,
                                         add_zero_attn=True),
        (SEQ, f(5, 3, 6), f(5, 3, 7), PAD_MASK)),
    "MHA 3d mask": (
        lambda nn: nn.MultiheadAttention(8, 2), (SEQ, SEQ, SEQ, None, False, f(6, 5, 5) > 1)),
    "MHA unbatched": (lambda nn: nn.MultiheadAttention(8, 2), (f(4, 8), f(5, 8), f(5, 8))),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (SEQ,)),
    "TransformerEncoderLayer norm first": (
        lambda nn: nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, activation="gelu", norm_first=True, bias=False), (SEQ, MASK)),
    "TransformerDecoderLayer": (
        lambda nn: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), (SEQ, f(4, 3, 8))),
    "TransformerDecoderLayer norm first": (
        lambda nn: nn.TransformerDecoderLayer(
            8, 2, 16, dropout=0.0, norm_first=True, batch_first=True),
        (f(3, 5, 8), f(3, 4, 8), MASK)),
    "TransformerEncoder": (
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2, nn.LayerNorm(8),
            enable_nested_tensor=False),
        (SEQ, -np.inf == MASK, PAD_MASK)),
    "Upsample": (lambda nn: nn.Upsample(scale_factor=2), (X4,)),
    "Upsample bilinear": (
        lambda nn: nn.Upsample(size=(12, 5), mode="bilinear", align_corners=True), (X4,)),
    "UpsamplingNearest2d": (lambda nn: nn.UpsamplingNearest2d(scale_factor=2), (X4,)),
    "UpsamplingBilinear2d": (lambda nn: nn.UpsamplingBilinear2d(size=(16, 14)), (X4,)),
    "PixelShuffle": (lambda nn: nn.PixelShuffle(2), (X4,)),
    "PixelUnshuffle": (lambda nn: nn.PixelUnshuffle(2), (f(2, 3, 4, 6),)),
    "Unfold": (lambda nn: nn.Unfold((2, 3), padding=1, stride=2), (X4,)),
    "CosineSimilarity": (lambda nn: nn.CosineSimilarity(), (X2, f(6, 8))),
    "PairwiseDistance": (lambda nn: nn.PairwiseDistance(keepdim=True), (X2, f(6, 8))),
}

ACTIVATIONS = (
    "ReLU() ReLU6() SELU() SiLU() Mish() Hardsigmoid() Hardswish() Hardtanh() Hardtanh(-2,0.5) "
    "LeakyReLU() LeakyReLU(0.3) PReLU() PReLU(8) ELU() ELU(0.5) CELU() CELU(2.0) GELU() "
    "GELU('tanh') Sigmoid() Tanh() LogSigmoid() Softsign() Tanhshrink() Softshrink() "
    "Softshrink(0.2) Hardshrink() Softplus() Softplus(2.0,1.0) Threshold(0.1,5.0) Softmax(1) "
    "Softmax(dim=0) Softmin(-1) LogSoftmax(1) GLU() GLU(0)"
).split()
for _text in ACTIVATIONS:
    LAYERS[_text] = (lambda nn, text=_text: eval(f"nn.{text}"), (X2 * 2,))
LAYERS["Softmax2d"] = (lambda nn: nn.Softmax2d(), (X4,))
IN_PLACE = (
    "ReLU(True) ReLU6(True) Hardtanh(inplace=True) ELU(inplace=True) SELU(True) CELU(inplace=True) "
    "SiLU(True) Mish(True) Hardswish(True) Hardsigmoid(True) LeakyReLU(inplace=True) "
    "Threshold(0.1,2.0,True) Dropout(0.0,True)"
).split()
for _text in IN_PLACE:
    LAYERS[f"Linear, {_text}"] = (
        lambda nn, text=_text: nn.Sequential(nn.Linear(8, 4), eval(f"nn.{text}")), (X2,))

PADS = (
    "ConstantPad1d((1,2),3.5) ConstantPad2d(1,0.5) ZeroPad1d(2) ZeroPad2d((1,-1,2,0)) "
    "ReflectionPad1d(2) ReflectionPad2d((1,2,0,3)) ReplicationPad1d((3,1)) ReplicationPad2d(2) "
    "CircularPad1d(2) CircularPad2d((1,2,3,1)) ConstantPad3d(1,2.0) ZeroPad3d(1) "
    "ReflectionPad3d(1) ReplicationPad3d((1,2,1,0,1,1)) CircularPad3d(1)"
).split()
for _text in PADS:
    _input = {"1": X3, "2": X4, "3": X5}[_text.split("(")[0][-2]]
    LAYERS[_text] = (lambda nn, text=_text: eval(f"nn.{text}"), (_input,))


# torch's own gradient of hardsigmoid in float64 multiplies by a float32 sixth
LOOSE = {"Hardsigmoid()": 1e-7, "Linear, Hardsigmoid(True)": 1e-7}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    make, inputs = LAYERS[name]
    compare_modules(make, inputs, "float64", tolerance=LOOSE.get(name))


SINGLE = [
    name for name in LAYERS
    if name.startswith(("Linear", "Conv2d", "Batch", "Layer", "Embedding", "LSTM", "MHA", "GELU",
                        "Softmax", "AvgPool2d", "MaxPool2d", "Group"))
]


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's
@pytest.mark.parametrize("name", SINGLE)
def test_layer_in_float32(name: str) -> None:
    make, inputs = LAYERS[name]
    compare_modules(make, inputs, "float32")


EVALUATED = [name for name in LAYERS if "Norm" in name or "Dropout" in name]


@pytest.mark.parametrize("name", EVALUATED)
def test_layer_evaluated(name: str) -> None:
    make, inputs = LAYERS[name]
    compare_modules(make, inputs, "float64", train=False)


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm1d 3d", "BatchNorm2d"])
def test_running_statistics_over_calls(name: str) -> None:
    make, inputs = LAYERS[name]
    compare_modules(make, inputs, "float64", calls=3)


@pytest.mark.parametrize("name", ["GRU", "RNN"])
def test_a_projection_is_lstms_alone(name: str) -> None:
    for space in SPACES:
        with pytest.raises(ValueError, match="only supported for LSTM"):
            getattr(space.nn, name)(3, 4, proj_size=2)
