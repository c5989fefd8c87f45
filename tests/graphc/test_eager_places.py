"""gather, topk, max along a dim, scatter_, scatter_add_, cat and stack of few numbers by native
code, again and again: torch's results, histories, versions and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import graphc
from graphc.engine import eager_rows
from graphc.frontend import eager, replayed, written_at
from graphc.frontend.functions import few_joined

torch = pytest.importorskip("torch")
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def loaded(only_the_cpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Native code at hand, and nothing met before."""
    monkeypatch.setattr(eager_rows.native, "_asked", 1 << 40)
    monkeypatch.setattr(written_at, "_writers", {})
    monkeypatch.setattr(few_joined, "_known", {})
    monkeypatch.setattr(replayed, "_known", {})
    monkeypatch.setattr(eager, "_signatures", {})
    if eager_rows.native.function("join", "f", [1, 1, 1]) is None:
        pytest.skip("no compiler for this machine, or another NumPy")
    yield


def told(value: Any) -> Any:
    """All that shows of a result."""
    if isinstance(value, (tuple, list)):
        return [told(v) for v in value]
    if not hasattr(value, "grad_fn"):
        return value
    node = value.grad_fn
    return (
        str(value.dtype).split(".")[-1], tuple(value.shape), value.stride(), repr(value.tolist()),
        value.requires_grad, None if node is None else node.name(), value._version,
    )


def same(work: Callable[[Any], Any], times: int = 5) -> None:
    """Both engines do the same, each time, or raise an error."""

    def outcome(engine: Any) -> Any:
        try:
            return told(work(engine))
        except (RuntimeError, IndexError, TypeError):
            return "an error"

    for _ in range(times):
        assert outcome(graphc) == outcome(torch)


def numbers(engine: Any, dtype: str = "float32") -> Any:
    values = [[0.0, -0.0, 2.0, 2.0], [1.0, -3.0, INF, -INF], [5.0, 4.0, 5.0, 1.0]]
    if "float" not in dtype:
        values = [[3, 1, 2, 2], [7, 7, -7, 0], [5, 4, 5, 1]]
    return engine.tensor(values, dtype=getattr(engine, dtype))


