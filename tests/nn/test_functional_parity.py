"""Functions of nn.functional and nn.utils that the layer and loss tables do not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.nn.both import SPACES, array, close, compare_functions, tensors

RNG = np.random.default_rng(3)


def f(*shape: int) -> np.ndarray:
    """Normal values."""
    return RNG.standard_normal(shape)


Q, K, V = f(2, 3, 5, 4), f(2, 3, 6, 4), f(2, 3, 6, 7)
SQUARE = f(2, 3, 5, 4)
KEEP = RNG.random((5, 6)) > 0.3
KEEP[:, 0] = True

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (lambda s, q, k, v: s.F.scaled_dot_product_attention(q, k, v), (Q, K, V)),
    "attention, causal": (
        lambda s, q, k, v: s.F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (SQUARE, f(2, 3, 5, 4), f(2, 3, 5, 4))),
    "attention, bool mask": (
        lambda s, q, k, v, m: s.F.scaled_dot_product_attention(q, k, v, m, scale=0.3),
        (Q, K, V, KEEP)),
    "attention, float mask": (
        lambda s, q, k, v, m: s.F.scaled_dot_product_attention(q, k, v, m),
        (Q, K, V, f(2, 1, 5, 6))),
    "attention, groups": (
        lambda s, q, k, v: s.F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (f(2, 6, 5, 4), f(2, 3, 5, 4), f(2, 3, 5, 4))),
    "normalize": (lambda s, x: s.F.normalize(x, dim=-1), (f(4, 5),)),
    "normalize, p": (lambda s, x: s.F.normalize(x, p=1.0, dim=0), (f(4, 5),)),
    "cosine_similarity": (lambda s, x, y: s.F.cosine_similarity(x, y, dim=0), (f(4, 5), f(4, 5))),
    "cosine_similarity, broadcast": (
        lambda s, x, y: s.F.cosine_similarity(x, y, dim=-1), (f(4, 1, 5), f(1, 3, 5))),
    "cosine_similarity, zero": (
        lambda s, x, y: s.F.cosine_similarity(x, y, dim=-1), (f(4, 5), np.zeros((4, 5)))),
    "pairwise_distance": (
        lambda s, x, y: s.F.pairwise_distance(x, y, p=1.0), (f(4, 5), f(4, 5))),
    "pad, crop": (lambda s, x: s.F.pad(x, (-1, 2, 1, -2), value=1.5), (f(2, 5, 6),)),
    "pad, all dims": (lambda s, x: s.F.pad(x, (1, 0, 0, 2, 1, 1)), (f(2, 3, 4),)),
    "pad, int": (lambda s, x: s.F.pad(x, (1, 2), value=7), (np.arange(6).reshape(2, 3),)),
    "pad, bool": (lambda s, x: s.F.pad(x, (1, 2), value=True), (f(2, 3) > 0,)),
    "one_hot": (lambda s, x: s.F.one_hot(x), (np.array([[0, 2], [3, 1]]),)),
    "one_hot, classes": (lambda s, x: s.F.one_hot(x, 6), (np.array([0, 2]),)),
    "embedding": (lambda s, x, w: s.F.embedding(x, w, padding_idx=1),
                  (np.array([0, 1, 1, 3]), f(4, 3))),
    "linear, no dims": (lambda s, x, w: s.F.linear(x, w), (f(5), f(3, 5))),
    "linear, vector weight": (lambda s, x, w: s.F.linear(x, w), (f(2, 5), f(5))),
    "bilinear": (lambda s, x, y, w: s.F.bilinear(x, y, w), (f(2, 3), f(2, 4), f(5, 3, 4))),
    "interpolate, 1d": (
        lambda s, x: s.F.interpolate(x, scale_factor=1.7, mode="linear"), (f(2, 3, 7),)),
    "interpolate, nearest down": (
        lambda s, x: s.F.interpolate(x, size=(3, 4)), (f(2, 3, 7, 9),)),
    "interpolate, nearest-exact": (
        lambda s, x: s.F.interpolate(x, size=(3, 4), mode="nearest-exact"), (f(2, 3, 7, 9),)),
    "interpolate, recomputed": (
        lambda s, x: s.F.interpolate(
            x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True,
            align_corners=False), (f(2, 3, 7, 5),)),
    "interpolate, trilinear": (
        lambda s, x: s.F.interpolate(x, size=(4, 3, 5), mode="trilinear"), (f(1, 2, 3, 4, 3),)),
    "interpolate, down": (
        lambda s, x: s.F.interpolate(x, scale_factor=(0.5, 2.0), mode="bilinear"),
        (f(2, 3, 7, 5),)),
    "max_pool1d, dilation": (lambda s, x: s.F.max_pool1d(x, 3, 1, 1, 2), (f(2, 3, 9),)),
    "max_pool2d, no batch": (lambda s, x: s.F.max_pool2d(x, 2), (f(3, 4, 5),)),
    "max_pool2d, indices": (
        lambda s, x: s.F.max_pool2d(x, 3, 2, 1, return_indices=True), (f(2, 3, 7, 6),)),
    "adaptive_max_pool1d, indices": (
        lambda s, x: s.F.adaptive_max_pool1d(x, 4, return_indices=True), (f(2, 3, 9),)),
    "adaptive_max_pool2d, indices": (
        lambda s, x: s.F.adaptive_max_pool2d(x, (3, 2), return_indices=True), (f(2, 3, 7, 6),)),
    "adaptive_max_pool3d": (
        lambda s, x: s.F.adaptive_max_pool3d(x, (2, 3, 2)), (f(2, 3, 5, 7, 4),)),
    "softmax, dtype": (
        lambda s, x: s.F.softmax(x, 1, dtype=s.torch.float64), (f(2, 3),)),
    "glu": (lambda s, x: s.F.glu(x, 0), (f(4, 3),)),
    "prelu, one": (lambda s, x, w: s.F.prelu(x, w), (f(4, 3), f(1))),
    "conv1d, no batch": (lambda s, x, w: s.F.conv1d(x, w), (f(3, 8), f(2, 3, 3))),
    "conv2d, same even": (
        lambda s, x, w: s.F.conv2d(x, w, padding="same"), (f(1, 3, 6, 7), f(2, 3, 2, 4))),
    "conv_transpose2d, no batch": (
        lambda s, x, w: s.F.conv_transpose2d(x, w, stride=2), (f(3, 4, 5), f(3, 2, 2, 2))),
    "rms_norm": (lambda s, x, w: s.F.rms_norm(x, (5,), w, eps=1e-5), (f(2, 5), f(5))),
    "instance_norm, running": (
        lambda s, x: s.F.instance_norm(
            x, s.torch.zeros(3, dtype=x.dtype), s.torch.ones(3, dtype=x.dtype),
            use_input_stats=False), (f(2, 3, 4),)),
    "layer_norm, bias only": (
        lambda s, x, b: s.F.layer_norm(x, (5,), None, b), (f(2, 5), f(5))),
    "pad_sequence": (
        lambda s, *x: s.nn.utils.rnn.pad_sequence(list(x), padding_value=-1.0),
        (f(3, 2), f(5, 2), f(1, 2))),
    "pad_sequence, left": (
        lambda s, *x: s.nn.utils.rnn.pad_sequence(
            list(x), batch_first=True, padding_side="left"), (f(3), f(5))),
    "vector": (
        lambda s, *x: s.nn.utils.parameters_to_vector(x), (f(3), f(2, 2))),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even:UserWarning")  # torch's
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    compare_functions(function, inputs, "float64")


# --- random functions --------------------------------------------------------------------------

DROPOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "dropout": lambda s, x: s.F.dropout(x, 0.3),
    "dropout, permuted": lambda s, x: s.F.dropout(x.transpose(0, 2), 0.3),
    "dropout, sliced": lambda s, x: s.F.dropout(x[:, 1:], 0.3),
    "dropout, in place": lambda s, x: s.F.dropout(x * 1, 0.3, inplace=True),
    "dropout1d": lambda s, x: s.F.dropout1d(x, 0.5),
    "dropout2d": lambda s, x: s.F.dropout2d(x.reshape(2, 4, 3, 5), 0.5),
    "alpha_dropout": lambda s, x: s.F.alpha_dropout(x, 0.2, training=True),
    "gumbel_softmax": lambda s, x: s.F.gumbel_softmax(x, tau=0.7, hard=True),
    "attention": lambda s, x: s.F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropouts_draw_the_same(name: str) -> None:
    x = np.abs(f(6, 4, 5)) + 0.1
    found = []
    for s in SPACES:
        s.torch.manual_seed(11)
        (tensor,) = tensors([x], "float64", s.torch)
        out = DROPOUTS[name](s, tensor)
        out.sum().backward()
        found.append((out, tensor.grad, s.torch.rand(2)))
    close(found[1], found[0], 1e-6, name)


def test_dropout_drops() -> None:
    s = SPACES[1]
    s.torch.manual_seed(0)
    out = array(s.F.dropout(s.torch.ones(10000), 0.25))
    np.testing.assert_array_equal(np.unique(out), np.float32([0.0, 1 / 0.75]))
    assert abs((out == 0).mean() - 0.25) < 0.02
    assert s.F.dropout(s.torch.ones(3), 0.5, training=False).tolist() == [1.0, 1.0, 1.0]


# --- nn.utils ----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1000.0])
def test_clip_grad_norm(norm_type: float, max_norm: float) -> None:
    grads = [f(3, 4), f(5)]
    found = []
    for s in SPACES:
        params = [s.nn.Parameter(s.torch.from_numpy(g * 0)) for g in grads]
        params.append(s.nn.Parameter(s.torch.ones(2)))
        for p, g in zip(params, grads, strict=False):
            p.grad = s.torch.from_numpy(g.copy())
        total = s.nn.utils.clip_grad_norm_(iter(params), max_norm, norm_type)
        found.append([total, *[p.grad for p in params[:2]]])
    close(found[1], found[0], 1e-12)


def test_clipping_messages_and_values() -> None:
    def script(s: Any) -> Any:
        p = s.nn.Parameter(s.torch.ones(3))
        empty = s.nn.utils.clip_grad_norm_([p], 1.0).item()
        p.grad = s.torch.tensor([3.0, -3.0, float("nan")])
        with pytest.raises(RuntimeError) as info:
            s.nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
        p.grad = s.torch.tensor([3.0, -3.0, 0.5])
        s.nn.utils.clip_grad_value_(p, 1.0)
        return empty, str(info.value), p.grad.tolist()

    theirs, ours = (script(s) for s in SPACES)
    assert ours == theirs


def test_vector_to_parameters() -> None:
    def script(s: Any) -> Any:
        params = [s.nn.Parameter(s.torch.zeros(2, 2)), s.nn.Parameter(s.torch.zeros(3))]
        s.nn.utils.vector_to_parameters(s.torch.arange(7.0), params)
        return [p.tolist() for p in params], s.nn.utils.parameters_to_vector(params).tolist()

    theirs, ours = (script(s) for s in SPACES)
    assert ours == theirs


def test_unpad_sequence() -> None:
    def script(s: Any) -> Any:
        rnn = s.nn.utils.rnn
        rows = [s.torch.arange(float(n)) for n in (3, 1, 2)]
        padded = rnn.pad_sequence(rows)
        return [t.tolist() for t in rnn.unpad_sequence(padded, s.torch.tensor([3, 1, 2]))]

    theirs, ours = (script(s) for s in SPACES)
    assert ours == theirs


# --- messages ------------------------------------------------------------------------------------

BAD: dict[str, Callable[[Any], Any]] = {
    "linear": lambda s: s.F.linear(s.torch.ones(2, 3), s.torch.ones(4, 5)),
    "conv channels": lambda s: s.F.conv2d(s.torch.ones(1, 3, 8, 8), s.torch.ones(2, 4, 3, 3)),
    "conv dtype": lambda s: s.nn.Conv2d(1, 1, 1)(s.torch.ones(1, 1, 2, 2, dtype=s.torch.float64)),
    "conv groups": lambda s: s.nn.Conv2d(3, 4, 1, groups=2),
    "batch norm": lambda s: s.nn.BatchNorm2d(3)(s.torch.ones(2, 3)),
    "batch norm one": lambda s: s.nn.BatchNorm1d(3)(s.torch.ones(1, 3)),
    "layer norm": lambda s: s.nn.LayerNorm(4)(s.torch.ones(2, 3)),
    "dropout": lambda s: s.F.dropout(s.torch.ones(2), 1.5),
    "Dropout": lambda s: s.nn.Dropout(-1),
    "embedding": lambda s: s.nn.Embedding(3, 2)(s.torch.tensor([0, 3])),
    "embedding negative": lambda s: s.nn.Embedding(3, 2)(s.torch.tensor([-1])),
    "embedding float": lambda s: s.nn.Embedding(3, 2)(s.torch.tensor([0.0])),
    "gelu": lambda s: s.F.gelu(s.torch.ones(2), approximate="bad"),
    "glu": lambda s: s.F.glu(s.torch.ones(3)),
    "pixel shuffle": lambda s: s.F.pixel_shuffle(s.torch.ones(1, 3, 2, 2), 2),
    "group norm": lambda s: s.F.group_norm(s.torch.ones(2, 3), 2),
    "lstm width": lambda s: s.nn.LSTM(3, 2)(s.torch.ones(4, 1, 5)),
    "lstm state": lambda s: s.nn.LSTM(3, 2)(s.torch.ones(4, 1, 3), (s.torch.ones(1, 2, 2),) * 2),
    "lstm hidden": lambda s: s.nn.LSTM(0, 2),
    "heads": lambda s: s.nn.MultiheadAttention(5, 2),
    "attention masks": lambda s: s.F.scaled_dot_product_attention(
        s.torch.ones(2, 2), s.torch.ones(2, 2), s.torch.ones(2, 2), s.torch.ones(2, 2),
        is_causal=True),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    errors = []
    for s in SPACES:
        with pytest.raises(Exception) as info:
            BAD[name](s)
        errors.append(info.value)
    assert type(errors[1]).__name__ == type(errors[0]).__name__
    first = [str(error).split("\n")[0] for error in errors]
    if name not in ("conv dtype", "embedding", "embedding negative", "embedding float"):
        assert first[1][:40] == first[0][:40]


@pytest.mark.parametrize("shape", [(5,), (5, 5), (2, 5, 5), (1, 2, 5, 5), (1, 2, 5, 5, 5)])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_takes_the_ranks_that_torch_takes(
    shape: tuple[int, ...], count: int, mode: str
) -> None:
    found: list[Any] = []
    for space in SPACES:
        try:
            padded = space.F.pad(space.torch.ones(shape), (1, 0) * count, mode)
            found.append(tuple(padded.shape))
        except (RuntimeError, NotImplementedError) as error:
            found.append((type(error), str(error).splitlines()[:5]))
    assert found[0] == found[1]
