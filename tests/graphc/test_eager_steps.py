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
SEVERAL = {"where", "clamp"}  # operands
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
@pytest.mark.parametrize("name", sorted(eager_rows._STEPPED.keys() - SEVERAL))
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
            assert found(x, out) is out
            assert out.tobytes() == right.tobytes(), (attrs, x[out != right], out[out != right])


@pytest.mark.parametrize("dtype", ["f", "d", "l"])
@pytest.mark.parametrize("alone", [(), (1,), (2,), (1, 2)])
def test_choices_have_numpys_bits(
    dtype: str, alone: tuple[int, ...], code: steps_code.Code
) -> None:
    """where() and clamp(), some of whose operands are one number."""
    for name, first in (("where", "?"), ("clamp", dtype)):
        function = plain(TABLE[name])
        for count in (1, 5, 14, CHUNK + 3):
            rng = np.random.default_rng(count)
            odd = np.array(ODD) if dtype != "l" else np.arange(-7, 7)
            with np.errstate(all="ignore"):
                picked = [rng.permutation(np.resize(odd, count)) for _ in range(3)]
                given = [p.astype(first if i == 0 else dtype) for i, p in enumerate(picked)]
            for i in alone:
                given[i] = given[i][:1].reshape(())
            kinds = tuple([(a.dtype.char, a.ndim == 0) for a in given])
            found = code.function(name, function, kinds, count)
            if found is None:
                assert name == "clamp" and dtype == "l"
                continue
            right, out = function(*given), np.full(count, 77, dtype)
            assert found(*given, out) is out
            assert out.tobytes() == right.tobytes(), (name, given, out, right)


def test_choices_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = pytest.importorskip("torch")

    def outcomes(engine: Any) -> list[Any]:
        a, n = engine.arange(6.0).reshape(2, 3), engine.arange(6).reshape(2, 3)
        odd = engine.tensor([[0.0, -0.0, float("nan")], [float("inf"), -float("inf"), 3.0]])
        mask, found = a > 2, []
        leaf = engine.ones(2, 3, requires_grad=True)
        for _ in range(4):
            turned = a.t().contiguous().t()
            for x in (a, odd, odd.double(), odd.half(), n, turned, odd[:, ::2], odd[:0]):
                m = mask if x.shape == mask.shape else x > 1
                found += [
                    engine.where(m, x, x * 2), engine.where(m, x, 0.5), engine.where(m, 1, x),
                    engine.where(m, x, n[0, 0]), engine.where(m[:1], x, x.double()),
                    engine.sign(x), x.clamp(0, 1), x.clamp(min=1), engine.rsqrt(x),
                    engine.where(m.any(), x, x.neg()),
                ]
            loss = engine.where(mask, leaf, a).clamp(0, 2).rsqrt().sum()
            loss.backward()
            found.append(leaf.grad)
            with engine.no_grad():
                assert not engine.where(mask, leaf, a).requires_grad
            assert engine.where(mask, leaf, a).grad_fn.name() == "WhereBackward0"
            out = engine.empty(0)
            found.append(engine.where(mask, a, odd, out=out))
        return [
            (str(f.dtype).split(".")[-1], tuple(f.shape), f.stride(), repr(f.tolist()))
            for f in found
        ]

    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    monkeypatch.setattr(eager_rows, "native", eager_rows.Native())
    assert outcomes(torch) == outcomes(reference)


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
        assert found(x, np.empty(4)).tolist() == function(x).tolist()
