"""Gradient rules where they are delicate, against torch: ties, NaN, zeros, empty rows, and the
gradients of the gradients. (Every operator at ordinary points is in the matrix tests.)
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import autodiff, dtypes, interpret, ops
from graphc.ir.graph import Builder, Expr
from graphc.ir.op import REGISTRY, Op, OpError
from graphc.ir.types import TensorType

torch = pytest.importorskip("torch")
functional = torch.nn.functional
nan, inf = math.nan, math.inf
random = np.random.default_rng(0)


def value_of(builder: Builder, array: np.ndarray) -> Expr:
    return Expr(builder, builder.input(TensorType(dtypes.from_numpy(array.dtype), array.shape)))


def decomposed(op: Op) -> Callable[..., Any]:
    """The meaning of a composite by its decomposition."""

    def run(*arrays: np.ndarray, **attrs: Any) -> Any:
        builder = Builder()
        assert op.decompose is not None
        results = op.decompose(*(value_of(builder, a) for a in arrays), **attrs)
        several = isinstance(results, tuple)
        nodes = [r.node for r in (results if several else (results,))]
        found = interpret.evaluate(builder.build(nodes), arrays, TABLE)
        return tuple(found) if several else found[0]

    return run


MEANING = {**TABLE, **{op.name: decomposed(op) for op in REGISTRY.values() if op.decompose}}


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def check(
    ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: Any, second: bool = True
) -> None:
    """Values, gradients and (if `second`) gradients of gradients agree, in float64."""
    arrays = tuple(np.asarray(a) for a in arrays)
    wrt = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    leaves = [torch.tensor(a, requires_grad=i in wrt) for i, a in enumerate(arrays)]
    expected = as_tuple(theirs(*leaves))
    builder = Builder()
    values = [value_of(builder, a) for a in arrays]
    outs = as_tuple(ours(*values))
    chosen = [i for i, t in enumerate(expected) if t.is_floating_point()]
    seeds = [random.standard_normal(expected[i].shape) for i in chosen]
    seed_values = [value_of(builder, s) for s in seeds]
    gradients = autodiff.backward(
        builder, [outs[i].node for i in chosen], [s.node for s in seed_values],
        [values[i].node for i in wrt],
    )
    torch_seeds = [torch.tensor(s, requires_grad=True) for s in seeds]
    expected_gradients = torch.autograd.grad(
        [expected[i] for i in chosen], [leaves[i] for i in wrt], torch_seeds, create_graph=second
    )
    got = interpret.evaluate(
        builder.build([o.node for o in outs] + gradients), [*arrays, *seeds], MEANING
    )
    for have, want in zip(got, (*expected, *expected_gradients), strict=True):
        np.testing.assert_allclose(have, want.detach().numpy(), rtol=1e-9, atol=1e-9)
    if not second:
        return
    probes = [random.standard_normal(g.shape) for g in expected_gradients]
    probe_values = [value_of(builder, p) for p in probes]
    points = [*(values[i].node for i in wrt), *(s.node for s in seed_values)]
    seconds = autodiff.backward(builder, gradients, [p.node for p in probe_values], points)
    expected_seconds = torch.autograd.grad(
        expected_gradients, [*(leaves[i] for i in wrt), *torch_seeds],
        [torch.tensor(p) for p in probes], allow_unused=True,
    )
    present = [g for g in seconds if g is not None]
    got = interpret.evaluate(builder.build(present), [*arrays, *seeds, *probes], MEANING)
    found = iter(got)
    for node, want in zip(seconds, expected_seconds, strict=True):
        have = np.zeros(()) if node is None else next(found)
        want = torch.zeros(()) if want is None else want
        np.testing.assert_allclose(have, want.numpy(), rtol=1e-8, atol=1e-8)


def uniform(*shape: int) -> np.ndarray:
    return random.uniform(-2.0, 2.0, shape)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "pow", "atan2", "copysign"])
def test_ties_zeros_and_nan(name: str) -> None:
    a = [1.0, nan, 2.0, nan, 3.0, 0.0, 0.0, -1.0, 2.0, 0.0, 0.0]
    b = [1.0, 2.0, nan, nan, 2.0, 0.0, 2.0, 2.0, 3.0, -1.0, 0.5]
    check(getattr(ops, name), getattr(torch, name), a, b, second=False)


@pytest.mark.parametrize("name", ["relu", "abs", "sqrt", "sign"])
def test_unary_edges(name: str) -> None:
    check(getattr(ops, name), getattr(torch, name), [nan, 0.0, -0.0, 1.0, -1.0], second=False)


def test_clamp_with_tensor_bounds() -> None:
    x, high = [1.0, nan, 2.0, 5.0, 0.0, 3.0], [3.0, 3.0, 3.0, 3.0, 3.0, 2.0]
    check(ops.clamp, torch.clamp, x, [1.0, 1.0, 1.0, 1.0, 1.0, 5.0], high, second=False)


def test_prod_and_cumprod_with_zeros_to_second_order() -> None:
    rows = [[1.0, 0.0, 2.0, 3.0], [0.0, 0.0, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]]
    check(lambda x: ops.prod(x, dims=(1,), keepdim=False), lambda x: x.prod(1), rows)
    check(lambda x: ops.cumprod(x, dim=1), lambda x: x.cumprod(1), rows)
    check(lambda x: ops.prod(x, dims=(0, 2), keepdim=True),
          lambda x: x.prod(2, True).prod(0, True), uniform(2, 3, 4))


def test_extrema_share_among_ties() -> None:
    x = np.round(uniform(3, 4, 5))
    check(lambda x: ops.amax(x, dims=(0, 2), keepdim=False), lambda x: x.amax((0, 2)), x)
    source, index = np.round(uniform(3, 5)), random.integers(0, 4, (3, 5))
    check(lambda x, i, s: ops.scatter(x, i, s, dim=1, reduce="amin"),
          lambda x, i, s: x.scatter_reduce(1, i, s, "amin"),
          np.round(uniform(3, 4)), index, source)


def test_scatter_mul_with_zeros() -> None:
    index = np.array([[0, 0, 1, 2, 2]])
    check(lambda x, i, s: ops.scatter(x, i, s, dim=1, reduce="mul"),
          lambda x, i, s: x.scatter_reduce(1, i, s, "prod"),
          [[2.0, 0.0, 3.0, 4.0]], index, [[0.0, 5.0, 6.0, 0.0, 0.0]], second=False)


def test_overlapping_strided_views_add() -> None:
    where = {"size": (3, 2), "stride": (1, 1), "offset": 2}
    check(lambda x: ops.as_strided(x, **where), lambda x: x.as_strided(*where.values()),
          uniform(3, 4))


@pytest.mark.parametrize("steps", [(1, 1), (2, 3)])
def test_slices_to_nothing(steps: tuple[int, int]) -> None:
    check(lambda x: ops.slice(x, starts=(1, 1), stops=(1, 4), steps=steps),
          lambda x: x[1 : 1 : steps[0], 1 : 4 : steps[1]], uniform(2, 5))


POOLS = [
    ((2, 2), (2, 2), (0, 0), (0, 0), (1, 1)),  # blocks with a remainder
    ((3, 2), (1, 2), (1, 0), (1, 1), (1, 1)),  # overlapping, padded
    ((3, 3), (2, 3), (1, 2), (2, 0), (1, 2)),  # dilated
    ((1, 2), (2, 2), (0, 0), (0, 0), (1, 1)),  # gaps between windows
]


@pytest.mark.parametrize("window, stride, low, high, dilation", POOLS)
def test_window_sum(window: Any, stride: Any, low: Any, high: Any, dilation: Any) -> None:
    def theirs(x: Any) -> Any:
        padded = functional.pad(x, (low[1], high[1], low[0], high[0]))[:, None]
        ones = torch.ones(1, 1, *window, dtype=x.dtype)
        return functional.conv2d(padded, ones, stride=stride, dilation=dilation)[:, 0]

    attrs = {"window": window, "stride": stride, "pad_low": low, "pad_high": high}
    check(lambda x: ops.window_sum(x, **attrs, dilation=dilation), theirs, uniform(2, 7, 8))


def test_max_pool_over_one_trailing_dim_of_equal_leading_sizes() -> None:
    # the plane is one row: nothing in the shapes says so but plane_shape
    attrs = {"window": (3,), "stride": (1,), "pad_low": (1,), "pad_high": (1,), "dilation": (1,)}
    check(lambda x: ops.max_pool(x, **attrs),
          lambda x: functional.max_pool1d(x, 3, 1, 1, return_indices=True),
          uniform(4, 4, 4))


CONV = {"stride": (2, 1), "pad_low": (1, 0), "pad_high": (1, 0), "dilation": (1, 2)}


def test_convolution_to_second_order() -> None:
    check(lambda x, w: ops.conv(x, w, **CONV, groups=2),
          lambda x, w: functional.conv2d(x, w, None, (2, 1), (1, 0), (1, 2), 2),
          uniform(2, 4, 7, 8), uniform(6, 2, 3, 3))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_family_at_infinities(name: str) -> None:
    keep = {"keepdim": False} if name == "logsumexp" else {}
    x = [[-inf, -inf], [inf, 1.0], [1000.0, -1000.0]]
    check(lambda x: getattr(ops, name)(x, dim=1, **keep), lambda x: getattr(torch, name)(x, 1), x,
          second=False)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, smoothing: float, weighted: bool) -> None:
    weight = random.uniform(0.1, 2.0, 3)
    target = np.array([[0, 2], [-100, 1]])

    def ours(x: Any, t: Any) -> Any:
        weights = [Expr(x.builder, x.builder.const(weight))] if weighted else []
        attrs = {"ignore_index": -100, "label_smoothing": smoothing, "reduction": reduction}
        return ops.cross_entropy(x, t, *weights, **attrs)

    def theirs(x: Any, t: Any) -> Any:
        weights = torch.tensor(weight) if weighted else None
        return functional.cross_entropy(
            x, t, weights, label_smoothing=smoothing, reduction=reduction
        )

    check(ours, theirs, uniform(2, 3, 2), target)
    if reduction == "mean":
        check(ours, theirs, uniform(2, 3, 2), np.full((2, 2), -100), second=False)


def test_cross_entropy_refuses_what_is_no_class() -> None:
    builder = Builder()
    x, target = value_of(builder, uniform(2, 3)), value_of(builder, np.array([0, 12]))
    attrs = {"ignore_index": -100, "label_smoothing": 0.0, "reduction": "mean"}
    graph = builder.build([ops.cross_entropy(x, target, **attrs).node])
    with pytest.raises((IndexError, RuntimeError), match="12 is out of bounds"):
        interpret.evaluate(graph, [uniform(2, 3), np.array([0, 12])], MEANING)
    weight = value_of(builder, uniform(3))
    loss = ops.cross_entropy(x, target, weight, **attrs)
    with pytest.raises(OpError, match="not differentiable with respect to argument 'weight'"):
        autodiff.backward(builder, [loss.node], [None], [weight.node])


def test_batch_norm_with_gradients_of_its_moments() -> None:
    def theirs(x: Any, w: Any, b: Any) -> Any:
        y = functional.batch_norm(x, None, None, w, b, training=True)
        return y, x.mean((0, 2)), x.var((0, 2), correction=0)

    check(lambda x, w, b: ops.batch_norm(x, w, b, eps=1e-5), theirs,
          uniform(4, 3, 2), uniform(3), uniform(3))


def test_layer_norm() -> None:
    check(lambda x, w, b: ops.layer_norm(x, w, b, normalized_dims=(1, 2), eps=1e-5),
          lambda x, w, b: functional.layer_norm(x, (3, 4), w, b),
          uniform(5, 3, 4), uniform(3, 4), uniform(3, 4))


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
def test_attention(kind: str) -> None:
    q, k, v = uniform(2, 4, 5), uniform(2, 6, 5), uniform(2, 6, 3)
    allowed = uniform(4, 6) > 0
    allowed[1] = False  # a row that attends to nothing gives zeros
    masks = {"bool": [allowed], "float": [uniform(2, 1, 6)]}.get(kind, [])
    causal = kind == "causal"
    check(lambda *x: ops.attention(*x, causal=causal, scale=0.7)[0],
          lambda q, k, v, *mask: functional.scaled_dot_product_attention(
              q, k, v, *mask, is_causal=causal, scale=0.7),
          q, k, v, *masks)
