"""Values and gradients far out, in dtypes seldom met, and what torch refuses: as torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

inf, nan = float("inf"), float("nan")
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
FAR = [inf, -inf, 1e30, -1e30, -100.0, 100.0, -17.0, -30.0, -9.0, -3.5, 3.5, -0.25, 0.7]


def _gradients(t: Any, name: str, dtype: Any, compiled: bool) -> list[Any]:
    """The result, its gradient, and that one's."""
    x = t.tensor(FAR, dtype=dtype, requires_grad=True)
    function = getattr(t.nn.functional, name)
    result = (graphc.compile(function) if compiled else function)(x)
    first, = t.autograd.grad(result.sum(), x, create_graph=True)
    second, = t.autograd.grad(first.sum(), x)
    return [each.detach().numpy() for each in (result, first, second)]


@COMPILED
@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_far_below_0(name: str, dtype: str, compiled: bool) -> None:
    """They are no less exact than the numbers: of the result, nothing would be left of them."""
    ours, wanted = (
        _gradients(t, name, getattr(t, dtype), compiled and t is graphc) for t in (graphc, torch)
    )
    for found, right in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("rows", [20000, 1000000])
def test_means_of_many_losses(rows: int) -> None:
    x, classes = graphc.full((rows, 5), 0.1), graphc.arange(rows) % 5
    loss = graphc.nn.functional.cross_entropy
    np.testing.assert_allclose(loss(x, classes).item(), np.log(5), rtol=1e-5)
    np.testing.assert_allclose(
        graphc.nn.functional.nll_loss(-x, classes).item(), np.float32(0.1), rtol=1e-5
    )
    image = x.t().reshape(1, 5, rows)
    np.testing.assert_allclose(
        loss(image, classes.reshape(1, rows)).item(), np.log(5), rtol=1e-5
    )


LAYOUTS: dict[str, Callable[[Any, int], Any]] = {
    "rows": lambda make, n: make(n, 3), "turned": lambda make, n: make(3, n).t(),
    "cut out of wider rows": lambda make, n: make(n, 5)[:, :3],
    "every other row": lambda make, n: make(2 * n, 3)[::2],
    "twice": lambda make, n: make(n, 2, 5)[..., :3],
    "the first of more rows": lambda make, n: make(3, n + 50)[:, :n].t(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1500, 5000, 21000, 70000])
@pytest.mark.parametrize("value", [0.1, 12345.678])
def test_columns_of_one_number(rows: int, value: float, layout: str) -> None:
    """Rows that are added one after the other would each add an error of one sign."""
    x = LAYOUTS[layout](lambda *sizes: graphc.full(sizes, value), rows)
    exact = float(np.float32(value)) * rows
    np.testing.assert_allclose(x.sum(0).numpy(), exact, rtol=2e-5)
    np.testing.assert_allclose(x.sum((0, -1)).numpy(), 3 * exact, rtol=2e-5)
    spread = x.std(0)
    np.testing.assert_array_equal(spread.numpy(), np.zeros_like(spread.numpy()))


@COMPILED
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8"])
@pytest.mark.parametrize("number", [1, 3, 0.1, -2.7, True])
def test_number_over_tensor(number: Any, dtype: str, compiled: bool) -> None:
    """A reciprocal, times the number: not the nearest to the quotient."""
    def run(t: Any, compiled: bool) -> list[Any]:
        x = t.arange(1, 200).to(getattr(t, dtype))
        if not x.is_floating_point():
            call: Any = lambda x: (number / x,)  # noqa: E731
        else:
            x.requires_grad_()

            def call(x: Any) -> Any:
                y = number / x
                return y, t.autograd.grad(y.sum(), x)[0]

        found = (graphc.compile(call) if compiled else call)(x)
        return [each.detach().double().numpy() for each in found]

    for found, right in zip(run(graphc, compiled), run(torch, False), strict=True):
        np.testing.assert_array_equal(found, right)


@COMPILED
@pytest.mark.parametrize("equation, shapes", [
    ("ij,jk->ik", [(2, 1), (1, 3)]), ("ij,jk->ik", [(2, 1), (4, 3)]), ("ij,ij->", [(2, 1), (2, 3)]),
    ("ij,jk->ik", [(2, 4), (1, 3)]), ("bij,bjk->ik", [(3, 2, 1), (1, 4, 3)]),
    ("ij,j->i", [(2, 3), (1,)]), ("ab,ab,b->a", [(2, 1), (1, 3), (3,)]),
])
@pytest.mark.parametrize("kinds", [
    ("float32",) * 3, ("float64", "float32", "float32"), ("int64", "float32", "int64"),
    ("bfloat16", "float32", "float64"),
])
def test_einsum_along_one(
    equation: str, shapes: list[Any], kinds: tuple[str, ...], compiled: bool
) -> None:
    """What is summed along a dim of one element meets other dtypes elementwise."""
    def run(t: Any, compiled: bool) -> Any:
        given = [
            (t.arange(float(np.prod(shape))) + 1).reshape(shape).to(getattr(t, kind))
            for shape, kind in zip(shapes, kinds, strict=False)
        ]
        call: Any = lambda *xs: t.einsum(equation, *xs)  # noqa: E731
        try:
            found = (graphc.compile(call) if compiled else call)(*given)
        except RuntimeError:
            return "refused"
        return str(found.dtype).split(".")[1], found.double().numpy().tolist()

    assert run(graphc, compiled) == run(torch, False)


def _ints(t: Any, *values: int) -> Any:
    return t.tensor(values)


def _at_places(t: Any, value: Callable[[Any], Any]) -> None:
    x = t.arange(6.0)
    x[t.tensor([1, 2, 3])] = value(x)


