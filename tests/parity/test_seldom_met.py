"""Calls that programs make seldom, and that were not as torch's: eager and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
INF = math.inf


def _written(place: Callable[[Any], Any], value: float) -> Callable[[Any], Any]:
    def call(t: Any) -> Any:
        x = t.zeros(4, dtype=t.float16)
        x[place(t)] = value
        return x

    return call


def _halves(t: Any) -> Any:
    return t.tensor([0.10009765625, 0.8984375, -0.3, 0.9], dtype=t.bfloat16)


CALLS: dict[str, Callable[[Any], Any]] = {
    **{
        f"a large number in half precision, {name}": _written(place, value)
        for value in (-1e9, 70000)
        for name, place in {
            "a slice": lambda t: slice(1, None), "a mask": lambda t: t.tensor([True, False] * 2),
            "an int": lambda t: 1, "positions": lambda t: t.tensor([1]), "all": lambda t: ...,
        }.items()
    },
    **{
        f"{name}, half precision": call for name, call in {
            "threshold": lambda t: t.nn.functional.threshold(_halves(t), 0.1, 0.3).float(),
            "softshrink": lambda t: t.nn.functional.softshrink(_halves(t), 0.1).float(),
            "sinc": lambda t: t.sinc(t.tensor([0.05, 0.3, 1.3, 2.0, 20864], dtype=t.float16)),
            "round to tenths": lambda t: t.round(
                t.tensor([6552.0, 0.05005, 1.35, -2.25, 60000], dtype=t.float16), decimals=1),
            "quotient cut": lambda t: t.div(
                _halves(t), 0.3, rounding_mode="trunc").float(),
        }.items()
    },
    "trapezoid of ends that wrap": lambda t: t.trapezoid(
        t.tensor([[100, 1, 100], [-128, 3, -128]], dtype=t.int8)),
    "trapezoid of large numbers": lambda t: t.trapezoid(
        t.tensor([1e308, 1e308, -1e308], dtype=t.float64), dx=0.5),
    "quantiles from -inf": lambda t: t.quantile(
        t.tensor([-INF, 1.0, 2.0]), t.tensor([0.25, 0.3, 0.4, 0.5])),
    "nanquantiles from -inf": lambda t: t.nanquantile(
        t.tensor([-INF, 1.0, 2.0, math.nan, 4.0]), t.tensor([0.2, 0.3, 0.6])),
    "gradient beside infinity": lambda t: t.gradient(
        t.tensor([1.0, 2, INF, 4, 5, 7]), spacing=2.0)[0],
    "gradient beside NaN": lambda t: t.gradient(t.tensor([1.0, math.nan, 4, 5]), edge_order=2)[0],
    "searchsorted of a float among integers": lambda t: t.searchsorted(t.tensor([1, 2, 3]), 2.5),
    "bucketize of a float among integers": lambda t: t.bucketize(2.5, t.tensor([1, 2, 3])),
    "round to hundreds": lambda t: t.round(
        t.tensor([[29.0, 149, 150, 151, 1e30], [-50, -51, 5.7e3, 1e38, 290050]]), decimals=-2),
    "tensordot of bytes, one broadcast": lambda t: t.tensordot(
        t.ones(1, 1, 1, dtype=t.uint8), t.ones(2, 1, 2, dtype=t.uint8), ((0, 1), (2, 0))),
    "block_diag of a number of another dtype": lambda t: t.block_diag(
        t.tensor(1.0, dtype=t.float64), t.ones(2, 2), t.tensor(3)),
    "view_copy where it copies": lambda t: t.view_copy(
        t.arange(20).reshape(4, 5).t(), (20,)),
    "view_copy as another dtype": lambda t: t.view_copy(t.ones(2), t.int32),
    "a hash's constant": lambda t: (t.arange(5) * 0x9E3779B97F4A7C15) ^ (2**63 + 5),
    "a float beside 2**63": lambda t: t.stack([t.ones(2) * 2**63, t.ones(2) + (2**64 - 1)]),
    "half precision by a number that it does not hold": lambda t: t.stack([
        t.tensor([1.0, 2, 3, -5], dtype=t.float16) // 0.1,
        t.tensor([1.0, 2, 3, -5], dtype=t.float16).floor_divide_(0.3),
    ]),
    "xlogy of integers and a number": lambda t: t.xlogy(t.tensor([1, 2], dtype=t.int32), 2**40),
    "xlogy of a number and integers": lambda t: t.xlogy(2**40, t.tensor([1, 2], dtype=t.int8)),
    "linear_cross_entropy of several losses": lambda t: t.nn.functional.linear_cross_entropy(
        t.arange(12.0).reshape(4, 3) / 9, t.arange(18.0).sin().reshape(2, 3, 3),
        t.arange(12).reshape(4, 3) % 2, linear_bias=t.arange(6.0).reshape(2, 3) / 5,
        weight=t.tensor([0.5, 2.0]), reduction="none"),
    "polygamma beyond what factorials hold": lambda t: t.polygamma(
        255, t.tensor([1.0, 0.5, 2.0], dtype=t.float64)),
    "trapezoid of nothing": lambda t: t.trapezoid(t.ones(2, 0, 3, dtype=t.int32), dim=1),
    "trapezoid of nothing at given places": lambda t: t.trapezoid(t.ones(0, 3), t.ones(0), dim=0),
}


@COMPILED
@pytest.mark.parametrize("name", CALLS)
def test_as_torch(name: str, compiled: bool) -> None:
    wanted = CALLS[name](torch)
    call = lambda: CALLS[name](graphc)  # noqa: E731
    found = (graphc.compile(call) if compiled else call)()
    assert str(found.dtype).split(".")[-1] == str(wanted.dtype).split(".")[-1]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-6)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("correction", [2, 5, 6.5])
def test_more_degrees_than_numbers(correction: float) -> None:
    """One graph for all sizes divides by 0, never by less."""
    x = np.arange(24.0).reshape(8, 3)
    spread = graphc.compile(
        lambda x: (x.var(0, correction=correction), x.std(1, correction=correction)), dynamic=True
    )
    for rows in (7, 3, 2, 8, 5):
        wanted = torch.from_numpy(x[:rows])
        for found, right in zip(spread(graphc.from_numpy(x[:rows])), (
            wanted.var(0, correction=correction), wanted.std(1, correction=correction),
        ), strict=True):
            np.testing.assert_allclose(found.numpy(), right.numpy())


@pytest.mark.parametrize("convert", [
    lambda t, x: x.bfloat16(memory_format=t.contiguous_format),
    lambda t, x: x.to(t.float64, memory_format=t.contiguous_format),
    lambda t, x: x.to(t.float32, copy=True, memory_format=t.contiguous_format),
    lambda t, x: x.long(memory_format=t.preserve_format),
    lambda t, x: x.float(memory_format=t.contiguous_format),
])
def test_strides_of_what_is_converted(convert: Callable[[Any, Any], Any]) -> None:
    found, wanted = (convert(t, t.ones(2, 3).t()).stride() for t in (graphc, torch))
    assert found == wanted


def test_xlogy_of_complex_numbers() -> None:
    for t in (torch, graphc):
        with pytest.raises(NotImplementedError, match="xlogy_cpu"):
            t.xlogy(t.ones(2), 1j)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "addmm of a larger input": lambda t: t.addmm(t.ones(2, 3), t.ones(1, 2), t.ones(2, 3)),
    "addmv of a larger input": lambda t: t.addmv(t.ones(5), t.ones(1, 2), t.ones(2)),
    "addr of a larger input": lambda t: t.addr(t.ones(5, 3), t.ones(1), t.ones(3)),
    "baddbmm of a larger input": lambda t: t.baddbmm(
        t.ones(5, 3, 3), t.ones(1, 3, 3), t.ones(1, 3, 3)),
    "cdist of other columns": lambda t: t.cdist(t.ones(3, 1), t.ones(2, 2)),
    "diagonal_scatter of one": lambda t: t.zeros(3, 3).diagonal_scatter(t.ones(1)),
    "select_scatter of one": lambda t: t.zeros(3, 3).select_scatter(t.ones(1), 0, 0),
    "slice_scatter of one": lambda t: t.zeros(3, 3).slice_scatter(t.ones(1, 3), 0, 0, 2),
    "as_strided_scatter of one": lambda t: t.zeros(3, 3).as_strided_scatter(t.ones(1), (3,), (1,)),
}


@COMPILED
@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_spread_where_torch_refuses(name: str, compiled: bool) -> None:
    with pytest.raises(RuntimeError):
        REFUSED[name](torch)
    call = lambda: REFUSED[name](graphc)  # noqa: E731
    with pytest.raises(RuntimeError):
        (graphc.compile(call) if compiled else call)()


def test_isin_writes_out() -> None:
    for t in (torch, graphc):
        out = t.ones(3, dtype=t.bool)
        found = t.isin(t.arange(3), t.tensor([1]), assume_unique=True, out=out)
        assert found is out and out.tolist() == [False, True, False]


@pytest.mark.parametrize("edges", [[-1e30, 0.0, 1e30], [-math.inf, 0.0, math.inf]])
def test_places_among_edges_whose_squares_overflow(edges: list[float]) -> None:
    """Warnings are errors here."""
    values = [1.0, 2e30, math.nan, -math.inf]
    for right in (False, True):
        found = graphc.searchsorted(graphc.tensor(edges), graphc.tensor(values), right=right)
        wanted = torch.searchsorted(torch.tensor(edges), torch.tensor(values), right=right)
        assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("name", ["unsafe_chunk", "unsafe_split"])
def test_pieces_that_a_compiled_function_gives_have_history(name: str) -> None:
    x = graphc.arange(4.0, requires_grad=True)
    first, second = graphc.compile(lambda x: getattr(graphc, name)(x, 2))(x)
    (first * 2 + second).sum().backward()
    assert x.grad.tolist() == [2, 2, 1, 1]
