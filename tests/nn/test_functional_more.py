"""Resampling, folding, bags, unpooling, CTC and flex attention against PyTorch."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc import nn
from graphc.inspect.explain import explain
from graphc.nn.functional import grid as sampling
from tests.nn.both import close

RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def grid(*shape: int) -> np.ndarray:
    return RNG.uniform(-1.4, 1.4, shape)


RESIZES: dict[str, tuple[int, dict[str, Any]]] = {
    "nearest": (4, {"size": (7, 3)}),
    "nearest scale": (3, {"scale_factor": 1.7}),
    "nearest-exact": (4, {"scale_factor": (0.6, 2.3), "mode": "nearest-exact"}),
    "linear": (3, {"size": 9, "mode": "linear"}),
    "bilinear": (4, {"scale_factor": 1.5, "mode": "bilinear"}),
    "bilinear aligned": (4, {"size": (3, 8), "mode": "bilinear", "align_corners": True}),
    "bilinear recomputed": (
        4, {"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True}),
    "bicubic": (4, {"scale_factor": 2.0, "mode": "bicubic"}),
    "bicubic aligned": (4, {"size": (4, 9), "mode": "bicubic", "align_corners": True}),
    "trilinear": (5, {"size": (3, 4, 7), "mode": "trilinear"}),
    "area": (4, {"size": (2, 4), "mode": "area"}),
    "smooth bilinear": (4, {"size": (2, 3), "mode": "bilinear", "antialias": True}),
    "smooth bilinear up": (4, {"size": (9, 8), "mode": "bilinear", "antialias": True}),
    "smooth lanczos": (4, {"size": (3, 9), "mode": "lanczos", "antialias": True}),
    "smooth bicubic": (4, {"size": (3, 2), "mode": "bicubic", "antialias": True}),
}


def compare(ours: Any, theirs: Any, arrays: list[Any], compiled: bool, tolerance: float) -> None:
    """Values and gradients of a function of the arrays' tensors."""
    results = []
    for package, function in ((graphc, ours), (torch, theirs)):
        inputs = [package.from_numpy(a.copy()) for a in arrays]
        for x in inputs:
            if x.dtype.is_floating_point:
                x.requires_grad_(True)
        call = graphc.compile(function) if compiled and package is graphc else function
        output = call(*inputs)
        weights = np.cos(np.arange(output.numel())).reshape(tuple(output.shape))
        (output * package.from_numpy(weights)).sum().backward()
        leaves = [x for x in inputs if x.requires_grad]
        # torch gives zeros where no gradient flows
        grads = [package.zeros_like(x) if x.grad is None else x.grad for x in leaves]
        results.append([output, *grads])
    close(results[0], results[1], tolerance)


@pytest.mark.parametrize("name", RESIZES)
def test_interpolate(name: str) -> None:
    check_interpolate(name, False)


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic", "smooth bilinear"])
def test_interpolate_compiled(name: str) -> None:
    check_interpolate(name, True)


def check_interpolate(name: str, compiled: bool) -> None:
    """Values and gradients of a way to resize."""
    rank, options = RESIZES[name]
    x = random(2, 3, 5, 6, 4)[tuple(slice(None) if d < rank else 0 for d in range(5))]
    compare(
        lambda x: nn.functional.interpolate(x, **options),
        lambda x: torch.nn.functional.interpolate(x, **options), [np.ascontiguousarray(x)],
        compiled, 1e-10,
    )


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode: str, padding: str, align: bool) -> None:
    cases = [(random(2, 3, 5, 4), grid(2, 3, 6, 2))]
    if mode != "bicubic":
        cases.append((random(2, 2, 3, 4, 5), grid(2, 2, 3, 2, 3)))
    # whole elements, the outermost ones too, where padding begins
    axis = np.arange(-12, 13) / 4
    exact = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)[None]
    cases.append((random(1, 2, 4, 5), exact))
    for x, positions in cases:
        compare(
            lambda x, g: nn.functional.grid_sample(x, g, mode, padding, align),
            lambda x, g: torch.nn.functional.grid_sample(x, g, mode, padding, align),
            [x, positions], False, 1e-9,
        )


def test_grid_sample_of_images_is_one_graph_and_of_few_numbers_none() -> None:
    def gains(count: int, size: int) -> bool:
        image, places = graphc.ones(count, 1, size, size), graphc.ones(count, size, size, 2)
        return sampling._gains(image, places)

    assert gains(64, 28) and gains(1, 64) and not gains(2, 8)
    assert not sampling._gains(graphc.ones(64, 1, 28, 28).half(), graphc.ones(64, 28, 28, 2).half())


