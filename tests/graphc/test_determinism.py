"""The same bits for 1, 2 and 5 threads, at sizes where the work is cut into several chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn as nn
import graphc.nn.functional as F
from graphc import explain

THREADS = (1, 2, 5)
RNG = np.random.default_rng(8)

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = graphc.get_num_threads()
    yield
    graphc.set_num_threads(before)


def floats(*shape: int, dtype: str = "float32") -> graphc.Tensor:
    return graphc.from_numpy(RNG.standard_normal(shape).astype(dtype))


def integers(high: int, *shape: int) -> graphc.Tensor:
    return graphc.from_numpy(RNG.integers(0, high, shape))


def bits(values: Any) -> list[bytes]:
    """The memory of every tensor of a result."""
    if isinstance(values, graphc.Tensor):
        values = (values,)
    return [v.detach().numpy().tobytes() for v in values]


def same_bits(function: Function, *arguments: Any, op: str, repeat: int = 3) -> None:
    """Compile, see that the kernel of `op` is cut into chunks, compare the bits of the results."""
    compiled = graphc.compile(function)
    steps = [s for s in explain(compiled, *arguments).steps if op in s.ops]
    assert steps, f"no kernel computes {op}"
    assert any(s.cost.chunks > 1 for s in steps), [(s.name, s.cost) for s in steps]
    results = []
    for threads in THREADS:
        graphc.set_num_threads(threads)
        results += [bits(compiled(*arguments)) for _ in range(repeat)]
    assert all(r == results[0] for r in results[1:])
    assert compiled.compile_count == 1


def with_gradients(function: Function) -> Function:
    """The function's result and the gradients of its floating arguments."""

    def both(*arguments: Any) -> tuple[Any, ...]:
        inputs = [
            a.detach().requires_grad_() if a.dtype.is_floating_point else a for a in arguments
        ]
        out = function(*inputs)
        outs = out if isinstance(out, tuple) else (out,)
        # a seed with other values than one, so that its place matters
        loss = sum(((o * (o.detach() * 0.5 + 1)).sum() for o in outs), start=0.0)
        graphs = [i for i in inputs if i.requires_grad]
        return (*outs, *graphc.autograd.grad(loss, graphs))

    return both


# --- reductions ------------------------------------------------------------------------------

PATTERNS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "rows": ((300, 700), (1,)),
    "columns": ((700, 300), (0,)),
    "few long rows": ((3, 200_000), (1,)),
    "few columns": ((100_000, 3), (0,)),
    "whole": ((512, 700), (0, 1)),
    "middle": ((24, 70, 150), (1,)),
    "outer and inner": ((70, 40, 90), (0, 2)),
    "channels": ((8, 16, 40, 40), (0, 2, 3)),
}

REDUCTIONS: dict[str, tuple[str, Callable[[Any, tuple[int, ...]], Any]]] = {
    "sum": ("sum", lambda x, dims: x.sum(dims)),
    "mean": ("sum", lambda x, dims: x.mean(dims)),
    "var": ("sum", lambda x, dims: x.var(dims)),
    "norm": ("sum", lambda x, dims: (x * x).sum(dims).sqrt()),
    "amax": ("amax", lambda x, dims: x.amax(dims)),
    "amin": ("amin", lambda x, dims: x.amin(dims)),
    "logsumexp": ("sum", lambda x, dims: x.logsumexp(dims)),
    "any": ("any", lambda x, dims: _one_by_one("any", x > 3, dims)),
    "all": ("all", lambda x, dims: _one_by_one("all", x > -3, dims)),
    "prod": ("prod", lambda x, dims: _one_by_one("prod", x * 0.01 + 1, dims)),
}


def _one_by_one(name: str, x: Any, dims: tuple[int, ...]) -> Any:
    """A reduction that takes one dim at a time, or all of them."""
    if len(dims) == x.ndim:
        return getattr(x, name)()
    for dim in reversed(dims):
        x = getattr(x, name)(dim)
    return x


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, pattern: str) -> None:
    op, reduce = REDUCTIONS[name]
    shape, dims = PATTERNS[pattern]
    same_bits(lambda x: reduce(x, dims), floats(*shape), op=op)