PLACES = {
    "rows": (1, [[0, 3], [2, 2], [1, 0]]), "one": (-1, [[3], [0], [1]]),
    "columns": (0, [[2, 0, 1, 1], [0, 0, 2, 2]]), "columns from the end": (-2, [[1, 1, 0, 2]]),
    "fewer rows": (1, [[3, 1]]), "out of range": (1, [[0], [4], [1]]),
    "negative": (1, [[0], [-1], [1]]), "none": (1, [[], [], []]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bfloat16", "complex64"])
@pytest.mark.parametrize("name", PLACES)
def test_gather(name: str, dtype: str) -> None:
    dim, places = PLACES[name]

    def work(engine: Any) -> Any:
        x, index = numbers(engine, dtype), engine.tensor(places, dtype=engine.int64)
        turned = x.t().contiguous().t()
        return [x.gather(dim, index), engine.gather(turned, dim, index),
                x[:, ::1].gather(dim, index.t().contiguous().t())]

    same(work)


def test_gather_has_a_history() -> None:
    def work(engine: Any) -> Any:
        w = numbers(engine).requires_grad_()
        index = engine.tensor([[0, 3], [2, 2], [1, 0]])
        out = w.gather(1, index)
        (out * engine.tensor([1.0, 2.0])).sum().backward()
        with engine.no_grad():
            quiet = w.gather(1, index)
        target = engine.empty(0)
        engine.gather(w.detach(), 1, index, out=target)
        number = engine.tensor(3.0).gather(0, engine.tensor([0, 0]))
        return [out, w.grad + 0, quiet, target + 0, number, w.gather(1, index[:, :1]).squeeze(-1)]

    same(work)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(dtype: str, largest: bool) -> None:
    def work(engine: Any) -> Any:
        x = engine.tensor([[3, 1, 7, 5], [8, 6, -7, 0]], dtype=getattr(engine, dtype))
        return [
            *[list(x.topk(k, largest=largest)) for k in (0, 1, 2, 4)],
            list(x.topk(2, 0, largest)), list(x[:, ::2].topk(1, -1, largest)),
            list(x.t().contiguous().t().topk(3, -1, largest)), list(x[0].topk(2, 0, largest)),
            list(x[0, 0].topk(1, 0, largest)), list(x[:0].topk(2, 1, largest)),
        ]

    same(work)
    same(lambda engine: list(numbers(engine).topk(5)))


def test_topk_of_equals_and_nans() -> None:
    """As NumPy's functions have them: of equals the first, NaN being the largest."""
    for values in ([NAN, 1.0, INF, NAN, -INF], [2.0, 2.0, 0.0, -0.0, 2.0], [-INF] * 5):
        for largest in (True, False):
            x = graphc.tensor([values, values[::-1]])
            key = (lambda v: -INF if v != v else -v) if largest else lambda v: INF if v != v else v
            for _ in range(5):
                found = x.topk(3, largest=largest)
                rows = zip(x.tolist(), found[1].tolist(), found[0].tolist(), strict=True)
                for row, places, held in rows:
                    nan = [i for i in range(5) if row[i] != row[i]]
                    rest = sorted((i for i in range(5) if i not in nan), key=lambda i: key(row[i]))
                    assert places == ([*nan, *rest] if largest else [*rest, *nan])[:3]
                    assert repr(held) == repr([row[i] for i in places])


def test_equals_stay_in_their_order_where_a_better_one_comes() -> None:
    """Also where none were equal as the code was held against NumPy's."""
    shuffled = graphc.arange(40.0).reshape(2, 20) * 7 % 19
    for largest in (True, False):
        for _ in range(5):
            shuffled.topk(5, largest=largest)
        for seed in range(5):
            x = (graphc.arange(40.0).reshape(2, 20) * (seed + 7)) % 19 // 5
            found, whole = x.topk(5, largest=largest), x.sort(1, descending=largest, stable=True)
            assert found.indices.tolist() == whole.indices[:, :5].tolist()
            assert found.values.tolist() == whole.values[:, :5].tolist()


def test_extrema_and_topk_have_histories() -> None:
    def work(engine: Any) -> Any:
        found = []
        for way in (
            lambda w: w.max(1)[0], lambda w: w.min(0)[0], lambda w: w.topk(2, 1)[0],
            lambda w: w.max(1, keepdim=True).values, lambda w: w.topk(1, largest=False).values,
        ):
            w = engine.tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]], requires_grad=True)
            out = way(w)
            (out * 2).sum().backward()
            found += [w.grad + 0, way(w.detach())]
        return [*found, list(engine.tensor([[1, 4, 2]]).max(1))]

    same(work)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16"])
@pytest.mark.parametrize("name", PLACES)
def test_scatter(name: str, dtype: str) -> None:
    dim, places = PLACES[name]

    def work(engine: Any) -> Any:
        x, index = numbers(engine, dtype), engine.tensor(places, dtype=engine.int64)
        y = numbers(engine, dtype).flip(0)
        part = y[: index.shape[0], : index.shape[1]]
        made = [x.clone().scatter_(dim, index, y), x.clone().scatter_add_(dim, index, y)]
        made += [x.clone().scatter_(dim, index, part), x.clone().scatter_add_(dim, index, part)]
        part = part.contiguous()
        made += [x.clone().scatter_(dim, index, part), x.clone().scatter_add_(dim, index, part)]
        for number in (1, -0.0, 2.5, NAN, INF):
            if dtype != "int64" or number == 1:
                made.append(x.clone().scatter_(dim, index, number))
        turned = x.t().contiguous().t()
        turned.scatter_(dim, index, part)
        deep = engine.zeros(2, 3, 4, dtype=x.dtype)
        deep[1].scatter_(dim, index, part)
        return [*made, turned, deep, deep._version]

    same(work)