def test_grid_sample_compiled() -> None:
    compare(
        lambda x, g: nn.functional.grid_sample(x, g, align_corners=False),
        lambda x, g: torch.nn.functional.grid_sample(x, g, align_corners=False),
        [random(2, 3, 5, 4), grid(2, 3, 6, 2)], True, 1e-9,
    )


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 1, 5), (2, 1, 3, 4, 2)])
@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(size: tuple[int, ...], align: bool) -> None:
    spatial = len(size) - 2
    if align and 1 in size[2:]:
        pytest.skip("torch warns")
    compare(
        lambda t: nn.functional.affine_grid(t, size, align),
        lambda t: torch.nn.functional.affine_grid(t, size, align),
        [random(2, spatial, spatial + 1)], False, 1e-12,
    )


@pytest.mark.parametrize("where", ["only_the_cpu", "beside_meta"])
def test_many_bags_are_not_compared_with_every_index(
    where: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(where)
    count = 20_000
    rng = np.random.default_rng(3)
    ids, table = rng.integers(0, 50, count), rng.standard_normal((50, 3)).astype(np.float32)
    offsets = np.sort(rng.integers(0, count, count))
    offsets[0] = 0
    for mode in ("sum", "mean", "max"):
        ours, wanted = (
            t.nn.functional.embedding_bag(
                *map(t.from_numpy, (ids, table, offsets)), mode=mode, padding_idx=3
            )
            for t in (graphc, torch)
        )
        close(ours, wanted, 1e-5)
    tracemalloc.start()
    try:
        nn.functional.embedding_bag(*map(graphc.from_numpy, (ids, table, offsets)))
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("padding", [None, 0])
def test_the_largest_of_equal_bags(padding: int | None) -> None:
    """The first of ties has the gradient; a bag of padding is 0."""
    ids = np.array([[0, 1, 1], [0, 0, 0], [2, 1, 0]])

    def run(t: Any) -> Any:
        w = t.tensor([[1.0, 2.0], [1.0, -2.0], [-3.0, 2.0]], requires_grad=True)
        y = t.nn.functional.embedding_bag(
            t.from_numpy(ids), w, mode="max", padding_idx=padding
        )
        (y * t.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).sum().backward()
        return y.detach(), w.grad

    close(run(graphc), run(torch), 1e-6)



@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str, compiled: bool) -> None:
    weight = random(7, 3)
    index, offsets = np.array([1, 2, 4, 5, 4, 3, 2, 6]), np.array([0, 3, 3, 7])
    for padding in (None, 2):
        compare(
            lambda w, i, o, p=padding: nn.functional.embedding_bag(
                i, w, o, mode=mode, padding_idx=p),
            lambda w, i, o, p=padding: torch.nn.functional.embedding_bag(
                i, w, o, mode=mode, padding_idx=p),
            [weight, index, offsets], compiled, 1e-12,
        )
    compare(
        lambda w, i: nn.functional.embedding_bag(i, w, mode=mode),
        lambda w, i: torch.nn.functional.embedding_bag(i, w, mode=mode),
        [weight, index.reshape(2, 4)], compiled, 1e-12,
    )


def test_weighted_embedding_bag() -> None:
    def bag(F: Any) -> Any:
        return lambda w, i, o, s: F.embedding_bag(
            i, w, o, mode="sum", per_sample_weights=s, include_last_offset=True)

    compare(
        bag(nn.functional), bag(torch.nn.functional),
        [random(7, 3), np.array([1, 2, 4, 5]), np.array([0, 1, 4]), random(4)], False, 1e-12,
    )


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_ctc(compiled: bool) -> None:
    targets = np.array([[1, 1, 2], [3, 2, 0], [2, 4, 4]])

    def loss(package: Any, F: Any) -> Any:
        lengths = package.tensor([6, 5, 6]), package.tensor([3, 2, 3])
        return lambda x, t: F.ctc_loss(x.log_softmax(2), t, *lengths, reduction="sum")

    compare(
        loss(graphc, nn.functional), loss(torch, torch.nn.functional),
        [random(6, 3, 5), targets], compiled, 1e-9,
    )


