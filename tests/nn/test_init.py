"""nn.init and layers' own initialisation: the same seed gives the same bits as PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

pytest.importorskip("torch")

from tests.nn.both import SPACES, array

# id: (init of (nn.init, tensor), shape)
INITS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "uniform": (lambda i, t: i.uniform_(t, -2.0, 3.0), (5, 7)),
    "normal": (lambda i, t: i.normal_(t, 1.0, 0.2), (5, 7)),
    "normal, few": (lambda i, t: i.normal_(t), (3,)),
    "trunc_normal": (lambda i, t: i.trunc_normal_(t, 0.5, 2.0, -1.0, 3.0), (4, 9)),
    "trunc_normal, tail": (lambda i, t: i.trunc_normal_(t, 0.0, 1.0, 1.0, 3.0), (4, 9)),
    "constant": (lambda i, t: i.constant_(t, 0.3), (2, 2)),
    "ones": (lambda i, t: i.ones_(t), (2, 2)),
    "zeros": (lambda i, t: i.zeros_(t), (2, 2)),
    "eye": (lambda i, t: i.eye_(t), (3, 4)),
    "dirac": (lambda i, t: i.dirac_(t), (4, 4, 3)),
    "dirac, groups": (lambda i, t: i.dirac_(t, 2), (6, 3, 3, 3)),
    "xavier_uniform": (lambda i, t: i.xavier_uniform_(t, 1.4), (5, 7)),
    "xavier_normal": (lambda i, t: i.xavier_normal_(t), (5, 7, 3)),
    "kaiming_uniform": (lambda i, t: i.kaiming_uniform_(t, nonlinearity="relu"), (5, 7)),
    "kaiming_normal": (lambda i, t: i.kaiming_normal_(t, mode="fan_out"), (5, 7, 3, 3)),
    "kaiming_uniform, slope": (lambda i, t: i.kaiming_uniform_(t, a=0.2), (5, 7)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", INITS)
def test_same_bits(name: str, dtype: str) -> None:
    function, shape = INITS[name]
    found = []
    for s in SPACES:
        s.torch.manual_seed(3)
        tensor = s.torch.empty(shape, dtype=getattr(s.torch, dtype))
        assert function(s.nn.init, tensor) is tensor
        found.append(array(tensor))
        assert not tensor.requires_grad
    if dtype == "float64":  # torch's u * (b - a) + a rounds once, in float64 too
        np.testing.assert_allclose(found[1], found[0], rtol=1e-14, atol=1e-15)
    else:
        np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (6, 2), (3, 2, 2)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    found = []
    for s in SPACES:
        s.torch.manual_seed(1)
        found.append(array(s.nn.init.orthogonal_(s.torch.empty(shape), gain=0.7)))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)


def test_sparse() -> None:
    found = []
    for s in SPACES:
        s.torch.manual_seed(1)
        found.append(array(s.nn.init.sparse_(s.torch.empty(6, 4), 0.3)))
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("linear", None), ("tanh", None), ("relu", None), ("leaky_relu", 0.2), ("leaky_relu", None),
     ("selu", None), ("sigmoid", None), ("conv2d", None), ("conv_transpose1d", None)],
)
def test_gain(name: str, parameter: Any) -> None:
    theirs, ours = (s.nn.init.calculate_gain(name, parameter) for s in SPACES)
    assert ours == theirs


def test_errors() -> None:
    def texts(s: Any) -> list[str]:
        init, found = s.nn.init, []
        for action in (
            lambda: init.eye_(s.torch.ones(2)),
            lambda: init.xavier_uniform_(s.torch.ones(2)),
            lambda: init.kaiming_normal_(s.torch.ones(2, 2), mode="fan_all"),
            lambda: init.calculate_gain("nothing"),
            lambda: init.dirac_(s.torch.ones(2, 2)),
        ):
            with pytest.raises(ValueError, match=r".+") as info:
                action()
            found.append(str(info.value))
        return found

    theirs, ours = (texts(s) for s in SPACES)
    assert ours == theirs


def test_generator() -> None:
    found = []
    for s in SPACES:
        generator = s.torch.Generator()
        generator.manual_seed(9)
        found.append(array(s.nn.init.normal_(s.torch.empty(20), generator=generator)))
    np.testing.assert_array_equal(found[1], found[0])


LAYERS: dict[str, Callable[[Any], Any]] = {
    "Linear": lambda nn: nn.Linear(7, 5),
    "Bilinear": lambda nn: nn.Bilinear(3, 4, 5),
    "Conv1d": lambda nn: nn.Conv1d(4, 6, 3, groups=2),
    "Conv2d": lambda nn: nn.Conv2d(3, 8, (3, 5)),
    "ConvTranspose2d": lambda nn: nn.ConvTranspose2d(4, 6, 3, groups=2),
    "Embedding": lambda nn: nn.Embedding(11, 6, padding_idx=3),
    "LSTM": lambda nn: nn.LSTM(5, 4, 2, bidirectional=True, proj_size=3),
    "GRU": lambda nn: nn.GRU(5, 4),
    "RNNCell": lambda nn: nn.RNNCell(5, 4),
    "LSTMCell": lambda nn: nn.LSTMCell(5, 4, bias=False),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(8, 2, add_bias_kv=True),
    "MultiheadAttention, widths": lambda nn: nn.MultiheadAttention(8, 2, kdim=3, vdim=5),
    "Transformer": lambda nn: nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    "BatchNorm2d": lambda nn: nn.BatchNorm2d(5),
    "PReLU": lambda nn: nn.PReLU(3, init=0.1),
    "model": lambda nn: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 10)
    ),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_layers_start_alike(name: str) -> None:
    states = []
    for s in SPACES:
        s.torch.manual_seed(42)
        states.append(LAYERS[name](s.nn).state_dict())
    assert list(states[1]) == list(states[0])
    for key, value in states[0].items():
        np.testing.assert_array_equal(array(states[1][key]), array(value), err_msg=key)


def test_tensors_without_elements_need_no_draws() -> None:
    for tensor in (graphc.empty(3, device="meta"), graphc.nn.Linear(2, 2, device="meta").weight):
        assert graphc.nn.init.trunc_normal_(tensor, std=0.02) is tensor