def test_scatter_is_a_write() -> None:
    index = [[0], [2], [1]]

    def versions(engine: Any) -> Any:
        x, at = numbers(engine), engine.tensor(index)
        view = x[:, :3]
        saved = (x * engine.ones(4, requires_grad=True)).square()
        for _ in range(3):
            x.scatter_(1, at, 1.0)
            x.scatter_add_(1, at, engine.ones(3, 1))
        return [x, view, x._version, view._version, saved.detach()]

    def leaf(engine: Any) -> Any:
        w = numbers(engine).requires_grad_()
        with engine.no_grad():
            w.scatter_(1, engine.tensor(index), 1.0)
        kept = [told(w)]
        for write in (
            lambda: w.scatter_(1, engine.tensor(index), 1.0),
            lambda: w.scatter_add_(1, engine.tensor(index), engine.ones(3, 1)),
        ):
            try:
                write()
            except RuntimeError as error:
                kept.append(type(error))
        return kept

    def recorded(engine: Any) -> Any:
        x, rows = numbers(engine), engine.ones(3, 1, requires_grad=True)
        y = x.clone().scatter_add_(1, engine.tensor(index), rows * 3)
        y.sum().backward()
        z = x.clone().scatter_(1, engine.tensor(index), rows)
        with engine.no_grad():
            quiet = x.clone().scatter_(1, engine.tensor(index), rows)
        return [y, z, quiet, rows.grad + 0]

    def saved(engine: Any) -> Any:
        w = engine.ones(3, 4, requires_grad=True)
        y = w.exp()
        y.scatter_(1, engine.tensor(index), 0.0)
        y.sum().backward()

    def overlapping(engine: Any) -> Any:
        x = engine.arange(6.0)
        return x[:4].scatter_(0, engine.tensor([0, 1]), x[2:4])

    for work in (versions, leaf, recorded, saved):
        same(work, 6)
    same(overlapping)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bool", "complex64"])
def test_cat_and_stack(dtype: str) -> None:
    def work(engine: Any) -> Any:
        x = numbers(engine).to(getattr(engine, dtype))
        found = []
        for count in (1, 2, 3, 7):
            for each in (x, x[0], x[:, ::2], x.t(), x[0, 0], x[:0], x[:, :1]):
                parts = [each] * count
                for dim in range(-each.ndim - 1, each.ndim + 1):
                    found.append(engine.stack(parts, dim))
                for dim in range(-each.ndim, each.ndim):
                    found.append(engine.cat(parts, dim))
        out = engine.empty(0, dtype=x.dtype)
        return [*found, engine.cat([x, x], out=out) + 0, engine.cat([x, x[:1]]),
                engine.cat([x, x.double()]) if dtype != "complex64" else x]

    same(work, 3)


def test_cat_and_stack_have_histories_and_their_own_memory() -> None:
    def work(engine: Any) -> Any:
        w, x = engine.ones(2, 2, requires_grad=True), engine.arange(4.0).reshape(2, 2)
        for y in (engine.cat([w, x, w], 1), engine.stack([x, w * 2], -1)):
            (y * y).sum().backward()
        with engine.no_grad():
            quiet = engine.stack([w, x])
        quiet.add_(1)
        return [engine.cat([w, x]), engine.stack([w, x], 2), w.grad + 0, quiet, x]

    same(work)
    same(lambda engine: engine.stack([engine.ones(2), engine.ones(3)]))
    same(lambda engine: engine.cat([engine.ones(2), engine.ones(2)], 1))


def test_the_first_of_some_thousands() -> None:
    for count, k in ((700, 1), (5000, 20), (30000, 4), (5000, 200)):
        x = graphc.arange(float(count)) * 7919 % 1009
        for largest in (True, False):
            whole = x.sort(descending=largest, stable=True)
            for _ in range(5):
                found = x.topk(k, largest=largest)
                assert found.indices.tolist() == whole.indices[:k].tolist()
                assert found.values.tolist() == whole.values[:k].tolist()
            x[count // 2] = NAN
            first = x.topk(2, largest=largest)[0].isnan().tolist()
            assert first == [largest, False]
            x[count // 2] = 0.0