def _out(t: Any, name: str, dtype: Any) -> Any:
    out = t.empty(0, dtype=dtype)
    return (out, t.empty(0, dtype=t.int64)) if name == "sort" else out


REFUSED: dict[str, Callable[[Any], Any]] = {
    **{
        f"{name} of integers": lambda t, name=name: getattr(t, name)(
            _ints(t, 1, 2), _ints(t, 2, 3))
        for name in ("hypot", "logaddexp", "logaddexp2", "nextafter")
    },
    "logaddexp of bools": lambda t: t.logaddexp(t.tensor([True]), t.tensor([False])),
    "heaviside of two dtypes": lambda t: t.heaviside(_ints(t, 0), t.tensor([0.5])),
    "cumsum_ of bools": lambda t: t.tensor([True, False]).cumsum_(0),
    "cumprod_ of bools": lambda t: t.tensor([True, False]).cumprod_(0),
    "cumsum_ in another dtype": lambda t: _ints(t, 1, 2).cumsum_(0, dtype=t.float32),
    "hardtanh of bytes": lambda t: t.nn.functional.hardtanh(_ints(t, 0, 5).to(t.uint8)),
    "hardtanh of bools": lambda t: t.nn.functional.hardtanh(t.tensor([True])),
    "a tensor at its own places": lambda t: _at_places(t, lambda x: x[:3]),
    "a tensor at its own places, turned": lambda t: _at_places(t, lambda x: x.flip(0)[3:][:0] + x),
    "nanmean of integers": lambda t: t.nanmean(_ints(t, 1, 2), dtype=t.float32),
    "betas of two kinds": lambda t: t.optim.Adam([t.zeros(2)], betas=(0, 0.9)),
    **{
        f"a fused {name} that is {other}": lambda t, name=name, other=other: getattr(t.optim, name)(
            [t.nn.Parameter(t.zeros(2))], lr=0.1, fused=True, **{other: True})
        for name in ("SGD", "Adagrad", "Adam", "AdamW") for other in ("foreach", "differentiable")
    },
    "einsum of two dtypes": lambda t: t.einsum(
        "ij,jk->ik", t.ones(2, 2), t.ones(2, 3, dtype=t.float64)),
    **{
        f"{name} out={kind}": lambda t, name=name, kind=kind: getattr(t, name)(
            t.tensor([[1.0, 2.0], [3.0, 4.0]]), *((1,) if name[:1] == "a" else ()),
            out=_out(t, name, getattr(t, kind)))
        for name in ("floor", "sign", "neg", "argmax", "amax", "any", "all", "sort")
        for kind in ("float64", "float16", "int64") if (name, kind) != ("argmax", "int64")
    },
}


@COMPILED
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, compiled: bool) -> None:
    call = lambda: REFUSED[name](graphc)  # noqa: E731
    with pytest.raises(Exception) as wanted:
        REFUSED[name](torch)
    with pytest.raises(wanted.type):
        (graphc.compile(call) if compiled else call)()


@COMPILED
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
@pytest.mark.parametrize("given, kind", [
    ("float32", "int64"), ("float32", "float64"), ("float32", "float16"), ("int64", "int32"),
    ("int64", "float32"), ("float64", "uint8"), ("bool", "int16"),
])
def test_sums_in_the_dtype_of_out(name: str, given: str, kind: str, compiled: bool) -> None:
    def run(t: Any, compiled: bool) -> Any:
        def call(x: Any) -> Any:
            out = t.empty((2,) if name in ("sum", "prod") else (2, 3), dtype=getattr(t, kind))
            return getattr(t, name)(x, 1, out=out)

        x = t.tensor([[1.5, 2.75, 3.1], [0.5, 4.5, 1.3]]).to(getattr(t, given))
        found = (graphc.compile(call) if compiled else call)(x)
        assert found.dtype is getattr(t, kind)
        return found.double().numpy()

    np.testing.assert_allclose(run(graphc, compiled), run(torch, False), rtol=1e-7)


@COMPILED
@pytest.mark.parametrize("kind", [None, "float16", "float64"])
def test_nanmean_in_another_dtype(kind: str | None, compiled: bool) -> None:
    for t in (graphc, torch):
        dtype = None if kind is None else getattr(t, kind)
        call: Any = lambda x, t=t, dtype=dtype: t.nanmean(x, 1, dtype=dtype)  # noqa: E731
        x = t.tensor([[1.0, nan, 4.0], [nan, nan, nan], [1.0, 2.0, 6.0]])
        found = (graphc.compile(call) if compiled and t is graphc else call)(x)
        assert found.dtype is (dtype or t.float32)
        np.testing.assert_array_equal(found.float().numpy(), [2.5, nan, 3.0])


@pytest.mark.parametrize("divide", [
    lambda x, y: x // y, lambda x, y: x % y, lambda x, y: x.fmod(y),
    lambda x, y: x.div(y, rounding_mode="trunc"),
])
def test_division_by_zero_that_a_callee_catches(divide: Callable[[Any, Any], Any]) -> None:
    """Also where the function runs in segments, the callee's clause has long been left."""
    def careful(x: Any, y: Any) -> Any:
        try:
            return divide(x, y)
        except RuntimeError:
            return x + 100

    def call(x: Any, y: Any) -> Any:
        __import__("math")  # ends a graph
        return careful(x, y) * 2

    compiled = graphc.compile(call)
    for divisors in ([0, 4], [3, 4], [3, 0]):
        given = [graphc.tensor([7, 9] * 4000), graphc.tensor(divisors * 4000)]
        assert compiled(*given).tolist() == call(*given).tolist()
