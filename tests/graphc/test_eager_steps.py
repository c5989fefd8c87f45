"""Functions of each number by itself, followed and done by native code: NumPy's bits, or NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.host import inner_loops
from graphc.backends.host.steps_text import CHUNK
from graphc.backends.numpy.common import plain
from graphc.backends.numpy.ops import TABLE
from graphc.backends.numpy.recorded import Skip, in_order, recorded
from graphc.engine import eager_rows, steps_code

ATTRS: dict[str, list[dict[str, Any]]] = {
    "softplus": [{"beta": 1.0, "threshold": 20.0}, {"beta": 0.3, "threshold": 2.0}],
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
}
ODD = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, 0.5, 8.0, 25.0, -25.0, 1e300]


@pytest.fixture(scope="module")
def code() -> steps_code.Code:
    found = steps_code.Code()
    if found.function("", np.sin, (("f", False),), 4) is None:
        pytest.skip("no compiler for this machine, or another NumPy")
    return found


def inputs(dtype: str) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        yield np.array(ODD).astype(dtype)
    for size, scale in ((1, 1.0), (7, 0.3), (CHUNK, 3.0), (2 * CHUNK + 5, 30.0)):
        x = rng.standard_normal(size) * scale
        yield x.astype(dtype)  # some stretches are all of one kind, whose steps are left out
        yield np.abs(x).astype(dtype)
        yield np.round(x).astype(dtype)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", eager_rows._STEPPED)
def test_the_bits_are_numpys(name: str, dtype: str, code: steps_code.Code) -> None:
    function = plain(TABLE[name])
    for attrs in ATTRS.get(name, [{}]):
        for x in inputs(dtype):
            done = partial(function, **attrs)
            found = code.function((name, str(attrs)), done, ((dtype, False),), x.size)
            assert found is not None
            with np.errstate(all="ignore"):
                right = np.asarray(done(x))
            out = np.full_like(x, 77)
            assert found[0](x, out) is out
            assert out.tobytes() == right.tobytes(), (attrs, x[out != right], out[out != right])


def test_it_serves_eager_calls(monkeypatch: pytest.MonkeyPatch, code: steps_code.Code) -> None:
    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    monkeypatch.setattr(eager_rows, "native", eager_rows.Native())
    asked: list[str] = []
    right = plain(TABLE["lgamma"])

    def watched(x: Any) -> Any:
        asked.append("NumPy")
        return right(x)

    monkeypatch.setitem(TABLE, "lgamma", watched)
    x = torch.rand(3, 13)  # of a shape that nobody else asks for
    for _ in range(6):
        found = torch.lgamma(x)
        assert found.shape == x.shape and found.stride() == x.stride()
        assert found._graphc_array.tobytes() == right(x._graphc_array).tobytes()
    served = len(asked)
    turned, number = torch.rand(13, 3).t(), torch.tensor(0.3, dtype=torch.float64)
    assert torch.equal(torch.lgamma(turned), torch.lgamma(turned.contiguous()))
    for _ in range(6):
        assert torch.lgamma(number).shape == () and torch.lgamma(torch.rand(0, 2)).shape == (0, 2)
    torch.lgamma(x)
    assert served == 3 and asked.count("NumPy") > served  # held twice, and followed once


def test_where_numpy_is_not_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_loops, "_TYPES", 56)
    assert steps_code.Code().function("", np.sin, (("f", False),), 4) is None


def test_what_is_followed() -> None:
    def first_half(x: Any) -> Any:
        return x[: len(x) // 2]

    def by_value(x: Any) -> Any:
        return np.sin(x) if x[0] > 0 else np.cos(x)

    unknown: list[Callable[..., Any]] = [
        first_half, by_value, lambda x: x, lambda x: x.sum() + x,
        lambda x: x**2, lambda x: np.divmod(x, 2)[0], lambda x: x + np.arange(2.0),
        lambda x: np.add(x, 1, where=False), lambda x: x if (x > 0).all() else -x,
        lambda x: np.ones_like(x), plain(TABLE["bessel_j0"]), lambda x: 1.0,
    ]
    for function in unknown:
        assert recorded(function, np.dtype(np.float64)) is None
    assert recorded(lambda x: x**3 + 1, np.dtype(np.float64)) is not None


def test_a_side_that_nobody_chooses_is_left_out() -> None:
    def function(x: Any) -> Any:
        both = np.exp(x)  # needed for either side
        return np.where(x > 0, np.sin(np.cos(np.sin(np.cos(both)))), both + 1)

    found = recorded(function, np.dtype(np.float64))
    assert found is not None
    recording, result = found
    order = in_order(recording.values, result.number)
    (at,) = [i for i, entry in enumerate(order) if isinstance(entry, Skip)]
    skip = order[at]
    assert isinstance(skip, Skip) and skip.entries == 4 and not skip.number
    names = [
        getattr(recording.values[n].function, "__name__", "")  # type: ignore[union-attr]
        for n in order[at + 1 : at + 5] if isinstance(n, int)
    ]
    assert names == ["cos", "sin", "cos", "sin"] and order[-1] == result.number


def test_writes_are_those_of_numpy(code: steps_code.Code) -> None:
    """In place, to another name of the same array, and to a copy."""
    def function(x: Any) -> Any:
        out = np.full_like(x, 2.0)
        same, other = out, out.copy()
        out *= x
        np.add(same, 1.0, same)
        other[x > 0] = np.sqrt(x[x > 0])
        other[...] = other - out
        return other * same

    x = np.array([-2.0, 0.0, 3.0, 0.25])
    found = code.function("writes", function, (("d", False),), 4)
    assert found is not None
    with np.errstate(all="ignore"):
        assert found[0](x, np.empty(4)).tolist() == function(x).tolist()
