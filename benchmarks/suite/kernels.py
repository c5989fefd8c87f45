"""Single kernels: pointwise chains, rows, columns, products, attention, convolutions, updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from workloads import BATCHES, Arrays, Work, Workload, numbers

F32 = 4  # bytes of a number
LOW = "low precision"  # the family: every engine computes on the same halves or small integers


def kernel(
    name: str,
    function: Callable[..., Any],
    inputs: Callable[[int], Arrays],
    jax: Callable[..., Any] | None,
    **facts: Any,
) -> Workload:
    """A row whose work is `function(space, *tensors)` and, on JAX, `jax(jax, *arrays)`."""

    def make(space: SimpleNamespace) -> Work:
        class Kernel(space.nn.Module):  # type: ignore[name-defined, misc]
            def forward(self, *tensors: Any) -> Any:
                return function(space, *tensors)

        module = Kernel()
        return Work(module.forward, module)

    twin = None if jax is None else lambda package, _: lambda *arrays: jax(package, *arrays)
    return Workload(name, "kernel", make, inputs, jax=twin, exports=True, **facts)


def pointwise(count: int, **facts: Any) -> Workload:
    """gelu(1.5 x + y) y over `count` numbers."""
    return kernel(
        f"gelu chain {count}",
        lambda s, x, y: s.F.gelu(x * 1.5 + y) * y,
        numbers((count,), (count,)),
        lambda j, x, y: j.nn.gelu(x * 1.5 + y, approximate=False) * y,
        bytes=3 * F32 * count, **facts,
    )


def softmax(rows: int, columns: int, **facts: Any) -> Workload:
    return kernel(
        f"softmax {rows}x{columns}", lambda s, x: s.F.softmax(x, -1), numbers((rows, columns)),
        lambda j, x: j.nn.softmax(x, -1), bytes=2 * F32 * rows * columns, **facts,
    )


def layer_norm(rows: int, columns: int, **facts: Any) -> Workload:
    def on_jax(j: Any, x: Any, w: Any, b: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * j.lax.rsqrt(variance + 1e-5) * w + b

    return kernel(
        f"layer_norm {rows}x{columns}",
        lambda s, x, w, b: s.F.layer_norm(x, (columns,), w, b),
        numbers((rows, columns), (columns,), (columns,)), on_jax,
        bytes=2 * F32 * rows * columns, **facts,
    )


def sums(axis: int, rows: int, columns: int, **facts: Any) -> Workload:
    return kernel(
        f"{'row' if axis else 'column'} sums {rows}x{columns}",
        lambda s, x: x.sum(axis), numbers((rows, columns)), lambda j, x: x.sum(axis),
        bytes=F32 * rows * columns, **facts,
    )


def matmul(m: int, k: int, n: int, batch: int = 0, **facts: Any) -> Workload:
    lead = (batch,) if batch else ()
    return kernel(
        f"matmul {f'{batch} of ' if batch else ''}{m}x{k}x{n}",
        lambda s, a, b: a @ b, numbers((*lead, m, k), (*lead, k, n)), lambda j, a, b: a @ b,
        flops=2.0 * (batch or 1) * m * k * n,
        bytes=F32 * (batch or 1) * (m * k + k * n + m * n), **facts,
    )


def linear_gelu(m: int, k: int, n: int, **facts: Any) -> Workload:
    return kernel(
        f"linear gelu {m}x{k}x{n}",
        lambda s, x, w, b: s.F.gelu(s.F.linear(x, w, b)),
        numbers((m, k), (n, k), (n,), scale=0.1),
        lambda j, x, w, b: j.nn.gelu(x @ w.T + b, approximate=False),
        flops=2.0 * m * k * n, **facts,
    )


def attention(
    batch: int, heads: int, length: int, width: int, gradients: bool = False, **facts: Any
) -> Workload:
    """Causal; with gradients: of the three inputs, for a given gradient of the result."""

    def on_jax(j: Any, q: Any, k: Any, v: Any) -> Any:
        scores = j.numpy.einsum("bhqe,bhke->bhqk", q, k) * width**-0.5
        seen = j.numpy.tril(j.numpy.ones((length, length), bool))
        weights = j.nn.softmax(j.numpy.where(seen, scores, -j.numpy.inf), -1)
        return j.numpy.einsum("bhqk,bhke->bhqe", weights, v)

    def back_on_jax(j: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
        return j.vjp(lambda *inputs: on_jax(j, *inputs), q, k, v)[1](g)

    def forward(s: SimpleNamespace, q: Any, k: Any, v: Any) -> Any:
        return s.F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def back(s: SimpleNamespace, q: Any, k: Any, v: Any, g: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        with s.torch.enable_grad():
            return s.torch.autograd.grad(forward(s, *leaves), leaves, g)

    shape = (batch, heads, length, width)
    flops = 4.0 * batch * heads * length * length * width / 2
    name = f"attention {batch}x{heads}x{length}x{width}"
    if gradients:
        row = kernel(f"{name} gradients", back, numbers(*[shape] * 4), back_on_jax,
                     flops=3.5 * flops, **facts)
        return _not_exported(row)
    return kernel(name, forward, numbers(*[shape] * 3), on_jax, flops=flops, **facts)


def convolution(
    batch: int, channels: int, size: int, outputs: int, window: int, stride: int = 1,
    groups: int = 1, **facts: Any,
) -> Workload:
    """Square images, padding that keeps their size at stride 1, no bias."""
    padding = window // 2
    name = f"conv {batch}x{channels}x{size} to {outputs} {window}x{window}"
    name += f" stride {stride}" * (stride > 1) + f" groups {groups}" * (groups > 1)
    after = (size + 2 * padding - window) // stride + 1

    def on_jax(j: Any, x: Any, w: Any) -> Any:
        return j.lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups
        )

    return kernel(
        name,
        lambda s, x, w: s.F.conv2d(x, w, None, stride, padding, 1, groups),
        numbers((batch, channels, size, size), (outputs, channels // groups, window, window)),
        on_jax,
        flops=2.0 * batch * outputs * after**2 * (channels // groups) * window**2,
        convolves=True, **facts,
    )


def embedding_gradient(tokens: int, words: int, width: int, **facts: Any) -> Workload:
    def inputs(call: int) -> Arrays:
        rng = np.random.default_rng(call % BATCHES)
        return rng.integers(0, words, tokens), rng.standard_normal((tokens, width), np.float32)

    def function(s: SimpleNamespace, index: Any, g: Any) -> Any:
        weight = s.torch.zeros(words, width, requires_grad=True)
        with s.torch.enable_grad():
            (found,) = s.torch.autograd.grad(s.F.embedding(index, weight), [weight], g)
        return found

    row = kernel(
        f"embedding gradient {tokens} of {words}x{width}", function, inputs,
        lambda j, index, g: j.numpy.zeros((words, width), g.dtype).at[index].add(g),
        bytes=F32 * (words + tokens) * width, **facts,
    )
    return _not_exported(row)


def cross_entropy(rows: int, classes: int, **facts: Any) -> Workload:
    """The loss and the gradient of the logits."""

    def inputs(call: int) -> Arrays:
        rng = np.random.default_rng(call % BATCHES)
        return rng.standard_normal((rows, classes), np.float32), rng.integers(0, classes, rows)

    def function(s: SimpleNamespace, x: Any, target: Any) -> Any:
        leaf = x.detach().requires_grad_()
        with s.torch.enable_grad():
            loss = s.F.cross_entropy(leaf, target)
            return loss, *s.torch.autograd.grad(loss, [leaf])

    def on_jax(j: Any, x: Any, target: Any) -> Any:
        def loss(x: Any) -> Any:
            return -j.numpy.take_along_axis(j.nn.log_softmax(x, -1), target[:, None], 1).mean()

        return j.value_and_grad(loss)(x)

    row = kernel(f"cross_entropy gradients {rows}x{classes}", function, inputs, on_jax,
                 bytes=2 * F32 * rows * classes, **facts)
    return _not_exported(row)


def adam(tensors: int, each: int, **facts: Any) -> Workload:
    """One update by Adam of parameters whose gradients are given."""

    def make(space: SimpleNamespace) -> Work:
        space.torch.manual_seed(0)
        parameters = [space.nn.Parameter(space.torch.randn(each)) for _ in range(tensors)]
        options = {"fused": True} if space.torch.__name__ == "torch" else {}
        optimizer = space.optim.Adam(parameters, lr=1e-3, **options)

        def step(*gradients: Any) -> Any:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
            return parameters[0].detach()

        return Work(step)

    return Workload(
        f"Adam {tensors} of {each}", "kernel", make, numbers(*[(each,)] * tensors),
        bytes=7.0 * F32 * tensors * each, **facts,
    )


def int8_matmul(m: int, k: int, n: int) -> Workload:
    """int8 numbers, their products summed in int32."""

    def inputs(call: int) -> Arrays:
        rng = np.random.default_rng(call % BATCHES)
        shapes = ((m, k), (k, n))
        return tuple(rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes)

    row = kernel(
        f"int8 matmul {m}x{k}x{n}", lambda s, a, b: s.torch._int_mm(a, b), inputs,
        lambda j, a, b: j.lax.dot(a, b, preferred_element_type=j.numpy.int32),
    )
    return replace(row, family=LOW, exports=False)


def _bfloat16(row: Workload) -> Workload:
    """The same work on bfloat16 numbers; a share of float32's limits says nothing of it."""
    return replace(row, name=f"bfloat16 {row.name}", family=LOW, dtype="bfloat16",
                   exports=False, flops=0.0, bytes=0.0)


