"""Hooks on, and gradients of gradients through, compiled functions with custom Functions, hooks of
their own and checkpoints: the Python that runs in their backward runs when the tape is unfolded."""

from __future__ import annotations

import importlib
from typing import Any

from tests.graphc.gradient_cases import case, failure, leaf


def cube(torch: Any, detached: bool = False) -> Any:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * (x.detach() if detached else x) ** 2

    return Cube.apply


def checkpointed(torch: Any) -> Any:
    return importlib.import_module(f"{torch.__name__}.utils.checkpoint").checkpoint


def twice(torch: Any, run: Any, x: Any, *more: Any) -> list[Any]:
    """A gradient, and that of its square with regard to x and more."""
    (g,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    return [g.detach(), *torch.autograd.grad((g * g).sum(), (x, *more))]


def inner(torch: Any, run: Any, k: int) -> list[Any]:
    """Gradients of inner results: retained, hooked and asked for. run(x): h, z, loss."""
    x, seen = leaf(torch, 0.5, 2.0 + k), []
    h, z, loss = run(x)
    h.retain_grad()
    z.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    loss.backward(retain_graph=True)
    return [h.grad, *seen, x.grad, *torch.autograd.grad(loss, (h, z, x))]


@case
def double_backward_of_a_custom_function(torch: Any, compile: Any) -> Any:
    found = []
    for detached in (False, True):
        apply = cube(torch, detached)
        run = compile(lambda x, apply=apply: apply(x * 2) * x * x.detach())
        for k in range(3):
            found += twice(torch, run, leaf(torch, 0.5, 1.0 + k))
    return found


@case
def inner_results_of_a_custom_function(torch: Any, compile: Any) -> Any:
    apply = cube(torch)

    def f(x):
        h = x * 2
        z = apply(h)
        return h, z, (z * h).sum()

    run = compile(f)
    return [inner(torch, run, k) for k in range(3)]


@case
def a_context_with_attributes(torch: Any, compile: Any) -> Any:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k, name):
            ctx.x, ctx.k, ctx.shape = x, k, x.shape
            ctx.more = {"double": x * 2, "list": [1, name]}
            return x * x * k

        @staticmethod
        def backward(ctx, g):
            assert g.shape == ctx.shape and ctx.more["list"][1] == "a"
            return g * ctx.x * ctx.k + ctx.more["double"] * ctx.more["list"][0], None, None

    run = compile(lambda x, k: Scaled.apply(x.sin(), k, "a") * x)
    found = []
    for i in range(6):  # other sizes, another number
        x = torch.linspace(-1, 1, 3 + i % 3, dtype=torch.float64, requires_grad=True)
        found += twice(torch, lambda x, i=i: run(x, 2.0 + (i > 3)), x)
    return found


@case
def a_result_that_is_saved_and_one_that_is_not_asked_for(torch: Any, compile: Any) -> Any:
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            e = x.exp()
            ctx.save_for_backward(e)
            return e, x * 3

        @staticmethod
        def backward(ctx, a, b):
            (e,) = ctx.saved_tensors
            assert (a is None) != (b is None)
            return a * e if b is None else b * 3

    run = compile(lambda x: Both.apply(x * x))
    found = []
    for k in range(4):
        found += twice(torch, lambda x, k=k: run(x)[k % 2], leaf(torch, 0.5, 1.0))
    return found


