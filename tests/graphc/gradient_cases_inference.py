"""Inference tensors: made in inference mode, eager or compiled, and what may be done with them.

PyTorch writes to one first and raises then; here nothing is written.
"""

from __future__ import annotations

from typing import Any

from tests.graphc.gradient_cases import case, failure, leaf

WRITE = "Inplace update to inference tensor outside InferenceMode is not allowed"
SAVED = "Inference tensors cannot be saved for backward"


@case
def a_call_in_each_mode(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: x * 2), []
    x = leaf(torch, 1.0, 2.0)
    for _ in range(3):
        with torch.inference_mode():
            y = run(x)
        found += [y.clone(), y.is_inference(), torch.is_inference(y), y.requires_grad]
        found += [failure(lambda y=y: y.add_(1), WRITE), failure(lambda y=y: y * x, SAVED)]
        found.append((y + x).requires_grad)
        y = run(x)
        found += [y.is_inference(), y.requires_grad]
        with torch.no_grad():
            y = run(x)
        found += [y.is_inference(), y.requires_grad, y.add_(1)]
    return found


@case
def inference_mode_inside(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        with torch.inference_mode():
            y = x * 2
            views = y[:1], y.view(2, 1)
        return y, *views, y.is_inference(), torch.is_inference_mode_enabled(), x + 1

    run, found = compile(f), []
    for _ in range(3):
        *tensors, inside, enabled, z = run(leaf(torch, 1.0, 2.0))
        found += [(t.clone(), t.is_inference(), t.requires_grad) for t in (*tensors, z)]
        found += [inside, enabled, failure(lambda t=tensors[1]: t.mul_(2), WRITE)]
    return found


@case
def inference_mode_inside_and_a_value(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        with torch.inference_mode():
            y = x * 2
        if y.sum().item() > 100:
            return y, x
        return y, x * 3

    run, found = compile(f), []
    for _ in range(3):
        y, z = run(leaf(torch, 1.0, 2.0))
        found += [y, y.is_inference(), z.is_inference(), z.requires_grad]
    return found


@case
def an_inference_tensor_as_argument(torch: Any, compile: Any) -> Any:
    product, total = compile(lambda y, w: (y * w).sum()), compile(lambda y, w: (y + w).sum())
    with torch.inference_mode():
        y = torch.ones(2, dtype=torch.float64)
    w, found = leaf(torch, 1.0, 2.0), []
    for _ in range(2):
        found += [failure(lambda: product(y, w), SAVED), product(y.clone(), w).requires_grad]
        found += [total(y, w).requires_grad, product(torch.ones(2, dtype=torch.float64), w)]
        with torch.no_grad():
            found += [product(y, w), product(y, w).is_inference()]
    return found


@case
def a_write_to_an_argument(torch: Any, compile: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        y.add_(x)
        return y

    run, found = compile(f), []
    one = torch.ones(2)
    for _ in range(2):
        with torch.inference_mode():
            y = torch.ones(2)
            found += [run(one, y).clone(), run(one, y) is y, y.is_inference()]
        found += [failure(lambda y=y: run(one, y), WRITE), run(one, torch.ones(2)).is_inference()]
    return found


@case
def results_that_are_arguments_and_views(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: (x * 2, x[:1], x, x.detach())), []
    x = torch.ones(2)
    with torch.inference_mode():
        y = torch.ones(2)
    for _ in range(2):
        for given in (x, y):
            found += [t.is_inference() for t in run(given)]
            with torch.inference_mode():
                found += [t.is_inference() for t in run(given)]
    return found


@case
def flags_and_copies(torch: Any, compile: Any) -> Any:
    with torch.inference_mode():
        y = torch.ones(2)
        z = torch.ones(2, requires_grad=True)
        inside = y.add_(1) is y, z.requires_grad, (z * 2).requires_grad, y.clone().is_inference()
    kinds = [t.is_inference() for t in (y, y[:1], y.detach(), y.data, y.clone(), y * 2, y.double())]
    setting = "Setting requires_grad=True on inference tensor"
    return inside, kinds, [
        failure(lambda: y.requires_grad_(), setting),
        failure(lambda: torch.nn.Parameter(y), setting),
        failure(lambda: y._version, "do not track version counter"),
        failure(lambda: y.__setitem__(0, 1.0), WRITE),
        failure(lambda: torch.exp(y).add_(1)),
    ]


@case
def numbers_first_met_in_inference_mode(torch: Any, compile: Any) -> Any:
    with torch.inference_mode():
        run = compile(lambda x: torch.nn.functional.dropout(x * 7.25, 0.5) + torch.rand(4))
        first = run(torch.ones(4))
    x = torch.ones(4, requires_grad=True)
    y = run(x) * 7.25
    y.sum().backward()
    return first, y.detach(), x.grad, x.grad.is_inference()


@case
def a_function_that_saves_one(torch: Any, compile: Any) -> Any:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return g * b, g * a

    with torch.inference_mode():
        y = torch.ones(2, dtype=torch.float64)
    run = compile(lambda w: Times.apply(y, w))
    return failure(lambda: run(leaf(torch, 1.0, 2.0)), SAVED)


@case
def modes_within_modes(torch: Any, compile: Any) -> Any:
    def f() -> Any:
        found = []
        with torch.no_grad(), torch.inference_mode(False):
            found.append(torch.is_grad_enabled())
        with torch.inference_mode():
            found += [torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
            with torch.inference_mode(False):
                found += [torch.is_grad_enabled(), torch.ones(2).is_inference()]
            with torch.enable_grad():
                y = leaf(torch, 1.0) * 2
                found += [y.requires_grad, y.is_inference()]
        return found, torch.is_grad_enabled()

    run = compile(f)
    return run(), run()


@case
def decorators(torch: Any, compile: Any) -> Any:
    @torch.inference_mode()
    def f(x: Any) -> Any:
        return x * 2

    run = compile(f)
    results = [run(leaf(torch, 1.0)) for _ in range(2)]
    return [(y.is_inference(), y.requires_grad) for y in results]


@case
def what_is_no_bool(torch: Any, compile: Any) -> Any:
    def f(value: Any) -> Any:
        with torch.set_grad_enabled(value):
            return torch.is_grad_enabled()

    x = torch.ones(2)
    calls = [failure(lambda v=v: compile(f)(v), "must be bool") for v in (1, 0, None, "x", 2.5)]
    calls += [failure(lambda v=v: x.requires_grad_(v), "must be bool") for v in (1, None, "x")]
    return calls, f(True), f(False), x.requires_grad, torch.is_grad_enabled()