def _not_exported(row: Workload) -> Workload:
    return replace(row, exports=False)


ROWS = [
    pointwise(4096), pointwise(1 << 24),
    softmax(4096, 1024), layer_norm(4096, 1024), sums(1, 4096, 1024), sums(0, 4096, 1024),
    cross_entropy(4096, 1000),
    *(matmul(n, n, n) for n in (64, 128, 256, 512, 1024, 2048)),
    matmul(1, 4096, 4096), matmul(8, 4096, 4096), matmul(4096, 64, 4096),
    matmul(64, 4096, 64), matmul(128, 64, 128, batch=64),
    linear_gelu(512, 768, 3072),
    attention(4, 8, 512, 64), attention(4, 8, 512, 64, gradients=True),
    convolution(8, 64, 56, 64, 3), convolution(8, 256, 28, 128, 1),
    convolution(8, 128, 56, 128, 3, groups=128), convolution(8, 3, 224, 64, 7, stride=2),
    embedding_gradient(8192, 50257, 256), adam(10, 1_000_000),
    _bfloat16(matmul(1024, 1024, 1024)), _bfloat16(matmul(1, 4096, 4096)),
    _bfloat16(linear_gelu(512, 768, 3072)), _bfloat16(attention(4, 8, 512, 64)),
    _bfloat16(convolution(8, 64, 56, 64, 3)), _bfloat16(softmax(4096, 1024)),
    _bfloat16(layer_norm(4096, 1024)), _bfloat16(pointwise(1 << 24)),
    int8_matmul(1024, 1024, 1024),
]