@pytest.mark.parametrize("pattern", ["rows", "columns", "few long rows", "few columns"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_reductions(name: str, pattern: str) -> None:
    shape, (dim,) = PATTERNS[pattern]
    same_bits(lambda x: getattr(x, name)(dim), floats(*shape).round(), op=name)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_reductions_of_everything(name: str) -> None:
    same_bits(lambda x: getattr(x, name)(), floats(600, 500).round(), op=name)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("pattern", ["rows", "columns", "whole", "few long rows"])
def test_reductions_of_other_dtypes(pattern: str, dtype: str) -> None:
    shape, dims = PATTERNS[pattern]
    x = floats(*shape).to(getattr(graphc, dtype))

    def function(x: Any) -> Any:
        return x.sum(dims).float()

    same_bits(function, x, op="sum")


# --- rows ------------------------------------------------------------------------------------

_WEIGHT = floats(600), floats(600)

ROWS: dict[str, tuple[str, Function, tuple[Any, ...]]] = {
    "softmax": ("exp", lambda x: x.softmax(1), (floats(300, 600),)),
    "softmax of columns": ("exp", lambda x: x.softmax(0), (floats(600, 300),)),
    "softmax of long rows": ("exp", lambda x: x.softmax(1), (floats(2, 150_000),)),
    "log_softmax": ("exp", lambda x: x.log_softmax(1), (floats(300, 600),)),
    "layer_norm": (
        "rsqrt", lambda x, w, b: F.layer_norm(x, (600,), w, b), (floats(300, 600), *_WEIGHT),
    ),
    "batch_norm": (
        "sum", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (floats(8, 24, 30, 30), floats(24), floats(24)),
    ),
    "batch_norm of rows": (
        "sum", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (floats(400, 300), floats(300), floats(300)),
    ),
    "group_norm": (
        "sum", lambda x: F.group_norm(x, 4), (floats(6, 16, 40, 40),),
    ),
    "cross_entropy": ("exp", F.cross_entropy, (floats(400, 500), integers(500, 400))),
    "cross_entropy of images": (
        "exp", F.cross_entropy, (floats(4, 20, 50, 50), integers(20, 4, 50, 50)),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_and_their_gradients(name: str) -> None:
    op, function, arguments = ROWS[name]
    same_bits(with_gradients(function), *arguments, op=op)


# --- products --------------------------------------------------------------------------------

PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "square": ((200, 200), (200, 200)),
    "tall": ((1000, 64), (64, 64)),
    "wide": ((16, 128), (128, 2000)),
    "split k": ((16, 40_000), (40_000, 16)),
    "split k, ragged": ((33, 30_001), (30_001, 17)),
    "a row": ((1, 3000), (3000, 700)),
    "a column": ((3000, 700), (700, 1)),
    "batched": ((12, 64, 70), (12, 70, 65)),
    "broadcast": ((12, 64, 70), (70, 65)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: str) -> None:
    left, right = PRODUCTS[name]
    same_bits(lambda a, b: a @ b, floats(*left, dtype=dtype), floats(*right, dtype=dtype),
              op="dot_general")


@pytest.mark.parametrize("name", ["square", "split k", "batched"])
def test_products_with_an_epilogue_and_gradients(name: str) -> None:
    left, right = PRODUCTS[name]
    bias = floats(right[-1])
    function = with_gradients(lambda a, b, c: F.gelu(a @ b + c))
    same_bits(function, floats(*left), floats(*right) * 0.1, bias, op="dot_general")


def test_products_of_narrow_floats() -> None:
    a, b = floats(200, 300).bfloat16(), floats(300, 200).bfloat16()
    same_bits(lambda a, b: (a @ b).float(), a, b, op="dot_general")


# --- convolutions ----------------------------------------------------------------------------

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1d": ((8, 16, 500), (32, 16, 5), {"padding": 2}),
    "2d": ((8, 16, 28, 28), (32, 16, 3, 3), {"padding": 1}),
    "2d of few channels": ((16, 3, 32, 32), (16, 3, 5, 5), {"padding": 2}),
    "2d with strides": ((8, 16, 33, 33), (32, 16, 3, 3), {"stride": 2, "padding": 1}),
    "2d dilated": ((8, 16, 28, 28), (16, 16, 3, 3), {"dilation": 2}),
    "2d of points": ((8, 64, 20, 20), (64, 64, 1, 1), {}),
    "3d": ((2, 8, 12, 12, 12), (16, 8, 3, 3, 3), {"padding": 1}),
    "grouped": ((8, 32, 24, 24), (32, 8, 3, 3), {"padding": 1, "groups": 4}),
    "depthwise": ((8, 64, 32, 32), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    "one image": ((1, 64, 40, 40), (64, 64, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("part", ["conv", "conv_input_grad", "conv_weight_grad"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, part: str) -> None:
    x_shape, w_shape, options = CONVOLUTIONS[name]
    convolve = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(x_shape)]

    def forward(x: Any, w: Any) -> Any:
        return convolve(x, w, **options)

    function = forward if part == "conv" else with_gradients(forward)
    if name == "depthwise" and part == "conv_input_grad":
        part = "conv"  # which that is, too (passes/alone.py)
    same_bits(function, floats(*x_shape), floats(*w_shape), op=part)


# --- writes at data-dependent places ---------------------------------------------------------


def _scatter(reduce: str) -> Function:
    return lambda x, i, s: x.scatter_reduce(0, i, s, reduce)


SCATTERS: dict[str, tuple[str, Function, tuple[Any, ...]]] = {
    "scatter_add rows": (
        "scatter", lambda x, i, s: x.scatter_add(0, i, s),
        (floats(50, 300), integers(50, 700, 300), floats(700, 300)),
    ),
    "scatter_add columns": (
        "scatter", lambda x, i, s: x.scatter_add(1, i, s),
        (floats(300, 50), integers(50, 300, 700), floats(300, 700)),
    ),
    "scatter amax": (
        "scatter", _scatter("amax"),
        (floats(50, 300), integers(50, 700, 300), floats(700, 300)),
    ),
    "index_put": (
        "index_put", lambda x, i, s: x.index_put((i,), s, accumulate=True),
        (floats(64, 300), integers(64, 2000), floats(2000, 300)),
    ),
    "index_put of two": (
        "index_put", lambda x, i, j, s: x.index_put((i, j), s, accumulate=True),
        (floats(16, 16, 300), integers(16, 1500), integers(16, 1500), floats(1500, 300)),
    ),
    "index_add": (
        "index_put", lambda x, i, s: x.index_add(0, i, s),
        (floats(64, 300), integers(64, 2000), floats(2000, 300)),
    ),
    "embedding's gradient": (
        "index_put", with_gradients(lambda w, i: F.embedding(i, w).square()),
        (floats(100, 256), integers(100, 40, 50)),
    ),
    "gather's gradient": (
        "scatter", with_gradients(lambda x, i: x.gather(0, i)),
        (floats(100, 256), integers(100, 500, 256)),
    ),
    "max_pool's gradient": (
        "max_pool_grad", with_gradients(lambda x: F.max_pool2d(x, 3, 1, 1)),
        (floats(8, 16, 30, 30).round(),),
    ),
    "avg_pool's gradient": (
        "window_sum", with_gradients(lambda x: F.avg_pool2d(x, 3, 2, 1)),
        (floats(8, 16, 30, 30),),
    ),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(name: str) -> None:
    op, function, arguments = SCATTERS[name]
    same_bits(function, *arguments, op=op)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
@pytest.mark.parametrize("dim", [0, 1])
def test_running_sums(name: str, dim: int) -> None:
    def function(x: Any) -> Any:
        return tuple(r) if isinstance(r := getattr(x, name)(dim), tuple) else r

    same_bits(function, floats(300, 400) * 0.1 + 1, op=name)


# --- whole training steps --------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).reshape(batch, length, 3, 4, width // 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(graphc.zeros(64, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, i: Any) -> Any:
        return self.head(self.blocks(self.tokens(i) + self.places)).flatten(0, 1)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(0.1),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 8 * 8, 10),
    )


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, Any]]]] = {
    "gpt": (
        lambda: Gpt(200, 64), lambda: (integers(200, 8, 64), integers(200, 8 * 64)),
    ),
    "convolutional": (
        convolutional, lambda: (floats(32, 3, 32, 32), integers(10, 32)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_steps(name: str) -> None:
    make, data = MODELS[name]
    x, y = data()
    results = []
    for threads in THREADS:
        graphc.set_num_threads(threads)
        graphc.manual_seed(1)
        model = make()
        optimizer = graphc.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = graphc.compile(step)
        losses = [run(x, y) for _ in range(4)]
        results.append(bits([*losses, *model.state_dict().values()]))
        if threads == 1:
            steps = explain(run, x, y).steps
            kinds = {s.kind for s in steps if s.cost.chunks > 1}
            assert {"contraction", "rows", "loop"} <= kinds
            assert not any(s.kind == "NumPy" for s in steps if s.name != "rng_bernoulli")
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name", MODELS)
def test_models_in_an_ordinary_loop(name: str) -> None:
    make, data = MODELS[name]
    x, y = data()
    results = []
    for threads in THREADS:
        graphc.set_num_threads(threads)
        graphc.manual_seed(2)
        model = make()
        run = graphc.compile(model)
        F.cross_entropy(run(x), y).backward()
        results.append(bits([p.grad for p in model.parameters()]))
    assert results[0] == results[1] == results[2]