@case
def results_that_are_no_tensors(torch: Any, compile: Any) -> Any:
    """backward gets None in their places."""
    seen = []

    class Several(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return None, x * x, "name", [x * 3], x.sum()

        @staticmethod
        def backward(ctx, none, square, name, inner, total):
            seen.append((none, name, inner))
            return square * 2 * ctx.saved_tensors[0] + total

    x = leaf(torch, 0.5, 2.0)
    _, square, name, (inner,), total = Several.apply(x)
    (square.sum() + 2 * total).backward()
    found = [name == "name", inner.requires_grad, x.grad.clone()]

    def f(x):
        return Several.apply(x)[1].sum() * x

    run = compile(f)
    for _ in range(2):
        x.grad = None
        run(x).sum().backward()
        found.append(x.grad.clone())
    return [*found, all(each == (None, None, None) for each in seen)]


@case
def a_function_with_a_weight(torch: Any, compile: Any) -> Any:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(x, w):
            return x @ w

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g @ w.t(), x.t() @ g

    w = torch.eye(2, dtype=torch.float64).mul_(1.5).requires_grad_()
    run = compile(lambda x: Product.apply(Product.apply(x, w).tanh(), w))
    found = []
    for k in range(3):
        x = leaf(torch, 0.5, 1.0 + k).detach().view(1, 2).requires_grad_()
        found += twice(torch, run, x, w)
    return found


@case
def once_differentiable(torch: Any, compile: Any) -> Any:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    run = compile(lambda x: Square.apply(x * 2) * x)
    found = []
    for k in range(3):
        x = leaf(torch, 0.5, 1.0 + k)
        found += twice(torch, run, x)  # with regard to x alone: what it gave ends there
        (g,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        found.append("once_differentiable" in str(failure(g.sum().backward)))
    return found


@case
def a_hook_inside(torch: Any, compile: Any) -> Any:
    def f(x):
        h = x * 2
        h.register_hook(lambda g: g * g.detach())
        z = h.sin()
        return h, z, (z * h).sum()

    run, found = compile(f), []
    for k in range(3):
        x = leaf(torch, 0.5, 2.0 + k)
        h, z, loss = run(x)
        z.retain_grad()
        h.retain_grad()
        loss.backward()
        found += [h.grad, z.grad, x.grad, *twice(torch, lambda x: run(x)[2], x)]
    return found


@case
def checkpoints(torch: Any, compile: Any) -> Any:
    checkpoint, found = checkpointed(torch), []
    for reentrant in (False, True):
        w = leaf(torch, 0.5, 0.25)

        def f(x, w=w, reentrant=reentrant):
            h = x * 2
            z = checkpoint(lambda h: torch.tanh(h * w) * h, h, use_reentrant=reentrant)
            return h, z, (z * z * h).sum()

        run = compile(f)
        for k in range(3):
            x, seen = leaf(torch, 0.5, 2.0 + k), []
            h, z, loss = run(x)
            h.retain_grad()
            z.register_hook(lambda g, seen=seen: seen.append(g.clone()) or g * 2)
            loss.backward()
            found += [h.grad, *seen, x.grad, w.grad.clone()]
            if not reentrant:  # the other refuses grad()
                found += inner(torch, run, k)
                found += twice(torch, lambda x, run=run: run(x)[2], x, w)
    return found


@case
def a_checkpoint_with_dropout(torch: Any, compile: Any) -> Any:
    checkpoint, drop, found = checkpointed(torch), torch.nn.Dropout(0.5), []

    def f(x):
        h = checkpoint(lambda x: drop(x * 2).tanh(), x * 1.0, use_reentrant=False)
        return h, (h * x).sum()

    run = compile(f)
    for _ in range(4):
        x = torch.linspace(-1, 1, 8, dtype=torch.float64, requires_grad=True)
        h, loss = run(x)
        h.retain_grad()
        loss.backward()
        found += [h, h.grad, x.grad, torch.rand(1)]
    return found


@case
def a_loop_of_any_length(torch: Any, compile: Any) -> Any:
    """An LSTM is a scan, whose number of steps is another at each call."""
    net = torch.nn.LSTM(3, 4, dtype=torch.float64)
    with torch.no_grad():
        for i, weight in enumerate(net.parameters()):
            weight.copy_(torch.linspace(-1, 1, weight.numel(), dtype=torch.float64).sin()
                         .reshape(weight.shape) / (i + 1))

    def f(x):
        h, (last, _) = net(x * 1.0)
        return h, (h * h).sum() + last.sum()

    run, found = compile(f), []
    for length in (3, 5, 7, 4):
        x = torch.linspace(-1, 1, length * 6, dtype=torch.float64).reshape(length, 2, 3)
        x.requires_grad_()
        net.zero_grad()
        h, loss = run(x)
        h.retain_grad()
        loss.backward()
        found += [h.grad, x.grad.clone(), *(w.grad.clone() for w in net.parameters())]
        (slope,) = torch.autograd.grad(run(x)[1], x, create_graph=True)
        (slope * slope).sum().backward()
        found += [slope, x.grad]
    return found