def test_fold_and_unfold() -> None:
    options = {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 2), "stride": (2, 1)}
    compare(
        lambda x: nn.functional.unfold(x, **options),
        lambda x: torch.nn.functional.unfold(x, **options), [random(2, 3, 7, 6)], False, 1e-12,
    )
    columns = torch.nn.functional.unfold(torch.zeros(2, 3, 7, 6), **options).shape
    compare(
        lambda x: nn.functional.fold(x, (7, 6), **options),
        lambda x: torch.nn.functional.fold(x, (7, 6), **options), [random(*columns)], True, 1e-12,
    )
    assert nn.functional.fold(graphc.zeros(*columns), (7, 6), **options).is_contiguous()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling(dims: int) -> None:
    def through(F: Any) -> Any:
        pool, back = getattr(F, f"max_pool{dims}d"), getattr(F, f"max_unpool{dims}d")
        return lambda x: back(*pool(x, 2, return_indices=True), 2)

    compare(
        through(nn.functional), through(torch.nn.functional), [random(2, 3, *(6,) * dims)], False,
        1e-12,
    )


@pytest.mark.parametrize("training", [False, True])
def test_random_leaky_relu_draws_as_torch(training: bool) -> None:
    x = random(4, 5)
    torch.manual_seed(3)
    want = torch.nn.functional.rrelu(torch.from_numpy(x), training=training)
    graphc.manual_seed(3)
    close(nn.functional.rrelu(graphc.from_numpy(x), training=training), want, 1e-15)


def test_packed_sequences() -> None:
    lengths = [3, 5, 1]
    for kind, options in (("LSTM", {"bidirectional": True, "proj_size": 3}), ("GRU", {}),
                          ("RNN", {"num_layers": 2})):
        found = []
        for package in (graphc, torch):
            package.manual_seed(0)
            layer = getattr(package.nn, kind)(4, 5, **options)
            tools = package.nn.utils.rnn
            x = package.from_numpy(np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 3, 4))
            x.requires_grad_(True)
            packed = tools.pack_padded_sequence(x, lengths, enforce_sorted=False)
            output, state = layer(packed)
            padded, sizes = tools.pad_packed_sequence(output, batch_first=True)
            state = list(state) if isinstance(state, tuple) else [state]
            (padded.square().sum() + state[0].sum()).backward()
            parts = tools.unpack_sequence(output)
            found.append([padded, sizes, *state, x.grad, *parts, layer.weight_hh_l0.grad])
        close(found[0], found[1], 1e-5, kind)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("lengths", [[3, 2, 1], [1, 3, 2]])
def test_padded_again_lies_as_pytorchs(batch_first: bool, lengths: list[int]) -> None:
    """What is drawn for it, of dropout say, goes by its strides."""
    found = []
    for package in (graphc, torch):
        tools = package.nn.utils.rnn
        x = package.ones(3, 3, 4)
        packed = tools.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        sequences = [package.ones(n, 4) for n in sorted(lengths, reverse=True)]
        told = []
        for each in (packed, tools.pack_sequence(sequences)):
            padded, _ = tools.pad_packed_sequence(each, batch_first=batch_first)
            package.manual_seed(0)
            dropped = package.dropout(padded, 0.5, True)
            parts = tools.unpack_sequence(each)
            told.append([
                padded.stride(), dropped.tolist(), [part.stride() for part in parts],
                all(part.data_ptr() != padded.data_ptr() for part in parts),
            ])
        found.append(told)
    assert found[0] == found[1]


def test_flex_attention_masks_and_changes_scores() -> None:
    from graphc.nn.attention import flex_attention as flex

    q, k, v = (graphc.from_numpy(random(2, 3, 6, 4)) for _ in range(3))
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 6, 6)
    have = flex.flex_attention(q, k, v, block_mask=mask)
    want = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-10, atol=1e-12)
    # the bias is float32, as i - j is an integer
    have = flex.flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1)
    bias = (graphc.arange(6).unsqueeze(1) - graphc.arange(6)).double() * 0.1
    want = nn.functional.scaled_dot_product_attention(q, k, v, bias)
    np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-6, atol=1e-6)


def test_softmax_divides_once_a_row_unless_of_float64() -> None:
    x = RNG.normal(0, 4, (64, 1000))
    for dtype, quotients, digits in (("float32", 0, 2e-6), ("float64", 1, 1e-14)):
        softmax = graphc.compile(nn.Softmax(-1))
        given = graphc.from_numpy(x.astype(dtype))
        assert explain(softmax, given).kernels_text.count("div.") == quotients
        want = torch.from_numpy(given.numpy()).double().softmax(-1).numpy()
        assert np.abs(softmax(given).numpy() / want - 1).max() < digits
